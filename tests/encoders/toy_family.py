"""An encoder family that is not BERT's: no positions, no token types, a window, norms before.

It is all that a new family needs: this file stands for a folder in `bertjax/encoders`, and
`register` for its line in the registry.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from bertjax.attention.contract import Keys, Pattern
from bertjax.attention.implementations import attention
from bertjax.base import axes
from bertjax.encoders import kinds
from bertjax.encoders.bert.family import BERT
from bertjax.encoders.computation import Computation, check_choice, check_shares
from bertjax.encoders.contract import EncoderFamily, HuggingFace
from bertjax.encoders.names import Entry, dense, norm
from bertjax.encoders.registry import ENCODERS
from bertjax.layers.dense import Dense, normal, parameter, product
from bertjax.layers.dropout import Dropout
from bertjax.layers.norm import LayerNorm

WINDOW = 3


@dataclasses.dataclass(frozen=True)
class ToyArchitecture:
    vocab_size: int = 100
    hidden_size: int = 32
    num_hidden_layers: int = 2
    num_attention_heads: int = 2
    max_position_embeddings: int = 64
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.0
    initializer_range: float = 0.1
    layer_norm_eps: float = 1e-6
    causal: bool = False


@dataclasses.dataclass(frozen=True)
class ToySpec(Computation, ToyArchitecture):
    encoder: ClassVar[str] = "toy"

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "hidden_act", ("gelu",))
        check_shares(self, "hidden_dropout_prob", "layer_norm_eps")

    @classmethod
    def named(cls, size: str, **fields) -> "ToySpec":
        if size != "toy":
            raise ValueError(f"size={size!r}: must be toy")
        return cls(**fields)

    def flops_per_token(self, length: int, predicted: int) -> float:
        products = self.num_hidden_layers * (4 * self.hidden_size**2 + 4 * self.hidden_size)
        return 6.0 * (products + predicted / length * self.hidden_size * self.vocab_size)


class ToyEmbeddings(nn.Module):
    spec: ToySpec

    def setup(self):
        shape = (self.spec.padded_vocab_size, self.spec.hidden_size)
        self.token = parameter(self, "token", (axes.VOCAB, axes.EMBED), shape, normal(self.spec))

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        return self.token[input_ids].astype(self.spec.compute_dtype)


class ToyLayer(nn.Module):
    spec: ToySpec

    @nn.compact
    def __call__(self, x: jax.Array, keys: Keys, deterministic: bool) -> jax.Array:
        spec, embed = self.spec, {axes.EMBED: self.spec.hidden_size}
        width = spec.hidden_size // spec.num_attention_heads
        heads = {axes.HEADS: spec.num_attention_heads, axes.HEAD_WIDTH: width}
        y = LayerNorm(spec, axes.EMBED, name="before_norm")(x)
        qkv = Dense(spec, embed, {axes.QKV: 3} | heads, normal, name="mixing")(y)
        pattern = Pattern(causal=spec.causal, window=WINDOW)
        y = attention(spec.attention, qkv, keys, pattern, rate=0.0, seed=None)
        y = Dense(spec, heads, embed, normal, name="result")(y)
        return x + Dropout(spec, name="result_dropout")(y, deterministic)


class ToyLayers(nn.Module):
    spec: ToySpec

    @nn.compact
    def __call__(self, x: jax.Array, keys: Keys, deterministic: bool) -> list[jax.Array]:
        outputs = []
        for i in range(self.spec.num_hidden_layers):
            x = ToyLayer(self.spec, name=f"layer_{i}")(x, keys, deterministic)
            outputs.append(x)
        return outputs


class Toy(nn.Module):
    spec: ToySpec

    def setup(self):
        self.embeddings = ToyEmbeddings(self.spec)
        self.encoder = ToyLayers(self.spec)

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, documents=None, deterministic: bool
    ):
        return self.hidden_states(
            input_ids,
            input_mask,
            token_type_ids,
            documents=documents,
            deterministic=deterministic,
        )[-1]

    def hidden_states(
        self, input_ids, input_mask, token_type_ids, *, documents=None, deterministic: bool
    ):
        x = self.embeddings(input_ids)
        return [x, *self.encoder(x, Keys(input_mask, documents), deterministic)]

    @property
    def token_embedding(self) -> jax.Array:
        return self.embeddings.token


class ToyPooler(nn.Module):
    """The [CLS] vector, normalized."""

    spec: ToySpec

    @nn.compact
    def __call__(self, sequence: jax.Array, input_mask: jax.Array) -> jax.Array:
        del input_mask
        return LayerNorm(self.spec, axes.EMBED_OUT, name="last_norm")(sequence[:, 0])


class ToyMaskedLm(nn.Module):
    """The decoder alone, with a bias."""

    spec: ToySpec

    @nn.compact
    def __call__(self, hidden: jax.Array, token_embedding: jax.Array) -> jax.Array:
        rows = (self.spec.padded_vocab_size,)
        bias = parameter(self, "bias", (axes.VOCAB,), rows, nn.initializers.zeros)
        logits = product("bpd,vd->bpv", hidden, token_embedding, self.spec, jnp.dtype("float32"))
        real = jnp.arange(*rows) < self.spec.vocab_size
        return jnp.where(real, logits + bias, jnp.finfo(jnp.float32).min)


def _entries(spec: ToySpec, num_classes: int) -> dict[str, list[Entry]]:
    width = (spec.hidden_size,)
    heads = (spec.num_attention_heads, spec.hidden_size // spec.num_attention_heads)
    table = (spec.vocab_size, *width)
    encoder = [Entry("toy.words.weight", table, "toy/embeddings/token", table)]
    for i in range(spec.num_hidden_layers):
        theirs, ours = f"toy.layers.{i}", f"toy/encoder/layer_{i}"
        encoder += norm(f"{theirs}.norm", f"{ours}/before_norm", *width)
        for part, letter in enumerate("qkv"):
            encoder += dense(f"{theirs}.{letter}", f"{ours}/mixing", width, heads, part)
        encoder += dense(f"{theirs}.o", f"{ours}/result", heads, width)
    return {
        "toy": encoder,
        "pooler": list(norm("last.norm", "pooler/last_norm", *width)),
        "masked_lm": [Entry("decoder.bias", (spec.vocab_size,), "masked_lm/bias", table[:1])],
        "next_sentence_head": list(dense("next", "next_sentence_head", width, (2,))),
        "classifier": list(dense("classes", "classifier", width, (num_classes,))),
        "span": list(dense("span", "span", width, (2,))),
    }


_FIELDS = tuple(
    field for field in dataclasses.fields(ToyArchitecture) if field.name != "hidden_act"
)

TOY = EncoderFamily(
    spec=ToySpec,
    module=Toy,
    heads=BERT.heads,
    pooler=ToyPooler,
    masked_lm=ToyMaskedLm,
    hugging_face=HuggingFace(
        classes={kind: f"Toy_{kind}" for name, kind in vars(kinds).items() if name.isupper()},
        fields={field.name: field.type for field in _FIELDS},
        read_config=lambda config: {
            field.name: config[field.name] for field in _FIELDS if field.name in config
        },
        write_config=dataclasses.asdict,
        entries=_entries,
        prefixes={
            "toy": ("toy.",),
            "pooler": ("last.",),
            "masked_lm": ("decoder.",),
            "next_sentence_head": ("next.",),
            "classifier": ("classes.",),
            "span": ("span.",),
        },
        one_spelling=lambda name: name,
        bare="",
        buffers=(),
        embeddings="toy.words.weight",
        decoder=("decoder", "decoder.bias"),
    ),
    scopes=(
        (r"/(mixing|result)/", "attention projections"),
        (r"_dropout/", "dropout"),
        (r"_norm/", "layer norm"),
        (r"/layer_\d+/", "attention"),
        (r"/embeddings/", "embeddings"),
    ),
)


@pytest.fixture(scope="module", autouse=True)
def register():
    """Puts the family into the registry, for the tests of a file that imports this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENCODERS, TOY.name, TOY)
        yield
