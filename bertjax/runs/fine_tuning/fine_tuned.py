"""Fine-tuned models on the devices: one alone, or several of one task as an ensemble."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Protocol

import jax

from bertjax.base.checks import input_error_at
from bertjax.base.cloud_storage import path_of
from bertjax.base.errors import InputError
from bertjax.inference.batcher import up_to
from bertjax.interop.pretrained import Pretrained
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.runs.fine_tuning.data import encoder
from bertjax.runs.fine_tuning.feature_tagger import FeatureTagger, read_tagger
from bertjax.runs.fine_tuning.model import Predictor, encoder_with_head
from bertjax.runs.fine_tuning.task_family import in_words, task_family_of
from bertjax.runs.run_folder import RESULTS_FILE, TAGGER_FOLDER, read_ensemble
from bertjax.runs.source import (
    EnsembleFolder,
    Source,
    TaggerFolder,
    TasksRun,
    open_model,
    open_source,
)
from bertjax.tasks.probabilities import BY
from bertjax.tasks.task import Family
from bertjax.training.hardware import resolved
from bertjax.training.sharding.placement import data_parallel

_LENGTHS = (16, 32, 64, 128, 256, 512)  # batches are padded to these lengths


class FineTuned(Protocol):
    """One or several models that have learned a task, to predict for new examples.

    Attributes:
      settings: the result of `Task.tune`, and perhaps more.
      columns: a field of new text (see `Family.fields`) -> its column in the table of training,
        where that has another name.
      summary: lines to print about it.
    """

    settings: Mapping[str, Any]
    columns: Mapping[str, str]
    summary: str

    @property
    def family(self) -> Family:
        """The form of its examples and predictions."""

    @property
    def cut(self) -> Counter[int]:
        """A length in tokens -> how many texts so far were cut to it."""

    def predict(self, examples: list[Any], origin: str, what: str = "predicting") -> list[Any]:
        """A prediction for each example; `origin` is where these come from, for messages."""


class OneModel:
    """One fine-tuned model."""

    def __init__(self, pretrained: Pretrained, compute_dtype: str | None = None):
        """Puts the weights on every device."""
        self.family, max_length = task_family_of(pretrained)
        self.settings = pretrained.task
        self.summary = "\n".join(filter(None, [pretrained.summary(), in_words(pretrained)]))
        self.columns = pretrained.task.get("columns", {})
        self.cut: Counter[int] = Counter()
        self._encode = encoder(self.family, pretrained, max_length)
        placement = data_parallel()
        spec = pretrained.spec
        dtype = resolved(compute_dtype or spec.compute_dtype, placement.mesh.devices.flat[0])
        spec = dataclasses.replace(spec, compute_dtype=dtype)
        self._predictor = Predictor(
            encoder_with_head(self.family, spec, pretrained.bilstm, pretrained.scoring),
            TASK_LOSSES[self.family.objective],
            placement,
            pad_id=pretrained.tokenizer.pad_id,
            batch_tokens=0,
        )
        self._params = jax.device_put(pretrained.params, placement.replicated)
        self._buckets = up_to(max_length, _LENGTHS)

    def predict(self, examples: list[Any], origin: str, what: str = "predicting") -> list[Any]:
        encoded = self._encode(examples, origin, labelled=False)
        self.cut.update(encoded.cut)
        outputs = self._predictor.outputs(self._params, encoded, self._buckets, what)
        return self.family.decode(examples, encoded, outputs)


class Ensemble:
    """Several models of one task, whose predictions are combined."""

    def __init__(self, members: Sequence[OneModel], by: str, settings: Mapping[str, Any]):
        """Takes models of one family, and the `Task.tune` of all together, to combine by `by`."""
        self.family, self.settings = members[0].family, settings
        self.columns = members[0].columns
        self.summary = "\n".join(member.summary for member in members)
        self._members, self._by = members, by

    @property
    def cut(self) -> Counter[int]:
        """As `FineTuned`; a text that several members cut to the same length counts once."""
        return reduce(or_, (member.cut for member in self._members))

    def predict(self, examples: list[Any], origin: str, what: str = "predicting") -> list[Any]:
        predictions = [member.predict(examples, origin, what) for member in self._members]
        return self.family.combine(predictions, self._by)


def open_fine_tuned(source: str | Source, compute_dtype: str | None = None) -> FineTuned:
    """Opens what launch/finetune.py and launch/ensemble.py made, or what `open_model` opens.

    Args:
      source: as for `open_model`; or RUN/CHOICE, for a tagger over fixed features.
      compute_dtype: "float32", "bfloat16" or "auto"; None: that of the opened model. A tagger over
        fixed features always has that of its training.

    Raises:
      InputError: also for a model without the head of a task; an unfinished ensemble, or one with a
        member that is missing or has another model since.
    """
    match open_source(source):
        case TaggerFolder(name):
            return FeatureTagger(read_tagger(path_of(name) / TAGGER_FOLDER, name), name)
        case TasksRun() as run:
            raise run.refusal
        case EnsembleFolder(name):
            return _ensemble(name, compute_dtype)
        case opened:
            return OneModel(opened.weights(), compute_dtype)


def _ensemble(source: str, compute_dtype: str | None) -> Ensemble:
    results = read_ensemble(path_of(source))
    by, members = results["chosen"]["by"], []
    if by not in BY or not results["trials"]:
        raise InputError(f"{source}: its {RESULTS_FILE} is damaged: make the ensemble again")
    for known in results["trials"]:
        with input_error_at(f"{source}: of its members"):
            pretrained = open_model(known["run"])
        if pretrained.identity != known["identity"]:
            raise InputError(
                f"{source}: its member {known['run']} has another model since: make the ensemble "
                "again in another folder"
            )
        members.append(OneModel(pretrained, compute_dtype))
    return Ensemble(members, by, results["settings"])
