"""Gives every program of launch/ wrong input, most of it generated, and judges its messages.

  python tests/campaigns/bad_input.py --minutes=10 [--seed=1] [--output=FILE.json]

Wrong values are made from the flags of each program, from the keys of the configs, from the fields
of a study, and from valid files: tables, column files, JSON, text, and the folders of transformers.
If a program accepts a wrong value, its result must be the same as without it; otherwise the outcome
is "silent".
"""

import importlib
import json
import os
import random
import runpy
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import made
import numpy as np
import other_json
import programs
from absl import flags
from outcome import SILENT, TRACEBACK, Meant
from safetensors.numpy import load_file, save_file
from tries import Planned, campaign

Change = Callable[[programs.Job, random.Random], programs.Job]

_WANTED = ("reader", "corpus", "run", "glue-run", "exported", "classifier")

_DEFAULT = "what is absent, or empty, has its default"
_TEXT = "any piece of a text is a text, and every line of a file of texts, an empty one too"
_NEVER = "so seldom is never, and so many are all that there are"
_OFF = "0 switches it off"
_FINITE = "a number as another; what it leads to is seen in the loss"

MEANT = (
    Meant("* flags: no --*", SILENT, _DEFAULT),
    Meant("compile_check flags: --image=", SILENT, _DEFAULT),
    Meant("compile_check flags: --json=", SILENT, _DEFAULT),
    Meant("compile_check flags: --topology=v5e:1x1", SILENT, "a slice may have one chip"),
    Meant("score flags: --output=", SILENT, _DEFAULT),
    Meant("probe flags: --output=", SILENT, _DEFAULT),
    Meant("probe flags: --layer=*[01]", SILENT, "another layer; negative ones count from the last"),
    Meant("score files: minimal.jsonl: no *", SILENT, _DEFAULT),
    Meant("* config file: no *", SILENT, _DEFAULT),
    Meant("* flags: --config=odd/raises.py", TRACEBACK, "the error is in the user's own code"),
    Meant("study flags: --study=odd/raises.py", TRACEBACK, "the error is in the user's own code"),
    Meant("study file: no *", TRACEBACK, "an argument is missing in the user's own code"),
    Meant("study file: *.no_such_key=1", TRACEBACK, "the error is in the user's own code"),
    Meant("study file: no *", SILENT, _DEFAULT),
    Meant("study file: title=*", SILENT, "a title may be any text"),
    Meant("study file: *.name=*", SILENT, "a name may be any text of one line"),
    Meant("study flags: --only=CoLA,CoLA", SILENT, "a column that is named twice is shown once"),
    Meant("compile_check flags: --*=odd/dangling", SILENT, "the file replaces a link to nothing"),
    Meant("finetune_ner * --config.task.entities=0", SILENT, "0 is False"),
    Meant("finetune files: conll/*: no sentence ends", SILENT, "then a document is a sentence"),
    Meant("finetune files: labels/train.jsonl: label=[[]]", SILENT, "a text may have no label"),
    Meant("finetune files: glue/*/test.tsv: a blank text in *", SILENT, _TEXT),
    Meant("* files: classifier/config.json: id2label/*", SILENT, "a class may have any name"),
    Meant("* flags: --*nowhere/at/all", SILENT, "a folder is made with those it lies in"),
    Meant("* files: text.txt: cut", SILENT, _TEXT),
    Meant("* files: lines.txt: cut", SILENT, _TEXT),
    Meant("* files: lines.txt: one word of 30 MB", SILENT, _TEXT),
    Meant("extract_features files: lines.txt: only blanks", SILENT, _TEXT),
    Meant("* config *phase_2.*", SILENT, "the phase has no steps"),
    *(
        Meant(f"* config *{key}={number}", SILENT, _NEVER)
        for key in ("intervals.*", "keep_checkpoints", "keep_checkpoint_every", "buckets")
        for number in (10**20, "9" * 20)
    ),
    *(
        Meant(f"* config *{key}=0", SILENT, _OFF)
        for key in ("dropout*", "*_dropout_prob", "weight_decay", "beta[12]", "warmup_*", "*gamma")
    ),
    *(
        Meant(f"* config *{key}=0", SILENT, _OFF)
        for key in ("*_probability", "masking.*", "keep_*")
    ),
    Meant("* config *clip_norm=1e[+]300", SILENT, _FINITE),
    *(
        Meant(f"* config *{key}={number}", SILENT, _FINITE)
        for key in ("epsilon", "clip_norm")
        for number in (10**20, "9" * 20)
    ),
)

_COMMANDS = {
    command.program: command
    for command in (
        *(made.PREPARE, made.PRETRAIN, made.EVALUATE, made.FILL, made.COMPARE, made.CONVERT),
        *(made.EXTRACT, made.GLUE, made.PREDICT, made.ENSEMBLE, made.DRY_RUN, made.SHOW),
        *(made.COMPILE, made.SCORE, made.COMPLETE, made.PROBE, made.WATCH),
    )
}

