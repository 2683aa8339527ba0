"""Vectors of the words of sentences, from every layer of an encoder."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flax import linen as nn

from bertjax.base.errors import InputError
from bertjax.base.progress import Progress
from bertjax.inference.features.activations import allocate
from bertjax.inference.features.compute import Extractor
from bertjax.inference.features.texts import EncodedText
from bertjax.interop.pretrained import Pretrained
from bertjax.lab.probes.trees import Tree
from bertjax.models.encoders import head_types
from bertjax.models.heads.head_specs import text_inputs
from bertjax.training.model import Model

_AT_ONCE = 256  # sentences


class Sentences(NamedTuple):
    """Trees, and their words as a model reads them."""

    trees: list[Tree]
    texts: list[EncodedText]


def encoded(trees: Sequence[Tree], extractor: Extractor, longest: int) -> Sentences:
    """The sentences that have at most `longest` tokens, special ones included, by an extractor."""
    found = Sentences([], [])
    encoded = extractor.encoder.encode(map(_text, trees), pairs=False)
    for tree, text in zip(trees, encoded, strict=True):
        if text.length <= longest:
            if text.vectors != len(tree.words):
                raise InputError(f"{tree.where}: a word of white space alone: remove it")
            found.trees.append(tree)
            found.texts.append(text)
    return found


def word_vectors(texts: Sequence[EncodedText], extractor: Extractor, path: Path) -> np.ndarray:
    """The mean of the vectors of each word's pieces, float16 [layers, N, D], in order of sentences.

    They are kept in the .npy file `path`, which is mapped.
    """
    layers = len(extractor.options.layers)
    shape = layers, sum(text.vectors for text in texts), extractor.width // layers
    allocate(path, shape)
    found = np.lib.format.open_memmap(path, "r+")
    done = 0
    with Progress("vectors of words", len(texts), " sentences") as progress:
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            vectors = np.concatenate(extractor.vectors(some, progress))
            by_layer = vectors.reshape(len(vectors), layers, -1).swapaxes(0, 1)
            found[:, done : done + len(vectors)] = by_layer
            done += len(vectors)
    return found


def _text(tree: Tree) -> str:
    """The words with spaces between them; a word has no space."""
    return " ".join("".join(word.split()) for word in tree.words)


def with_random_layers(pretrained: Pretrained, seed: int) -> Pretrained:
    """The model with random weights in all layers, and its own embeddings."""
    inputs = text_inputs(pretrained.spec, B=1, S=8)
    init = jax.jit(Model.of(pretrained.model(head_types.ENCODER), inputs).init)
    initial = init(jax.random.key(seed))
    params = jax.device_get(nn.meta.unbox(initial))
    encoder = pretrained.spec.encoder
    embeddings = {
        name: tree
        for name, tree in pretrained.params[encoder].items()
        if name.startswith("embeddings")
    }
    return dataclasses.replace(pretrained, params={encoder: params[encoder] | embeddings})


def decayed(trees: Sequence[Tree], vectors: np.ndarray) -> np.ndarray:
    """The mean of all words [N, D] of a sentence, with weights 1 / 2^d at a distance of d words."""
    means, done = [], 0
    for tree in trees:
        places = np.arange(len(tree.words))
        weights = 0.5 ** np.abs(places[:, None] - places)
        sentence_vectors = np.asarray(vectors[done : done + len(places)], np.float32)
        means.append(weights / weights.sum(1, keepdims=True) @ sentence_vectors)
        done += len(places)
    return np.concatenate(means)
