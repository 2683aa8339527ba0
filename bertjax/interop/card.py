"""The model card: README.md of an exported model, for the people who will load it."""

import json
from collections.abc import Mapping
from typing import Any

import jax

from bertjax.interop.pretrained import Pretrained
from bertjax.interop.sentence_transformers import CLASSES, RERANKER
from bertjax.models.encoders import head_types
from bertjax.models.encoders.computation import AttentionComputation
from bertjax.models.heads.embedding import DENSE, LATE, SPARSE

_TASKS = {  # the hub's names
    head_types.ENCODER: "feature-extraction",
    head_types.PRE_TRAINING: "fill-mask",
    head_types.MASKED_LM: "fill-mask",
    head_types.REPLACED_TOKENS: "feature-extraction",
    head_types.CAUSAL_LM: "text-generation",
    head_types.PERMUTATION_LM: "text-generation",
    head_types.SEQUENCE_CLASSIFICATION: "text-classification",
    head_types.MULTIPLE_CHOICE: "multiple-choice",
    head_types.TOKEN_CLASSIFICATION: "token-classification",
    head_types.QUESTION_ANSWERING: "question-answering",
}
# Of vectors of texts, as sentence-transformers writes them: the task, and the tags.
_OF_VECTORS = {
    DENSE: ("sentence-similarity", ("sentence-similarity", "feature-extraction", "dense")),
    SPARSE: ("feature-extraction", ("sparse-encoder", "sparse", "splade")),
    LATE: ("feature-extraction", ("multi-vector", "colbert", "late-interaction")),
}
_QUERY, _PASSAGES = "Where does the cat sleep?", ["On the warm roof.", "The market fell today."]


def model_card(
    pretrained: Pretrained,
    name: str,
    recipe: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, Any]],
) -> str:
    """The text of a card.

    Args:
      recipe: how it was trained, with a line for each key; empty if that is not known.
      figures: the measured values: the title of each table -> its names and values.
    """
    spec, tokenizer = pretrained.spec, pretrained.tokenizer
    parameters = sum(leaf.size for leaf in jax.tree.leaves(pretrained.params))
    case = "cased" if tokenizer.cased else "lower-cased"
    vectors = ""
    library, task, tags = "transformers", _TASKS[pretrained.head_type], [pretrained.family.name]
    if pretrained.embedding:
        library = "sentence-transformers"
        task, own = _OF_VECTORS[pretrained.embedding.kind]
        tags = [library, *own, *tags]
        vectors = f" Its vectors of texts are {pretrained.embedding.in_words}."
    if pretrained.scoring:
        library, task = "sentence-transformers", "text-ranking"
        tags = [library, "cross-encoder", "reranker", *tags]
    heads = ""
    if isinstance(spec, AttentionComputation):
        heads = f"{spec.num_attention_heads} attention heads, "
    listed = "\n- ".join([*tags, "bertjax"])
    sections = [
        f"---\nlibrary_name: {library}\npipeline_tag: {task}\ntags:\n- {listed}\n---",
        f"# {name}",
        f"`{pretrained.class_name}`: {spec.num_hidden_layers} layers of {spec.hidden_size}, "
        f"{heads}{parameters:,} parameters; "
        f"{tokenizer.vocabulary_size:,} {case} {tokenizer.kind} pieces; at most "
        f"{spec.max_position_embeddings} tokens. Float32 weights, written by bertjax." + vectors,
        "## Use",
        f"```python\n{_use(pretrained, name)}\n```",
        "## Recipe",
        _table("key", recipe) if recipe else "Converted; the recipe is that of the original.",
        "## Measured",
        *(f"{title}\n\n{_table('figure', values)}" for title, values in figures.items()),
    ]
    return "\n\n".join(sections) + "\n"


def _use(pretrained: Pretrained, name: str) -> str:
    auto_map = pretrained.names.config.written.get("auto_map", {})  # of code that is on the hub
    arguments = f'"{name}"' + ", trust_remote_code=True" * bool(auto_map)
    if pretrained.scoring:
        pairs = [[_QUERY, passage] for passage in _PASSAGES]
        return (
            f"from sentence_transformers import {RERANKER}\n\n"
            f"model = {RERANKER}({arguments})\n"
            f"print(model.predict({json.dumps(pairs)}))"
        )
    if not pretrained.embedding:
        is_elsewhere = pretrained.head_type in pretrained.names.elsewhere
        autos = {own.rpartition(".")[2]: auto for auto, own in auto_map.items()}
        own_class = autos.get(pretrained.class_name, pretrained.class_name)
        class_name = "AutoModel" if is_elsewhere else own_class
        return (
            f"from transformers import AutoTokenizer, {class_name}\n\n"
            f"tokenizer = AutoTokenizer.from_pretrained({arguments})\n"
            f"model = {class_name}.from_pretrained({arguments})"
        )
    name_of_class = CLASSES[pretrained.embedding.kind]
    return (
        f"from sentence_transformers import {name_of_class}\n\n"
        f"model = {name_of_class}({arguments})\n"
        f"queries = model.encode_query({json.dumps([_QUERY])})\n"
        f"passages = model.encode_document({json.dumps(_PASSAGES)})\n"
        "print(model.similarity(queries, passages))"
    )


def _table(head: str, values: Mapping[str, Any]) -> str:
    lines = [f"| {head} | value |", "|---|---|"]
    lines += [f"| {key} | {_shown(value)} |" for key, value in values.items()]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