# ------------------------------------------------------------------------------- the flags

# Values that are not a number, a choice or a switch.
_NO_VALUE = {
    "int": ("", "text", "nan", "-1", "0", "1.5", "9" * 20),
    "float": ("", "text", "nan", "inf", "-1", "1e400"),
    "bool": ("maybe", "2"),
    "string enum": ("", "text"),
}
_LONG = "n" * 300
_UNDECODABLE = "\udcff"  # Python's form of a byte in an argument that is not UTF-8
# Names of files and folders in every folder of a try: see `_put_oddities`.
_NO_PATH = (
    *("", "nowhere/at/all", "odd/empty.txt/below", "odd/loop", _LONG, "odd/dangling"),
    *("s3://bucket/x", "gs:///x", "gs://", "/proc/nothing"),
)
_NO_INPUT = (
    *(*_NO_PATH, "nowhere", "odd/a\nline", f"odd/{_UNDECODABLE}", "odd/folder"),
    *("odd/empty.txt", "odd/bytes", "odd/bytes.gz", "odd/utf16.txt"),
)
_NO_MODEL = (
    *_NO_INPUT,
    *("corpus", "tiny.py", "run/config.json", "run/checkpoints", "exported", "odd/folders"),
    *("hf:", "hf:run", "hf:corpus", "hf:nowhere", "hf:nowhere/at-all", "hf:odd/folder"),
    *("hf:odd/folders", "hf:odd/loop", f"hf:{_LONG}", "hf:odd/empty.txt", "hf:hf:exported"),
    *("tf1:", "tf1:run", "tf1:nowhere", "tf1:odd/folders", "tf1:odd/empty.txt", "stablehlo:x"),
)
_NO_OUTPUT = (*_NO_PATH, "odd/empty.txt", "/dev/full")
_OF_FLAGS = {
    "model": _NO_MODEL,
    "from": _NO_MODEL,
    "runs": ("glue-run", "glue-run,glue-run", *(f"glue-run,{name}" for name in _NO_MODEL)),
    "input": _NO_INPUT,
    "port": ("", "text", "nan", "-1", "1.5", "65536", "9" * 20),  # 0 is any that is free
    "corpus": (
        *_NO_INPUT,
        "run",
        "corpus@0",
        "corpus@nan",
        "corpus,corpus@0.5",
        ",",
        "corpus@1e400",
    ),
    "vocabulary": (*_NO_INPUT, "text.txt"),
    "output": _NO_OUTPUT,
    "json": _NO_OUTPUT,
    "image": _NO_OUTPUT,
    "workdir": (*_NO_OUTPUT, "odd/folders", "run/config.json"),
    "to": tuple(
        kind + name for kind in ("", "hf:", "stablehlo:", "tf1:") for name in (*_NO_OUTPUT, "run")
    ),
    "config": (
        *_NO_INPUT,
        *(f"odd/{name}.py" for name in ("syntax", "no_config", "raises", "a_list")),
        *("odd/no_arguments.py:word", "odd/folder.py", "odd/empty.py", "tiny.json"),
        *("finetune_together:a.b=regression,RTE", "finetune_together:=regression,RTE"),
    ),
    "source": (
        *_NO_PATH,
        *("text", "text:", "text:nowhere*", "text:odd", "text:odd/loop", "text:odd/bytes"),
        *("text:odd/empty.txt", "text:odd/utf16.txt", "text:odd/bytes.gz", "text:text.txt@0"),
        *("text:text.txt@-1", "text:text.txt@nan", "text:text.txt@1e400", "text:[", "text:**"),
        *("jsonl:text.txt", "jsonl:text.txt#", "jsonl:text.txt#text", "jsonl:odd/nested.jsonl#a"),
        *("jsonl:odd/types.jsonl#a", "jsonl:odd/bytes#a", "parquet:text.txt#a", "parquet:text.txt"),
        *("parquet:odd/bytes.parquet#a", "tfds:", "tfds:no/such#x", "tfds:no", "installed-docs:x"),
        *(f"text:{_LONG}", f"jsonl:{_UNDECODABLE}#a"),
    ),
    "language": ("", "text", "EN!", "../en", "9" * 300),
    "study": (
        *(*_NO_INPUT, "tiny.py", "study.py:word", "odd/folder.py", "odd/empty.py"),
        *(f"odd/{name}.py" for name in ("syntax", "raises", "no_study", "a_study", "a_long_study")),
        f"modern_walk:{'9' * 5000}",
    ),
    "data": (*_NO_INPUT, "corpus"),
    "only": ("", "text", ",", "CoLA,CoLA", "loss,text"),
    "scale": ("", "text", "17"),
    "stage": ("text", "..", "base,one", _UNDECODABLE),
    "layers": ("", "text", "99", "-99", "1,,0", "1,1", "nan", "0.5", "9" * 20, "1 0"),
    "text": ("", "no blank", "[MASK]" * 200, "[MASK] " + "moo " * 4000, _UNDECODABLE, "[mask]"),
    "word": ("", " ", "nowhere", "moo moo", _UNDECODABLE, "."),
    "topology": (
        *("", "text", "v5e", "v5e:", "v5e:0x0", "v5e:1x1", "v5e:-1x2", "v5e:3x3", "v9:2x2"),
        *("v5e:2x2x2", "v5p:2x2", "v5e:9999999999x1", "v5e:2,2", "v5e:axb", _UNDECODABLE),
    ),
    "beam_option": ("", "text", "--runner=FlinkRunner", "--runner=nowhere"),
    "tokenizer": ("", "text"),
}


