"""A model for programs in Python: `bertjax.load` returns it. docs/library.md shows its use."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.encoders.contract import EncoderSpec
from bertjax.features.compute import Extractor, Options
from bertjax.features.texts import MEAN, POOLED
from bertjax.fine_tuning.fine_tuned import FineTuned, open_fine_tuned
from bertjax.heads.architectures import ARCHITECTURES
from bertjax.programs import fill_mask, predict
from bertjax.programs.fill_mask import Guess
from bertjax.runs.open_model import open_model
from bertjax.sharding.mesh import MeshSpec
from bertjax.sharding.placement import make_placement
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Arrays, Model, Params


class TextModel:
    """A trained model, its vocabulary, and what can be done with it.

    Attributes:
      source: what it was loaded from.
      tokenizer: its vocabulary: `encode` gives the ids of texts, `decode` the text of ids.
      spec: its sizes, such as `spec.hidden_size`.
      classes: the names of a classifier's classes.
      params: its parameters, nested dicts of float32 numpy arrays, for `function`.
    """

    def __init__(self, source: str):
        """Use `bertjax.load`."""
        self.source = source
        self._pretrained = open_model(source)
        self._extractors: dict[Options, Extractor] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """See above."""
        return self._pretrained.tokenizer

    @property
    def spec(self) -> EncoderSpec:
        """See above."""
        return self._pretrained.spec

    @property
    def classes(self) -> tuple[str, ...]:
        """See above."""
        return self._pretrained.classes

    @property
    def params(self) -> Params:
        """See above."""
        return {part: self._pretrained.params[part] for part in self._pretrained.parts}

    def __repr__(self) -> str:
        return self._pretrained.summary().partition("\n")[0]

    # ------------------------------------------------------------------------- its uses

    def vectors(
        self, texts: Iterable[str], features: str | None = None, **options: Any
    ) -> np.ndarray | list[np.ndarray]:
        """The vectors of texts; "A ||| B" is a pair.

        Args:
          features: "mean", "max", "cls" or "last" for a vector of each text; "tokens", "words" or
            "first_pieces" for several. None: as the model has learned, or else "mean".
          options: the other fields of `bertjax.features.compute.Options`: layers, normalize, ...

        Returns:
          float32 [N, W] for a vector of each text; else for each text float32 [its vectors, W].

        Raises:
          InputError: options that do not fit the model, or a text that is too long for it.
        """
        chosen = Options(features, **options).of_model(self._pretrained.embedding)
        chosen = dataclasses.replace(chosen, features=chosen.features or MEAN)
        if chosen not in self._extractors:
            self._extractors[chosen] = Extractor(self._pretrained, chosen)
        extractor = self._extractors[chosen]
        encoded = list(extractor.encoder.encode(texts))
        for number, text in enumerate(encoded):
            extractor.check(text, f"text {number}")
        found = extractor.vectors(encoded)
        if chosen.features not in POOLED:
            return found
        return np.concatenate(found) if found else np.zeros((0, extractor.width), np.float32)

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """The best guesses for each [MASK] of a text: their `token` and `probability`.

        Raises:
          InputError: no [MASK] in it, a text that is too long, or a model that fills in no blanks.
        """
        return fill_mask.fill(self._pretrained, [text], top)[0]

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """What a fine-tuned model says of each text: the objects that launch/predict.py writes.

        Args:
          texts: each in the form of the task: "A", "A ||| B", or a JSON object.

        Raises:
          InputError: the model has learned no task, or a text has another form.
        """
        lines = predict.numbered(texts, "texts")
        return list(predict.predictions(self._fine_tuned, lines, "texts"))

    @cached_property
    def _fine_tuned(self) -> FineTuned:
        return open_fine_tuned(self.source)

    # ------------------------------------------------------------- for a step of one's own

    def encode(self, texts: Sequence[str], length: int | None = None) -> dict[str, np.ndarray]:
        """The arrays that `function` reads, int32 [B, S], with special tokens and padding.

        Args:
          length: S; longer texts are cut at their end. None: that of the longest text, or the most
            that the model takes.

        Raises:
          InputError: the model reads words by their characters (ELMo).
        """
        self._pretrained.check_reads_pieces()
        template, most = self.tokenizer.template, self.spec.max_position_embeddings
        ids = self.tokenizer.encode(texts)
        specials = template.specials(pair=False)
        longest = max((len(each) for each in ids), default=0) + specials
        size = length or min(longest, most)
        names = self._pretrained.family.text_inputs
        batch = {name: np.zeros((len(ids), size), np.int32) for name in names}
        batch["input_ids"][:] = self.tokenizer.pad_id
        for row, each in enumerate(ids):
            sequence = template.sequence(each[: size - specials])
            batch["input_ids"][row, : len(sequence.ids)] = sequence.ids
            batch["input_mask"][row, : len(sequence.ids)] = 1
            if "token_type_ids" in batch:
                batch["token_type_ids"][row, : len(sequence.ids)] = sequence.token_types
        return batch

    def function(self, kind: str | None = None) -> Callable[..., dict[str, jax.Array]]:
        """The model as a pure function.

        Args:
          kind: a kind of `bertjax.encoders.kinds` whose heads the model has: "encoder" gives
            "sequence" [B, S, D], "masked_lm" the logits [B, S, V]. None: the model's own.

        Returns:
          function(params, inputs, dropout=None): the outputs by name; `dropout` is a key, with
          which activations are dropped as in training.

        Raises:
          InputError: no such kind, or the model lacks a part of it.
        """
        if kind not in (None, *ARCHITECTURES):
            raise InputError(f"kind={kind!r}: must be one of {', '.join(ARCHITECTURES)}")
        model = self._model(kind)

        def call(
            params: Params, inputs: Arrays, dropout: jax.Array | None = None
        ) -> dict[str, jax.Array]:
            return model(params, inputs, dropout)

        return call

    def shardings(self, layout: str = "data", data: int = -1, model: int = 1) -> Params:
        """The `NamedSharding` of each parameter over all devices, in a tree like `params`.

        Args:
          layout: "data", "zero1", "fsdp", ...: see docs/tpu.md.
          data, model: the sizes of the mesh's axes; -1: all remaining devices.

        Raises:
          InputError: no such layout, or a mesh that does not fit the devices or the parameters.
        """
        placement = make_placement(MeshSpec(data=data, model=model), layout)
        return placement.shardings(
            jax.eval_shape(self._model().init, jax.random.key(0)), stored=True
        )

    def _model(self, kind: str | None = None) -> Model:
        inputs = ARCHITECTURES[kind or self._pretrained.kind].inputs(self.spec, B=1, S=8)
        return Model.of(self._pretrained.model(kind), inputs)
