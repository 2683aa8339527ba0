"""Pre-training: a config and a corpus in, a run folder out."""

import contextlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax

from bertjax.attention.implementations import computed_by
from bertjax.base.cloud_storage import reach
from bertjax.base.errors import EXIT_STOPPED, InputError, NonFiniteLoss
from bertjax.base.files import exclusive, write_json
from bertjax.corpus.shards import HELDOUT, TRAIN
from bertjax.corpus.store import TokenStore, open_tokenizer
from bertjax.interop.pretrained import Pretrained
from bertjax.runs.assembly import make_phases, make_training
from bertjax.runs.branch import branch_config, branch_state
from bertjax.runs.health import describe_text, health_of, write_text
from bertjax.runs.initialize import check_tokenizer, load_into, with_sizes_of
from bertjax.runs.open_model import open_model
from bertjax.runs.preflight import check_devices, check_folder, check_programs, check_same
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import (
    check_same_config,
    checkpoints_folder,
    read_config,
    source_of,
)
from bertjax.runs.sections import flat
from bertjax.sharding.hosts import agreed, in_step
from bertjax.sharding.placement import Placement
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import Checkpoints, newest_metadata
from bertjax.training.hardware import keep_freed_memory
from bertjax.training.journal import Journal, copy_lines
from bertjax.training.loop import last_line, restore

# What may differ when a run goes on: where it runs, where its corpus lies (its content may not)
# and how often it looks, not what it computes.
_FREE = (
    *("mesh", "layout", "dry_run", "corpus", "intervals", "eval_batch_size"),
    *("keep_checkpoints", "keep_checkpoint_every"),
    "model.attention",  # each computes the same, and drops the same
)


def run(
    config: Any,
    workdir: str,
    *,
    verify: bool = False,
    hosts: int | None = None,
    chips: int | None = None,
) -> int:
    """Trains until the config's last step, from the newest checkpoint in `workdir` if any.

    Args:
      config: as in `configs/`.
      workdir: RUN: gets config.json, health.json, the tokenizer, metrics.jsonl, loss.png,
        tensorboard/ and checkpoints/.
      verify: compare every checksum of the corpus first.
      hosts, chips: how many the job must have; None: not checked.

    Returns:
      0 when the run is complete, EXIT_STOPPED when a signal stopped it.

    Raises:
      InputError: before anything is compiled, for whatever cannot work; on all hosts alike.
    """
    keep_freed_memory()
    check_programs(hosts)
    is_first = jax.process_index() == 0
    check_devices(chips)
    with agreed():
        # ---------------------------------------------------------------- what is read
        if not workdir:
            raise InputError("--workdir is empty: say where the run shall lie")
        recipe = Recipe.from_config(config)
        given = None
        if recipe.decay_from:
            recipe = Recipe.from_config(branch_config(recipe, workdir, _FREE))
        elif recipe.init_from:
            # Once begun, a run has the sizes in its config and the weights in its checkpoints.
            begun = _begun(workdir, recipe)
            given = None if begun else open_model(recipe.init_from)
            model = begun["model"] if begun else with_sizes_of(given, recipe.plain["model"])
            recipe = Recipe.from_config({**recipe.plain, "model": model})
        if not recipe.corpus:
            raise InputError("config.corpus is empty: set --config.corpus=DIR, prepared beforehand")
        folder = reach(workdir, write=True)
        tokenizer = open_tokenizer(recipe.corpus[0])
        identity = tokenizer.identity
        if given:
            check_tokenizer(given, tokenizer, recipe.corpus[0])
        check_same_config(folder, recipe.plain, _FREE)
        if (folder / "config.json").exists() and Tokenizer.open(folder).identity != identity:
            raise InputError(
                f"{folder} holds a run with another vocabulary than {recipe.corpus[0]}: choose "
                "another --workdir, or the corpus it was begun with"
            )
        train = TokenStore.open(recipe.corpus, TRAIN, tokenizer_identity=identity, verify=verify)
        held_out = TokenStore.open(recipe.corpus, HELDOUT, tokenizer_identity=identity)
        spec = recipe.spec(tokenizer.vocabulary_size)
        trains = {
            phase.corpus: TokenStore.open(
                phase.corpus, TRAIN, tokenizer_identity=identity, verify=verify
            )
            for phase in recipe.phases
            if phase.corpus
        }
        phases = make_phases(recipe, spec, tokenizer, train, held_out, trains)
        data = {"train": train.identity, "heldout": held_out.identity}
        for number, phase in enumerate(recipe.phases, 1):
            if phase.corpus:
                data[f"phase {number}"] = trains[phase.corpus].identity

        # ------------------------------------------------------------ where everything lies
        training = make_training(recipe, spec)
        trainer, abstract = training.trainer, training.abstract
        trainer.check(phases)
    check_same(
        {
            **{f"config.{key}": value for key, value in flat(recipe.plain).items()},
            "--workdir": str(folder),
            "vocabulary": identity,
            "weights to start from": given and given.identity,
            **{f"corpus ({split})": found for split, found in data.items()},
        }
    )
    if is_first and given:
        print(_start(given, abstract.params), flush=True)
    if is_first:
        _announce(recipe, spec, abstract, training.placement, train)
    if recipe.plain.get("dry_run"):
        results = trainer.dry_run(training.fresh_state(recipe.seed), phases, recipe.seed)
        print(json.dumps(results, indent=2))
        print("dry run: every phase made a batch, a step and an evaluation; nothing was written")
        return 0

    # --------------------------------------------------------------------------- the run
    bytes_of_state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(abstract))
    check_folder(folder, bytes_of_state, recipe.keep_checkpoints + 1)  # one is being written
    with contextlib.ExitStack() as stack:
        with agreed():
            if is_first:
                stack.enter_context(exclusive(folder))
        checkpoints = Checkpoints(
            checkpoints_folder(folder),
            keep=recipe.keep_checkpoints,
            keep_every=recipe.keep_checkpoint_every,
        )
        stack.enter_context(contextlib.closing(checkpoints))
        stack.enter_context(in_step(exit_code_when_lost=EXIT_STOPPED))
        state, window = restore(checkpoints, abstract, data)
        branches = state is None and bool(recipe.decay_from)
        if branches:
            state, window = branch_state(recipe.decay_from, abstract, data)
        elif state is None:
            state = training.fresh_state(recipe.seed)
            if given:
                state = state.started(partial(load_into, given=given, spec=spec))
        journal = None
        if is_first:
            tokenizer.save(folder)
            text = describe_text(recipe, tokenizer, train)
            write_text(folder, text)
            write_json(folder / "config.json", recipe.plain)  # last: it makes the folder a run
            step = int(state.step)
            if branches:
                copy_lines(source_of(recipe.decay_from)[0], folder, step)
            health = health_of(recipe, text)
            journal = Journal(folder, step, last_line(step, window), health)
            stack.enter_context(contextlib.closing(journal))
        metadata = {"data": data, "config": recipe.plain}
        try:
            state, _ = trainer.train(
                state,
                phases,
                recipe.intervals,
                checkpoints,
                journal,
                metadata,
                window,
                schedule=recipe.schedule(),
                seed=recipe.seed,
            )
        except NonFiniteLoss as error:
            if is_first:
                write_text(folder, text, diverged=str(error))
            raise
    complete = int(state.step) == phases[-1].last_step
    if is_first and complete:
        print(f"{folder}: {int(state.step)} steps done\n{journal.verdict}")
    elif is_first:
        print(f"stopped at step {int(state.step)}, saved; the same command goes on from there")
    return 0 if complete else EXIT_STOPPED


