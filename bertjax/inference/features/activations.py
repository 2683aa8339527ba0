"""Activations of every layer at each word: the input of a BiLSTM (section 5.3, Table 7).

They are computed once. Each data set has a file NAME-HASH-DIGEST.npy, float16 [layers, words, D].
The layers are stored one after another, so that layers that are not chosen are never read. HASH
covers all that determines the content, and DIGEST covers the content itself.
"""

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import WORD_MASK, Field
from bertjax.base.files import (
    check_content,
    content_named,
    name_by_content,
    named,
    read_json,
    size_in_words,
    write_json,
)
from bertjax.base.progress import Progress
from bertjax.base.validation import record
from bertjax.inference.features.compute import Extractor, Options
from bertjax.inference.features.texts import FIRST_PIECES, EncodedText
from bertjax.interop.pretrained import Pretrained
from bertjax.tasks.tagging import EncodedWords, Sentence, Tagging
from bertjax.training.sharding.hosts import exclusive_on_first, from_first, host_index

_BLOCK_BYTES = 256 << 20  # of float32 activations, between two records of the progress


class LayerChoice(NamedTuple):
    """Layers of the encoder, and how they become one vector (`models.heads.bilstm.COMBINE`).

    In `layers`, 0 is the embeddings, and negative numbers count from the last layer; () means all
    layers without the embeddings, and None with them.
    """

    layers: tuple[int, ...] | None
    combine: str


# Table 7.
CHOICES = {
    "embeddings": LayerChoice((0,), "concat"),
    "second_to_last": LayerChoice((-2,), "concat"),
    "last": LayerChoice((-1,), "concat"),
    "weighted_sum_last_four": LayerChoice((-4, -3, -2, -1), "weighted_sum"),
    "concat_last_four": LayerChoice((-4, -3, -2, -1), "concat"),
    "weighted_sum_all": LayerChoice((), "weighted_sum"),
    # ELMo's row (arXiv 1802.05365, section 3.2 and 3.3).
    "mix_all": LayerChoice(None, "mix"),
    "mix_all_twice": LayerChoice(None, "mix_twice"),
}


def chosen_layers(choice: LayerChoice, depth: int) -> tuple[int, ...]:
    """The layers' numbers, from 0, of `depth`; raises InputError if the model has fewer layers."""
    if choice.layers is None:
        return tuple(range(depth + 1))
    if depth + min(choice.layers, default=0) < 0:
        raise InputError(f"{-min(choice.layers)} layers chosen, but the model has {depth}")
    return tuple(layer % (depth + 1) for layer in choice.layers) or tuple(range(1, depth + 1))


def all_layers(
    pretrained: Pretrained, max_length: int, compute_dtype: str = "float32"
) -> Extractor:
    """The extractor that `compute` needs, with the outputs of all layers."""
    layers = tuple(range(pretrained.spec.num_hidden_layers + 1))
    options = Options(FIRST_PIECES, layers, max_length=max_length, compute_dtype=compute_dtype)
    return Extractor(pretrained, options)


def compute(folder: Path, name: str, encoded: EncodedWords, extractor: Extractor) -> np.ndarray:
    """The activations of every word, float16 [layers, words, D], mapped from `folder`.

    A finished file is not computed again, and an interrupted computation is resumed. All hosts of a
    job compute; the first one writes. The extractor is `all_layers` for the length of the windows.

    Raises:
      InputError: the disk is full, another process is using the folder, or the file is damaged.
    """
    final = folder / f"{name}-{_identity(encoded, extractor)[:16]}.npy"
    path = from_first(lambda: _checked_file(final))
    if not path:
        with exclusive_on_first(folder):
            path = _fill(final, encoded, extractor)
    return np.load(path, mmap_mode="r")


def _checked_file(final: Path) -> str | None:
    """The finished file, whose content is checked."""
    path = content_named(final)
    if path:
        check_content(path)
    return str(path) if path else None


