"""Exports a model for serving: it runs with JAX alone, without this package."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import export
from safetensors.numpy import load_file, save

from bertjax.base.errors import InputError
from bertjax.base.fields import INPUTS
from bertjax.base.files import write_json
from bertjax.interop import proof
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.tokenizer_files import write_tokenizer
from bertjax.models.encoders import head_types
from bertjax.models.heads.head_specs import text_inputs

MODEL_FILE = "model.stablehlo"
WEIGHTS_FILE = "weights.safetensors"
SIGNATURE_FILE = "signature.json"

_PLATFORMS = ("cpu", "cuda", "tpu")
# The library `tokenizers`' names of a model's inputs.
_IN_TOKENIZERS = {"input_ids": "ids", "input_mask": "attention_mask", "token_type_ids": "type_ids"}

_README = """\
# {architecture}

{layers} layers of {width}, computed in {dtype}. Runs on {platforms} with jax, numpy, safetensors
and tokenizers; the package that wrote it, bertjax, is not needed. In this folder:

```python
import jax
import numpy as np
from jax import export
from safetensors.numpy import load_file
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_padding(pad_id={pad_id})
tokenizer.enable_truncation({longest})
weights = jax.device_put(load_file("{weights}"))
with open("{model}", "rb") as file:
    model = jax.jit(export.deserialize(file.read()).call)

texts = tokenizer.encode_batch({texts})
fields = {fields}
inputs = [[getattr(text, field) for text in texts] for field in fields]
outputs = model(weights, *np.array({inputs}, np.int32))
```

