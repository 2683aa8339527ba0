"""Makes the input of campaigns with the programs themselves: small corpora, runs and models.

They are in one folder, under the names that the commands here use. A try works on copies of what
its command needs.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import programs
from outcome import End

from tests.helpers import task_files
from tests.helpers.conllu import conllu
from tests.helpers.tiny_run import ONE_LENGTH, metrics_of, tiny_config, write_text

_CONFIGS = programs.REPOSITORY / "configs"


class Command(NamedTuple):
    """A command line that works.

    Attributes:
      program, arguments: see `programs.Job`.
      needs: name in the folder -> the artefact that is copied.
      result: maps (folder, end) to a value that is equal if the program did the same; None if every
        try must be refused.
      before: see `programs.Job`.
    """

    program: str
    arguments: tuple[str, ...]
    needs: Mapping[str, str]
    result: Callable[[Path, End], Any] | None
    before: Callable[[], None] | None = None

    @property
    def line(self) -> str:
        """The command as typed in a shell."""
        return " ".join([self.program, *self.arguments])

    def job(self, made: Path, folder: Path) -> programs.Job:
        """A job in a new folder, with copies of what the command needs."""
        folder.mkdir(parents=True)
        for name, of in self.needs.items():
            copy = shutil.copytree if (made / of).is_dir() else shutil.copy
            copy(made / of, folder / name)
        return programs.Job(self.program, self.arguments, folder, before=self.before)


# ---------------------------------------------------------------------------- the results


def _files(*names: str) -> Callable[[Path, End], Any]:
    """Digests of files, and of all files in folders."""

    def result(folder: Path, _: End) -> Any:
        found = {}
        for name in names:
            path = folder / name
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in files:
                differ = _NOT_THE_RESULT & set(file.relative_to(folder).parts)
                if file.is_file() and not differ and file.suffix != ".png":
                    found[str(file.relative_to(folder))] = _digest(file)
        return found

    return result


# What differs in each run, next to pictures; a study's "made" has hashes of files with clocks.
_NOT_THE_RESULT = {
    *(".lock", "times.jsonl", "times.json", "made", "logs", "tensorboard", "checkpoints"),
}
_CLOCKS = ("seconds", "peak_bytes", "peak_worker_bytes", "tokens_per_second", "host_wait", "mfu")


def _digest(file: Path) -> str:
    """A digest of a file's bytes; of a JSON file, without the values that depend on the clock."""
    data = file.read_bytes()
    if file.suffix in (".json", ".jsonl"):
        lines = data.decode().splitlines() if file.suffix == ".jsonl" else [data.decode()]
        data = repr([_without_clocks(json.loads(line)) for line in lines]).encode()
    return hashlib.sha256(data).hexdigest()


def _without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_clocks(v) for k, v in sorted(value.items()) if k not in _CLOCKS}
    return [_without_clocks(each) for each in value] if isinstance(value, list) else value


def _of_training(run: str) -> Callable[[Path, End], Any]:
    """The metrics of a run, and digests of its files."""
    files = _files(*(f"{run}/{name}" for name in ("config.json", "vocab.txt", "vocabulary.json")))
    return lambda folder, end: (metrics_of(folder / run), files(folder, end))


def _printed(_: Path, end: End) -> Any:
    return end.output


# --------------------------------------------------------------------------- the commands


def _command(
    line: str, needs: str, result: Callable | None, before: Callable | None = None
) -> Command:
    """Makes a command; `needs` are artefacts, each as NAME or NAME=WHAT."""
    program, *arguments = line.split()
    return Command(program, tuple(arguments), _names(needs), result, before)


def _names(needs: str) -> dict[str, str]:
    pairs = [name.partition("=") for name in needs.split()]
    return {name: of or name for name, _, of in pairs}


def _fine_tuning(task: str, choice: str, data: str, workdir: str, more: str = "") -> str:
    return (
        f"finetune --config={_CONFIGS}/finetune_{task}.py{choice}"
        f" --config.data={data}"
        f" --config.init_from=run --workdir={workdir} --config.max_length=48"
        " --config.grid.batch_size=8 --config.grid.epochs=1 --config.grid.learning_rate=1e-2"
        f" {more}"
    )