def _begun(workdir: str, recipe: Recipe) -> dict[str, Any] | None:
    """The config of a run from the same weights that has a checkpoint in `workdir`; or None."""
    if not newest_metadata(checkpoints_folder(workdir)):
        return None
    config = read_config(workdir)
    return config if config.get("init_from") == recipe.init_from else None


def _start(given: Pretrained, params: Mapping[str, Any]) -> str:
    """Describes the weights that a run starts from, part by part."""
    unused = [part for part in given.params if part not in params]
    fresh = [part for part in params if part not in given.params]
    lines = [given.summary()]
    lines += [f"  not trained on: {part}" for part in unused]
    lines += [f"  fresh: {part}" for part in fresh]
    return "\n".join(lines)


def _announce(recipe: Recipe, spec, abstract, placement: Placement, train: TokenStore) -> None:
    """Says what will run, before the expensive part."""
    parameters = sum(leaf.size for leaf in jax.tree.leaves(abstract.params))
    devices = placement.mesh.devices
    device = devices.flat[0]
    with placement.active():
        attention = {
            phase.length: computed_by(spec, phase.length, device.platform)
            for _, phase, _ in recipe.steps()
        }
    lengths = ", ".join(f"by {name} at length {length}" for length, name in attention.items())
    seen = sum(len(steps) * phase.batch_size * phase.length for _, phase, steps in recipe.steps())
    print(
        f"{parameters:,} parameters ({spec.num_hidden_layers} layers of {spec.hidden_size}), "
        f"layout {recipe.layout!r} on {devices.size} x {device.device_kind}\n"
        f"attention {lengths}\n"
        f"{recipe.total_steps:,} steps, {seen / train.token_count:.1f} times the corpus's "
        f"{train.token_count:,} tokens",
        flush=True,
    )
