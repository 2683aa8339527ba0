"""A small ELMo of odd sizes with random weights."""

import jax
import numpy as np

from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.heads.head_specs import text_inputs
from bertjax.text.characters import Characters
from bertjax.training.model import zeros

SIZES = dict(
    vocab_size=19,
    hidden_size=14,
    num_hidden_layers=3,
    cell_size=11,
    character_size=5,
    filters=((1, 3), (4, 6), (2, 4)),
    cell_clip=0.9,
    projection_clip=0.4,
)


def small_elmo(**changes) -> Pretrained:
    """A model whose weights are large enough that every array matters."""
    spec = ElmoSpec(**SIZES | changes)
    inputs = zeros(text_inputs(spec, B=1, S=3))

    def init(key: jax.Array) -> dict:
        return make_encoder(spec).init(key, inputs, deterministic=True)["params"]

    boxed = jax.eval_shape(init, jax.random.key(0))
    rng = np.random.default_rng(1)
    params = jax.tree.map(
        lambda box: rng.normal(0, 0.7, box.value.shape).astype(np.float32),
        boxed,
        is_leaf=lambda x: hasattr(x, "value"),
    )
    return Pretrained("small", head_types.ENCODER, spec, {"elmo": params}, Characters())


def batch_of(texts: list[list[str]], length: int) -> dict[str, np.ndarray]:
    """The inputs of an encoder for texts of at most `length` - 2 words."""
    characters = Characters()
    batch = {
        "characters": np.zeros((len(texts), length, 50), np.int32),
        "input_mask": np.zeros((len(texts), length), np.int32),
    }
    for row, words in enumerate(characters.encode_words(texts)):
        ids = characters.template.sequence([word for (word,) in words]).ids
        batch["characters"][row, : len(ids)] = ids
        batch["input_mask"][row, : len(ids)] = 1
    return batch