_SPANS = "--config.task.stride=16 --config.task.max_query_length=4"
_OF_TUNING = ("results.json", "config.json", "predictions", "model", "metrics.jsonl")


def _tuned(workdir: str) -> Callable[[Path, End], Any]:
    return _files(*(f"{workdir}/{name}" for name in _OF_TUNING))


PREPARE = _command(
    "prepare_corpus --source=text:text.txt --source=text:more.txt --learn_vocabulary=300"
    " --held_out=0.1 --workers=1 --output=corpus --verify",
    "text.txt more.txt",
    _files("corpus"),
)
PRETRAIN = _command(
    "pretrain --config=tiny.py --config.corpus=corpus --workdir=run --verify",
    "tiny.py corpus",
    _of_training("run"),
)
EVALUATE = _command("evaluate --model=run --batches=1", "run corpus", _files("run/evaluation.json"))
FILL = _command("fill_mask --model=run --text=[MASK]", "run", _printed)
FILL_EXPORTED = _command("fill_mask --model=hf:exported --text=[MASK]", "exported", _printed)
COMPARE = _command(
    "compare_words --model=run --word=moo --text=Moo --text=moo --text=moo! --output=word.png",
    "run",
    _printed,
)
WATCH = _command("watch run --text=Moo", "run", _printed)
CONVERT = _command("convert --from=run --to=hf:exported", "run", _files("exported"))
CLASSIFIER = _command(
    "convert --from=glue-run --to=hf:classifier", "glue-run", _files("classifier")
)
HAND_ON = _command(  # with the figures of launch/evaluate.py on its card
    "convert --from=run --to=hf:handed", "run=evaluated-run", _files("handed")
)
SERVE = _command(
    "convert --from=hf:exported --to=stablehlo:served",
    "exported",
    _files("served/weights.safetensors", "served/signature.json"),
)
EXTRACT = _command(
    "extract_features --model=run --input=lines.txt --output=vectors.npz",
    "run lines.txt",
    _files("vectors.npz"),
)
GLUE = _command(
    _fine_tuning("glue", ":CoLA", "glue", "glue-run", "--config.grid.restarts=2"),
    "run glue",
    _tuned("glue-run"),
)
SQUAD = _command(
    _fine_tuning("squad", ":v2.0", "squad", "tuned", f"{_SPANS} --config.task.version=v2.0"),
    "run squad",
    _tuned("tuned"),
)
SWAG = _command(_fine_tuning("swag", "", "swag", "tuned"), "run swag", _tuned("tuned"))
NER = _command(_fine_tuning("ner", ":finetune", "conll", "tuned"), "run conll", _tuned("tuned"))
FEATURES = _command(
    _fine_tuning(
        *("ner", ":features", "conll", "features-run"),
        "--config.features.choices=('last',) --config.features.hidden=8 --config.features.depth=1",
    ),
    "run conll",
    _files("features-run/results.json", "features-run/last/predictions"),
)
TABLE = _command(
    _fine_tuning(
        *("table", ":classification", "reviews", "tuned"),
        "--config.task.text=review --config.task.label=stars",
    ),
    "run reviews",
    _tuned("tuned"),
)
PREDICT = _command(
    "predict --model=glue-run --input=lines.txt --output=answers.jsonl",
    "glue-run lines.txt",
    _files("answers.jsonl"),
)
ENSEMBLE = _command(
    "ensemble --runs=glue-run,run --workdir=together",
    "glue glue-run run=glue-run",
    _files("together/predictions"),
)
PREDICT_CLASSIFIER = _command(
    "predict --model=hf:classifier --input=lines.txt --output=answers.jsonl",
    "classifier lines.txt",
    _files("answers.jsonl"),
)
TRIVIAQA = _command(
    _fine_tuning("triviaqa", "", "triviaqa", "tuned", _SPANS),
    "run triviaqa",
    _tuned("tuned"),
)
OTHER_GLUE = GLUE._replace(arguments=(*GLUE.arguments, "--config.seed=1"))
_MEMBERS = ("glue-run", "other-glue-run")  # outside of a try's folder, because names are absolute
TOGETHER = _command(
    f"ensemble --runs={','.join(f'../../made/{name}' for name in _MEMBERS)} --workdir=together",
    "glue",
    _files("together"),
)
PREDICT_TOGETHER = _command(
    "predict --model=together --input=lines.txt --output=answers.jsonl",
    "together glue lines.txt",
    _files("answers.jsonl"),
)
_STUDY = "study --study=study.py --corpus=corpus --data=. --scale=16 --workdir=study"
STUDY = _command(  # without the ensemble, because a copy of it would name the folder of its making
    f"{_STUDY} --only=loss,CoLA", "study.py tiny.py corpus glue", _files("study")
)
DRY_RUN = _command(f"{_STUDY} --dry_run", "study.py tiny.py corpus glue", _printed)
NUMBERS = _command(
    _fine_tuning("table", ":regression", "numbers", "tuned"), "run numbers", _tuned("tuned")
)
LABELS = _command(
    _fine_tuning("table", ":multi_label", "labels", "tuned"), "run labels", _tuned("tuned")
)
TAGS = _command(_fine_tuning("table", ":tagging", "tags", "tuned"), "run tags", _tuned("tuned"))
STSB = _command(_fine_tuning("glue", ":STS-B", "glue", "tuned"), "run glue", _tuned("tuned"))
SCORE = _command(
    "score --model=run --data=minimal.jsonl --output=scores.json",
    "run minimal.jsonl",
    _files("scores.json"),
)
READER = _command(
    "pretrain --config=tiny.py --config.objective=left_to_right --config.corpus=corpus"
    " --workdir=reader",
    "tiny.py corpus",
    _of_training("reader"),
)
COMPLETE = _command("complete --model=reader --text=moo --tokens=2", "reader", _printed)
PROBE = _command(
    "probe --model=run --data=trees --layer=1 --rank=2 --output=probe.json",
    "run trees",
    _files("probe.json"),
)
COMPILE = _command("compile_check --config=tiny.py --topology=v5e:2x2", "tiny.py", None)
SHOW = _command("show_sharding --config=tiny.py", "tiny.py", _printed)


