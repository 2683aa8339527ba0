"""(seed, step, rows) -> one batch of arrays, all rows at once."""

import dataclasses

import numpy as np

from bertjax import batch as batches
from bertjax.corpus.store import TokenStore
from bertjax.errors import InputError
from bertjax.examples.draws import Draws
from bertjax.examples.masking import Masker, MaskingRule
from bertjax.examples.spans import SpanSampler
from bertjax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class ExampleSpec:
    """What one stream of examples looks like.

    Attributes:
      objective: one of `bertjax.batch.OBJECTIVES`.
      length: S, [CLS], [SEP] and padding included.
      batch_size: sequences of one step, over all hosts.
      seed, stream: which draws; a run's phases and its held-out batches differ in `stream`.
      short_probability: share of examples of a random shorter length.
      masking: the masked-LM rule.
    """

    objective: str
    length: int
    batch_size: int
    seed: int
    stream: str
    short_probability: float = 0.1
    masking: MaskingRule = MaskingRule()

    def __post_init__(self):
        if self.objective not in batches.OBJECTIVES:
            choices = ", ".join(batches.OBJECTIVES)
            raise ValueError(f"objective={self.objective!r}: must be one of {choices}")
        if not 0 <= self.short_probability <= 1:
            raise ValueError(f"short_probability={self.short_probability}: must be in [0, 1]")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed={self.seed}: must be in [0, 2**63)")

    @property
    def predicted(self) -> int:
        """P, places for predicted tokens in each sequence."""
        if self.objective == batches.LEFT_TO_RIGHT:
            return self.length
        return self.masking.width(self.length)


class Examples:
    """The batches of one stream over a token store.

    Args:
      store: where the text lies.
      tokenizer: whose ids the store holds.
      spec: what an example is.

    Raises:
      InputError: the store cannot give such examples, or another tokenizer made it.
    """

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, spec: ExampleSpec):
        if store.tokenizer_identity != tokenizer.identity:
            raise InputError("the token store was built with another tokenizer than the one given")
        self.spec = spec
        self._store, self._tokenizer = store, tokenizer
        self._draws = Draws(spec.seed, spec.stream)
        self._pairs = spec.objective == batches.MASKED_LM_NEXT_SENTENCE
        self._specials = 3 if self._pairs else 2
        self._sampler = SpanSampler(
            store,
            room=spec.length - self._specials,
            draws=self._draws,
            pairs=self._pairs,
            short_probability=spec.short_probability,
        )
        ordinary = np.ones(tokenizer.vocabulary_size, bool)
        ordinary[list(tokenizer.special_ids)] = False
        self._masker = Masker(
            spec.masking,
            mask_id=tokenizer.mask_id,
            ordinary=ordinary,
            continues_word=tokenizer.continues_word,
        )

    def batch(self, step: int, rows: slice | None = None) -> dict[str, np.ndarray]:
        """The arrays of `bertjax.batch.FIELDS[objective]` for rows of one step's batch.

        Args:
          step: counted from 0 in this stream.
          rows: of the global batch of `batch_size`; all by default. The rows of a batch do
            not depend on which others are made with them.
        """
        rows = range(self.spec.batch_size)[rows or slice(None)]
        index = step * self.spec.batch_size + np.arange(rows.start, rows.stop)
        spans = self._sampler.spans(index)
        ids, lengths = self._layout(spans)
        column = np.arange(self.spec.length, dtype=np.int32)
        end = lengths.astype(np.int32)[:, None]
        second = spans.a_length.astype(np.int32)[:, None] + 2  # where B begins
        inside = column < end
        arrays = {
            "input_ids": ids,
            "input_mask": inside.astype(np.int32),
            "segment_ids": (inside & (column >= second)).astype(np.int32),
        }
        if self.spec.objective == batches.LEFT_TO_RIGHT:
            following = column < end - 1
            target = np.where(following, np.roll(ids, -1, axis=1), 0)
            return arrays | {"target_ids": target, "target_weights": following.astype(np.float32)}
        masked = self._masker.mask(ids, lengths, self._draws, index)
        arrays["masked_lm_positions"] = masked.positions
        arrays["masked_lm_ids"] = masked.ids
        arrays["masked_lm_weights"] = masked.weights
        if self._pairs:
            arrays["next_sentence_labels"] = spans.is_random.astype(np.int32)
        return arrays

    def _layout(self, spans) -> tuple[np.ndarray, np.ndarray]:
        """[CLS] A [SEP] B [SEP] [PAD]... (or [CLS] A [SEP] [PAD]...): ids [R, S], lengths [R]."""
        tokenizer, rows = self._tokenizer, np.arange(len(spans.a_start))
        ids = np.full((len(rows), self.spec.length), tokenizer.pad_id, np.int32)
        lengths = spans.a_length + spans.b_length + self._specials
        ids[:, 0] = tokenizer.cls_id
        ids[rows, spans.a_length + 1] = tokenizer.sep_id
        ids[rows, lengths - 1] = tokenizer.sep_id

        starts = np.stack([spans.a_start, spans.b_start], 1).ravel()
        counts = np.stack([spans.a_length, spans.b_length], 1).ravel()
        row_start = rows * self.spec.length
        places = np.stack([row_start + 1, row_start + 2 + spans.a_length], 1).ravel()
        ids.reshape(-1)[ragged_arange(places, counts)] = self._store.read_spans(starts, counts)
        return ids, lengths


def ragged_arange(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """arange(starts[i], starts[i] + lengths[i]) for each i, one after the other; int64."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
