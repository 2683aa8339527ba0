"""The figures of a study: read from run folders, compared, and written as a table and a picture."""

import contextlib
import json

import numpy as np
import pytest
import scipy.stats
from PIL import Image

from bertjax.base import figures
from bertjax.base.errors import InputError
from bertjax.lab.studies import picture, table
from bertjax.lab.studies.differences import is_clear, standard_error
from bertjax.lab.studies.outcome import Figure, is_done, joined, read_figure
from bertjax.lab.studies.study import PREVIOUS, Column, Row, Stage, Study

HYPERPARAMETERS = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 2}
BASE = Stage("base", "pretrain", "a.py")


def _write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _fine_tuned(study, name, values, samples=None, part=""):
    """A finished run of fine-tuning with a figure for each seed; a worse point of the grid, too."""
    run = study / "runs" / name
    _write(run / "config.json", {"task": {}})
    run = run / part
    trials = []
    for seed, value in enumerate(values):
        for rate, figure in ((1e-3, value), (1e-5, 0.0)):
            trial = HYPERPARAMETERS | {"learning_rate": rate, "seed": seed}
            trials.append(trial | {"value": figure, "dev": {"dev": {"f1": figure}}})
        if samples is not None:
            folder = run / "trials" / f"batch8-rate0.001-epochs2-seed{seed}"
            _write(folder / "resampled.json", {"dev": {"f1": samples[seed]}})
    results = {"chosen": HYPERPARAMETERS | {"seed": 1}, "trials": trials}
    _write(run / "results.json", results | {"dev": {"dev": {"f1": max(values)}}})
    if part:
        _write(run.parent / "results.json", {part: results})
    return Stage(name, "finetune", "b.py", start=(BASE,), part=part)


def test_a_figure_is_that_of_every_seed_of_the_chosen_point(tmp_path):
    stage = _fine_tuned(tmp_path, "a", [50.0, 53.0], [[49.0, 51.0], [52.0, 54.5]])
    figure = read_figure(stage, "dev/f1", tmp_path)
    assert (figure.values, figure.mean) == ((50.0, 53.0), 51.5)
    assert figure.deviation == pytest.approx(np.sqrt(4.5))
    np.testing.assert_array_equal(figure.resampled, [[49.0, 51.0], [52.0, 54.5]])
    with pytest.raises(InputError, match="results.json: it has no figure 'test/f1'"):
        read_figure(stage, "test/f1", tmp_path)


def test_seeds_that_diverged_have_no_figure(tmp_path):
    """The others keep their own samples, and are compared as a row with fewer seeds."""
    samples = [[49.0, 51.0], [0.0, 0.0], [52.0, 54.5]]
    stage = _fine_tuned(tmp_path, "a", [50.0, 0.0, 53.0], samples)
    path = tmp_path / "runs" / "a" / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    for trial in results["trials"]:
        if trial["seed"] == 1:
            trial.update(value=None, dev={})
    _write(path, results)
    figure = read_figure(stage, "dev/f1", tmp_path)
    assert figure.values == (50.0, 53.0)
    np.testing.assert_array_equal(figure.resampled, [samples[0], samples[2]])
    # A row with a seed less is compared by both means.
    whole = _fine_tuned(tmp_path, "b", [51.0, 52.0, 54.0], samples)
    error = standard_error(figure, read_figure(whole, "dev/f1", tmp_path))
    over_seeds = np.var([50.0, 53.0], ddof=1) / 2 + np.var([51.0, 52.0, 54.0], ddof=1) / 3
    means = np.mean([samples[0], samples[2]], axis=0) - np.mean(samples, axis=0)
    assert error.value == pytest.approx(np.sqrt(over_seeds + np.var(means, ddof=1)))


def test_a_part_of_a_run(tmp_path):
    stage = _fine_tuned(tmp_path, "features", [71.0, 70.0], [[1.0], [3.0]], part="last")
    assert is_done(stage, tmp_path)
    figure = read_figure(stage, "dev/f1", tmp_path)
    assert figure.values == (71.0, 70.0) and figure.resampled.shape == (2, 1)


def test_an_ensemble_has_one_figure(tmp_path):
    run, stage = tmp_path / "runs" / "both", Stage("both", "ensemble", start=(BASE,))
    members = [{"run": name, "dev": {"dev": {"f1": 70.0}}} for name in "ab"]
    found = {"dev": {"dev": {"f1": 75.0}}, "trials": members}
    _write(run / "results.json", found | {"chosen": {"by": "votes"}})
    assert read_figure(stage, "dev/f1", tmp_path).resampled is None  # made before they were kept
    _write(run / "resampled.json", {"dev": {"f1": [74.0, 77.0, 75.5]}})
    figure = read_figure(stage, "dev/f1", tmp_path)
    assert figure.values == (75.0,)
    np.testing.assert_array_equal(figure.resampled, [[74.0, 77.0, 75.5]])


