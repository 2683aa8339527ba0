"""A run of contrastive training: everything that its config names, read and checked."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from bertjax.base.checks import check_given
from bertjax.base.files import local_folder, write_json
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.encoders.computation import canonical
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.storage import to_canonical
from bertjax.models.heads.embedding import SCALE, head_type_of
from bertjax.runs.contrastive.data import TrainingData
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.fine_tuning.task_family import about_reranker
from bertjax.runs.how_computed import how_computed, with_compute_dtype
from bertjax.runs.initialize import frozen_params, learned_branches, load_into, low_rank
from bertjax.runs.preflight import facts_of
from bertjax.runs.read import Config, free_keys
from bertjax.runs.run import Run
from bertjax.runs.run_folder import check_same_config
from bertjax.runs.source import open_model
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Intervals, Phase, RunPlan, Trainer
from bertjax.training.model import Params, merged
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.schedule import make_schedule
from bertjax.training.sharding.placement import HostBatch, make_placement
from bertjax.training.state import TrainState, logical_axes
from bertjax.training.subset import with_subset
from bertjax.training.trackers import check_tracker

KEPT = 2  # checkpoints
_SAMPLE = 8  # batches from which the mean of their tokens is taken


@dataclasses.dataclass(frozen=True)
class SimilarityJob:
    """A run that can begin or go on; `source` has the parts of `pretrained` that the model has."""

    recipe: SimilarityRecipe
    folder: Path
    pretrained: Pretrained
    source: Pretrained
    data: TrainingData
    spec: EncoderSpec
    trainer: Trainer
    phase: Phase

    @classmethod
    def of(cls, config: Config, workdir: str) -> "SimilarityJob":
        """Reads all that a config names, or raises InputError; nothing is compiled or written."""
        recipe = SimilarityRecipe.from_config(config)
        check_given("--workdir", workdir, "say where the run shall lie")
        recipe.check_started()
        check_tracker(recipe.tracker)
        folder = local_folder(workdir)
        resolved = with_compute_dtype(recipe.config_dict, folder)
        pretrained = open_model(recipe.init_from)
        recipe = SimilarityRecipe.from_config(_with_modules(resolved, recipe, pretrained))
        free = free_keys(SimilarityRecipe)
        check_same_config(folder, recipe.config_dict, free, SimilarityRecipe.from_config)
        pretrained.check_reads_pieces()
        spec = recipe.spec(pretrained.spec, pretrained.origin)
        data = TrainingData.of(recipe)
        sources = {"": dataclasses.replace(pretrained, params=_beginning(recipe, spec, pretrained))}
        experiment = make_experiment(recipe, spec, pretrained=sources)
        model, placement = experiment.model, experiment.placement
        frozen, _ = frozen_params(model, placement, sources, recipe.seed)
        trainer = Trainer(dataclasses.replace(experiment, frozen=frozen))
        phase = _phase(recipe, spec, data, pretrained)
        trainer.check([phase])
        return cls(recipe, folder, pretrained, sources[""], data, spec, trainer, phase)

    @property
    def identity(self) -> dict[str, str]:
        """The identity of what it learns from."""
        return {"train": self.data.identity, "weights": self.pretrained.identity}

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that must be the same on all hosts."""
        return facts_of(self.recipe.config_dict, self.folder, self.identity)

    def run(self, judge: Callable[[TrainState], dict[str, float]]) -> Run:
        """The run, evaluated by `judge`."""
        recipe, steps = self.recipe, self.recipe.intervals
        plan = RunPlan(
            phases=[self.phase],
            schedule=make_schedule(recipe.optimizer, self.phase.last_step),
            seed=recipe.seed,
            intervals=Intervals(steps.log, steps.evaluate, steps.checkpoint, eval_batches=1),
            metadata={"data": self.identity, "config": recipe.config_dict},
            judge=judge,
        )
        return Run(
            trainer=self.trainer,
            plan=plan,
            folder=self.folder,
            begin=lambda: (self.initial_state(), {}),
            config=recipe.config_dict,
            tracker=recipe.tracker,
            keep=KEPT,
            write=lambda state: write_json(self.folder / "config.json", recipe.config_dict),
        )

    def initial_state(self) -> TrainState:
        """The state before the first update."""
        model = self.trainer.experiment.model
        state = self.trainer.experiment.initial_state(self.recipe.seed)
        return state.started(partial(load_into, pretrained=self.source, model=model))

    def all_params(self, params: Params) -> Params:
        """The parameters of a state and those that are not trained, as they are evaluated."""
        return merged(params, self.trainer.experiment.frozen)

    def packed(self, params: Params) -> Pretrained:
        """The trained model, with all `params` on the host."""
        embedding, spec = self.recipe.embedding, self.spec
        network = self.trainer.experiment.model
        adapter = low_rank(network, params, self.source, self.pretrained)
        params = network.params_of(params)
        trained = {name: tree for name, tree in params.items() if name != SCALE}
        model = Pretrained(
            origin=str(self.folder),
            head_type=head_types.SEQUENCE_CLASSIFICATION,
            spec=canonical(spec),
            params=to_canonical(trained, spec),
            tokenizer=self.pretrained.tokenizer,
            classes=_classes(self.recipe),
            adapter=adapter,
        )
        if embedding is None:
            length, _ = self.recipe.lengths(spec)
            about = about_reranker(length, self.recipe.loss.name)
            return dataclasses.replace(model, task=about, scoring=self.recipe.scoring)
        # A pooler was not trained, and stays as it was.
        kept = {name: tree for name, tree in self.pretrained.params.items() if name == "pooler"}
        return dataclasses.replace(
            model,
            head_type=head_type_of(embedding),
            params=kept | dict(model.params),
            embedding=embedding,
        )

    def announcement(self) -> str:
        """Says what will run."""
        recipe, experiment = self.recipe, self.trainer.experiment
        leaves = jax.tree.leaves(experiment.state.params)
        device = experiment.placement.mesh.devices.flat[0]
        sources = (
            f"  {share:.1%} {source.name}: {len(source):,} queries, {source.width} passages each"
            for source, share in zip(self.data.sources, self.data.shares, strict=True)
        )
        return "\n".join(
            [
                self.pretrained.summary(),
                *(
                    f"  random: {name}"
                    for name in experiment.abstract_params
                    if name not in self.source.params
                ),
                *sources,
                f"{sum(leaf.size for leaf in leaves):,} parameters, layout {recipe.layout!r} on "
                f"{experiment.placement.mesh.size} x {device.device_kind}",
                how_computed(self.spec, recipe.lengths(self.spec), experiment.placement),
                f"{self.phase.last_step:,} steps of {recipe.batch_size:,} queries, in "
                f"{recipe.chunks} chunks; {len(self.data.texts):,} different texts",
            ]
        )


