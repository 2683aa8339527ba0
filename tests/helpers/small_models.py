"""A small odd-sized model of every head_spec, with random numbers in every array."""

import dataclasses

import numpy as np
from flax.traverse_util import unflatten_dict

from bertjax.interop import names
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.interop.sentence_transformers import module_arrays
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.heads.embedding import Embedding, head_type_of
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer

WORDS = "the a of cat dog house run blue ##s ##ing , . ! ? 7".split()
CLASSES = ("no", "maybe", "yes")

SPEC = BertSpec(
    vocab_size=len(SPECIAL_TOKENS) + len(WORDS),
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=56,
    max_position_embeddings=13,
    initializer_range=0.2,
)

# transformers' name of a class -> its kind.
KINDS = {name: kind for kind, name in PUBLISHED["bert"].classes.items()}

PIECES = [*SPECIAL_TOKENS, *WORDS]


def small_model(
    vocabulary,
    head_spec: str = "BertForPreTraining",
    spec: BertSpec = SPEC,
    classes: tuple[str, ...] = CLASSES,
) -> Pretrained:
    """A model with the vocab.txt at `vocabulary`, which has as many pieces as `spec` says.

    Args:
      classes: the classes of a classifier.
    """
    rng = np.random.default_rng(7)
    kind = KINDS[head_spec]
    parts = HEAD_SPECS[kind].parts(spec)
    if "classifier" not in parts:
        classes = ()
    elif head_spec == "BertForMultipleChoice":
        classes = ("LABEL_0",)  # one score a choice
    entries = array_names(parts, spec, kind, len(classes))
    arrays = {
        entry.hf_name: rng.normal(
            1 if "LayerNorm.weight" in entry.hf_name else 0, 0.2, entry.shape
        ).astype(np.float32)
        for entry in entries
    }
    return Pretrained(
        origin=f"a {head_spec}",
        head_type=kind,
        spec=spec,
        params=names.to_jax(arrays, entries, "test"),
        tokenizer=Tokenizer.open(vocabulary),
        classes=classes,
    )


def with_vectors(model: Pretrained, embedding: Embedding) -> Pretrained:
    """The model as one that makes such vectors, without a pooler, which these do not need."""
    params = {part: params for part, params in model.params.items() if part != "pooler"}
    rng = np.random.default_rng(3)
    arrays = {
        path: rng.normal(path.endswith("scale"), 0.2, shape[::-1]).astype(np.float32)
        for each in module_arrays(embedding, model.spec.hidden_size)
        for path, (_, shape) in each.items()
    }
    params |= unflatten_dict(arrays, sep="/")
    return dataclasses.replace(model, params=params, embedding=embedding)


def vector_model(vocabulary, embedding: Embedding) -> Pretrained:
    """A `small_model` that makes such vectors."""
    name = PUBLISHED["bert"].classes[head_type_of(embedding)]
    return with_vectors(small_model(vocabulary, name), embedding)
