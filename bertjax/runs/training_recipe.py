"""What the configs of pre-training, fine-tuning and contrastive training share."""

import dataclasses
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any

from bertjax.base.errors import InputError
from bertjax.base.limits import Free, Key
from bertjax.models.encoders.registry import ENCODERS
from bertjax.runs.read import OneOf
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.rules import sharding_layout
from bertjax.training.subset import AdapterSpec, check_subset

# What a section `model` has: the fields of a family's spec, and "size", the name of some of them.
ModelSection = Annotated[
    Mapping[str, Any],
    OneOf("encoder", {name: each.spec for name, each in ENCODERS.items()}, later=True),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """The keys of every config.

    Attributes:
      config_dict: the config as nested dicts, as config.json holds it.
      model: a family of `bertjax.models.encoders.registry`, one of its sizes, and the fields of its
        spec: what is computed, and how. Fine-tuning has the family and the sizes of its weights.
        compute_dtype "auto" is bfloat16 where the device has units for it, else float32; a run
        keeps what it took.
      optimizer: the optimizer, and the schedule of its rate.
      adapter: a low-rank change that is trained in place of the pretrained weights, name="lora".
      frozen: patterns of paths of parameters that stay as they are: "embeddings|layer_[0-5]/".
      layout: where the parameters lie: a layout of `bertjax.training.sharding.rules`.
      mesh: the devices, data x model.
      tracker: gets the metrics, too: "wandb", "mlflow" or "trackio". "" means none.
    """

    config_dict: Annotated[Mapping[str, Any], Key()] = dataclasses.field(compare=False)
    model: ModelSection
    optimizer: OptimizerSpec = OptimizerSpec()
    adapter: AdapterSpec = AdapterSpec()
    frozen: str = ""
    layout: Free[str] = "data"
    mesh: Free[MeshSpec] = MeshSpec()
    tracker: Free[str] = ""

    def wrong(self, key: str, why: str) -> InputError:
        """The error that says why a key's value does not fit, and what to do."""
        return InputError(f"config.{key}={attrgetter(key)(self)!r}: {why}")

    def check_weights_named(self, init_from: str) -> None:
        """Raises InputError if no weights are named to start from."""
        if not init_from:
            raise InputError(
                "config.init_from is empty: name the weights to start from: a run, hf:FOLDER, "
                "hf:NAME or tf1:FOLDER"
            )

    def check_shared(self, has_weights: bool) -> None:
        """Raises InputError for an adapter, frozen patterns or a layout that cannot be."""
        check_subset(self.adapter, self.frozen, has_weights)
        sharding_layout(self.layout)