def _with_modules(
    config: dict[str, Any], recipe: SimilarityRecipe, pretrained: Pretrained
) -> dict[str, Any]:
    """The config with the modules of the weights after the pooling, if it names none."""
    own = recipe.embedding or recipe.scoring
    source = pretrained.embedding if recipe.embedding else pretrained.scoring
    if not source or (recipe.embedding and recipe.embedding.kind != source.kind):
        return config
    rows = [dataclasses.asdict(module) for module in source.modules]
    fields: dict[str, Any] = {"modules": rows} if rows else {}
    if recipe.embedding is None:
        fields["pooling"] = source.pooling
    if own and own.modules not in ((), source.modules) or (recipe.scoring and own != source):
        raise recipe.wrong("task.modules", "the weights have others: leave it out to take those")
    return config | {"task": {**config["task"], **fields}} if fields else config


def _classes(recipe: SimilarityRecipe) -> tuple[str, ...]:
    return () if recipe.embedding else ("LABEL_0",)


def _beginning(
    recipe: SimilarityRecipe, spec: EncoderSpec, pretrained: Pretrained
) -> dict[str, Any]:
    embedding = recipe.embedding
    if embedding is None:
        parts = pretrained.beginning(head_types.SEQUENCE_CLASSIFICATION, _classes(recipe))
        if recipe.scoring and recipe.scoring == pretrained.scoring:
            parts = dict(pretrained.params)
        elif recipe.scoring:  # its parts have other arrays than those of the same names
            parts = {spec.encoder: pretrained.params[spec.encoder]}
    else:
        parts = pretrained.beginning(head_type_of(embedding))
        if pretrained.embedding and pretrained.embedding.kind == embedding.kind:
            parts |= pretrained.params
    shapes = jax.eval_shape(recipe.objective().model(spec).init, jax.random.key(0))
    return {name: tree for name, tree in parts.items() if name in shapes}


def make_experiment(
    recipe: SimilarityRecipe,
    spec: EncoderSpec,
    devices: Any = None,
    pretrained: Mapping[str, Pretrained] = MappingProxyType({}),
) -> Experiment:
    """Puts a recipe's pieces together, for some devices or for all of the job."""
    objective, branches = recipe.objective(), learned_branches(pretrained)
    model = with_subset(objective.model(spec), recipe.adapter, recipe.frozen, branches)
    return Experiment(
        model=model,
        objective=objective,
        optimizer=make_optimizer(
            recipe.optimizer, partial(logical_axes, model.init), spec.compute_dtype
        ),
        placement=make_placement(recipe.mesh, recipe.layout, devices),
    )


def _phase(
    recipe: SimilarityRecipe, spec: EncoderSpec, data: TrainingData, pretrained: Pretrained
) -> Phase:
    batches = data.batches(recipe, pretrained.tokenizer, recipe.lengths(spec))
    steps = recipe.total_steps or math.ceil(recipe.epochs * len(data) / recipe.batch_size)

    def microbatches(number: int) -> list[Callable[[slice], HostBatch]]:
        return [partial(batches.batch, number)]

    sample = range(min(_SAMPLE, steps))
    tokens = round(sum(map(batches.tokens, sample)) / len(sample))
    per_token = spec.flops_per_token(tokens // recipe.batch_size, predicted=0)
    return Phase(
        name="contrastive",
        first_step=0,
        last_step=steps,
        microbatches=microbatches,
        held_out=None,
        rows=recipe.batch_size,
        accumulate=1,
        tokens=tokens,
        # The forward pass of a batch in chunks is computed twice, which is not counted.
        flops=tokens * per_token,
    )
