"""Exports a trained model for a library or for a server, and proves that it is the same."""

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bertjax.base.cloud_storage import path_of
from bertjax.base.errors import InputError
from bertjax.base.files import new_folder, read_json
from bertjax.base.validation import record
from bertjax.interop import hub, onnx, proof, sentence_transformers_check, transformers_check
from bertjax.interop.card import model_card
from bertjax.interop.elmo import read_elmo, write_elmo
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.peft import ADAPTER_FOLDER, write_peft
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.serving import write_serving
from bertjax.interop.tokenizer_files import differences
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.pretrained_run import LoadedRun
from bertjax.runs.read import flat, free_keys
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import EVALUATION_FILE, MODEL_FOLDER, read_results
from bertjax.runs.source import PretrainedRun, TasksRun, TunedRun, open_model, open_source
from bertjax.tasks.multi_label import THRESHOLDS
from bertjax.training.metrics_log import HELDOUT, read_metrics
from bertjax.training.model import Params

HUGGING_FACE, ONNX, SERVING, ELMO, PEFT = TARGETS = "hf:", "onnx:", "stablehlo:", "elmo:", "peft:"

# What a card leaves out besides the keys that do not change what is computed: it names the weights
# without their path, and a model with a BiLSTM gets no card.
_NOT_THE_RECIPE = {"init_from", "decay_from", "bilstm"}

_PROOF = "Greatest difference of outputs, before and after"
_INT8 = "Changed by 8 bits, of random texts of 8 to 61 tokens"
_FIT = 0.05  # the greatest share of changes with which 8 bits are of use
# Of each output, what `proof.decisions` takes from it.
_DECIDED = {
    **{"sequence": "nearest texts", "masked_lm": "best pieces", "next_sentence": "next sentences"},
    **{"replaced": "replaced tokens", "logits": "best classes, or the order"},
    **{"start": "first tokens of answers", "end": "last tokens of answers"},
}

_TEXTS = ("", "The [MASK] of a Function; naïve CAFÉ, don't.", "東京 is 2,000 km away…", "x" * 120)
_VECTOR_TEXTS = (
    "A cat sleeps on the warm roof.",
    "naïve CAFÉ, 東京…",
    "It is cut at its end. " * 99,
)


def run(model: str, target: str, part: str = "", push: str = "") -> dict[str, float]:
    """Exports a model to a folder, which is complete or absent.

    Args:
      target: "hf:FOLDER", for transformers; "onnx:FOLDER", the same and files for ONNX Runtime;
        "stablehlo:FOLDER", for a server; "elmo:FOLDER", of an ELMo for bilm-tf and AllenNLP; or
        "peft:FOLDER", of the adapter alone that a run of pre-training has trained.
      part: the part of a run's model, such as "generator"; "": the one that all programs open.
      push: a name on the Hugging Face hub to which the folder is uploaded.

    Returns:
      The greatest difference of outputs in each comparison, by its name; also printed.

    Raises:
      InputError: no such model or target; a target that is there already; the hub does not take it.
      RuntimeError: what was written is not the same model.
    """
    form, colon, output = target.partition(":")
    form += colon
    if form not in TARGETS or not output:
        choices = ", ".join(f"{each}FOLDER" for each in TARGETS)
        raise InputError(f"--to={target}: must be one of {choices}")
    if form == ONNX:
        onnx.check_installed()
    if push:
        if form not in (HUGGING_FACE, ONNX):
            raise InputError(f"--push={push}: of {HUGGING_FACE} and {ONNX} only, not of {form}")
        hub.check_access(push)
    with new_folder(output) as folder:
        trained, recipe, figures = None, dict[str, Any](), dict[str, Any]()
        opened = open_source(model)
        match opened:
            case TasksRun() as run:
                raise run.refusal
            case PretrainedRun() as run:
                trained = run.load()
                pretrained = trained.weights(part)
            case TunedRun() as run:
                pretrained = open_model(run, part=part)
                recipe, figures = _history_of_fine_tuning(run.config, path_of(model))
            case source:
                pretrained = open_model(source, part=part)
        print(pretrained.summary())
        as_trained = trained.part(part) if trained else None
        changes: dict[str, str] = {}
        if form == SERVING:
            found = {"the artifact": write_serving(pretrained, folder)}
        elif form == PEFT:
            if isinstance(opened, TunedRun):
                raise InputError(
                    f"--to={target}: {model} has it already, if it has trained an adapter: copy "
                    f"the folder {model}/{MODEL_FOLDER}/{ADAPTER_FOLDER}"
                )
            write_peft(pretrained, folder)
            found, _ = _difference(as_trained, pretrained, open_model(f"hf:{folder}"))
        elif form == ELMO:
            write_elmo(pretrained, folder)
            found, _ = _prove(as_trained, pretrained, read_elmo(folder, str(folder)))
        else:
            write_hugging_face(pretrained, folder)
            found = _prove_for_transformers(as_trained, pretrained, folder)
            if trained:
                recipe, figures = _history(trained, path_of(model))
            if form == ONNX:
                differences, shares = _write_onnx(pretrained, folder)
                found |= differences
                figures[_INT8] = changes = _judged(shares)
            card = model_card(pretrained, Path(output).name, recipe, figures | {_PROOF: found})
            (folder / "README.md").write_text(card, encoding="utf-8")
    print(f"{output}: written.")
    print(f"{_PROOF}:")
    for what, difference in found.items():
        print(f"  {what}: {difference:.1e}")
    if changes:
        print(f"{_INT8}:")
        for name, shown in changes.items():
            print(f"  {name}: {shown}")
    if push:
        print(f"pushed: {hub.push(Path(output), push)}")
    return found


