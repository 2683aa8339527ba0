"""A small odd-sized ModernBERT of every kind, with random numbers in every array."""

import numpy as np

from bertjax.interop import names
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import ModernBertSpec
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer

WORDS = "the a of cat dog house run blue ##s ##ing , . ! ? 7".split()
PIECES = [*SPECIAL_TOKENS, *WORDS]

# Two global layers and three with a window of 3 tokens on either side.
SPEC = ModernBertSpec(
    vocab_size=len(PIECES),
    hidden_size=24,
    num_hidden_layers=5,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=64,
    local_attention=6,
    initializer_range=0.2,
)
CLASSES = ("no", "maybe", "yes")
KINDS = tuple(PUBLISHED["modernbert"].classes)


def num_classes(kind: str) -> int:
    """The rows of the output layer."""
    return 1 if kind == head_types.MULTIPLE_CHOICE else len(CLASSES)


def random_params(kind: str, spec: ModernBertSpec = SPEC, seed: int = 7) -> dict:
    """Parameters of a model of a kind; none is 0 or 1."""
    rng = np.random.default_rng(seed)
    entries = array_names(HEAD_SPECS[kind].parts(spec), spec, kind, num_classes(kind))
    arrays = {
        entry.hf_name: rng.normal("norm" in entry.hf_name, 0.2, entry.shape).astype(np.float32)
        for entry in entries
    }
    return names.to_jax(arrays, entries, "test")


def small_model(vocabulary, kind: str, spec: ModernBertSpec = SPEC) -> Pretrained:
    """A model with the vocab.txt at `vocabulary`, which holds `PIECES`."""
    classes = ()
    if "classifier" in ENCODERS["modernbert"].heads[kind]:
        classes = CLASSES if num_classes(kind) > 1 else ("LABEL_0",)
    return Pretrained(
        origin=f"a {kind}",
        head_type=kind,
        spec=spec,
        params=random_params(kind, spec),
        tokenizer=Tokenizer.open(vocabulary),
        classes=classes,
    )
