"""Vectors of texts: an encoder computes batches of similar length on all devices."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.base.checks import check_choice, check_given, check_range
from bertjax.base.errors import InputError
from bertjax.base.limits import CountOrNone, Pieces, check
from bertjax.base.progress import Progress
from bertjax.inference.batcher import Batcher
from bertjax.inference.features.texts import (
    CLS,
    KINDS,
    MAX,
    POOLED,
    TOKENS,
    WORDS,
    EncodedText,
    TextEncoder,
)
from bertjax.inference.rows import Column, Columns
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.heads.embedding import DENSE, MODULES, Embedding, check_dimensions
from bertjax.models.heads.vector_modules import AfterPooling, VectorModule, widths
from bertjax.training.hardware import AUTO, resolved
from bertjax.training.model import Arrays
from bertjax.training.sharding.placement import data_parallel

_DTYPES = (AUTO, "float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Options:
    """The choice of vectors that a model gives.

    Attributes:
      features: one of `bertjax.inference.features.texts.KINDS`. A vector for each token, including
        [CLS] and [SEP]; or for each word (between white space), the mean over its pieces or its
        first piece; or for the text, that of [CLS] or of the last token, or the mean or maximum
        over the tokens, including both. None: "tokens".
      layers: 0 for the embeddings, 1 to L for the layers; negative ones count from the last.
      combine: "concat" or "sum" of these layers.
      normalize: makes the (Euclidean) length of every vector 1. None: False.
      modules: what follows the pooling. None: nothing; `of_model` takes those of the model's own
        vectors.
      dimensions: the first numbers of the vector of a text that are kept, at length 1. None: all;
        `of_model` takes those of the model's own vectors.
      max_length: the most tokens of a text; None for the most that the model takes.
      truncate: cuts off the end of longer texts, instead of refusing them.
      compute_dtype: "float32", "bfloat16", or "auto" for what suits the device
        (`bertjax.training.hardware.compute_dtype`); the result is float32.
      batch_tokens: tokens computed together on one device; None for 512 on a CPU and 16,384
        elsewhere.
      streams: how many streams of text a model with states reads side by side: text n goes on where
        text n - `streams` ended (bilm-tf and AllenNLP, in batches of so many). 0: each text is a
        beginning.
    """

    features: str | None = None
    layers: tuple[int, ...] = (-1,)
    combine: str = "concat"
    normalize: bool | None = None
    modules: tuple[VectorModule, ...] | None = None
    dimensions: int | None = None
    max_length: int | None = None
    truncate: bool = False
    compute_dtype: str = "float32"
    batch_tokens: int | None = None
    streams: int = 0

    def of_model(self, pretrained: Pretrained) -> Self:
        """These options; where None, those of the model's own (dense) vectors of passages."""
        embedding = pretrained.embedding
        if not embedding or embedding.kind != DENSE:
            return self
        defaults: dict[str, Any] = {"features": embedding.pooling}
        defaults |= {"max_length": embedding.passage_length or None}
        if self.features is None and self.layers == (-1,):
            defaults["modules"] = embedding.modules or None
            defaults["dimensions"] = pretrained.dimensions or None
        if (self.features or embedding.pooling) in POOLED:
            defaults["normalize"] = embedding.normalize
        return dataclasses.replace(
            self, **{name: value for name, value in defaults.items() if getattr(self, name) is None}
        )


