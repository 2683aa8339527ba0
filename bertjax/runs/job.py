"""A run of pre-training: everything that its config names, read and checked, and its trainer."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bertjax.base.checks import check_given
from bertjax.base.cloud_storage import checked_path
from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.files import write_json
from bertjax.data.corpus.shards import HELDOUT, TRAIN
from bertjax.data.corpus.store import TokenStore, open_tokenizer
from bertjax.interop.pretrained import Pretrained
from bertjax.models.attention.choice import for_documents
from bertjax.models.encoders.computation import AttentionComputation
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.runs.assembly import make_experiment, make_phases
from bertjax.runs.branch import branch_config, branch_state
from bertjax.runs.budget import Budget
from bertjax.runs.device_memory import compile_phases
from bertjax.runs.health import health_of, unigram_baselines, write_health
from bertjax.runs.how_computed import how_computed
from bertjax.runs.initialize import (
    frozen_params,
    load_into,
    open_sources,
    with_weights,
)
from bertjax.runs.preflight import facts_of
from bertjax.runs.read import Config, about_config, free_keys
from bertjax.runs.recipe import Recipe
from bertjax.runs.run import Run
from bertjax.runs.run_folder import (
    check_same_config,
    checkpoints_folder,
    read_config,
    recorded_config,
    source_of,
)
from bertjax.runs.source import open_model
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import newest_metadata, saved_steps
from bertjax.training.health import HealthRules
from bertjax.training.loop import RunPlan, Trainer, Window
from bertjax.training.metrics_log import copy_lines
from bertjax.training.model import Params, merged
from bertjax.training.sharding.hosts import host_index
from bertjax.training.state import TrainState
from bertjax.training.trackers import check_tracker


@dataclasses.dataclass(frozen=True)
class Job:
    """A run that can begin or go on.

    `pretrained` are the weights that it starts from, by part of the model; {} if it goes on.
    """

    recipe: Recipe
    folder: Path
    tokenizer: Tokenizer
    spec: EncoderSpec
    text: TokenStore
    plan: RunPlan
    trainer: Trainer
    pretrained: Mapping[str, Pretrained]

    @classmethod
    def of(cls, config: Config, workdir: str, *, verify: bool = False) -> "Job":
        """Reads all that a config names, or raises InputError; nothing is compiled or written.

        `verify`: whether to compare every checksum of the corpus.
        """
        check_given("--workdir", workdir, "say where the run shall lie")
        recipe, tokenizer, pretrained = _recipe_and_weights(config, workdir)
        check_tracker(recipe.tracker)
        folder = checked_path(workdir, write=True)
        check_same_config(folder, recipe.config_dict, free_keys(Recipe), Recipe.from_config)
        identity = tokenizer.identity
        if (folder / "config.json").exists() and Tokenizer.open(folder).identity != identity:
            raise InputError(
                f"{folder} holds a run with another vocabulary than {recipe.corpus[0]}: choose "
                "another --workdir, or the corpus it was started with"
            )
        alpha = recipe.language_alpha
        open_store = partial(TokenStore.open, alpha=alpha, tokenizer_identity=identity)
        train = open_store(recipe.corpus, TRAIN, verify=verify)
        held_out = open_store(recipe.corpus, HELDOUT)
        own = {
            phase.corpus: open_store(phase.corpus, TRAIN, verify=verify)
            for phase in recipe.phases
            if phase.corpus
        }
        data = {"train": train.identity, "heldout": held_out.identity}
        for number, phase in enumerate(recipe.phases, 1):
            if phase.corpus:
                data[f"phase {number}"] = own[phase.corpus].identity

        spec = recipe.spec_for(tokenizer)
        if recipe.packed and isinstance(spec, AttentionComputation):
            tokens = train.token_count / (len(train.document_starts) - 1)
            name = for_documents(spec.attention, tokens, spec.attention_probs_dropout_prob)
            spec = dataclasses.replace(spec, attention=name)
        experiment = make_experiment(recipe, spec, pretrained=pretrained)
        model, placement = experiment.model, experiment.placement
        frozen, identities = frozen_params(model, placement, pretrained, recipe.seed)
        trainer = Trainer(dataclasses.replace(experiment, frozen=frozen))
        plan = RunPlan(
            phases=make_phases(recipe, spec, tokenizer, train, held_out, own, pretrained),
            schedule=recipe.schedule(),
            seed=recipe.seed,
            intervals=recipe.intervals,
            metadata={"data": data | identities, "config": recipe.config_dict},
        )
        trainer.check(plan.phases)
        return cls(recipe, folder, tokenizer, spec, train, plan, trainer, pretrained)

    def within_budget(self) -> "Job":
        """The job with the steps that `config.budget` allows, if it has one and is not started."""
        recipe = self.recipe
        if not recipe.budget or _started_within(self.folder, recipe):
            return self
        with about_config():
            updates = Budget.of(recipe.budget).updates(self.trainer, self.plan)
        recipe = recipe.with_steps(updates)
        phases = [
            dataclasses.replace(phase, first_step=steps.start, last_step=steps.stop)
            for phase, (*_, steps) in zip(self.plan.phases, recipe.steps(), strict=True)
        ]
        metadata = {**self.plan.metadata, "config": recipe.config_dict}
        plan = dataclasses.replace(
            self.plan, phases=phases, schedule=recipe.schedule(), metadata=metadata
        )
        return dataclasses.replace(self, recipe=recipe, plan=plan)

    @property
    def facts(self) -> dict[str, Any]:
        """What must be the same on all hosts."""
        identities = {part: each.identity for part, each in self.pretrained.items()}
        data = self.plan.metadata["data"]
        content = {"vocabulary": self.tokenizer.identity, "weights to start from": identities}
        content |= {f"corpus ({split})": found for split, found in data.items()}
        return facts_of(self.recipe.config_dict, self.folder, content)

    def run(self, health: HealthRules | None) -> Run:
        """The run, on this host; `health` judges its metrics, on the first host."""
        recipe = self.recipe
        return Run(
            trainer=self.trainer,
            plan=self.plan,
            folder=self.folder,
            begin=self.begin,
            config=recipe.config_dict,
            tracker=recipe.tracker,
            keep=recipe.keep_checkpoints,
            keep_every=recipe.keep_checkpoint_every,
            ready=partial(compile_phases, self.trainer, self.plan),
            write=partial(self._write, health),
            health=health,
        )

    def train(self) -> int:
        """Trains until the last step or a signal, and returns the step."""
        health = None
        if host_index() == 0:
            health = health_of(
                self.recipe, unigram_baselines(self.recipe, self.tokenizer, self.text)
            )
        try:
            state, _ = self.run(health).train()
        except NonFiniteLoss as error:
            if health:
                write_health(self.folder, health, diverged=str(error))
            raise
        return int(state.step)

    def _write(self, health: HealthRules | None, state: TrainState) -> None:
        self.tokenizer.save(self.folder)
        if health:
            write_health(self.folder, health)
        write_json(self.folder / "config.json", self.recipe.config_dict)  # last: it makes it a run
        if self.recipe.decay_from and not saved_steps(checkpoints_folder(self.folder)):
            copy_lines(source_of(self.recipe.decay_from)[0], self.folder, int(state.step))

    def begin(self) -> tuple[TrainState, Window]:
        """The state to begin with, and its window."""
        trainer, recipe = self.trainer, self.recipe
        if recipe.decay_from:
            return branch_state(recipe.decay_from, trainer, self.plan.metadata["data"])
        state = trainer.experiment.initial_state(recipe.seed)
        model = trainer.experiment.model
        for part in model.parts:  # in this order, because some add to those before them
            if part in self.pretrained and model.parts[part].frozen is not True:
                load = partial(load_into, pretrained=self.pretrained[part], model=model, part=part)
                state = state.started(load)
        return state, {}

    def _trained_params(self, part: str, params: Params, frozen: Params) -> Params:
        return self.trainer.experiment.model.params_of(merged(params, frozen), part)

    def announcement(self) -> str:
        """Says what will run."""
        recipe, spec, experiment = self.recipe, self.spec, self.trainer.experiment
        params, devices = experiment.state.params, experiment.placement.mesh.devices
        parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
        device, lines = devices.flat[0], []
        for part, pretrained in self.pretrained.items():
            model_part = experiment.model.parts[part]
            lines += [pretrained.summary()]
            if model_part.frozen is not True:
                shapes = jax.eval_shape(
                    partial(self._trained_params, part), params, experiment.abstract_frozen
                )
                lines += [
                    f"  not trained on: {name}" for name in pretrained.params if name not in shapes
                ]
                lines += [f"  random: {name}" for name in shapes if name not in pretrained.params]
        lengths = [phase.length for _, phase, _ in recipe.steps()]
        lines += [
            f"{parameters:,} parameters ({spec.num_hidden_layers} layers of {spec.hidden_size}), "
            f"layout {recipe.layout!r} on {devices.size} x {device.device_kind}",
            how_computed(spec, lengths, experiment.placement),
            f"{recipe.total_steps:,} steps, {recipe.tokens / self.text.token_count:.1f} times the "
            f"corpus's {self.text.token_count:,} tokens",
            *filter(None, [self.text.table_of_languages()]),
        ]
        return "\n".join(lines)


def _recipe_and_weights(
    config: Config, workdir: str
) -> tuple[Recipe, Tokenizer, dict[str, Pretrained]]:
    """The recipe, the corpus's tokenizer, and the weights that a new run starts from."""
    recipe = Recipe.from_config(config)
    if steps := _started_within(workdir, recipe):
        recipe = recipe.with_steps(steps)
    for part in recipe.objective.needed:
        if part not in recipe.sources:
            raise InputError(
                f"config.init_from.{part} is empty: objective={recipe.objective.name!r} needs the "
                f"weights of a {part}: give it RUN, hf:FOLDER or hf:NAME"
            )
    check_given("config.corpus", recipe.corpus, "set --config.corpus=DIR, prepared beforehand")
    tokenizer = open_tokenizer(recipe.corpus[0])
    # Once started, a run has the sizes in its config and the weights in its checkpoints.
    started = None if recipe.decay_from or not recipe.sources else _started(workdir, recipe)
    pretrained = open_sources(
        recipe, tokenizer, open_model, started=bool(recipe.decay_from or started)
    )
    config_dict = with_weights(recipe, pretrained)
    if recipe.decay_from:
        config_dict = branch_config(dataclasses.replace(recipe, config_dict=config_dict), workdir)
    elif started:
        config_dict["model"] = started["model"]
    if config_dict != recipe.config_dict:
        recipe = Recipe.from_config(config_dict)
    return recipe, tokenizer, pretrained


def _started_within(folder: str | Path, recipe: Recipe) -> int | None:
    """The steps of a run that has started in a folder with the recipe's budget; or None."""
    started = recorded_config(folder) if recipe.budget else {}
    return started["total_steps"] if started.get("budget") == recipe.budget else None


def _started(workdir: str, recipe: Recipe) -> dict[str, Any] | None:
    """The config of a run from the same weights that has a checkpoint in `workdir`; or None."""
    if not newest_metadata(checkpoints_folder(workdir)):
        return None
    config = read_config(workdir)
    return config if config.get("init_from") == recipe.config_dict.get("init_from") else None