`model(weights, {names})` takes int32 arrays {shape} and returns a
dictionary of float32 arrays; `{signature}` has their shapes. B{choices} and S are free, S up to
{longest}. Each new shape is compiled once: in a server, pad to a few lengths.
{answer}
`{model}` is what `jax.export` of jax {jax_version} serialized; `mlir_module()` of what
`export.deserialize` returns is the StableHLO as text. JAX promises that versions of the next six
months read it; export again with a newer one in time.
"""


def write_serving(pretrained: Pretrained, folder: Path) -> float:
    """Writes a model's inference function, weights and tokenizer, and a description of the call.

    The function takes the weights by name, as in weights.safetensors, and the inputs of the encoder
    in their order, int32 [B, S] ([B, C, S] for multiple choice), with B, C and S free. It computes
    in the compute dtype of the spec and returns the module's outputs, in float32. It is read back;
    the result is the greatest difference between its outputs and the module's.

    Raises:
      InputError: a part of the architecture is missing; the model reads no pieces.
      RuntimeError: the written function gives other outputs than the module.
    """
    pretrained.check_reads_pieces()
    if pretrained.head_spec.fields:
        names = ", ".join(pretrained.head_spec.fields)
        raise InputError(
            f"{pretrained.origin}: reads {names} next to the tokens, which a server's tokenizer "
            "does not make: train the task without a CRF or an answer network"
        )
    module = pretrained.model()
    weights = {part: pretrained.params[part] for part in pretrained.parts}
    weights = flatten_dict(weights, sep="/")
    # "fused" attention would use kernels of the machine that exports.
    portable = module.clone(spec=dataclasses.replace(module.spec, attention="einsum"))
    exported = _export(portable, weights, pretrained)
    # safetensors ignores strides.
    in_order = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    (folder / WEIGHTS_FILE).write_bytes(save(in_order))
    (folder / MODEL_FILE).write_bytes(exported.serialize())
    write_tokenizer(
        pretrained.tokenizer,
        folder,
        pretrained.spec.max_position_embeddings,
        token_types=pretrained.family.tells_texts_apart(pretrained.spec),
    )
    write_json(folder / SIGNATURE_FILE, _signature(pretrained, exported))
    (folder / "README.md").write_text(_readme(pretrained, exported), "utf-8")
    return _prove(pretrained, module, folder)


def _export(
    module: nn.Module, weights: dict[str, np.ndarray], pretrained: Pretrained
) -> export.Exported:
    axes, names = pretrained.head_spec.axes, pretrained.family.text_inputs

    @jax.jit
    def infer(weights: Mapping[str, jax.Array], *arrays: jax.Array) -> dict[str, jax.Array]:
        params = unflatten_dict(weights, sep="/")
        inputs = dict(zip(names, arrays, strict=True))
        return module.apply(  # type: ignore[return-value]  # a tuple only with `mutable`
            {"params": params}, inputs, deterministic=True
        )

    shape = export.symbolic_shape(
        ", ".join(axes), constraints=[f"S <= {module.spec.max_position_embeddings}"]
    )
    sizes: dict[str, Any] = dict(zip(axes, shape, strict=True))
    inputs = text_inputs(module.spec, **sizes).values()
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)
    return export.export(infer, platforms=_PLATFORMS)(shapes, *inputs)


def _signature(pretrained: Pretrained, exported: export.Exported) -> dict[str, Any]:
    axes, names = list(pretrained.head_spec.axes), pretrained.family.text_inputs
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    return {
        "architecture": pretrained.class_name,
        "call": f"model(weights, {', '.join(names)})",
        "weights": WEIGHTS_FILE,
        "inputs": {
            name: {"dtype": INPUTS[name].dtype, "shape": axes, "meaning": INPUTS[name].meaning}
            for name in names
        },
        "outputs": {
            name: {
                "dtype": str(output.dtype),
                "shape": [d if isinstance(d, int) else str(d) for d in output.shape],
            }
            for name, output in outputs.items()
        },
        "longest": pretrained.spec.max_position_embeddings,
        "pad_id": pretrained.tokenizer.pad_id,
        "classes": list(pretrained.classes),
        "compute_dtype": pretrained.spec.compute_dtype,
        "platforms": list(exported.platforms),
        "jax": jax.__version__,
    }


def _readme(pretrained: Pretrained, exported: export.Exported) -> str:
    spec, axes = pretrained.spec, pretrained.head_spec.axes
    names = pretrained.family.text_inputs
    choices = "C" in axes
    return _README.format(
        architecture=pretrained.class_name,
        layers=spec.num_hidden_layers,
        width=spec.hidden_size,
        dtype=spec.compute_dtype,
        platforms=", ".join(exported.platforms),
        pad_id=pretrained.tokenizer.pad_id,
        longest=spec.max_position_embeddings,
        weights=WEIGHTS_FILE,
        model=MODEL_FILE,
        signature=SIGNATURE_FILE,
        texts='[("A question", "one answer"), ("A question", "another answer")]'
        if choices
        else '["One text.", "Another, a longer one."]',
        names=", ".join(names),
        fields=json.dumps([_IN_TOKENIZERS[name] for name in names]),
        inputs="[[choices] for choices in inputs]" if choices else "inputs",
        shape=f"[{', '.join(axes)}]",
        choices=", C" if choices else "",
        jax_version=jax.__version__,
        answer=_answer(pretrained),
    )


def _answer(pretrained: Pretrained) -> str:
    """The paragraph on how "logits" become an answer; "" for a model without them."""
    classes = pretrained.classes
    names = ", ".join(f"`{name}`" for name in classes)
    if pretrained.task.get("problem_type") == "multi_label_classification":
        thresholds = pretrained.task.get("thresholds") or 0.5
        return (
            f'\n`jax.nn.sigmoid(outputs["logits"])` are the probabilities of the labels, in this '
            f"order: {names}. A text has those above `{thresholds}`.\n"
        )
    if len(classes) == 1:
        return '\n`outputs["logits"][:, 0]` is the predicted number.\n'
    if not classes and pretrained.head_type != head_types.MULTIPLE_CHOICE:
        return ""
    what = f"classes, in this order: {names}" if classes else "choices"
    return f'\n`jax.nn.softmax(outputs["logits"])` are the probabilities of the {what}.\n'


def _prove(pretrained: Pretrained, module: nn.Module, folder: Path) -> float:
    """The greatest difference between the outputs of the written function and of the module."""
    inputs = proof.random_inputs(pretrained)
    expected = proof.outputs(module, pretrained.params, inputs)
    written = jax.jit(export.deserialize(bytearray((folder / MODEL_FILE).read_bytes())).call)
    found = written(load_file(folder / WEIGHTS_FILE), *inputs.values())
    return proof.greatest_difference(expected, found, inputs, module.spec.compute_dtype)
