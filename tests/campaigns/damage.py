"""Damages every kind of file that the programs write, and runs the programs that read it.

  python tests/campaigns/damage.py --minutes=10 [--seed=1] [--output=FILE.json]

The damaged file belongs to a corpus, a run (of pre-training, of fine-tuning, over fixed features),
an ensemble, a study, a model in the form of transformers, or unfinished vectors. The program must
report the damage, or give the same result as without it; if it drops what is damaged, it must say
so. Finished runs and corpora are tried, and also unfinished ones of a killed process, whose result
must be that of a run that was never stopped.
"""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import made
import other_json
import programs
from made import made_from
from outcome import SILENT, Meant
from tries import Planned, campaign

_OF_TRANSFORMERS = "a file of transformers has no checksum: another value is a value"
_METRICS_LOG = "a line of the metrics log has no checksum: another digit is another figure"
_CARD = "the value goes into the model's card only, and nothing says what it was"

MEANT = (
    Meant("*glue-run/model: *", SILENT, _OF_TRANSFORMERS),
    Meant("exported/*", SILENT, _OF_TRANSFORMERS),
    Meant("classifier/*", SILENT, _OF_TRANSFORMERS),
    Meant("*-run/metrics.jsonl: metrics.jsonl: a* flipped*: *", SILENT, _METRICS_LOG),
    Meant("glue-run/config.json: *: convert", SILENT, _CARD),
    Meant("evaluated-run/evaluation.json: *: convert", SILENT, _CARD),
)

# The name of what is damaged -> the commands that read it.
_READERS = {
    "corpus": (
        "corpus",
        [made_from(made.PREPARE, "corpus"), made.PRETRAIN, made.EVALUATE],
    ),
    "unfinished-corpus": ("corpus", [made_from(made.PREPARE, "corpus=unfinished-corpus")]),
    "evaluated-run": (
        "run",
        [
            made_from(command, "run=evaluated-run")
            for command in (made.EVALUATE, made.FILL, made.HAND_ON, made.PRETRAIN, made.WATCH)
        ],
    ),
    "unfinished-run": ("run", [made_from(made.PRETRAIN, "run=unfinished-run")]),
    "glue-run": (
        "glue-run",
        [made.PREDICT, made.CLASSIFIER, made.ENSEMBLE, made_from(made.GLUE, "glue-run")],
    ),
    "unfinished-glue-run": ("glue-run", [made_from(made.GLUE, "glue-run=unfinished-glue-run")]),
    "together": ("together", [made.PREDICT_TOGETHER, made_from(made.TOGETHER, "together")]),
    "study": ("study", [made_from(made.STUDY, "study")]),
    "features-run": ("features-run", [made_from(made.FEATURES, "features-run")]),
    "exported": ("exported", [made.SERVE, made.FILL_EXPORTED]),
    "classifier": ("classifier", [made.PREDICT_CLASSIFIER]),
    "vectors.npz.parts": (
        "vectors.npz.parts",
        [made_from(made.EXTRACT, "vectors.npz.parts", before=made.small_shards)],
    ),
}


# ---------------------------------------------------------------------------- the damages


def _flipped(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _flipped_at_the_start(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(min(64, len(data)))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(1, len(data))])


