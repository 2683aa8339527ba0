"""The study `speedrun`: its plan, and stages that score grammar."""

import json
import lzma

import pytest

from bertjax.base.errors import InputError
from bertjax.lab.studies.estimates import Pace, Work, work_of
from bertjax.lab.studies.files import StudyFiles, read_study
from bertjax.lab.studies.outcome import is_done, read_figure
from bertjax.lab.studies.scales import SCALES
from bertjax.programs import score, study
from tests.benchmarks import babylm_text
from tests.helpers.checkout import REPOSITORY
from tests.helpers.tiny_run import SOUNDS, tiny_config

SPEEDRUN = str(REPOSITORY / "configs" / "studies" / "speedrun.py")
STUDY = """
from bertjax.lab.studies.scales import grammar
from bertjax.lab.studies.study import Column, Row, Stage, Study

def get_study(scale):
    run = Stage("run", "pretrain", "CONFIG", {"budget": "6e3tokens"})
    scored = grammar(run, most=MOST, data="pairs.jsonl.xz")
    column = Column("grammar", "grammar", "FIGURE")
    return Study("one", (Row("one", {"grammar": scored}),), (column,))
"""


@pytest.fixture
def data(tmp_path):
    """Pairs of which the good sentence repeats a word; and tables of sentence pairs."""
    pairs = [
        {"sentence_good": f"{a} {a} {a}.", "sentence_bad": f"{a} {b} {a}.", "UID": uid}
        for uid in ("one", "two")
        for a, b in zip(SOUNDS[:6], SOUNDS[6:12], strict=True)
    ]
    folder = tmp_path / "data"
    (folder / "blimp").mkdir(parents=True)
    (folder / "babylm" / "glue").mkdir(parents=True)
    text = "\n".join(map(json.dumps, pairs))
    for path in (folder / "pairs.jsonl.xz", folder / "blimp" / "blimp.jsonl.xz"):
        path.write_bytes(lzma.compress(text.encode()))
    names = {"mnli": ("premise", "hypothesis"), "qqp": ("question1", "question2")}
    for task, (a, b) in names.items():
        rows = [{a: "baa baa", b: SOUNDS[n], "label": n % 2} for n in range(8)]
        for split in ("train", "valid"):
            path = folder / "babylm" / "glue" / f"{task}.{split}.jsonl.xz"
            path.write_bytes(lzma.compress("\n".join(map(json.dumps, rows)).encode()))
    return folder


def arguments(study_file, corpus, data, tmp_path):
    return str(study_file), "cpu", str(corpus), str(data), str(tmp_path / "study")


@pytest.mark.slow
def test_the_plan(tiny_corpus, data, tmp_path, monkeypatch, capsys):
    """Three seeds of each recipe take twenty minutes each, on any machine."""
    monkeypatch.setattr(study, "measured_pace", lambda *_: Pace(1e9, 10.0))
    monkeypatch.chdir(REPOSITORY)
    argv = arguments(SPEEDRUN, tiny_corpus, data, tmp_path)
    assert study.run(*argv, program="nowhere", dry_run=True) == 0
    printed = capsys.readouterr().out
    runs = [stage for stage in read_study(SPEEDRUN, SCALES["cpu"]).stages() if not stage.start]
    assert len(runs) == 9 and {run.settings["seed"] for run in runs} == {0, 1, 2}
    for run in runs:
        assert f"  {run.name}: 20 min" in printed
        assert f"grammar-{run.name}" in printed and f"mnli-{run.name}" in printed


def test_the_work_of_a_budget(tiny_corpus, data, tmp_path):
    def work(budget):
        stages = read_study(f"{SPEEDRUN}:{budget}", SCALES["cpu"]).stages()
        files = StudyFiles(SPEEDRUN, str(tiny_corpus), str(data), tmp_path)
        return work_of(next(each for each in stages if "modern" in each.name), files)

    assert work("2h") == Work(0.0, 1, 7200.0)
    assert work("1e12flops") == Work(1e12, 1)
    assert work("2e6tokens").operations == pytest.approx(2 * work("1e6tokens").operations)


def _study(tmp_path, corpus, figure="overall/accuracy", most="None"):
    config = tmp_path / "config.py"
    config.write_text(
        "import ml_collections\n\n\ndef get_config():\n"
        f"    return ml_collections.ConfigDict({tiny_config(corpus, objective='masked_lm')!r})\n"
    )
    file = tmp_path / "one.py"
    text = STUDY.replace("CONFIG", str(config)).replace("FIGURE", figure).replace("MOST", most)
    file.write_text(text)
    return file


@pytest.mark.slow
def test_a_stage_that_scores_grammar(tiny_corpus, data, tmp_path):
    """It has the accuracy that launch/score.py finds, and its budget's steps."""
    file, folder = _study(tmp_path, tiny_corpus, most="4"), tmp_path / "study"
    run, scored = read_study(str(file), SCALES["cpu"]).stages()
    files = StudyFiles(str(file), str(tiny_corpus), str(data), folder)
    for stage in (run, scored):
        assert not is_done(stage, folder)
        assert not study.PROGRAMS[stage.program](stage, files)
        assert is_done(stage, folder)
    found = json.loads((folder / "runs" / "run" / "grammar.json").read_text())
    assert found["pairs"] == 8 and found["step"] == 11  # 6,000 tokens are 11 updates of 512
    again = score.run(str(folder / "runs" / "run"), str(data / "pairs.jsonl.xz"), most=4)
    assert read_figure(scored, "overall/accuracy", folder).values == (again["overall"]["accuracy"],)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"figure": "overall"}, r"figure='overall': stage grammar-run has overall/accuracy"),
        ({"most": "0"}, r"stage grammar-run: settings: most=0: must be at least 1"),
    ],
)
def test_a_stage_that_does_not_fit(tiny_corpus, data, tmp_path, changes, message):
    argv = arguments(_study(tmp_path, tiny_corpus, **changes), tiny_corpus, data, tmp_path)
    with pytest.raises(InputError, match=message):
        study.run(*argv, program="nowhere", dry_run=True)


def test_pairs_that_are_missing(tiny_corpus, data, tmp_path):
    (data / "pairs.jsonl.xz").unlink()
    argv = arguments(_study(tmp_path, tiny_corpus), tiny_corpus, data, tmp_path)
    with pytest.raises(
        InputError, match=r"stage grammar-run: .*no file or folder .*pairs\.jsonl\.xz"
    ):
        study.run(*argv, program="nowhere", dry_run=True)


def test_slices_of_babylm_become_documents():
    """A sentence a line; an article a document, of others 200 sentences; no marks and headings."""
    talk = "*MOT:\tlook [=! points] , a cow . *CHI:\t&uh moo ! " + "*MOT:\tyes . " * 199
    first, second = babylm_text.childes(talk)
    assert first[:3] == ["look, a cow.", "moo!", "yes."] and len(first) == 200
    assert second == ["yes."]
    book = "= = = Emma = = = It was _late_.  \u201cGo,\u201d he said. They went"
    assert list(babylm_text.gutenberg(book)) == [
        ["It was late.", "\u201cGo,\u201d he said.", "They went"]
    ]
    articles = "= = = Cow = = = A cow is big. It eats. = = = Bee = = = A bee (an insect) is small."
    found = [sentences for sentences in babylm_text.simple_wiki(articles) if sentences]
    assert found == [["A cow is big.", "It eats."], ["A bee (an insect) is small."]]
