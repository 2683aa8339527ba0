"""Trains a BiLSTM tagger over fixed features (section 5.3, Table 7)."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bertjax.base.errors import EXIT_STOPPED, InputError
from bertjax.base.files import write_json
from bertjax.inference.features import activations
from bertjax.runs.fine_tuning.best_model import BestModel
from bertjax.runs.fine_tuning.data import TaskData, digest, read_examples
from bertjax.runs.fine_tuning.feature_tagger import Tagger, read_tagger, write_tagger
from bertjax.runs.fine_tuning.job import begin
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.fine_tuning.search import Search
from bertjax.runs.fine_tuning.task_family import about_task
from bertjax.runs.fine_tuning.trials import Trials
from bertjax.runs.preflight import check_devices, check_programs, check_same, facts_of
from bertjax.runs.run_folder import RESULTS_FILE, TAGGER_FOLDER
from bertjax.runs.session import session
from bertjax.runs.source import open_model
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.tagging import Tagging, TagSequences
from bertjax.training.hardware import dtype_in_words
from bertjax.training.model import Params
from bertjax.training.sharding.hosts import from_first, raise_together, say

_LONGEST_SENTENCE = 1 << 20  # words: no sentence is longer, so none is cut


def run(config: Any, workdir: str, hosts: int | None = None, chips: int | None = None) -> int:
    """Runs every trial of the grid for each choice of layers in config.features.

    RUN gets config.json; activations/, which all choices of layers share; for each choice a folder
    with its trials, tagger, predictions and results.json; and a results.json for all choices. For
    the arguments, the result and the errors see `bertjax.programs.finetune.run`.
    """
    check_programs(hosts)
    check_devices(chips)
    with raise_together():
        recipe, folder = begin(config, workdir)
        features, family = recipe.features, recipe.task.family
        assert features  # `finetune.run` chooses this program by them
        if not isinstance(family, Tagging):
            raise InputError(
                f"config.features: {recipe.task.name} is no tagging: only a tagger learns from "
                "fixed features, as in configs/finetune_ner.py:features"
            )
        pretrained = open_model(recipe.init_from)
        spec = recipe.spec(pretrained)
        say(f"{pretrained.summary()}\n{dtype_in_words(spec.compute_dtype, jax.devices()[0])}")
        chosen = {
            name: activations.chosen_layers(activations.CHOICES[name], spec.num_hidden_layers)
            for name in features.choices
        }
        examples = read_examples(recipe.task)
        # The windows overlap also in training, so each word's features come from its widest
        # context.
        windows = {
            split: family.encode(sentences, pretrained.tokenizer, recipe.max_length, labelled=False)
            for split, sentences in examples.items()
        }
        extractor = activations.all_layers(pretrained, recipe.max_length, spec.compute_dtype)
    content = {split: digest(each) for split, each in examples.items()}
    check_same(facts_of(recipe.config_dict, folder, {"weights": pretrained.identity} | content))

    results = {}
    with session(folder):
        from_first(lambda: write_json(folder / "config.json", recipe.config_dict))
        values = {
            split: activations.compute(folder / "activations", split, encoded, extractor)
            for split, encoded in windows.items()
        }

        def encode(
            layers: tuple[int, ...], examples: list[Any], split: str, *, labelled: bool
        ) -> Encoded:
            return activations.WordFeatures.of_sentences(
                examples, family, values[split], layers, labelled=labelled
            )

        for name, layers in chosen.items():
            say(f"{name}: layers {', '.join(map(str, layers))}")
            subfolder = folder / name
            data = TaskData.of(recipe.task, examples, partial(encode, layers), pretrained.identity)
            tagger = Tagger(
                encoder=recipe.init_from,
                identity=pretrained.identity,
                width=spec.hidden_size,
                compute_dtype=spec.compute_dtype,
                layers=layers,
                combine=activations.CHOICES[name].combine,
                hidden=features.hidden,
                depth=features.depth,
                dropout=features.dropout,
                mix_dropout=features.mix_dropout,
                classes=family.classes,
                crf=isinstance(family, TagSequences),
                task=about_task(recipe.task, recipe.max_length),
            )
            trials = _trials(recipe, {"": data}, tagger)
            best = _best_model(subfolder / TAGGER_FOLDER, tagger, trials)
            search = Search(subfolder, recipe, {"": data}, trials, best)
            search.announce()
            from_first(partial((folder / RESULTS_FILE).unlink, missing_ok=True))  # out of date

            results[name] = search.complete()
            if results[name] is None:
                return EXIT_STOPPED
        from_first(lambda: write_json(folder / RESULTS_FILE, results))
    say(f"{folder}: {RESULTS_FILE}, and a folder for each choice of layers")
    return 0


def _trials(recipe: TaskRecipe, data: Mapping[str, TaskData], tagger: Tagger) -> Trials:
    assert recipe.features
    flops = tagger.module.flops_per_word(len(tagger.layers), tagger.width)
    return Trials(
        recipe,
        data,
        tagger.model,
        max_length=_LONGEST_SENTENCE,
        flops_per_token=lambda length: flops,
        penalty=recipe.features.mix_l2 if tagger.module.mixes else 0.0,
    )


def _best_model(folder: Path, tagger: Tagger, trials: Trials) -> BestModel:
    def pack(name: str, params: Params, task: Mapping[str, Any]) -> Tagger:
        del name
        return dataclasses.replace(tagger, params=params, task={**tagger.task, **task})

    def unpack(stored: Mapping[str, Tagger]) -> Params:
        shardings = jax.tree.map(lambda leaf: leaf.sharding, trials.abstract_params)
        return jax.device_put(stored[""].params, shardings)

    placement = trials.experiment.placement
    return BestModel({"": folder}, placement, write_tagger, read_tagger, pack, unpack)
