"""Reads parse trees out of the vectors of a model (Hewitt and Manning 2019)."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base import figures
from bertjax.base.checks import check_output, check_range
from bertjax.base.errors import InputError
from bertjax.base.figures import Curve, Level
from bertjax.base.files import write_json
from bertjax.inference.features.compute import Extractor, Options
from bertjax.inference.features.texts import WORDS
from bertjax.interop.pretrained import Pretrained
from bertjax.lab.probes.picture import draw_trees
from bertjax.lab.probes.probe import DEPTH, DISTANCE, Words, predictions, train
from bertjax.lab.probes.scores import (
    edges_of,
    mean_over_lengths,
    root_accuracy,
    spearman_by_length,
    uuas,
)
from bertjax.lab.probes.trees import Tree, read_trees
from bertjax.lab.probes.vectors import Sentences, decayed, encoded, with_random_layers, word_vectors
from bertjax.runs.source import open_model

TRAIN, DEV, TEST = "train", "dev", "test"
Split = dict[str, list[Tree]]
_SHOWN = 3  # sentences in the picture
_COLUMNS = ("UUAS", "DSpr", "root", "NSpr")


def run(
    model: str,
    data: str,
    layers: Sequence[int] | None = None,
    ranks: Sequence[int] = (),
    most: int | None = None,
    baselines: bool = True,
    output: str | None = None,
) -> dict[str, Any]:
    """Trains a probe of distances and one of depths for each layer and rank, and prints scores.

    Args:
      data: a folder with one file of CoNLL-U each with "train", "dev" and "test" in its name.
      layers: from 0, the embeddings; None: all.
      ranks: of the projections; (): the model's width.
      baselines: whether to score those of the paper as well: words in a chain, decayed vectors of
        the embeddings, and the same model with random layers.
      output: a .json file of the result; pictures get its name with -layers.png and -trees.png.

    Returns:
      "sentences", the number in each split; and "probes": name -> scores on the test split: "UUAS"
      and "root" in percent, "DSpr" and "NSpr" (correlations), "dev_loss" of both, and
      "DSpr_by_length".

    Raises:
      InputError: no such model or files; a damaged file; a rank or a layer that is not there.
    """
    pretrained = open_model(model)
    depth = pretrained.spec.num_hidden_layers
    layers = tuple(range(depth + 1)) if layers is None else tuple(layers)
    extractor = _extractor(pretrained, layers)
    ranks = tuple(ranks) or (pretrained.spec.hidden_size,)
    for rank in ranks:
        check_range("--rank", rank, 1, pretrained.spec.hidden_size)
    if output:
        check_output(output)
    sentences = _read(data, extractor, pretrained.spec.max_position_embeddings, most)
    trees = {split: each.trees for split, each in sentences.items()}
    print(pretrained.summary(), flush=True)
    result: dict[str, dict[str, Any]] = {}
    if baselines:
        result["words in a chain"] = _chain(trees[TEST])
    with tempfile.TemporaryDirectory(prefix="bertjax-") as folder:
        found = _vectors(sentences, extractor, Path(folder) / "model")
        best: tuple[float, str, list[np.ndarray]] | None = None
        for place, layer in enumerate(layers):
            for rank in ranks:
                name = f"layer {layer}, rank {rank}"
                result[name], distances = _probed(trees, _layer(found, place), rank)
                _print_row(name, result[name])
                if best is None or result[name]["UUAS"] > best[0]:
                    best = result[name]["UUAS"], name, distances
        if baselines:
            rank = ranks[0]
            if 0 in layers:
                made = {s: decayed(trees[s], x[layers.index(0)]) for s, x in found.items()}
                result["decayed embeddings"], _ = _probed(trees, made, rank)
                _print_row("decayed embeddings", result["decayed embeddings"])
            initial = _extractor(with_random_layers(pretrained, seed=0), (depth,))
            other = _vectors(sentences, initial, Path(folder) / "random")
            result["random layers"], _ = _probed(trees, _layer(other, 0), rank)
    print(f"\n{'':24}" + "".join(f"{name:>9}" for name in _COLUMNS))
    for name, scores in result.items():
        _print_row(name, scores)
    numbers = {split: len(some) for split, some in trees.items()}
    report = {"model": model, "sentences": numbers, "probes": result}
    if output:
        write_json(Path(output), report)
        assert best is not None
        _draw(Path(output).with_suffix(""), result, layers, ranks, trees[TEST], best[2])
    return report


def _extractor(pretrained: Pretrained, layers: Sequence[int]) -> Extractor:
    return Extractor(pretrained, Options(features=WORDS, layers=tuple(layers)))


def _read(data: str, extractor: Extractor, longest: int, most: int | None) -> dict[str, Sentences]:
    """The sentences of each split, without those that are too long for the model."""
    found: dict[str, Sentences] = {}
    for split in (TRAIN, DEV, TEST):
        paths = sorted(Path(data).glob(f"*{split}*.conllu*"))
        if len(paths) != 1:
            names = ", ".join(path.name for path in paths) or "none"
            raise InputError(f"--data={data}: needs one *{split}*.conllu file, and has {names}")
        trees = read_trees(paths[0])[: most if split == TRAIN else None]
        found[split] = encoded(trees, extractor, longest)
        if left := len(trees) - len(found[split].trees):
            print(f"{split}: {left} sentences of more than {longest} tokens are left out")
        if not found[split].trees:
            raise InputError(f"{paths[0]}: no sentence that the model can read")
    return found


def _vectors(
    sentences: Mapping[str, Sentences], extractor: Extractor, path: Path
) -> dict[str, np.ndarray]:
    return {
        split: word_vectors(each.texts, extractor, path.with_suffix(f".{split}"))
        for split, each in sentences.items()
    }


def _layer(vectors: Mapping[str, np.ndarray], place: int) -> dict[str, np.ndarray]:
    return {split: each[place] for split, each in vectors.items()}


def _probed(
    trees: Split, vectors: Mapping[str, np.ndarray], rank: int
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The scores of both probes on the test split, and the predicted distances."""
    words = {split: Words(some, vectors[split]) for split, some in trees.items()}
    found, losses = {}, {}
    for probe_type in (DISTANCE, DEPTH):
        projection, losses[probe_type] = train(probe_type, words[TRAIN], words[DEV], rank)
        found[probe_type] = predictions(probe_type, projection, words[TEST])
    scores = _scores(trees[TEST], found[DISTANCE], found[DEPTH]) | {"dev_loss": losses}
    return scores, found[DISTANCE]