def _emptied(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def _deleted(path: Path, _: random.Random) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _file(path: Path, _: random.Random) -> None:
    shutil.rmtree(path)
    path.write_text("a file\n")


def _emptied_folder(path: Path, _: random.Random) -> None:
    shutil.rmtree(path)
    path.mkdir()


def _not_utf8(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    place = rng.randrange(len(data))
    path.write_bytes(data[:place] + b"\xff\xfe" + data[place:])


def _zeros(path: Path, rng: random.Random) -> None:
    """Replaces content by zeros, as after a power cut before the blocks were written."""
    data = path.read_bytes()
    place = rng.randrange(len(data))
    path.write_bytes(data[:place] + bytes(len(data) - place))


def _text(text: str) -> Callable[[Path, random.Random], None]:
    return lambda path, _: path.write_text(text)


_OTHER_JSON = {
    "null": _text("null\n"),
    "a list": _text("[]\n"),
    "a text": _text('"text"\n'),
    "a number": _text("7\n"),
    "an empty object": _text("{}\n"),
    "nested without end": _text(other_json.NESTED),
}


def _value_of_another_type(path: Path, rng: random.Random) -> None:
    value = json.loads(path.read_text())
    place = rng.choice(list(other_json.places(value)))
    new = rng.choice(other_json.others(other_json.at(value, place)))
    path.write_text(json.dumps(other_json.with_other(value, place, new)))


def _without_a_key(path: Path, rng: random.Random) -> None:
    value = json.loads(path.read_text())
    keys = [place for place in other_json.places(value) if isinstance(place[-1], str)]
    path.write_text(json.dumps(other_json.without(value, rng.choice(keys))))


def _line(new: bytes) -> Callable[[Path, random.Random], None]:
    def change(path: Path, rng: random.Random) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        lines.insert(rng.randrange(len(lines)), new + b"\n")
        path.write_bytes(b"".join(lines))

    return change


_LINES = {
    "a line of garbage": _line(b'{"step": 1, "sp'),
    "a blank line": _line(b""),
    "a line of NULs": _line(bytes(40)),
    "a line null": _line(b"null"),
    "a line of a list": _line(b"[1]"),
    "a line without its keys": _line(b"{}"),
    "a line of texts": _line(b'{"step": "one", "split": 3}'),
    "a line that is not UTF-8": _line(b"\xff\xfe"),
}
_OF_FILES = {
    "a flipped bit": _flipped,
    "a bit flipped at the start": _flipped_at_the_start,
    "cut": _cut,
    "zeros from some place on": _zeros,
    "emptied": _emptied,
    "deleted": _deleted,
    "a folder in its place": _folder,
}
_OF_JSON = {
    **_OTHER_JSON,
    "a value of another type": _value_of_another_type,
    "another value of another type": _value_of_another_type,
    "without a key": _without_a_key,
    "without another key": _without_a_key,
    "not UTF-8": _not_utf8,
}
_OF_FOLDERS = {
    "a file in its place": _file,
    "emptied": _emptied_folder,
    "deleted": _deleted,
}


def _damages(path: Path) -> dict[str, Callable[[Path, random.Random], None]]:
    """The damages that are possible for the file or folder at a path."""
    if path.is_dir():
        return _OF_FOLDERS
    found = _OF_FILES if path.stat().st_size else {"deleted": _deleted, "a folder": _folder}
    if path.suffix == ".jsonl":
        return found | _LINES
    if path.suffix == ".json":
        return found | _OF_JSON
    return found | ({"not UTF-8": _not_utf8} if path.suffix == ".txt" else {})


# --------------------------------------------------------------------------------- the plan


def plan(things: made.Made) -> Iterator[Planned]:
    """Yields every damage to one file or folder of each kind, for every program that reads it."""
    for name, (place, readers) in _READERS.items():
        for kind, path in _kinds(things.folder / name):
            for damage, change in _damages(path).items():
                inside = path.relative_to(things.folder / name)
                for reader in readers:
                    yield Planned(
                        f"{name}/{kind.partition('/')[0]}",
                        f"{kind}: {damage}: {reader.program}",
                        reader,
                        partial(_damaged, Path(place) / inside, change),
                        _names(inside),
                    )


def _kinds(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files and folders inside, one of each kind: names of a kind differ only in numbers."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name != ".lock":
            name = str(path.relative_to(folder))
            kind = re.sub(r"[0-9a-f]{16,}|\d+", "N", name)
            found[kind] = path  # the last one, such as the newest checkpoint
    return iter(found.items())


def _names(inside: Path) -> tuple[str, ...]:
    """Names of which a message about the damage has one: of the file, or of a folder around it."""
    around = [str(path) for path in (inside, *inside.parents) if len(str(path)) > 3]
    return inside.name, *around


def _damaged(
    inside: Path,
    change: Callable[[Path, random.Random], None],
    job: programs.Job,
    rng: random.Random,
) -> programs.Job:
    change(job.folder / inside, rng)
    return job


if __name__ == "__main__":
    campaign(__doc__, plan, MEANT)
