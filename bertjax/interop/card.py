"""The model card: README.md of an exported model, for the people who will load it."""

from collections.abc import Mapping
from typing import Any

import jax

from bertjax.encoders import kinds
from bertjax.interop.pretrained import Pretrained

_TASKS = {  # the hub's names
    kinds.ENCODER: "feature-extraction",
    kinds.PRE_TRAINING: "fill-mask",
    kinds.MASKED_LM: "fill-mask",
    kinds.REPLACED_TOKENS: "feature-extraction",
    kinds.CAUSAL_LM: "text-generation",
    kinds.SEQUENCE_CLASSIFICATION: "text-classification",
    kinds.MULTIPLE_CHOICE: "multiple-choice",
    kinds.TOKEN_CLASSIFICATION: "token-classification",
    kinds.QUESTION_ANSWERING: "question-answering",
}


def model_card(
    pretrained: Pretrained,
    name: str,
    recipe: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, Any]],
) -> str:
    """The text of a card.

    Args:
      name: the model's name.
      recipe: how it was trained, with a line for each key; empty if that is not known.
      figures: the measured values: the title of each table -> its names and values.
    """
    spec, tokenizer = pretrained.spec, pretrained.tokenizer
    parameters = sum(leaf.size for leaf in jax.tree.leaves(pretrained.params))
    case = "cased" if tokenizer.cased else "lower-cased"
    sections = [
        f"---\nlibrary_name: transformers\npipeline_tag: {_TASKS[pretrained.kind]}\n"
        f"tags:\n- {pretrained.family.name}\n- bertjax\n---",
        f"# {name}",
        f"`{pretrained.class_name}`: {spec.num_hidden_layers} layers of {spec.hidden_size}, "
        f"{spec.num_attention_heads} attention heads, {parameters:,} parameters; "
        f"{tokenizer.vocabulary_size:,} {case} {tokenizer.kind} pieces; at most "
        f"{spec.max_position_embeddings} tokens. Float32 weights, written by bertjax.",
        "## Use",
        "```python\nfrom transformers import AutoTokenizer, "
        f"{pretrained.class_name}\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
        f'model = {pretrained.class_name}.from_pretrained("{name}")\n```',
        "## Recipe",
        _table("key", recipe) if recipe else "Converted; the recipe is that of the original.",
        "## Measured",
        *(f"{title}\n\n{_table('figure', values)}" for title, values in figures.items()),
    ]
    return "\n\n".join(sections) + "\n"


def _table(head: str, values: Mapping[str, Any]) -> str:
    lines = [f"| {head} | value |", "|---|---|"]
    lines += [f"| {key} | {_shown(value)} |" for key, value in values.items()]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