def test_evaluations_are_read_from_the_run(tmp_path):
    run = tmp_path / "runs" / "base"
    _write(run / "config.json", {"total_steps": 7})
    stages = [Stage("e", "evaluate", start=(BASE,)), Stage("t", "masked_text", start=(BASE,))]
    assert not any(is_done(stage, tmp_path) for stage in (BASE, *stages))
    (run / "checkpoints" / "7").mkdir(parents=True)
    _write(run / "evaluation.json", {"step": 7, "128": {"mlm_loss": 2.5}})
    _write(run / "masked_text.json", {"step": 5, "mlm_loss": 3.5})
    assert [is_done(stage, tmp_path) for stage in (BASE, *stages)] == [True, True, False]
    assert read_figure(stages[0], "128/mlm_loss", tmp_path).values == (2.5,)
    several = joined([read_figure(stages[1], "mlm_loss", tmp_path)] * 2)
    assert several.values == (3.5, 3.5) and several.resampled is None


def test_a_difference_has_the_errors_of_seeds_and_of_examples():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(2, 3, 40))
    mine = Figure((5.0, 7.0, 6.5), samples[0])
    reference = Figure((4.0, 5.0, 6.0), samples[1])
    by_hand = np.var([1.0, 2.0, 0.5], ddof=1) / 3
    by_hand += np.var(samples[0].mean(0) - samples[1].mean(0), ddof=1)
    assert standard_error(mine, reference).value == pytest.approx(np.sqrt(by_hand))
    # What both models share cancels: the same examples are hard for both.
    shared = Figure((5.0,), samples[:1, 0])
    assert standard_error(shared, Figure((4.0,), samples[:1, 0])).value == pytest.approx(0)
    # With other numbers of seeds, the errors of both means.
    unequal = np.var([5.0, 7.0, 6.5], ddof=1) / 3 + np.var([4.0, 5.0], ddof=1) / 2
    error = standard_error(Figure((5.0, 7.0, 6.5)), Figure((4.0, 5.0)))
    assert error.value == pytest.approx(np.sqrt(unequal))
    # Welch's degrees of freedom of both means, as scipy has them.
    test = scipy.stats.ttest_ind([5.0, 7.0, 6.5], [4.0, 5.0], equal_var=False)
    assert error.freedom == pytest.approx(test.df)
    assert is_clear(1.0, None) is None
    # The differences 1 and 1.1 have the standard error 0.05, of which two seeds need 12.7.
    for values, clear in {(5.0, 5.1): True, (5.0, 5.2): False}.items():
        mine, reference = Figure(values), Figure((4.0, 4.0))
        assert is_clear(mine.mean - reference.mean, standard_error(mine, reference)) is clear
    same = standard_error(Figure((5.0, 5.0)), Figure((4.0, 4.0)))  # seeds that do nothing
    assert (is_clear(0.0, same), is_clear(1.0, same)) == (False, True)


@pytest.mark.parametrize(
    "seeds, of_examples",
    [((2, 2), 0.0), ((3, 3), 0.0), ((5, 5), 0.0), ((3, 3), 1.0), ((5, 3), 1.0)],
)
def test_equal_rows_are_called_different_in_one_of_twenty(seeds, of_examples):
    """Rows that differ by the noise of seeds, and of the choice of examples, alone."""
    rng = np.random.default_rng(0)
    different = []
    for _ in range(1_000):
        luck = of_examples * rng.normal()  # of the row with these examples
        figures = []
        for number, shift in zip(seeds, (luck, 0.0), strict=True):
            samples = rng.normal(size=(1, 50)) * of_examples / np.sqrt(2) + np.zeros((number, 1))
            values = tuple(rng.normal(size=number) + shift)
            figures.append(Figure(values, samples if of_examples else None))
        mine, reference = figures
        different.append(is_clear(mine.mean - reference.mean, standard_error(mine, reference)))
    assert 0.03 < np.mean(different) < 0.07


@pytest.fixture
def content(tmp_path):
    """Three rows; the last one is not done."""
    rows = [
        Row(name, {"task": _fine_tuned(tmp_path, name, values)})
        for name, values in {"a": [50.0, 52.0], "b": [52.0, 51.5], "c": [70.0, 71.0]}.items()
    ]
    rows.append(Row("d", {"task": Stage("d", "finetune", "b.py", start=(BASE,))}))
    columns = [Column("F1", "task", "dev/f1", {"a": 88.5, "d": 77.0})]
    study = Study("T", rows, columns, source="there", against=PREVIOUS)
    return table.content(study, tmp_path)