class Extractor:
    """A model on the devices, each of which computes some rows of every batch.

    Attributes:
      encoder: encodes texts for `vectors`.
      width: W, the width of the vectors.
      identity: see `Pretrained`.
      padding: the share of padding in what was computed so far.

    Raises:
      InputError: options that do not fit the model.
    """

    def __init__(self, pretrained: Pretrained, options: Options):
        family = pretrained.family
        features = options.features or (WORDS if family.reads_characters else TOKENS)
        options = dataclasses.replace(options, features=features, normalize=bool(options.normalize))
        choices = {"features": KINDS, "combine": ("concat", "sum"), "compute_dtype": _DTYPES}
        for flag, known in choices.items():
            check_choice(f"--{flag}", getattr(options, flag), known)
        placement = data_parallel()
        dtype = resolved(options.compute_dtype, placement.mesh.devices.flat[0])
        options = dataclasses.replace(options, compute_dtype=dtype)
        spec = dataclasses.replace(pretrained.spec, compute_dtype=dtype)
        longest, depth = spec.max_position_embeddings, spec.num_hidden_layers
        check_given("--layers", options.layers, "give one at least")
        for layer in options.layers:
            if not -depth - 1 <= layer <= depth:
                raise InputError(
                    f"--layers: {layer} must be from 0 (the embeddings) to {depth}, or from -1 "
                    f"(the last) to {-depth - 1}"
                )
        max_length = longest if options.max_length is None else options.max_length
        least = pretrained.tokenizer.template.specials(pair=True)
        check_range("--max_length", max_length, least, longest)
        if family.reads_characters and features in (TOKENS, CLS):
            raise InputError(
                f"--features={features}: {pretrained.origin} reads words, without pieces and "
                f"[CLS]: choose another, such as {WORDS}"
            )
        check("--batch_tokens", options.batch_tokens, Pieces | None)
        check("--streams", options.streams, CountOrNone)
        if options.streams and not family.states:
            raise InputError(
                f"--streams={options.streams}: {pretrained.origin} has no states that go on from "
                "text to text: leave it out"
            )
        self.options, self._spec, self._max_length = options, spec, max_length
        self.encoder = TextEncoder(pretrained.tokenizer, features, max_length)
        joined = len(options.layers) if options.combine == "concat" else 1
        whole = widths(options.modules or (), spec.hidden_size * joined)[-1]
        kind = DENSE if features in POOLED else f"of {features}"
        check_dimensions(options.dimensions, kind, whole)
        self.width = options.dimensions or whole
        self.identity = pretrained.identity
        self._pad_id = pretrained.tokenizer.pad_id
        self._ids = "characters" if family.reads_characters else "input_ids"
        self._batcher = Batcher(placement, options.batch_tokens)
        self._rows = -(-options.streams // placement.mesh.size) * placement.mesh.size
        self._states: Any = None
        if family.states:
            self._states = np.zeros((self._rows, *family.states(spec)), np.float32)
        parts = (spec.encoder, *Embedding(modules=options.modules or ()).parts)
        params = {part: pretrained.params[part] for part in parts}
        self._params = jax.device_put(params, placement.replicated)
        self._computed = self._needed = 0

    @property
    def in_words(self) -> str:
        """What it computes: "mean, of length 1, at most 256 tokens, computed in float32"."""
        length = ["of length 1"] * bool(self.options.normalize)
        tokens = f"at most {self._max_length} tokens"
        computed = f"computed in {self.options.compute_dtype}"
        return ", ".join([str(self.options.features), *length, tokens, computed])

    @property
    def padding(self) -> float:
        return 1 - self._needed / self._computed if self._computed else 0.0

    def check(self, text: EncodedText, where: str) -> None:
        """Raises InputError for a text, found `where`, that the model does not take."""
        if text.length > self._max_length and not self.options.truncate:
            raise InputError(
                f"{where}: {text.length} tokens with [CLS] and [SEP], more than "
                f"{self._max_length}: shorten it, or give --truncate"
            )
        if 0 < self._spec.type_vocab_size <= text.token_types.max(initial=0):
            raise InputError(f'{where}: a pair ("A ||| B"), but the model has only one segment')

    def vectors(
        self, texts: Sequence[EncodedText], progress: Progress | None = None
    ) -> list[np.ndarray]:
        """The vectors of each text, float32 [its vectors, W].

        With streams, the texts follow those of the call before, which were `streams` or a multiple
        of it.
        """
        results = [np.zeros((text.vectors, self.width), np.float32) for text in texts]
        rows = Columns(
            {
                self._ids: Column([text.ids for text in texts], self._pad_id),
                "token_type_ids": Column([text.token_types for text in texts]),
                "groups": Column([text.groups for text in texts], -1),
            }
        )
        buckets = {min(_rounded_up(length), self._max_length) for length in rows.lengths.tolist()}
        batches = self._batcher.predict(
            *(self._apply, rows, tuple(sorted(buckets))),
            size=(lambda _: self._rows) if self._rows else None,
            in_turn=self.options.streams,
            progress=progress,
        )
        for numbers, vectors in batches:
            for number, row in zip(numbers, vectors, strict=True):
                places = texts[number].places
                results[number][places] = row[: len(places)]
        self._needed += int(rows.lengths.sum())
        return results

    def _apply(self, batch: Arrays) -> jax.Array:
        """The vectors of a batch; with streams, its rows go on from those of the batch before."""
        self._computed += batch["input_mask"].size
        if not self.options.streams:
            return _compute(self._spec, self.options, self._params, batch)
        batch = {**batch, "states": self._states}
        vectors, self._states = _compute(self._spec, self.options, self._params, batch)
        return vectors


def _rounded_up(length: int) -> int:
    """The next of eight lengths an octave (16, 18, 20, ...), so that few shapes are compiled."""
    step = max(2, (1 << (length - 1).bit_length()) // 16)
    return -(-length // step) * step


@partial(jax.jit, static_argnums=(0, 1))
def _compute(spec: EncoderSpec, options: Options, params: Mapping[str, Any], batch: Arrays) -> Any:
    """The vectors, float32 [B, G or more, W]; with streams, also the states after the batch."""
    encoder = make_encoder(spec)
    method = "read" if options.streams else "hidden_states"
    of_encoder = {"params": params[spec.encoder]}
    outputs: Any = encoder.apply(of_encoder, batch, deterministic=True, method=method)
    states, after = outputs if options.streams else (outputs, None)
    chosen = [states[layer].astype(jnp.float32) for layer in options.layers]
    x = jnp.concatenate(chosen, -1) if options.combine == "concat" else sum(chosen[1:], chosen[0])
    groups = batch["groups"]
    if options.features == MAX:
        x = jnp.where(groups[..., None] == 0, x, -jnp.inf).max(1, keepdims=True)
    elif options.features != TOKENS:
        count = 1 if options.features in POOLED else groups.shape[1]
        member = jax.nn.one_hot(groups, count, axis=1)  # [B, G, S]
        x = jnp.matmul(member, x, precision=jax.lax.Precision.HIGHEST)
        x /= jnp.maximum(member.sum(-1, keepdims=True), 1.0)
    if options.modules:
        computed: Any = AfterPooling(options.modules).apply({"params": params.get(MODULES, {})}, x)
        x = computed
    x = x[..., : options.dimensions]
    if options.normalize or options.dimensions:
        x /= jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
    return (x, after) if options.streams else x