def made_from(command: Command, needs: str, **changes: Any) -> Command:
    """The same command with other artefacts; `needs` (NAME or NAME=WHAT) are added to its own."""
    return command._replace(needs={**command.needs, **_names(needs)}, **changes)


# ------------------------------------------------------------------- stopped in the middle


def stop_before_the_second_score() -> None:
    """Ends a fine-tuning after the training of its second trial, before the score."""
    from bertjax.runs.fine_tuning.search import Search

    score = Search._dev_outputs
    calls = iter((False, True))

    def dev_outputs(self, params):
        if next(calls):
            raise KeyboardInterrupt
        return score(self, params)

    Search._dev_outputs = dev_outputs


def small_shards() -> None:
    """Makes the shards of launch/extract_features.py's result a few texts long."""
    from bertjax.inference.features import extract

    extract._SHARD_TOKENS = 60


def stop_before_the_third_shard() -> None:
    """Calls `small_shards`, and ends the program before it writes the third shard."""
    small_shards()
    from bertjax.inference.features.result import Shards

    write = Shards.write

    def writing(self, number, *values):
        if number == 2:
            raise KeyboardInterrupt
        write(self, number, *values)

    Shards.write = writing


# ------------------------------------------------------------------------------ all of it

# Artefact -> the command that makes it, and what is kept of its folder; each line needs only those
# before it.
_ARTEFACTS = (
    {"corpus": (PREPARE, "corpus")},
    {"run": (PRETRAIN, "run"), "reader": (READER, "reader")},
    {
        "glue-run": (GLUE, "glue-run"),
        "unfinished-glue-run": (GLUE._replace(before=stop_before_the_second_score), "glue-run"),
        "features-run": (FEATURES, "features-run"),
        "exported": (CONVERT, "exported"),
        "vectors.npz.parts": (
            EXTRACT._replace(before=stop_before_the_third_shard),
            "vectors.npz.parts",
        ),
        "evaluated-run": (EVALUATE, "run"),
    },
    {
        "classifier": (CLASSIFIER, "classifier"),
        "other-glue-run": (OTHER_GLUE, "glue-run"),
        "study": (STUDY, "study"),
    },
    {"together": (TOGETHER, "together")},
)
_INTERRUPTED = 130


