"""A small odd-sized model of every family and kind, with random numbers in every array."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from bertjax.interop import names
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.interop.sentence_transformers import module_arrays
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.heads.embedding import Embedding, head_type_of
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer

WORDS = "the a of cat dog house run blue ##s ##ing , . ! ? 7".split()
PIECES = [*SPECIAL_TOKENS, *WORDS]
CLASSES = ("no", "maybe", "yes")

SIZES = dict(
    vocab_size=len(PIECES),
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=56,
    max_position_embeddings=62,
    initializer_range=0.2,
    layer_norm_eps=1e-3,
)
_FOUR_TIMES = {"intermediate_size": 96}  # the only width of it in transformers
# The families that are also in transformers -> the sizes of a small model that are not in SIZES.
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {},
    "xlm-roberta": {},
    "camembert": {},
    "electra": {"embedding_size": 16},
    "deberta-v2": {"position_buckets": 16},
    "distilbert": {},
    # Two global layers and three with a window of 3 tokens on either side.
    "modernbert": {"num_hidden_layers": 5, "local_attention": 6},
    "eurobert": {"num_key_value_heads": 1},
    "neobert": {},
    "openai-gpt": _FOUR_TIMES,
    "gpt2": {},
    "xlm": _FOUR_TIMES | {"type_vocab_size": 4},
    "xlnet": {"max_position_embeddings": 512},  # no field of its config.json
}


def small_spec(name: str, **changes: Any) -> EncoderSpec:
    """The sizes of a family's small model."""
    its_class = ENCODERS[name].spec
    sizes = {field: size for field, size in SIZES.items() if field in its_class.fields}
    return its_class(**sizes | FAMILIES[name] | changes)


SPEC, MODERNBERT = small_spec("bert", max_position_embeddings=13), small_spec("modernbert")

# transformers' name of a class -> its kind.
KINDS = {name: kind for kind, name in PUBLISHED["bert"].classes.items()}


def random_params(kind: str, spec: EncoderSpec, num_classes: int = 0) -> dict[str, Any]:
    """Parameters of a model of a head type; none is 0 or 1."""
    rng = np.random.default_rng(7)
    entries = array_names(HEAD_SPECS[kind].parts(spec), spec, kind, num_classes)
    arrays = {
        entry.hf_name: rng.normal(entry.path.endswith("scale"), 0.2, entry.shape).astype(np.float32)
        for entry in entries
    }
    return names.to_jax(arrays, entries, "test")


def random_model(
    vocabulary: Path, kind: str, spec: EncoderSpec, classes: tuple[str, ...] = CLASSES
) -> Pretrained:
    """A model of a head type with the vocab.txt at `vocabulary`, which has as many pieces.

    Args:
      classes: the classes of a classifier.
    """
    if "classifier" not in HEAD_SPECS[kind].parts(spec):
        classes = ()
    elif kind == head_types.MULTIPLE_CHOICE:
        classes = ("LABEL_0",)  # one score a choice
    params, tokenizer = random_params(kind, spec, len(classes)), Tokenizer.open(vocabulary)
    origin = f"a {PUBLISHED[spec.encoder].classes.get(kind, kind)}"
    return Pretrained(origin, kind, spec, params, tokenizer, classes)


def family_model(vocabulary: Path, name: str, kind: str, **settings: Any) -> Pretrained:
    """A family's small model of a head type, with `settings` of its spec."""
    causal = ENCODERS[name].spec.causal or kind == head_types.CAUSAL_LM
    return random_model(vocabulary, kind, small_spec(name, **{"causal": causal} | settings))


def small_model(
    vocabulary: Path,
    head_spec: str = "BertForPreTraining",
    spec: EncoderSpec = SPEC,
    classes: tuple[str, ...] = CLASSES,
) -> Pretrained:
    """A BERT of one of transformers' classes, as a `random_model`."""
    return random_model(vocabulary, KINDS[head_spec], spec, classes)


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
