"""What the JSON files and the pictures of a folder show: scores, trials, predictions."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertjax.base.files import read_json
from bertjax.lab.pages.html import Html, details, element, number, records, table
from bertjax.lab.pages.page import Section
from bertjax.runs.read import flat
from bertjax.runs.run_folder import (
    EVALUATION_FILE,
    GRAMMAR_FILE,
    MASKED_TEXT_FILE,
    PREDICTIONS_FOLDER,
    RESULTS_FILE,
    read_trial,
)

_HINT = "remove it, and the command that wrote it makes it again"
_EVALUATIONS = (EVALUATION_FILE, MASKED_TEXT_FILE, GRAMMAR_FILE)
_DIGESTS = (PREDICTIONS_FOLDER, "data", "resampled", "identity")  # keys with nothing for people
_LINES, _LONGEST = 20, 400  # of predictions that are shown; the characters of a text
_LARGEST_PICTURE = 400_000  # bytes; a larger one is named only
_LOSS_PICTURE = "loss.png"  # the curves of a page say the same


def of_config(config: Mapping[str, Any]) -> Html:
    """A config, folded away."""
    rows = [(key, json.dumps(value)) for key, value in flat(config).items()]
    return details("config", table("config.json", ["key", "value"], rows))


def evaluations(folder: Path) -> Iterator[Section]:
    """Yields what other programs have found of a run of pre-training."""
    for name in _EVALUATIONS:
        if (folder / name).exists():
            yield Section(name, _shown(name, read_json(folder / name, hint=_HINT)))


def paths_in_folders(run: Path, folder: str) -> dict[str, Path]:
    """What is in the folders "trials" or "predictions" of a run, and of its tasks or choices.

    Its name, after that of the task or of the choice of layers -> its path.
    """
    paths = sorted([*run.glob(f"{folder}/*"), *run.glob(f"*/{folder}/*")])
    return {" ".join(p for p in path.relative_to(run).parts if p != folder): path for path in paths}


def results(folder: Path) -> Iterator[Section]:
    """Yields the scores of a run of fine-tuning, its trials, and the first of its predictions."""
    if (folder / RESULTS_FILE).exists():
        found = read_json(folder / RESULTS_FILE, hint=_HINT)
        if all(isinstance(each, Mapping) for each in found.values()):  # of choices of layers
            for choice, each in found.items():
                yield Section(f"Scores of {choice}", _shown(RESULTS_FILE, each))
        else:
            yield Section("Scores", _shown(RESULTS_FILE, found))
    elif trials := _finished_trials(folder):
        yield Section("Trials so far", [records("trials that are done", trials)])
    files = [
        _predictions(name, path)
        for name, path in paths_in_folders(folder, PREDICTIONS_FOLDER).items()
        if path.is_file()
    ]
    if files:
        yield Section("Predictions", files)


def _finished_trials(folder: Path) -> list[dict[str, Any]]:
    return [
        {"trial": name, **_cells(read_trial(path)["dev"])}
        for name, path in paths_in_folders(folder, "trials").items()
        if (path / RESULTS_FILE).exists()
    ]


def _shown(name: str, found: Mapping[str, Any]) -> list[Html]:
    """A JSON object as tables: one of its figures, and one of each list of objects."""
    figures, lists = [], []
    for key, value in _figures(found):
        if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            lists.append(records(key, [_cells(each) for each in value]))
        elif value not in ("", None, []):
            figures.append((key, number(_cell(value))))
    return [table(name, ["figure", "value"], figures), *lists]


def _cells(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cell(value) for name, value in _figures(record)}


def _figures(found: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields the name and value of each figure of nested objects, without digests."""
    for key, value in found.items():
        names = above if above[-1:] == (key,) else (*above, key)
        if key in _DIGESTS:
            continue
        if not isinstance(value, Mapping):
            yield " ".join(names), value
        elif value.keys() == {"mean", "deviation"}:
            yield (
                " ".join(names),
                " ± ".join(number(each) for each in value.values() if each is not None),
            )
        else:
            yield from _figures(value, names)


def _cell(value: Any) -> Any:
    if isinstance(value, int | float) or value is None:
        return value
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _predictions(name: str, file: Path) -> Html:
    """The first lines of a file of predictions: a table of JSON lines, or the lines."""
    with open(file, encoding="utf-8", errors="replace") as lines:
        first = [line for _, line in zip(range(_LINES), lines, strict=False)]
    title = f"{name}: the first {len(first)} lines"
    if file.suffix == ".jsonl":
        return details(title, records(name, [_object(line) for line in first]))
    return details(title, element("pre", "".join(_cut(line.rstrip("\n")) + "\n" for line in first)))


def _object(line: str) -> dict[str, Any]:
    """A JSON line as cells; nested objects, such as probabilities, are JSON in one."""
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {"damaged": _cut(line)}
    return {key: _cell(each) for key, each in value.items()}


def pictures(folder: Path) -> Iterator[Html]:
    """Yields the pictures that lie in a folder, as programs have drawn them."""
    for file in sorted(folder.glob("*.png")):
        if file.name == _LOSS_PICTURE:
            continue
        data = file.read_bytes()
        if len(data) > _LARGEST_PICTURE:
            yield element(
                "p", f"{file.name}: {number(len(data))} bytes, too large to be shown here"
            )
            continue
        coded = base64.b64encode(data).decode()
        caption = element("figcaption", file.name)
        shown = element(
            "img", src=f"data:image/png;base64,{coded}", alt=file.name, class_="picture"
        )
        yield element("figure", caption, shown)
