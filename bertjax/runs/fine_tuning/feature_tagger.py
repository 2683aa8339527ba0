"""Taggers over fixed features of an encoder (section 5.3, Table 7): their folders, and new text."""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired

import jax
import numpy as np

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.base.validation import record
from bertjax.inference.features import activations
from bertjax.interop.own_folder import read_described, write_described
from bertjax.interop.pretrained import Pretrained
from bertjax.models.heads.bilstm import BiLstmTagger
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.runs.fine_tuning.model import Predictor
from bertjax.runs.source import open_model
from bertjax.tasks.tagging import Sentence, tagging
from bertjax.training.model import Model, Params
from bertjax.training.sharding.placement import data_parallel

_SHORTEST = 16  # words; batches are padded to 16, 32, 64, ...

_FIELDS = {
    **dict(encoder=str, identity=str, width=int, compute_dtype=str, layers=list[int]),
    **dict(combine=str, hidden=int, depth=int, dropout=float, classes=list[str], task=dict),
    **dict(crf=NotRequired[bool], mix_dropout=NotRequired[float]),
}


@dataclasses.dataclass(frozen=True)
class Tagger:
    """A tagger, and the encoder whose activations it reads.

    Attributes:
      encoder: the source of the encoder, as in `config.init_from`.
      width: D, the width of the encoder's layers.
      layers: the layers that it reads, from `activations.chosen_layers`.
      task: the rest of its task family (`bertjax.runs.fine_tuning.task_family`), and its trial.
      params: None before it is trained.
    """

    encoder: str
    identity: str
    width: int
    compute_dtype: str
    layers: tuple[int, ...]
    combine: str
    hidden: int
    depth: int
    dropout: float
    classes: tuple[str, ...]
    task: Mapping[str, Any]
    mix_dropout: float = 0.0
    crf: bool = False
    params: Params = None

    @property
    def module(self) -> BiLstmTagger:
        """The module of its parameters."""
        same = ("combine", "hidden", "depth", "dropout", "mix_dropout", "crf")
        return BiLstmTagger(len(self.classes), **{name: getattr(self, name) for name in same})

    @property
    def model(self) -> Model:
        """The module with its inputs."""
        inputs = {
            "activations": jax.ShapeDtypeStruct((1, 3, len(self.layers), self.width), "float16"),
            "word_mask": jax.ShapeDtypeStruct((1, 3), "int32"),
        }
        return Model.of(self.module, inputs)


def write_tagger(tagger: Tagger, folder: Path) -> None:
    """Writes a tagger, without its encoder, into an empty folder."""
    described = {name: getattr(tagger, name) for name in _FIELDS}
    write_described(described, jax.device_get(tagger.params), folder)


def read_tagger(folder: Path, origin: str) -> Tagger:
    """Reads a tagger that `write_tagger` wrote; `origin` is what the user calls the folder."""
    found, params = read_described(folder, origin, record(**_FIELDS))
    lists = {name: tuple(found[name]) for name in ("layers", "classes")}
    return Tagger(**(found | lists), params=params)


class FeatureTagger:
    """A tagger with its encoder, as `bertjax.runs.fine_tuning.fine_tuned.FineTuned`."""

    def __init__(self, tagger: Tagger, origin: str):
        """Puts the weights on every device.

        Raises InputError if the encoder is gone, or has other weights than in training.
        """
        pretrained = _encoder_of(tagger, origin)
        task, self._layers = tagger.task, tagger.layers
        self.family = tagging(tagger.classes, task["document_context"], crf=tagger.crf)
        self.settings, self.cut = task, Counter[int]()
        self.columns = task.get("columns", {})
        self.summary = (
            f"{pretrained.summary()}\n  a tagger over layers {', '.join(map(str, tagger.layers))}: "
            f"{tagger.depth} layers of {tagger.hidden}"
        )
        self._tokenizer, self._max_length = pretrained.tokenizer, task["max_length"]
        self._extractor = activations.all_layers(pretrained, self._max_length, tagger.compute_dtype)
        placement = data_parallel()
        loss = TASK_LOSSES[self.family.objective]
        self._predictor = Predictor(tagger.model, loss, placement, pad_id=0, batch_tokens=0)
        self._params = jax.device_put(tagger.params, placement.replicated)

    def predict(
        self, examples: list[Sentence], origin: str, what: str = "predicting"
    ) -> list[np.ndarray]:
        windows = self.family.encode(examples, self._tokenizer, self._max_length, labelled=False)
        self.cut.update(windows.cut)
        with tempfile.TemporaryDirectory() as folder:
            values = activations.compute(Path(folder), "text", windows, self._extractor)
            words = activations.WordFeatures.of_sentences(
                examples, self.family, values, self._layers, labelled=False
            )
            buckets = _buckets(int(words.lengths.max()))
            outputs = self._predictor.outputs(self._params, words, buckets, what)
        return self.family.decode(examples, words, outputs)


def _encoder_of(tagger: Tagger, origin: str) -> Pretrained:
    with input_error_at(f"{origin}: of the encoder that it reads"):
        pretrained = open_model(tagger.encoder)
    if pretrained.identity != tagger.identity:
        raise InputError(
            f"{origin}: the encoder that it reads, {tagger.encoder}, has other weights since: "
            "repeat the fine-tuning in another --workdir"
        )
    return pretrained


def _buckets(longest: int) -> tuple[int, ...]:
    """Doubles of the shortest length, until one holds the longest sentence."""
    lengths = [_SHORTEST]
    while lengths[-1] < longest:
        lengths.append(2 * lengths[-1])
    return tuple(lengths)
