"""Compares a small model with transformers: its folder, its outputs and its gradients."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertjax.interop import transformers_check
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.names import to_hf
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.proof import random_inputs
from tests.helpers.closeness import assert_close
from tests.helpers.small_models import family_model


def same_as_transformers(name: str, kind: str, vocabulary: Path, **settings: Any) -> None:
    """Fails unless transformers has the same model.

    It loads the whole folder; outputs and gradients are equal; and the folder that it saves is
    read as the same model, bit for bit.
    """
    model = family_model(vocabulary, name, kind, **settings)
    with tempfile.TemporaryDirectory() as folder:
        peer = peer_of(model, Path(folder))
        peer.save_pretrained(folder)
        again = read_hugging_face(Path(folder), "hf:saved by transformers")
    assert (again.spec, again.head_type, again.classes) == (model.spec, kind, model.classes)
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    assert again.missing == ()
    inputs = random_inputs(model)
    same_function(model, peer, inputs, transformers_check.inputs(inputs))


def peer_of(model: Pretrained, folder: Path) -> Any:
    """transformers' model of the folder that we write, in float32."""
    import transformers

    write_hugging_face(model, folder)
    its_class = getattr(transformers, model.class_name)
    attention = "sdpa" if its_class._supports_sdpa else "eager"
    return transformers_check.load(folder, model.class_name, "float32", attention)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch computes with one thread in the block: more take longer for so small arrays."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def same_function(
    model: Pretrained, peer: Any, inputs: Mapping[str, Any], peer_inputs: Mapping[str, Any]
) -> None:
    """Compares outputs, and the gradients of their sum with random weights, with the peer's.

    The peer computes in float64. Outputs at padding have no meaning; nor has an output of a whole
    text with its padding on the unusual side.
    """
    import torch

    mask, module = inputs["input_mask"] > 0, model.model()
    of_whole = max(mask[..., 0], mask[..., -1], key=np.sum)

    def compared(output: Any) -> Any:
        return output[mask if output.shape[: mask.ndim] == mask.shape else of_whole]

    def weights(output: Any) -> np.ndarray:
        return np.random.default_rng(4).normal(size=output.shape)

    def summed(params: Any) -> Any:
        outputs = module.apply({"params": params}, inputs, deterministic=True)
        found = {name: compared(output) for name, output in outputs.items()}
        return sum((output * weights(output)).sum() for output in found.values()), found

    (_, found), grads = jax.jit(jax.value_and_grad(summed, has_aux=True))(model.params)
    reference = peer.double()(**peer_inputs)
    names = {name: transformers_check.output_name(name, reference) for name in found}
    wanted = {name: compared(reference[hf_name]) for name, hf_name in names.items()}
    assert_close(found, {name: output.detach().numpy() for name, output in wanted.items()})
    sum((output * torch.tensor(weights(output))).sum() for output in wanted.values()).backward()
    gradients = to_hf(jax.tree.map(np.asarray, grads), model.entries)
    expected = {name: np.zeros_like(array) for name, array in gradients.items()}
    for name, parameter in peer.named_parameters():
        if parameter.grad is not None:
            name = model.names.one_spelling(name)
            expected[model.names.copies.get(name, name)] = parameter.grad.numpy()
    assert_close(gradients, expected, 1000, share=0.01)