def _flags_of(program: str) -> dict[str, flags.Flag]:
    """The flags that a program defines; its definitions are removed afterwards."""
    known = set(flags.FLAGS)
    runpy.run_path(str(programs.REPOSITORY / "launch" / f"{program}.py"), run_name=program)
    found = {name: flags.FLAGS[name] for name in set(flags.FLAGS) - known}
    for name in found:
        delattr(flags.FLAGS, name)
    return dict(sorted(found.items()))


def _with_flag(name: str, value: str) -> Change:
    """Replaces the value of a flag."""

    def change(job: programs.Job, _: random.Random) -> programs.Job:
        first = next((n for n, each in enumerate(job.arguments) if _sets(each, name)), None)
        others = [each for each in job.arguments if not _sets(each, name)]
        others.insert(len(others) if first is None else first, f"--{name}={value}")
        return job._replace(arguments=tuple(others))

    return change


def _sets(argument: str, name: str) -> bool:
    return argument.removeprefix("--").partition("=")[0] == name


def _arguments(change: Callable[[tuple[str, ...]], Iterable[str]]) -> Change:
    return lambda job, _: job._replace(arguments=tuple(change(job.arguments)))


def _flag_tries() -> Iterator[Planned]:
    for program, command in _COMMANDS.items():
        for name, flag in _flags_of(program).items():
            kind = flag.flag_type().removeprefix("multi ")
            for value in _OF_FLAGS.get(name, ()) or _NO_VALUE.get(kind, ()):
                yield _planned(
                    f"{program} flags", f"--{name}={value}", command, _with_flag(name, value)
                )
            flags = [each for each in command.arguments if _sets(each, name)]
            if flags:
                without = partial(_without, flags)
                yield _planned(f"{program} flags", f"no --{name}", command, _arguments(without))
        for more in ("--no_such_flag=1", "word", "--", "-x", "--=", f"--{_UNDECODABLE}", "=1"):
            added = _arguments(partial(_followed_by, more))
            yield _planned(f"{program} flags", f"and {more}", command, added)


def _without(flags: list[str], arguments: tuple[str, ...]) -> list[str]:
    return [each for each in arguments if each not in flags]


def _followed_by(more: str, arguments: tuple[str, ...]) -> list[str]:
    return [*arguments, more]


def _planned(group: str, name: str, command: made.Command, change: Change) -> Planned:
    """Plans a try, in whose folder odd files are added to those of its command."""

    def changed(job: programs.Job, rng: random.Random) -> programs.Job:
        _put_oddities(job.folder / "odd")
        return change(job, rng)

    shown = name if len(name) < 100 else f"{name[:80]}... of {len(name)} characters"
    return Planned(group, shown.encode(errors="replace").decode(), command, changed)


def _put_oddities(folder: Path) -> None:
    folder.mkdir()
    (folder / "folder").mkdir()
    (folder / "folder.py").mkdir()
    names = ("config.json", "tokenizer.json", "vocab.txt", "vocabulary.json", "store")
    for name in (*names, "model.safetensors"):
        (folder / "folders" / name).mkdir(parents=True)
    for name in ("empty.txt", "empty.py"):
        (folder / name).touch()
    (folder / "bytes").write_bytes(bytes(range(128, 256)) * 20)
    (folder / "bytes.gz").write_bytes(bytes(range(128, 256)) * 20)
    (folder / "bytes.parquet").write_bytes(bytes(range(128, 256)) * 20)
    (folder / "utf16.txt").write_text("baa moo\n" * 20, encoding="utf-16")
    (folder / "nested.jsonl").write_text(other_json.NESTED + "\n")
    (folder / "types.jsonl").write_text('{"a": 7}\n[1]\nnull\n')
    os.symlink("loop", folder / "loop")
    os.symlink("not there", folder / "dangling")
    for name, text in {
        "syntax": "def get_config(:\n",
        "no_config": "x = 1\n",
        "raises": "def get_config():\n    return {}['key']\n",
        "a_list": "def get_config():\n    return [1]\n",
        "no_arguments": "def get_config():\n    return None\n",
        "no_study": "def get_study(scale):\n    return None\n",
        "a_study": "get_study = 7\n",
        "a_long_study": "def get_study(scale, word, more):\n    return None\n",
    }.items():
        (folder / f"{name}.py").write_text(text)


