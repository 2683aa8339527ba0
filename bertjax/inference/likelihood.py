"""The log-probabilities of texts, on all devices."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from bertjax.base.checks import check_choice, check_range
from bertjax.base.errors import InputError
from bertjax.base.limits import CountOrNone, check
from bertjax.base.progress import Progress
from bertjax.inference.batcher import Batcher, up_to
from bertjax.inference.rows import Rows
from bertjax.inference.scored_rows import (
    MASKINGS,
    TOKEN,
    MaskedRows,
    SentenceRows,
    WholeRows,
    Windows,
)
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.heads.memory import MemoryModel, memory_shapes
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.similarity.batches import LENGTHS
from bertjax.training.model import Arrays, Params
from bertjax.training.sharding.placement import data_parallel

# Most sentences of minimal pairs are short, and each has a row for every token: a batch is padded
# to one of these lengths.
_LENGTHS = (*range(8, 32, 4), *(length for length in LENGTHS if length >= 32))
_AT_ONCE = 1 << 14  # texts that are encoded together


def log_likelihoods(
    pretrained: Pretrained,
    texts: Sequence[str],
    masking: str = TOKEN,
    *,
    where: Callable[[int], str] = "text {}".format,
    batch_tokens: int | None = None,
) -> np.ndarray:
    """The log-probability of each text in nats, float64 [N].

    A masked LM gives the pseudo-log-likelihood: the sum over the tokens of a text of the
    log-probability of the token, which is masked, from all others. A model that reads left to right
    gives the sum of the log-probabilities of each token from those before it. Probabilities are
    over the pieces of the vocabulary. Texts with the same tokens are computed once, so they have
    exactly the same number.

    Args:
      masking: "token" or "word": see `MaskedRows`.
      where: the number of a text -> its place, for messages.
      batch_tokens: see `bertjax.training.sharding.placement.inference_tokens`.

    Raises:
      InputError: the model predicts no tokens, or cannot be masked in this way; a text has no
        token, or more than the model takes; a number is not finite.
    """
    spec, tokenizer = pretrained.spec, pretrained.tokenizer
    check_choice("--masking", masking, MASKINGS)
    if spec.causal and masking != TOKEN:
        raise InputError(
            f"--masking={masking}: {pretrained.origin} reads left to right, and nothing is masked "
            "for it: leave the flag out"
        )
    model = pretrained.model(head_types.CAUSAL_LM if spec.causal else head_types.MASKED_LM)
    encoded, number = _encoded(pretrained, texts, where)
    rows: SentenceRows
    if spec.causal:
        rows = WholeRows(encoded, tokenizer)
    else:
        rows = MaskedRows(encoded, tokenizer, masking)
    values = np.zeros(len(rows.lengths), np.float32)
    buckets = up_to(int(rows.lengths.max()), _LENGTHS)
    with Progress("Scoring", int(rows.lengths.sum()), " tokens", scale=True) as progress:
        for numbers, found in _row_log_probabilities(
            pretrained, model, rows, buckets, batch_tokens
        ):
            values[numbers] = found
            progress.update(int(rows.lengths[numbers].sum()))
    return _finite(np.bincount(rows.sentence, values, len(encoded)), pretrained)[number]


def nats_of_text(pretrained: Pretrained, ids: np.ndarray, stride: int, memory: int = 0) -> float:
    """The sum of -log p over all tokens of a long text but the first, in nats.

    A window of the model's length moves on by `stride` tokens, and those that it shows first are
    predicted, from all before them in the window. A smaller stride gives each token more text
    before it, and takes more time. With a `memory`, a window has only the token before those that
    it predicts, and the model remembers what its layers have read of so many tokens before it.

    Raises:
      InputError: a number does not fit; the model cannot do it; the result is not finite.
    """
    spec, length = pretrained.spec, pretrained.spec.max_position_embeddings
    if not spec.causal:
        raise InputError(
            f"{pretrained.origin}: a {pretrained.class_name}, which does not read left to right: "
            "leave --stride out"
        )
    check_range("--stride", stride, 1, length - 1, f": a window has {length} tokens")
    check("--memory", memory, CountOrNone)
    model = pretrained.model(head_types.CAUSAL_LM)
    if memory:
        if not pretrained.family.reads_memory:
            raise InputError(
                f"--memory={memory}: {pretrained.origin}: {spec.encoder} has no memory: leave it "
                "out"
            )
        model, length = MemoryModel(spec), stride + 1
    rows, nats = Windows(ids, length, stride), 0.0
    with Progress("Reading", len(rows.lengths), " windows") as progress:
        for numbers, found in _row_log_probabilities(
            pretrained, model, rows, (length,), memory=memory
        ):
            nats -= float(found.astype(np.float64).sum())
            progress.update(len(numbers))
    return _finite(nats, pretrained)


def _finite(values: Any, pretrained: Pretrained) -> Any:
    """The values themselves; raises InputError if one is not finite."""
    if not np.isfinite(values).all():
        raise InputError(
            f"{pretrained.origin}: gives probabilities that are not finite: its weights are damaged"
        )
    return values


def _encoded(
    pretrained: Pretrained, texts: Sequence[str], where: Callable[[int], str]
) -> tuple[Encoded, np.ndarray]:
    """The different sequences of the texts, and the number of each text's sequence, int64 [N]."""
    tokenizer, found = pretrained.tokenizer, dict[tuple[int, ...], int]()
    template = tokenizer.template
    most = pretrained.spec.max_position_embeddings - template.specials(pair=False)
    number = np.zeros(len(texts), np.int64)
    for begin in range(0, len(texts), _AT_ONCE):
        for place, ids in enumerate(tokenizer.encode(texts[begin : begin + _AT_ONCE]), start=begin):
            if not ids:
                raise InputError(f"{where(place)}: {texts[place]!r:.80} has no token: correct it")
            pretrained.check_length(where(place), len(ids), most)
            number[place] = found.setdefault(tuple(ids), len(found))
    return Encoded.of((template.sequence(list(ids)) for ids in found), {}), number


