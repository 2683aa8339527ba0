"""A language model in each direction of a text (ELMo, arXiv 1802.05365, section 3.1).

One softmax predicts the words of both directions, as in bilm/training.py of bilm-tf
(`_build_loss`). In training it is over some words that are drawn; so no array [B, S, V] is made.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.base.fields import UNKNOWN_WORD
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.dense import parameter, product
from bertjax.models.layers.dropout import Dropout


class DrawnWords(NamedTuple):
    """K words, each at most once."""

    drawn: jax.Array  # int32 [K], their ids
    log_count: jax.Array  # float32 [K], of the expected count of each among such draws


def draw_words(key: jax.Array, number: int, size: int) -> DrawnWords:
    """Draws words without replacement, the first of the vocabulary more often than the last.

    They are the first distinct words of a sequence of independent draws, in which word r has the
    probability log((r + 2) / (r + 1)) / log(size + 1), as with bilm-tf (the sampler
    log_uniform_candidate_sampler of TensorFlow, with unique=True). If the draws come at random
    times, each word first comes at a time of an exponential distribution of its own. Its expected
    count is the probability that it comes before the first word that is left out. So the sum over
    the drawn words of x / count is, on average, exactly the sum of x over all words.

    If the vocabulary has at most `number` words, these are all drawn.
    """
    if number >= size:
        return DrawnWords(jnp.arange(size), jnp.zeros(size))
    rank = jnp.arange(size, dtype=jnp.float32)
    rate = jnp.log1p(1 / (rank + 1)) / jnp.log(size + 1.0)
    sooner, ids = jax.lax.top_k(-jax.random.exponential(key, (size,)) / rate, number + 1)
    count = -jnp.expm1(rate[ids[:-1]] * sooner[-1])
    return DrawnWords(ids[:-1], jnp.log(count))


class NextWord(nn.Module):
    """The loss of the next word; the words from `vocab_size` on are the unknown word."""

    spec: EncoderSpec

    @nn.compact
    def __call__(self, x: jax.Array, ids: jax.Array, drawn: DrawnWords | None = None) -> jax.Array:
        """x [B, S, P], the next words int [B, S] -> nats [B, S]; `drawn` None: of all words."""
        spec, width = self.spec, x.shape[-1]
        init, rows = nn.initializers.normal(width**-0.5), spec.padded_vocab_size
        kernel = parameter(self, "kernel", (axes.VOCAB, axes.EMBED), (rows, width), init)
        bias = parameter(self, "bias", (axes.VOCAB,), (rows,), nn.initializers.zeros)
        ids = jnp.where(ids < spec.vocab_size, ids, UNKNOWN_WORD)
        # A sum over P that a product would also make, for the rows of these words.
        right = (x.astype(jnp.float32) * kernel[ids]).sum(-1) + bias[ids]
        if drawn is None:
            size, precision = spec.vocab_size, spec.precision

            def whole(x: jax.Array) -> jax.Array:
                x = x[:, None]
                logits = decode(x, kernel, bias, vocab_size=size, precision=precision)
                return jax.nn.logsumexp(logits, -1)[:, 0]

            return jax.lax.map(whole, x.swapaxes(0, 1)).T - right  # [B, V] at a time
        drawn_logits = product("bsp,kp->bsk", x, kernel[drawn.drawn], spec.precision, "float32")
        drawn_logits += bias[drawn.drawn] - drawn.log_count
        drawn_logits = jnp.where(
            drawn.drawn == ids[..., None], jnp.finfo(jnp.float32).min, drawn_logits
        )
        return jnp.logaddexp(jax.nn.logsumexp(drawn_logits, -1), right) - right


class NextWordsModel(nn.Module):
    """An encoder of both directions, and the word that each predicts."""

    spec: EncoderSpec

    def setup(self) -> None:
        self.encoder = make_encoder(self.spec)
        self.dropout = Dropout(self.spec.hidden_dropout_prob)
        self.next_word = NextWord(self.spec)

    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        """The encoder's "sequence" [B, S, D] and "states" after the text.

        With "forward_ids" and "backward_ids" int [B, S], the words that each direction predicts,
        also their losses "forward_loss" and "backward_loss", nats [B, S]; with the arrays of
        `DrawnWords`, those of the softmax over these.
        """
        names = DrawnWords._fields
        drawn = DrawnWords(*(inputs[name] for name in names)) if names[0] in inputs else None
        layers, states = self.encoder.read(inputs, deterministic=deterministic)
        outputs = {"sequence": layers[-1].astype(jnp.float32), "states": states}
        both = jnp.split(self.dropout(layers[-1], deterministic), 2, -1)
        for direction, x in zip(("forward", "backward"), both, strict=True):
            if f"{direction}_ids" in inputs:
                loss = self.next_word(x, inputs[f"{direction}_ids"], drawn)
                outputs[f"{direction}_loss"] = loss
        return outputs