# ------------------------------------------------------------------------------ the configs

_NO_NUMBER = (None, "text", "1", [], {}, True, float("nan"), float("inf"), -1, 0, 10**20, 1e300)
_NO_WHOLE_NUMBER = (0.5,)
_NO_TEXT = (None, 7, "", "text", [], {}, _LONG)
_NO_SWITCH = (None, "yes", 7, [])
_NO_SECTION = (None, 7, "text", [], {})
_NO_LIST = (None, "text", (), ("text",), (-1,), (0,), (None,), (float("nan"),), {}, (10**20,))
# Numbers in texts of a config.
_OVERFLOWING = (
    *(("budget", "1e400tokens"), ("budget", "1e30flops"), ("budget", "1..2h")),
    *(("decay_from", f"run@{'9' * 5000}"), ("init_from", f"run#{'9' * 5000}")),
)
_ON_THE_LINE = ("", "text", "nan", "inf", "-1", "0", "9" * 20, "1e400")


def _configs() -> Iterator[tuple[str, made.Command, dict[str, Any]]]:
    """Yields a name, a command, and the config in the form of a file."""
    for name, command in (
        ("pretrain", made.PRETRAIN),
        ("show_sharding", made.SHOW),
        ("finetune_glue", made.GLUE),
        ("finetune_squad", made.SQUAD),
        ("finetune_swag", made.SWAG),
        ("finetune_ner", made.FEATURES),
        ("finetune_table", made.TABLE),
        ("finetune_triviaqa", made.TRIVIAQA),
    ):
        (file,) = [each for each in command.arguments if _sets(each, "config")]
        path, _, word = file.removeprefix("--config=").partition(":")
        if path == "tiny.py":
            yield name, command, made.tiny()
        else:
            module = importlib.import_module(f"configs.{Path(path).stem}")
            yield name, command, module.get_config(*filter(None, [word])).to_dict()


def _config_tries() -> Iterator[Planned]:
    for name, command, config in _configs():
        seen = name in ("pretrain", "finetune_glue")  # the other programs share most keys
        for place in other_json.places(config):
            if any(isinstance(key, int) for key in place):
                continue
            if not (seen or place[0] in ("task", "features")):
                continue
            key, was = ".".join(place), other_json.at(config, place)
            for new in _no_value_of(was):
                in_file = partial(_in_file, config, place, new)
                yield _planned(f"{name} config file", f"{key}={new!r}", command, in_file)
            if not isinstance(was, dict):
                for text in (*_ON_THE_LINE, *_NO_WHOLE_NUMBER[: type(was) is int]):
                    flag = f"config.{key}"
                    on_line = _with_flag(flag, text)
                    yield _planned(f"{name} config flags", f"--{flag}={text}", command, on_line)
            gone = partial(_in_file, config, place, _GONE)
            yield _planned(f"{name} config file", f"no {key}", command, gone)
        for key, text in _OVERFLOWING if name == "pretrain" else ():
            flag = f"config.{key}"
            on_line = _with_flag(flag, text)
            yield _planned(f"{name} config flags", f"--{flag}={text}", command, on_line)
        for place in ((), ("model",), ("optimizer",)):
            more = partial(_in_file, config, (*place, "no_such_key"), 1)
            key = ".".join((*place, "no_such_key"))
            yield _planned(f"{name} config file", f"{key}=1", command, more)


_GONE = object()


def _no_value_of(was: Any) -> tuple[Any, ...]:
    if isinstance(was, dict):
        return _NO_SECTION
    if isinstance(was, bool):
        return _NO_SWITCH
    if isinstance(was, tuple):
        return _NO_LIST
    if isinstance(was, str):
        return _NO_TEXT
    return (*_NO_NUMBER, *_NO_WHOLE_NUMBER[: type(was) is int])


def _in_file(
    config: Mapping[str, Any], place: tuple[str, ...], new: Any, job: programs.Job, _: random.Random
) -> programs.Job:
    """Puts a changed config into a file, and removes the flags that would change it back."""
    made.write_config(job.folder / "changed.py", _changed(config, place, new))
    key = "config." + ".".join(place)
    others = [
        each
        for each in job.arguments
        if not _sets(each, "config") and not each.startswith((f"--{key}=", f"--{key}."))
    ]
    return job._replace(arguments=("--config=changed.py", *others))


def _changed(config: Any, place: tuple[str | int, ...], new: Any) -> Any:
    """A copy with a new value at a place, or without it."""
    inner = whole = _copy(config)
    for key in place[:-1]:
        inner = inner[key]
    if new is _GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = new
    return whole


