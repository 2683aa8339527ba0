"""The model card: README.md of an exported model, for the people who will load it."""

from collections.abc import Mapping
from typing import Any

import jax

from bertjax.interop.pretrained import Pretrained

_TASKS = {  # the hub's names
    "BertModel": "feature-extraction",
    "BertForPreTraining": "fill-mask",
    "BertForMaskedLM": "fill-mask",
    "BertLMHeadModel": "text-generation",
    "BertForSequenceClassification": "text-classification",
    "BertForMultipleChoice": "multiple-choice",
    "BertForTokenClassification": "token-classification",
    "BertForQuestionAnswering": "question-answering",
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
        f"---\nlibrary_name: transformers\npipeline_tag: {_TASKS[pretrained.architecture]}\n"
        "tags:\n- bert\n- bertjax\n---",
        f"# {name}",
        f"`{pretrained.architecture}`: {spec.num_hidden_layers} layers of {spec.hidden_size}, "
        f"{spec.num_attention_heads} attention heads, {parameters:,} parameters; "
        f"{tokenizer.vocabulary_size:,} {case} {tokenizer.kind} pieces; at most "
        f"{spec.max_position_embeddings} tokens. Float32 weights, written by bertjax.",
        "## Use",
        "```python\nfrom transformers import AutoTokenizer, "
        f"{pretrained.architecture}\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
        f'model = {pretrained.architecture}.from_pretrained("{name}")\n```',
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