def test_the_table(content):
    assert table.text(content).splitlines() == [
        "|  | F1 |",
        "| --- | --- |",
        "| a | 51.00 ± 1.41 (88.5) |",
        "| b | 51.75 ± 0.35 ≈ |",
        "| c | 70.50 ± 0.71 |",
        "| d | - (77) |",
        "",
        "Seeds: 2; ± is their standard deviation. ≈: not clearly different from the row above "
        "(t test, 5 %). In brackets: there.",
    ]
    cells = [row["cells"]["F1"] for row in content["rows"]]
    assert [cell["difference"] for cell in cells] == [None, 0.75, 18.75, None]
    assert [cell["clear"] for cell in cells] == [None, False, True, None]
    assert cells[1]["standard_error"] == pytest.approx(1.25)
    assert json.loads(json.dumps(content)) == content


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, as matplotlib has them."""
    found, png = [], figures.png

    @contextlib.contextmanager
    def kept(path, **options):
        with png(path, **options) as figure:
            yield figure
            found.append(figure)

    monkeypatch.setattr(figures, "png", kept)
    return found


def _points(lines, **style):
    """The (x, y) of lines with a style, such as color="black"."""
    fitting = [
        line for line in lines if all(getattr(line, f"get_{k}")() == v for k, v in style.items())
    ]
    return [[tuple(map(float, point)) for point in line.get_xydata()] for line in fitting]


def test_the_picture(content, tmp_path, drawn):
    """Every seed, mean and published figure stands in the line of its row."""
    picture.draw(content, tmp_path / "points.png")
    (panel,) = drawn[0].axes
    assert _points(panel.lines, color="tab:blue") == [
        [(50.0, 0.0), (52.0, 0.0)],
        [(52.0, 1.0), (51.5, 1.0)],
        [(70.0, 2.0), (71.0, 2.0)],
    ]
    assert _points(panel.lines, color="black") == [[(51.0, 0)], [(51.75, 1)], [(70.5, 2)]]
    assert _points(panel.lines, color="tab:orange") == [[(88.5, 0)], [(77.0, 3)]]
    assert [label.get_text() for label in panel.get_yticklabels()] == list("abcd")
    assert panel.get_title() == "F1" and drawn[0].get_suptitle() == "T"
    with Image.open(tmp_path / "points.png") as image:
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 20


def test_the_picture_of_curves(content, tmp_path, drawn):
    """A curve for each row that has figures, over the places of the columns, with deviations."""
    (column,) = content["columns"]
    content["columns"] = [column | {"x": 100}, column | {"name": "later", "x": 300}]
    for row in content["rows"]:
        row["cells"]["later"] = row["cells"]["F1"] | {"deviation": None}
    picture.draw(content | {"axis": "steps"}, tmp_path / "curves.png")
    (plot,) = drawn[0].axes
    means = {"a": 51.0, "b": 51.75, "c": 70.5}
    assert {bar.get_label(): _points([bar[0]]) for bar in plot.containers} == {
        name: [[(100.0, mean), (300.0, mean)]] for name, mean in means.items()
    }
    (bars,) = plot.containers[0][2]  # from the mean less the deviation to the mean and it
    ends = [[tuple(map(float, end)) for end in bar] for bar in bars.get_segments()]
    spread = pytest.approx(np.sqrt(2.0))
    assert [end[1] - start[1] for start, end in ends] == [pytest.approx(2 * np.sqrt(2.0)), 0]
    assert ends[0][1][1] - 51.0 == spread
    assert (plot.get_xlabel(), plot.get_title()) == ("steps", "T")
    with Image.open(tmp_path / "curves.png") as image:
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 20


def test_a_figure_that_a_run_lacks_leaves_a_gap(tmp_path, capsys):
    """The test files of CoNLL-2003 may be absent; the dev figures stand."""
    rows = [Row("tuned", {"NER": _fine_tuned(tmp_path, "a", [50.0, 53.0])})]
    columns = [Column("dev", "NER", "dev/f1"), Column("test", "NER", "test/f1")]
    found = table.content(Study("Tags", rows, columns), tmp_path)
    (row,) = found["rows"]
    assert row["cells"]["dev"]["mean"] == 51.5 and row["cells"]["test"]["mean"] is None
    assert "tuned, test: left empty: " in capsys.readouterr().out
    assert "| tuned | 51.50" in table.text(found)
    (tmp_path / "runs" / "a" / "results.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="results.json: damaged"):
        table.content(Study("Tags", rows, columns), tmp_path)