def _copy(config: Any) -> Any:
    if isinstance(config, Mapping):
        return {key: _copy(value) for key, value in config.items()}
    return [_copy(each) for each in config] if isinstance(config, list) else config


# ------------------------------------------------------------------------------ the studies

# Values of a stage's, a row's or a column's name.
_NO_FOLDER = ("..", ".", "/a", "a/../../../evil", "a\0", "a/b", "a\nb", " ", _UNDECODABLE)
_OTHER_KINDS = (*_NO_SECTION, (), ("text",), ("base",), 0, -1, 0.5, True, float("nan"), 10**20)


class _Words(str):
    """A value that looks like what it is no JSON of: numpy's numbers."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_NO_JSON = tuple(map(_Words, ("__import__('numpy').int64(1)", "{1}", "object()", "b'x'")))


def _study_tries() -> Iterator[Planned]:
    study = made.study()
    for place in other_json.places(study):
        if place[0] == "stages" and len(place) < 3:  # these are the form of this file only
            continue
        was = other_json.at(study, place)
        more = _NO_FOLDER if place[-1] == "name" else ()
        values = {repr(new): new for new in (*_OTHER_KINDS, *_NO_TEXT, *_NO_JSON, *more)}
        for shown, new in values.items():
            if shown != repr(was):
                yield _study_try(f"{_place(place)}={shown}", study, place, new)
        if isinstance(place[-1], str):
            yield _study_try(f"no {_place(place)}", study, place, _GONE)
    for stage in study["stages"]:
        for key, new in {"part": "last", "step": 7, "start": ("both",), "no_such_key": 1}.items():
            yield _study_try(f"{stage}.{key}={new!r}", study, ("stages", stage, key), new)


def _place(place: tuple[str | int, ...]) -> str:
    return ".".join(map(str, place)).removeprefix("stages.")


def _study_try(name: str, study: Any, place: tuple[str | int, ...], new: Any) -> Planned:
    def change(job: programs.Job, _: random.Random) -> programs.Job:
        made.write_study(job.folder / "study.py", _changed(study, place, new))
        return job

    return _planned("study file", name, made.DRY_RUN, change)


# -------------------------------------------------------------------------------- the files


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_loop(path: Path) -> None:
    path.unlink()
    os.symlink(path.name, path)


def _as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_no_gzip(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.gz"))


_OF_ANY_FILE: dict[str, Callable[[Path], None]] = {
    "emptied": _bytes(lambda data: b""),
    "only blanks": _bytes(lambda data: b" \n\t\n  \n"),
    "not UTF-8": _bytes(lambda data: data[: len(data) // 2] + b"\xff\xfe" + data[len(data) // 2 :]),
    "UTF-16": _bytes(lambda data: data.decode("utf-8-sig").encode("utf-16")),
    "cut": _bytes(lambda data: data[: len(data) * 2 // 3]),
    "bytes": _bytes(lambda data: bytes(range(128, 256)) * 20),
    "deleted": Path.unlink,
    "a folder": _as_folder,
    "a loop of links": _as_loop,
    "a FIFO": _as_fifo,
    "said to be gzip": _as_no_gzip,
}


_LONG_WORDS = {"one word of 30 MB": _bytes(lambda data: b"x" * 30_000_000)}


def _fields(separator: str, column: int, new: str) -> Callable[[bytes], bytes]:
    """Replaces a field in the middle row."""

    def change(data: bytes) -> bytes:
        lines = data.decode().split("\n")
        row = lines[len(lines) // 2].split(separator)
        row[column] = new
        lines[len(lines) // 2] = separator.join(row)
        return "\n".join(lines).encode()

    return change


def _row(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    """Replaces the middle row."""

    def changed(data: bytes) -> bytes:
        lines = data.decode().split("\n")
        lines[len(lines) // 2] = change(lines[len(lines) // 2])
        return "\n".join(lines).encode()

    return changed


def _first(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    """Replaces the first row."""

    def changed(data: bytes) -> bytes:
        first, _, rest = data.decode().partition("\n")
        return f"{change(first)}\n{rest}".encode()

    return changed


_NO_LABEL = ("", "text", "nan", "inf", "-1", "7.5", "1e400", "9" * 20, " ", "0 1", "\x00")


def _table(
    separator: str, label: int, texts: tuple[int, ...], header: bool = True
) -> dict[str, Callable]:
    """Yields changes of a table: of its columns of labels and texts, and of its first line."""
    found = {f"the label {new!r}": _bytes(_fields(separator, label, new)) for new in _NO_LABEL}
    for column in texts:
        found[f"an empty text in column {column}"] = _bytes(_fields(separator, column, ""))
        found[f"a blank text in column {column}"] = _bytes(_fields(separator, column, "   "))
    found |= {
        "a column less": _bytes(_row(lambda row: row.rpartition(separator)[0])),
        "a column more": _bytes(_row(lambda row: f"{row}{separator}more")),
        "one row again and again": _bytes(
            lambda data: b"".join([data.splitlines(keepends=True)[1]] * 9)
        ),
        "lines that end in CR": _bytes(lambda data: data.replace(b"\n", b"\r")),
    }
    if separator == ",":
        found["an unbalanced quote"] = _bytes(_row(lambda row: f'"{row}'))
    if header:
        found |= {
            "without its names": _bytes(lambda data: data.partition(b"\n")[2]),
            "its names only": _bytes(lambda data: data.partition(b"\n")[0] + b"\n"),
            "its names twice": _bytes(lambda data: data.partition(b"\n")[0] + b"\n" + data),
            "one name for all": _bytes(_first(partial(_one_name, separator))),
        }
    return found


def _one_name(separator: str, row: str) -> str:
    names = row.split(separator)
    return separator.join(names[:1] * len(names))


def _tag(old: str, new: str) -> Callable[[Path], None]:
    return _bytes(lambda data: data.decode().replace(f" {old}\n", f" {new}\n", 3).encode())


_COLUMNS = {
    **{f"the tag {tag!r}": _tag("I-HIGH", tag) for tag in ("Q-FOO", "B-", "I-", "B", "-", "HIGH")},
    "no tag": _bytes(lambda data: data.decode().replace(" I-HIGH\n", "\n", 1).encode()),
    "only the word": _bytes(lambda data: data.replace(b" NN I-NP I-HIGH", b"", 1)),
    "a column more": _bytes(lambda data: data.replace(b"I-HIGH\n", b"I-HIGH O\n", 1)),
    "no sentence ends": _bytes(lambda data: data.replace(b"\n\n", b"\n")),
    "only documents' beginnings": _bytes(lambda data: b"-DOCSTART- -X- O O\n\n" * 9),
    "only O": _bytes(lambda data: data.replace(b"I-HIGH", b"O")),
    "a word of no visible character": _bytes(
        lambda data: data.replace(b"baa ", b"\xe2\x80\x8b ", 3)
    ),
    "tabs for spaces twice": _bytes(lambda data: data.replace(b" ", b"\t\t")),
}


def _other_values(value: Any, texts: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields changes of a JSON value: for every kind of place, without it or with another type.

    Args:
      texts: whether any other text is valid, too.
    """
    kinds = {}
    for place in other_json.places(value):
        kinds["/".join(map(_kind_of_key, place, (None, *place)))] = place
    for kind, place in kinds.items():
        was = other_json.at(value, place)
        for new in other_json.others(was):
            if not (texts and isinstance(was, str) and isinstance(new, str)):
                yield f"{kind}={new!r}", other_json.with_other(value, place, new)
        yield f"no {kind}", other_json.without(value, place)
    for new in (None, [], {}, "text", 7):
        yield f"only {new!r}", new


