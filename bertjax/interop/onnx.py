"""Writes an exported folder's model for ONNX Runtime, where optimum and transformers.js find it."""

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.interop import transformers_check

FOLDER = "onnx"
WHOLE, INT8 = FILES = ("model.onnx", "model_quantized.onnx")
_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


def check_installed() -> None:
    """Raises InputError if a package that writes or runs ONNX is missing."""
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        raise InputError(f"--to=onnx: needs {', '.join(missing)}: {install('onnx')}")


def write(folder: Path, class_name: str, batch: Mapping[str, np.ndarray]) -> None:
    """Adds onnx/model.onnx, in float32, and onnx/model_quantized.onnx to a folder.

    PyTorch writes the model of transformers, `class_name`, in a folder of `write_hugging_face`; all
    dimensions of its inputs are free. The second file has its weights in 8 bits, with a scale for
    each column; ONNX Runtime finds the scales of activations as it runs. `batch` has inputs of our
    encoder, with which the model is traced.
    """
    import torch
    from onnxruntime.quantization import quantize_dynamic

    model = transformers_check.load(folder, class_name, "float32", "eager")
    model.config.use_cache = False
    inputs = transformers_check.inputs(batch)
    with torch.inference_mode():
        names = list(model(**inputs))
    shapes = {
        name: dict.fromkeys(range(x.dim()), torch.export.Dim.DYNAMIC) for name, x in inputs.items()
    }
    (folder / FOLDER).mkdir()
    try:
        with _without_warnings():
            torch.onnx.export(
                model,
                (),
                folder / FOLDER / WHOLE,
                kwargs=inputs,
                input_names=list(inputs),
                output_names=names,
                dynamic_shapes=shapes,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{class_name}: PyTorch cannot write it as ONNX: {reason}") from error
    with _without_warnings():
        quantize_dynamic(folder / FOLDER / WHOLE, folder / FOLDER / INT8, per_channel=True)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Without those of PyTorch and ONNX Runtime; what they write is compared with the original."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def outputs(
    folder: Path, file: str, batches: Iterable[Mapping[str, np.ndarray]], names: Sequence[str]
) -> list[dict[str, np.ndarray]]:
    """The outputs of a file of `FILES` in ONNX Runtime, under our names, for each batch."""
    from onnxruntime import InferenceSession

    session = InferenceSession(str(folder / FOLDER / file), providers=["CPUExecutionProvider"])
    stored, results = [output.name for output in session.get_outputs()], []
    for batch in batches:
        inputs = {name: x.numpy() for name, x in transformers_check.inputs(batch).items()}
        found = dict(zip(stored, session.run(stored, inputs), strict=True))
        results.append({name: found[transformers_check.output_name(name, found)] for name in names})
    return results