class Made:
    """A folder with all artefacts.

    Attributes:
      folder: the path of the folder.
      learned: command line -> its result, which must not depend on existing files, and its end.
    """

    def __init__(self, folder: Path, at_once: int, wanted: Collection[str] | None = None):
        """Makes the artefacts; if a command fails, the campaign ends.

        Args:
          at_once: the number of programs that run at the same time.
          wanted: the names of the artefacts, with those that they need; None: all.
        """
        self.folder, self._at_once = folder, at_once
        self.learned: dict[str, tuple[Any, End]] = {}
        folder.mkdir(parents=True)
        _write_inputs(folder)
        for line in _ARTEFACTS:
            self._run([(*line[name], name) for name in line if wanted is None or name in wanted])
        if wanted is None:
            self._leave_unfinished()

    def learn(self, commands: Iterable[Command]) -> None:
        """Runs commands whose results are not known yet, and records the results."""
        unknown = {command.line: command for command in commands if command.result}
        self._run([(c, "", "") for line, c in unknown.items() if line not in self.learned])

    def _run(self, todo: Sequence[tuple[Command, str, str]]) -> None:
        """Runs commands, records their results, and keeps what is named of their folders."""
        names = {self.folder / f"making-{number}": each for number, each in enumerate(todo)}
        jobs = (command.job(self.folder, place) for place, (command, *_) in names.items())
        for job, end in programs.run(jobs, self._at_once):
            command, output, name = names[job.folder]
            if end.code == 0:
                self.learned[command.line] = command.result(job.folder, end), end
            elif end.code != _INTERRUPTED or not command.before:
                sys.exit(f"{job}: exit {end.code}\n{end.output}\n{end.errors}")
            if output:
                os.rename(job.folder / output, self.folder / name)
            shutil.rmtree(job.folder)

    def _leave_unfinished(self) -> None:
        """Makes the artefacts of killed processes.

        They are a run before its last checkpoint and a corpus before its last shard.
        """
        unfinished = shutil.copytree(self.folder / "run", self.folder / "unfinished-run")
        shutil.rmtree(unfinished / "checkpoints" / "12")
        unfinished = shutil.copytree(self.folder / "corpus", self.folder / "unfinished-corpus")
        (unfinished / "report.json").unlink()
        for name in ("manifest.json", "shard-00001.json"):
            (unfinished / "store" / name).unlink()


def tiny() -> dict[str, Any]:
    """The config of `PRETRAIN`."""
    intervals = {"log": 2, "evaluate": 6, "checkpoint": 4, "eval_batches": 1}
    return tiny_config("", total_steps=12, intervals=intervals, keep_checkpoints=3, **ONE_LENGTH)