def _identity(encoded: EncodedWords, extractor: Extractor) -> str:
    digest = hashlib.sha256(f"{extractor.identity} {extractor.options}".encode())
    for array in (encoded.ids, encoded.starts, encoded.words):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _fill(final: Path, encoded: EncodedWords, extractor: Extractor) -> str:
    """Computes on all hosts; the first one writes, and renames the complete file to its path."""
    layers = len(extractor.options.layers)
    shape = (layers, len(encoded.words), extractor.width // layers)
    partial, note = final.with_suffix(".partial"), final.with_suffix(".json")

    def started() -> int:
        """The windows that are done."""
        if note.exists() and partial.exists():
            hint = "remove it, to compute them anew"
            return read_json(note, record(windows=int), hint=hint)["windows"]
        allocate(partial, shape)
        return 0

    done = from_first(started)
    order = np.argsort(encoded.words)  # the words in the order of their windows
    tokens = encoded.words[order]
    bounds = np.searchsorted(tokens, encoded.starts)
    at_once = max(1, _BLOCK_BYTES // (4 * extractor.width))  # words
    with Progress(f"activations of {len(order)} words", len(encoded), " windows") as progress:
        progress.update(done)
        while done < len(encoded):
            stop = max(done + 1, int(np.searchsorted(bounds, bounds[done] + at_once, "right")) - 1)
            texts = [
                _text(
                    encoded.ids[encoded.starts[window] : encoded.starts[window + 1]],
                    tokens[bounds[window] : bounds[window + 1]] - encoded.starts[window],
                )
                for window in range(done, stop)
            ]
            vectors = np.concatenate(extractor.vectors(texts, progress))
            words = order[bounds[done] : bounds[stop]]
            if host_index() == 0:
                array = np.lib.format.open_memmap(partial, "r+")
                array[:, words] = vectors.reshape(len(words), layers, -1).swapaxes(0, 1)
                array.flush()
                write_json(note, {"windows": stop})
            done = stop

    def complete() -> str:
        path = name_by_content(partial, final)
        note.unlink(missing_ok=True)
        return str(path)

    return from_first(complete)


def allocate(path: Path, shape: tuple[int, ...]) -> None:
    """Writes a .npy of float16 zeros, or raises InputError: a mapped file reports no full disk."""
    with named(path):
        np.lib.format.open_memmap(path, "w+", np.float16, shape)
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            path.unlink()
            raise InputError(
                f"{path.parent}: no room for {size_in_words(size)} of activations "
                f"({error.strerror}): choose another folder"
            ) from error


def _text(ids: np.ndarray, places: np.ndarray) -> EncodedText:
    """A window in the extractor's form, with a vector for each token at `places`."""
    groups, numbers = np.full(len(ids), -1, np.int32), np.arange(len(places))
    groups[places] = numbers
    words = [""] * len(places)
    return EncodedText(ids, np.zeros(len(ids), np.int32), groups, numbers, words, len(ids))


@dataclasses.dataclass(frozen=True)
class WordFeatures(EncodedWords):
    """Sentences as sequences of words, in which each word is given by activations of the encoder.

    Words take the place of tokens, and `ids` are their numbers in `activations`. So batches,
    outputs and `Tagging.decode` work as for other tagging models.

    Attributes:
      activations: float16 [layers, words, D], the result of `compute`.
      layers: the numbers of the layers that are used, from `chosen_layers`.
    """

    activations: np.ndarray = dataclasses.field(kw_only=True)
    layers: tuple[int, ...] = dataclasses.field(kw_only=True)

    @classmethod
    def of_sentences(
        cls,
        examples: Sequence[Sentence],
        family: Tagging,
        activations: np.ndarray,
        layers: tuple[int, ...],
        *,
        labelled: bool,
    ) -> "WordFeatures":
        """The features of sentences; raises InputError as `Tagging.class_ids`."""
        lengths = np.array([len(sentence.words) for sentence in examples], np.int64)
        numbers = np.arange(lengths.sum(), dtype=np.int32)
        return cls(
            ids=numbers,
            token_types=np.zeros_like(numbers),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            labels={"label_ids": family.class_ids(examples)} if labelled else {},
            words=numbers,
            activations=activations,
            layers=layers,
        )

    def batch(
        self,
        fields: Mapping[str, Field],
        examples: np.ndarray,
        rows: int,
        length: int,
        pad_id: int,
    ) -> dict[str, np.ndarray]:
        """A batch like `Encoded.batch`, with words instead of tokens.

        It has "activations" float16 [B, W, K, D]; "word_mask" int32 [B, W]; "is_real_example"; and
        "label_ids", if there are labels.
        """
        fields = {name: field for name, field in fields.items() if name not in WORD_MASK}
        batch = super().batch(fields, examples, rows, length, pad_id=0)
        numbers, mask = batch.pop("input_ids"), batch.pop("input_mask")
        del batch["token_type_ids"]
        is_word = mask > 0
        activations = np.zeros(
            (*numbers.shape, len(self.layers), self.activations.shape[-1]), self.activations.dtype
        )
        for place, layer in enumerate(self.layers):
            activations[is_word, place] = self.activations[layer, numbers[is_word]]
        return batch | {"activations": activations, "word_mask": mask}
