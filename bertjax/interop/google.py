"""Checkpoints of google-research/bert: bert_config.json, vocab.txt, bert_model.ckpt.*."""

import collections
import dataclasses
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import numpy as np

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.interop.hugging_face import assemble, part_of, spec_of
from bertjax.interop.json_files import read_config
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.published.bert import BERT
from bertjax.interop.tokenizer_files import read_tokenizer
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import ENCODERS

_CONFIG_FILE = "bert_config.json"

# The heads of run_classifier.py and run_squad.py have names unlike the rest.
_HEADS = {
    "output_weights": "classifier/output_weights",
    "output_bias": "classifier/output_bias",
    "cls/squad/output_weights": "qa_outputs/output_weights",
    "cls/squad/output_bias": "qa_outputs/output_bias",
}

# The kind of a checkpoint, by the first of these parts that it has.
_BY_HEAD = {
    "classifier": head_types.SEQUENCE_CLASSIFICATION,
    "span": head_types.QUESTION_ANSWERING,
    "next_sentence_head": head_types.PRE_TRAINING,
    "masked_lm": head_types.MASKED_LM,
    "bert": head_types.ENCODER,
}


def read_release(path: Path, origin: str) -> Pretrained:
    """Reads a release, or what run_pretraining.py, run_classifier.py or run_squad.py saved.

    Args:
      path: a folder with one checkpoint, or a checkpoint by its name without ".index"
        ("FOLDER/model.ckpt-1000"); bert_config.json and vocab.txt lie in the same folder.
      origin: what the user calls it, for messages.
    """
    checkpoint = _checkpoint(path, origin)
    spec = _spec(checkpoint.parent, origin)
    tokenizer = read_tokenizer(checkpoint.parent)
    arrays, left_out = _read(checkpoint, origin)
    model = assemble(arrays, spec, _head_type(arrays, origin), tokenizer, origin)
    return dataclasses.replace(model, left_out={**model.left_out, **left_out})


def _checkpoint(path: Path, origin: str) -> Path:
    """The path of the checkpoint's files, without ".index" and ".data-..."."""
    if path.is_dir():
        found = [file.with_suffix("") for file in sorted(path.glob("*.index"))]
        if len(found) > 1:
            raise InputError(
                f"{origin}: has the checkpoints {', '.join(file.name for file in found)}: "
                f"give the one you mean, as tf1:{found[-1]}"
            )
    else:
        found = [path] if path.with_name(f"{path.name}.index").exists() else []
    if not found:
        raise InputError(
            f"{origin}: no checkpoint there: give a folder with bert_model.ckpt.index, "
            f"bert_model.ckpt.data-00000-of-00001, {_CONFIG_FILE} and vocab.txt"
        )
    return found[0]


def _spec(folder: Path, origin: str) -> EncoderSpec:
    config = read_config(folder / _CONFIG_FILE, ENCODERS["bert"])
    if config is None:
        raise InputError(
            f"{origin}: no {_CONFIG_FILE} next to the checkpoint: copy there the one it was "
            "trained with"
        )
    # "gelu" is the tanh form in that code (modeling.py, gelu), the erf form in transformers'.
    if config.get("hidden_act", "gelu") == "gelu":
        config["hidden_act"] = "gelu_new"
    return spec_of(config, ENCODERS["bert"], origin, _CONFIG_FILE)


def import_tensorflow() -> ModuleType:
    """TensorFlow, after PyTorch's Triton if that is installed: the other order ends the process."""
    if importlib.util.find_spec("triton"):
        importlib.import_module("triton")
    import tensorflow

    return tensorflow


def _read(checkpoint: Path, origin: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The weights under Hugging Face's names; and the other variables, each with the reason."""
    with input_error_at(
        f"{origin}: TensorFlow reads such checkpoints", ImportError, install("tf1")
    ):
        tf = import_tensorflow()
    raw: dict[str, np.ndarray] = {}
    left_out: dict[str, str] = {}
    slots: collections.Counter[str] = collections.Counter()
    damaged = tf.errors.OpError, IndexError  # IndexError: a file that ends too soon
    with input_error_at(f"{origin}: {checkpoint.name} is damaged or incomplete", damaged):
        reader = tf.train.load_checkpoint(str(checkpoint))
        dtypes = reader.get_variable_to_dtype_map()
        for name in sorted(dtypes):
            variable, _, slot = name.rpartition("/")
            if variable in dtypes:  # an optimizer's array for that variable
                slots[slot] += 1
            elif not dtypes[name].is_floating:
                left_out[name] = f"{dtypes[name].name}: not a weight"
            else:
                raw[name] = np.asarray(reader.get_tensor(name), np.float32)
    left_out |= {f"*/{slot}": f"optimizer state, {n} arrays" for slot, n in slots.items()}
    return dict(
        in_hugging_face_terms(_HEADS.get(n, n), array) for n, array in raw.items()
    ), left_out


def _head_type(variables: Iterable[str], origin: str) -> str:
    parts = {part_of(name, ENCODERS["bert"], head_types.ENCODER) for name in variables}
    if "bert" not in parts:
        raise InputError(
            f"{origin}: no variables of a BERT in the checkpoint, but such as "
            f"{', '.join(sorted(variables)[:3]) or 'none'}"
        )
    return next(head_type for part, head_type in _BY_HEAD.items() if part in parts)


def in_hugging_face_terms(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """A variable of google-research/bert with the name and the axes of Hugging Face.

    google-research/bert stores kernels as [in, out], except the next-sentence head's.
    """
    if name.endswith("/kernel"):
        name, array = f"{name.removesuffix('/kernel')}/weight", array.T
    name = re.sub(r"/(word|position|token_type)_embeddings$", r"/\1_embeddings/weight", name)
    name = re.sub(r"/output_weights$", "/weight", name)
    name = re.sub(r"/output_bias$", "/bias", name)
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    return BERT.one_spelling(name.replace("/", ".")), array