def study() -> dict[str, Any]:
    """The study of `STUDY` as JSON values: a file of it is made by `write_study`."""
    grid = {"grid.batch_size": (8,), "grid.epochs": (1,), "grid.learning_rate": (1e-2,)}
    tune = {"max_length": 48, "grid.restarts": 1, **grid}
    config = f"{_CONFIGS}/finetune_glue.py:CoLA"
    tuned = {"program": "finetune", "config": config, "start": ("base",), "data": "glue"}
    return {
        "title": "A table",
        "source": "nobody",
        "against": "first",
        "stages": {
            "base": {"name": "base", "program": "pretrain", "config": "tiny.py"},
            "one": {"name": "one", **tuned, "settings": tune},
            "other": {"name": "other", **tuned, "settings": {**tune, "seed": 1}, "step": 8},
            "loss": {
                **{"name": "loss", "program": "evaluate"},
                **{"settings": {"batches": 1}, "start": ("base",)},
            },
            "both": {
                **{"name": "both", "program": "ensemble"},
                **{"settings": {"by": "probabilities"}, "start": ("one", "other")},
            },
        },
        "rows": [
            {"name": "a run", "stages": {"loss": "loss", "CoLA": "one"}},
            {"name": "two runs", "stages": {"CoLA": "other", "together": "both"}},
        ],
        "columns": [
            {"name": "loss", "stage": "loss", "figure": "32/mlm_loss", "published": {}},
            {
                **{"name": "CoLA", "stage": "CoLA", "figure": "dev/accuracy"},
                **{"published": {"a run": 50.0}, "x": 1.0},
            },
            {"name": "together", "stage": "together", "figure": "dev/accuracy", "published": {}},
        ],
    }


_STUDY_FILE = """
from bertjax.lab.studies.study import Column, Row, Stage, Study

nan, inf = float("nan"), float("inf")
PLAIN = {study!r}


def get_study(scale):
    made = {{}}

    def stages(value):
        if isinstance(value, tuple):
            return tuple(map(stages, value))
        return made.get(value, value) if isinstance(value, str) else value

    def all_of(kind, values, key, change):
        if not isinstance(values, list):
            return values
        return [kind(**(each | {{key: change(each[key])}} if key in each else each))
                if isinstance(each, dict) else each for each in values]

    def of_row(value):
        return {{k: stages(v) for k, v in value.items()}} if isinstance(value, dict) else value

    for key, each in PLAIN.pop("stages").items():
        (made[key],) = all_of(Stage, [each], "start", stages)
    rows = all_of(Row, PLAIN.pop("rows"), "stages", of_row)
    columns = all_of(Column, PLAIN.pop("columns"), "stage", lambda value: value)
    return Study(rows=rows, columns=columns, **PLAIN)
"""


def write_study(path: Path, study: Mapping[str, Any]) -> None:
    """Writes the file of a study; names of stages stand for them, other values for themselves."""
    path.write_text(_STUDY_FILE.format(study=study))


def _write_inputs(folder: Path) -> None:
    write_text(folder / "text.txt", documents=100)
    write_text(folder / "more.txt", documents=60, seed=1)
    write_config(folder / "tiny.py", tiny())
    lines = [f"{word} {word} {word}" for word in ("baa", "moo", "quack", "tweet")] * 8
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    task_files.write_minimal_pairs(folder / "minimal.jsonl")
    (folder / "trees").mkdir()
    for split in ("train", "dev", "test"):
        sentence = conllu(["baa", "moo", "quack", "tweet", "."], [2, 0, 2, 3, 2], punctuation=[4])
        (folder / "trees" / f"{split}.conllu").write_text(4 * sentence)
    task_files.write_cola(folder / "glue", rows=24)
    task_files.write_squad(folder / "squad", "v2.0", paragraphs=4)
    task_files.write_swag(folder / "swag", rows=24)
    task_files.write_conll(folder / "conll", documents=3)
    task_files.write_stsb(folder / "glue", rows=24)
    task_files.write_triviaqa(folder / "triviaqa", questions=16)
    write_study(folder / "study.py", study())
    task_files.write_reviews(folder / "reviews", rows=24)
    task_files.write_table(folder / "numbers", "regression", rows=24)
    task_files.write_table(folder / "labels", "multi_label", rows=24)
    task_files.write_table(folder / "tags", "tagging", rows=24)


def write_config(path: Path, config: Any) -> None:
    """Writes a config file in the form of those in configs/."""
    path.write_text(
        "import ml_collections\n\nnan, inf = float('nan'), float('inf')\n\n\n"
        f"def get_config():\n    return ml_collections.ConfigDict({config!r})\n"
    )