def _prove(
    trained: tuple[nn.Module, Params] | None, pretrained: Pretrained, reread: Pretrained
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Compares an exported model, `reread`, with the original, and returns its outputs, too."""
    params = {part: pretrained.params[part] for part in reread.params}
    if not jax.tree.all(jax.tree.map(np.array_equal, reread.params, params)):
        raise RuntimeError(f"{reread.origin}: the weights written do not read back bit for bit")
    return _difference(trained, pretrained, reread)


def _difference(
    trained: tuple[nn.Module, Params] | None, pretrained: Pretrained, reread: Pretrained
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The same, where weights are equal but for rounding."""
    inputs = proof.random_inputs(pretrained)
    module, params = trained or (pretrained.model(), pretrained.params)
    before = _outputs(module, params, inputs)
    after = _outputs(reread.model(), reread.params, inputs)
    # Columns that pad a vocabulary do not count.
    before = {name: before[name][..., : output.shape[-1]] for name, output in after.items()}
    return {"read back": proof.greatest_difference(before, after, inputs)}, before


def _prove_for_transformers(
    trained: tuple[nn.Module, Params] | None, pretrained: Pretrained, folder: Path
) -> dict[str, float]:
    """Does the same for a folder of transformers, and compares it with that library's model."""
    _same_tokenizer(pretrained, folder)
    found, before = _prove(trained, pretrained, read_hugging_face(folder, str(folder)))
    if pretrained.embedding:
        return found | _prove_vectors(pretrained, folder)
    if pretrained.scoring:  # transformers has no such class
        return found
    if transformers_check.knows(pretrained.class_name):
        inputs = proof.random_inputs(pretrained)
        hf_outputs = transformers_check.outputs(
            folder, pretrained.class_name, inputs, tuple(before)
        )
        found["transformers"] = proof.greatest_difference(before, hf_outputs, inputs)
    return found


def _prove_vectors(pretrained: Pretrained, folder: Path) -> dict[str, float]:
    """Compares vectors of queries and of passages with those of sentence-transformers."""
    if not sentence_transformers_check.installed():
        return {}
    assert pretrained.embedding
    embedding, module = pretrained.embedding, _in_float32(pretrained.model())
    model = dataclasses.replace(pretrained, spec=module.spec)
    worst = 0.0
    for query in (True, False):
        with _exact_products():
            vectors = proof.vectors(model, _VECTOR_TEXTS, query=query)
        # It does not look for all names of prompts that are read here.
        named = {"query" if query else "document"} <= pretrained.kept.get("prompts", {}).keys()
        hf_vectors = sentence_transformers_check.vectors(
            *(folder, embedding.kind, _VECTOR_TEXTS),
            query=query,
            prompt=None if named else embedding.prompt(query),
        )
        for pair in zip(vectors, hf_vectors, strict=True):
            worst = max(worst, proof.difference("vectors", *pair))
    return {"sentence-transformers": worst}


def _write_onnx(pretrained: Pretrained, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Adds the files of ONNX; gives each one's difference, and what 8 bits change of outputs."""
    name, inputs = pretrained.class_name, proof.random_inputs(pretrained)
    if pretrained.scoring or not transformers_check.knows(name):
        raise InputError(f"{pretrained.origin}: transformers has no {name}, which ONNX is made of")
    outputs = _outputs(pretrained.model(pretrained.head_type), pretrained.params, inputs)
    onnx.write(folder, name, inputs)
    batches = [inputs, *proof.random_pairs(pretrained)]
    (first, *whole), (of_first, *int8) = (
        onnx.outputs(folder, file, batches, tuple(outputs)) for file in onnx.FILES
    )
    worst = proof.greatest_difference(outputs, of_first, inputs, "int8")
    changed: dict[str, list[np.ndarray]] = {output: [] for output in outputs if output in _DECIDED}
    for batch, one, other in zip(batches[1:], whole, int8, strict=True):
        worst = max(worst, proof.greatest_difference(one, other, batch, "int8"))
        for output, is_changed in changed.items():
            decided = (
                proof.decisions(output, x[output], batch["input_mask"] > 0) for x in (one, other)
            )
            is_changed.append(np.not_equal(*decided))
    shares = {
        _DECIDED[output]: np.concatenate(is_changed).mean()
        for output, is_changed in changed.items()
    }
    found = {"ONNX Runtime": proof.greatest_difference(outputs, first, inputs)}
    return found | {"ONNX Runtime, 8 bits": worst}, shares


def _judged(shares: Mapping[str, float]) -> dict[str, str]:
    """The shares of decisions that 8 bits change, and whether they are few."""
    status = "yes"
    if max(shares.values()) > _FIT:
        status = f"no, with more than {_FIT:.0%}: take {onnx.FOLDER}/{onnx.WHOLE}"
    shown = {name: f"{share:.1%}" for name, share in shares.items()}
    return shown | {f"is {onnx.INT8} fit for use": status}


def _outputs(
    module: nn.Module, params: Params, inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    with _exact_products():
        return proof.outputs(_in_float32(module), params, inputs)


def _exact_products() -> AbstractContextManager:
    """Products of float32 are exact in it; by default GPUs and TPUs round their factors."""
    return jax.default_matmul_precision("highest")


def _in_float32(module: nn.Module) -> nn.Module:
    return module.clone(spec=dataclasses.replace(module.spec, compute_dtype="float32"))


def _same_tokenizer(pretrained: Pretrained, folder: Path) -> None:
    """Raises RuntimeError if the exported tokenizer differs for any piece, or for hard texts."""
    tokens = pretrained.tokenizer.tokens
    texts = [*_TEXTS, *(" ".join(tokens[i : i + 1000]) for i in range(0, len(tokens), 1000))]
    wrong = differences(pretrained.tokenizer, folder, texts)
    if wrong:
        raise RuntimeError(f"the tokenizer written is not the same: {wrong[0]}")


def _history(trained: LoadedRun, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    corpora = ", ".join(Path(name).name for name in trained.recipe.corpus)
    recipe = {"steps done": trained.step, "corpus": corpora} | _recipe(trained.recipe.config_dict)
    sources = {key: getattr(trained.recipe, key) for key in ("init_from", "decay_from")}
    recipe |= {key: Path(source).name for key, source in flat(sources).items() if source}
    return recipe, _figures(folder, trained.step)


def _history_of_fine_tuning(
    config: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same as `_history`, for a run of fine-tuning; raises if its trials are not done."""
    results = read_results(folder)
    recipe = _recipe(config) | {"init_from": Path(results["init_from"]).name}
    if others := results.get("together"):
        recipe["fine-tuned together"] = ", ".join(others)
    figures = {f"{results['task']}, {split}": scores for split, scores in results["dev"].items()}
    if thresholds := results["settings"].get(THRESHOLDS):
        figures["The thresholds above which a text has a label"] = thresholds
    return recipe | results["chosen"], figures


def _recipe(config_dict: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {*free_keys(Recipe), *free_keys(TaskRecipe), *_NOT_THE_RECIPE}
    return {
        key: value
        for key, value in flat(config_dict).items()
        if not {key, key.split(".")[0], key.split(".")[-1]} & left_out
    }


def _figures(folder: Path, step: int) -> dict[str, dict[str, Any]]:
    """The figures of launch/evaluate.py at this step, or of the last evaluation in training."""
    evaluation = folder / EVALUATION_FILE
    results = {}
    if evaluation.exists():
        hint = "remove it, or run launch/evaluate.py again"
        results = read_json(evaluation, record(step=int), hint=hint)
    if results.get("step") == step:
        return {
            f"Held-out text in sequences of {length}, at step {results['step']}": metrics
            for length, metrics in results.items()
            if isinstance(metrics, dict)
        }
    held_out = [row for row in read_metrics(folder) if row["split"] == HELDOUT]
    if not held_out:
        return {}
    values = {key: value for key, value in held_out[-1].items() if key not in ("step", "split")}
    return {f"Held-out text, at step {held_out[-1]['step']}": values}