def _scores(
    trees: Sequence[Tree], distances: Sequence[np.ndarray], depths: Sequence[np.ndarray]
) -> dict[str, Any]:
    def gold(of: Callable[[Tree], np.ndarray]) -> list[np.ndarray]:
        return [of(tree) for tree in trees]

    by_length = spearman_by_length(trees, gold(lambda tree: tree.distances), distances)
    of_depths = spearman_by_length(trees, gold(lambda tree: tree.depths), depths)
    return {
        "UUAS": uuas(trees, distances),
        "DSpr": mean_over_lengths(by_length),
        "root": root_accuracy(trees, depths),
        "NSpr": mean_over_lengths(of_depths),
        "DSpr_by_length": {str(length): value for length, value in by_length.items()},
    }


def _chain(trees: Sequence[Tree]) -> dict[str, Any]:
    """Each word hangs on the one before it."""
    places = [np.arange(len(tree.words)) for tree in trees]
    return _scores(trees, [np.abs(each[:, None] - each) for each in places], places)


def _print_row(name: str, scores: Mapping[str, Any]) -> None:
    cells = (scores[column] for column in _COLUMNS)
    shown = (f"{cell:9.1f}" if abs(cell) > 1 else f"{cell:9.3f}" for cell in cells)
    print(f"{name:24}" + "".join(shown), flush=True)


def _draw(
    stem: Path,
    result: Mapping[str, Mapping[str, Any]],
    layers: Sequence[int],
    ranks: Sequence[int],
    trees: Sequence[Tree],
    distances: Sequence[np.ndarray],
) -> None:
    uuas = {name: each["UUAS"] for name, each in result.items()}
    curves = [
        Curve.of(f"rank {rank}", [(n, uuas[f"layer {n}, rank {rank}"]) for n in layers])
        for rank in ranks
    ]
    levels = [Level(name, x) for name, x in uuas.items() if not name.startswith("layer ")]
    axes = dict(xlabel="layer (0: embeddings)", ylabel="UUAS (%)")
    figures.draw(stem.with_name(f"{stem.name}-layers.png"), curves, levels, **axes)
    usual = [number for number, tree in enumerate(trees) if 6 <= len(tree.words) <= 14][:_SHOWN]
    chosen = usual or [0]
    draw_trees(
        [trees[number] for number in chosen],
        [edges_of(trees[number], trees[number].distances) for number in chosen],
        [edges_of(trees[number], distances[number]) for number in chosen],
        stem.with_name(f"{stem.name}-trees.png"),
    )