def _kind_of_key(key: str | int, outer: str | int | None) -> str:
    """The kind of a key: all items of a list have one kind, and all pieces of a vocabulary."""
    return "N" if isinstance(key, int) or outer == "vocab" else key


def _json_changes(
    value: Any, save: Callable[[Path, Any], None], texts: bool = False
) -> dict[str, Callable]:
    found = {name: partial(_saved, save, new) for name, new in _other_values(value, texts)}
    return found | {"nested without end": lambda path: path.write_text(other_json.NESTED)}


def _saved(save: Callable[[Path, Any], None], value: Any, path: Path) -> None:
    save(path, value)


def _as_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def _as_a_line(path: Path, value: Any) -> None:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    lines[2] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n")


_NEW_TEXTS = {
    f"the line {line!r}": _bytes(_row(lambda _, line=line: line))
    for line in (
        *('{"text": 7}', '{"text": null}', '{"text": ""}', '{"texts": "moo"}', "{", "[1]", "{}"),
        *('{"text": "moo", "text_b": 7}', "moo ||| moo", "moo ||| moo ||| moo", "|||", "\x00"),
    )
}


# ------------------------------------------------------------------ the folders of transformers


def _pieces(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def changed(data: bytes) -> bytes:
        return "".join(f"{piece}\n" for piece in change(data.decode().splitlines())).encode()

    return _bytes(changed)


_VOCABULARIES = {
    "no [MASK]": _pieces(lambda pieces: ["mask" if p == "[MASK]" else p for p in pieces]),
    "[MASK] twice": _pieces(lambda pieces: [*pieces[:-1], "[MASK]"]),
    "a piece twice": _pieces(lambda pieces: [*pieces[:-1], pieces[-2]]),
    "an empty piece": _pieces(lambda pieces: [*pieces[:-1], ""]),
    "a piece more": _pieces(lambda pieces: [*pieces, "more"]),
    "a thousand more": _pieces(lambda pieces: [*pieces, *map("more{}".format, range(1000))]),
    "a piece less": _pieces(lambda pieces: pieces[:-1]),
    "another order": _pieces(lambda pieces: [*pieces[:-2], pieces[-1], pieces[-2]]),
    "lines that end in CR LF": _bytes(lambda data: data.replace(b"\n", b"\r\n")),
    "a blank before a piece": _pieces(lambda pieces: [*pieces[:-1], f" {pieces[-1]}"]),
}
_MATRIX = "bert.encoder.layer.0.output.dense.weight"
_BIAS = "bert.encoder.layer.0.output.dense.bias"


def _arrays(change: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    def changed(path: Path) -> None:
        arrays = load_file(path)
        change(arrays)
        save_file(arrays, path)

    return changed


def _value(name: str, new: float) -> Callable[[Path], None]:
    return _arrays(lambda arrays: arrays[name].__setitem__((0,) * arrays[name].ndim, new))


def _array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    return _arrays(lambda arrays: arrays.update({name: np.ascontiguousarray(change(arrays[name]))}))


def _header(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Changes the header of a safetensors file: its length, JSON, and then the numbers."""

    def changed(data: bytes) -> bytes:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        text = json.dumps(change(header)).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + length :]

    return _bytes(changed)


_WEIGHTS = {
    "one weight not a number": _value(_MATRIX, np.nan),
    "one weight infinite": _value(_BIAS, np.inf),
    "all of a matrix not numbers": _array(_MATRIX, lambda array: array * np.nan),
    "a matrix transposed": _array(_MATRIX, lambda array: array.T),
    "a matrix flat": _array(_MATRIX, np.ravel),
    "a matrix with a row less": _array(_MATRIX, lambda array: array[1:]),
    "a matrix of no rows": _array(_MATRIX, lambda array: array[:0]),
    "a bias of one number": _array(_BIAS, lambda array: array[0]),
    "a matrix of whole numbers": _array(_MATRIX, lambda array: array.astype(np.int32)),
    "a matrix in float64": _array(_MATRIX, lambda array: array.astype(np.float64)),
    "a matrix of switches": _array(_MATRIX, lambda array: array > 0),
    "no matrix": _arrays(lambda arrays: arrays.pop(_MATRIX)),
    "a matrix more": _arrays(
        lambda arrays: arrays.update({_MATRIX.replace("0", "7"): arrays[_MATRIX]})
    ),
    "an array of no name": _arrays(lambda arrays: arrays.update({"": arrays[_BIAS]})),
    "no array": _arrays(lambda arrays: arrays.clear()),
    "a header too long": _bytes(lambda data: struct.pack("<Q", 1 << 60) + data[8:]),
    "a header of nothing": _header(lambda header: {}),
    "a header of a list": _header(lambda header: []),
    "a header nested without end": _bytes(
        lambda data: struct.pack("<Q", 100_000) + other_json.NESTED.encode()
    ),
    "another type": _header(lambda header: header[_BIAS].update(dtype="F4") or header),
    "a greater shape": _header(lambda header: header[_BIAS].update(shape=[1 << 40]) or header),
    "a shape below zero": _header(lambda header: header[_BIAS].update(shape=[-1]) or header),
    "other places": _header(lambda header: header[_BIAS].update(data_offsets=[8, 4]) or header),
}
# Files of sentence-transformers, which are read together.
_MODULES: dict[str, Any] = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_P", "type": "sentence_transformers.models.Pooling"},
    ],
    "1_P/config.json": {
        **{"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
        **{"pooling_mode": "mean", "include_prompt": True},
    },
    "sentence_bert_config.json": {
        **{"max_seq_length": 16, "do_lower_case": False, "query_length": 8, "document_length": 9},
        **{"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"},
        **{"query_expansion": None, "processing_kwargs": {}},
    },
    "config_sentence_transformers.json": {
        **{"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
        **{"prompts": {"query": "moo: "}, "default_prompt_name": None},
    },
}
# Additional files for a model's folder.
_BESIDE = {
    **_MODULES,
    "special_tokens_map.json": {
        "mask_token": {"content": "[MASK]", "lstrip": False},
        "pad_token": "[PAD]",
    },
    "added_tokens.json": {"[MASK]": 4},
    "model.safetensors.index.json": {
        "metadata": {"total_size": 1},
        "weight_map": {_BIAS: "shard.safetensors"},
    },
}
_OTHER_SHARDS = ("../run/config.json", "/etc/passwd", "", ".", "shard", _LONG, "config.json")


def _beside(name: str, config: Path, value: Any) -> None:
    """Puts a file next to config.json; an index replaces the single file of weights."""
    if name in _MODULES:
        config.with_name("1_P").mkdir(exist_ok=True)
        for other in _MODULES.keys() - {name}:
            (config.parent / other).write_text(json.dumps(_MODULES[other]))
    if name.endswith("index.json"):
        config.with_name("model.safetensors").rename(config.with_name("shard.safetensors"))
    (config.parent / name).write_text(value if isinstance(value, str) else json.dumps(value))


def _beside_changes() -> dict[str, Callable[[Path], None]]:
    found = {}
    for name, value in _BESIDE.items():
        values = {"as it should be": value, **dict(_other_values(value))}
        values |= {"garbage": "{,", "empty": " ", "nested without end": other_json.NESTED}
        if name.endswith("index.json"):
            values |= {f"naming {name!r}": {"weight_map": {_BIAS: name}} for name in _OTHER_SHARDS}
        for kind, new in values.items():
            found[f"with {name} {kind}"] = partial(_saved, partial(_beside, name), new)
    return found


# -------------------------------------------------------------------------------- all of it


def _file_tries(folder: Path) -> Iterator[Planned]:
    for file, command, changes in (
        ("glue/CoLA/train.tsv", made.GLUE, _table("\t", 1, (3,), header=False)),
        ("glue/CoLA/dev.tsv", made.GLUE, _table("\t", 1, (3,), header=False)),
        ("glue/CoLA/test.tsv", made.GLUE, _table("\t", 0, (1,))),
        ("glue/STS-B/train.tsv", made.STSB, _table("\t", 9, (7, 8))),
        ("glue/STS-B/dev.tsv", made.STSB, _table("\t", 9, (7, 8))),
        ("swag/train.csv", made.SWAG, _table(",", -1, (-2, -3))),
        ("swag/val.csv", made.SWAG, _table(",", -1, (-2,))),
        ("reviews/train.csv", made.TABLE, _table(",", -1, (0,))),
        ("conll/eng.train", made.NER, _COLUMNS),
        ("conll/eng.testa", made.NER, _COLUMNS),
        (
            "squad/train-v2.0.json",
            made.SQUAD,
            _of_json(folder / "squad" / "train-v2.0.json", texts=True),
        ),
        (
            "squad/dev-v2.0.json",
            made.SQUAD,
            _of_json(folder / "squad" / "dev-v2.0.json", texts=True),
        ),
        ("numbers/train.jsonl", made.NUMBERS, _of_row(folder / "numbers" / "train.jsonl")),
        ("labels/train.jsonl", made.LABELS, _of_row(folder / "labels" / "train.jsonl")),
        ("minimal.jsonl", made.SCORE, _of_row(folder / "minimal.jsonl")),
        ("tags/train.jsonl", made.TAGS, _of_row(folder / "tags" / "train.jsonl")),
        *(
            (f"triviaqa/{name}", made.TRIVIAQA, _of_json(folder / "triviaqa" / name, texts=True))
            for name in ("qa/wikipedia-train.json", "qa/wikipedia-dev.json")
        ),
        ("triviaqa/evidence/wikipedia/train_1.txt", made.TRIVIAQA, _LONG_WORDS),
        ("triviaqa/evidence/wikipedia/dev_1.txt", made.TRIVIAQA, _LONG_WORDS),
        ("text.txt", made.PREPARE, _LONG_WORDS),
        ("lines.txt", made.PREDICT, _NEW_TEXTS | _LONG_WORDS),
        ("lines.txt", made.EXTRACT, _LONG_WORDS),
        ("exported/vocab.txt", made.FILL_EXPORTED, _VOCABULARIES),
        ("exported/model.safetensors", made.FILL_EXPORTED, _WEIGHTS),
        *(
            (f"exported/{name}", made.FILL_EXPORTED, _of_json(folder / "exported" / name))
            for name in ("config.json", "tokenizer_config.json", "tokenizer.json")
        ),
        ("exported/config.json", made.FILL_EXPORTED, _beside_changes()),
        *(
            (f"classifier/{name}", made.PREDICT_CLASSIFIER, _of_json(folder / "classifier" / name))
            for name in ("config.json",)
        ),
    ):
        binary = file.endswith(".safetensors")
        for name, change in (changes | _OF_ANY_FILE).items():
            if not (binary and name in ("UTF-16", "not UTF-8")):
                what = f"{file}: {name}"
                yield _planned(f"{command.program} files", what, command, _in(file, change))


def _of_json(path: Path, texts: bool = False) -> dict[str, Callable]:
    return _json_changes(json.loads(path.read_text(encoding="utf-8")), _as_json, texts)


def _of_row(path: Path) -> dict[str, Callable]:
    row = next(iter(path.read_text(encoding="utf-8-sig").splitlines()))
    return _json_changes(json.loads(row), _as_a_line, texts=True)


def _in(file: str, change: Callable[[Path], None]) -> Change:
    def changed(job: programs.Job, _: random.Random) -> programs.Job:
        change(job.folder / file)
        return job

    return changed


def plan(things: made.Made) -> Iterator[Planned]:
    """Yields all tries with wrong input."""
    yield from _flag_tries()
    yield from _config_tries()
    yield from _study_tries()
    yield from _file_tries(things.folder)


if __name__ == "__main__":
    campaign(__doc__, plan, MEANT, _WANTED)