def _row_log_probabilities(
    pretrained: Pretrained,
    model: Any,
    rows: Rows,
    buckets: tuple[int, ...],
    batch_tokens: int | None = None,
    memory: int = 0,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (numbers of rows, the log-probability of each), float32, for each batch.

    With a `memory`, a batch has one row, and the model remembers those before it.
    """
    placement = data_parallel()
    params = jax.device_put(pretrained.params, placement.replicated)
    size = pretrained.tokenizer.vocabulary_size
    shapes = memory_shapes(pretrained.spec, memory) if memory else {}
    carry = placement.zeros(shapes, placement.mesh.size)

    def compute(batch: Arrays) -> jax.Array:
        nonlocal carry
        found, carry = _log_probabilities(model, size, params, batch, carry)
        return found

    batcher = Batcher(placement, 1 if memory else batch_tokens)
    return batcher.predict(compute, rows, buckets, in_turn=int(memory > 0))


@partial(jax.jit, static_argnums=(0, 1))
def _log_probabilities(
    model: PreTrainingModel, vocabulary_size: int, params: Params, batch: Arrays, carry: Arrays
) -> tuple[jax.Array, Arrays]:
    """The sum of the log-probabilities of each row's targets, float32 [B]; what is carried."""
    inputs = {**batch, **carry}
    outputs: Arrays = model.apply({"params": params}, inputs, deterministic=True)  # type: ignore[assignment]  # no `mutable`
    logits = outputs["masked_lm"][..., :vocabulary_size]
    target = jnp.take_along_axis(logits, batch["target_ids"][..., None], axis=-1)[..., 0]
    found = ((target - logsumexp(logits, axis=-1)) * batch["target_weights"]).sum(-1)
    return found, {name: outputs[name] for name in carry}
