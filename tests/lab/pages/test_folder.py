"""The page of a folder: a run, one that fine-tunes, a study, several; and folders that are none."""

import json
import logging
import math
import os
import shutil

import pytest

from bertjax.base.errors import InputError
from bertjax.lab.pages.folder import sections, state_of
from bertjax.lab.pages.page import page
from bertjax.lab.studies.study import Column, Row, Stage, Study
from bertjax.lab.studies.table import content
from tests.helpers.page_data import Page
from tests.helpers.tiny_run import tiny_config

EVIL = "<script>alert(1)</script>"


def show(*folders) -> Page:
    return Page(page("A page", sections(folders)))


def write_run(folder, rows, baseline=6.5, config=None, **health):
    folder.mkdir(parents=True)
    config = config or tiny_config("corpus", total_steps=100)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "health.json").write_text(json.dumps({"unigram_baseline": baseline, **health}))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(lines)
    return folder


def lines_of(steps, offset=0.0):
    """A line of training at each step, and an evaluation at each second one."""
    rows = []
    for n, step in enumerate(steps):
        loss = 7.0 - 0.01 * step + offset
        common = {"loss": loss + 0.69, "mlm_loss": loss, "tokens": 512 * step, "flops": 1e9}
        rate = {"learning_rate": 1e-3 * n, "tokens_per_second": 1000.0 + n, "host_wait": 0.5}
        rate["grad_norm"] = 2.0 + n
        rows.append({"step": step, "split": "train", **common, **rate})
        if n % 2:
            accuracy = {"mlm_accuracy": 0.3 + n / 100, "mlm_accuracy_stderr": 0.01}
            accuracy["nsp_random_answers"] = 0.5
            rows.append({"step": step, "split": "heldout", **common, **accuracy})
    return rows


def mark_of_status(shown):
    """The class of the first paragraph that has one, after the page's own."""
    (mark, *_) = [a["class"] for name, a in shown.elements if name == "p" and "class" in a]
    return mark


def test_a_run_of_pre_training(tmp_path):
    """The curves are the metrics, next to the baseline, the health, the phases and the config."""
    rows = lines_of(range(10, 101, 10))
    shown = show(write_run(tmp_path / "run", rows))
    for number, name in enumerate(("mlm_loss", "loss", "learning_rate", "tokens_per_second")):
        for split, word in (("train", "training"), ("heldout", "held-out")):
            mine = [(r["step"], r[name]) for r in rows if r["split"] == split and name in r]
            if mine:
                steps, values = shown.curve(number, word)
                assert steps == [step for step, _ in mine]
                assert values == pytest.approx([value for _, value in mine], rel=1e-6)
    assert "grad_norm: the norm of the gradient" in shown.text
    names = [{curve["name"] for curve in chart["curves"]} for chart in shown.data["charts"]]
    both = {"training", "held-out"}
    assert names == [both, both, *[{"training"}] * 4, *[{"held-out"}] * 2]
    assert "healthy: held-out mlm_loss 6.00 (unigram baseline 6.50)" in shown.text
    assert "unigram baseline 6.50" in shown.text and "healthy: it uses the context" in shown.text
    assert "diverging above 6.50" in shown.text  # the best of phase 2, 6.00, and half a nat
    assert mark_of_status(shown) == "note good"
    assert "phase 1: 16 x 32" in shown.text
    assert "optimizer.learning_rate 0.01" in shown.text
    names = "last at step lowest at step highest at step"
    assert f"mlm_loss {names} training 6 100 6 100 6.9 10 held-out 6 100 6 100 6.8" in shown.text


def test_a_loss_that_says_the_same_is_drawn_once(tmp_path):
    rows = [row | {"loss": row["mlm_loss"] + 1e-6} for row in lines_of(range(10, 60, 10))]
    shown = show(write_run(tmp_path / "run", rows))
    assert len(shown.data["charts"]) == 7 and "loss last" not in shown.text.replace("mlm_loss", "")


def test_held_out_losses_by_language(tmp_path):
    rows = lines_of(range(10, 60, 10))
    for row in rows:
        if row["split"] == "heldout":
            row |= {"mlm_loss_en": row["mlm_loss"] - 0.1, "mlm_loss_sw": row["mlm_loss"] + 0.1}
    run = write_run(tmp_path / "run", rows, languages={"en": 6.1, "sw": 6.7})
    shown = show(run)
    steps, values = shown.curve(1, "sw")
    assert steps == [20, 40] and values == pytest.approx([6.9, 6.7])
    assert {curve["name"] for curve in shown.data["charts"][1]["curves"]} == {"en", "sw"}
    assert "baseline of sw 6.70" in shown.text and "mlm_loss by language" in shown.text


def test_a_run_that_diverged(tmp_path):
    rows = lines_of([10, 20]) + [{"step": 30, "split": "train", "loss": math.nan, "mlm_loss": 9.0}]
    shown = show(write_run(tmp_path / "run", rows, diverged="step 31: the loss is nan"))
    assert "diverging: step 31: the loss is nan" in shown.text
    assert mark_of_status(shown) == "note bad"
    assert shown.curve(1, "training")[1][-1] is None


def test_a_run_that_has_only_begun(tmp_path):
    shown = show(write_run(tmp_path / "run", []))
    assert "There is no line of metrics.jsonl yet." in shown.text
    assert "unknown: no evaluation yet" in shown.text and shown.data["charts"] == []
    assert mark_of_status(shown) == "note"


def test_where_the_border_of_divergence_begins(tmp_path):
    """At the best evaluation of its phase, which is the second one here; it is lower before."""
    held_out = ((20, 3.0), (80, 6.25), (85, 6.0), (90, 6.2), (100, 6.1))
    rows = [{"step": s, "split": "heldout", "loss": v, "mlm_loss": v} for s, v in held_out]
    shown = show(write_run(tmp_path / "run", rows))
    lines = [a["d"] for _, a in shown.elements if a.get("class") == "level"]
    x0, x1, y0, y1 = shown.data["charts"][0]["box"]
    _, _, low, high = shown.data["charts"][0]["view"]
    y = f"{y0 - (6.5 - low) / (high - low) * (y0 - y1):.1f}"  # of the baseline, and of 6.0 + 0.5
    assert lines == [f"M{x0:.1f} {y}H{x1}", f"M{x0 + 0.85 * (x1 - x0):.1f} {y}H{x1}"]


def test_a_run_with_a_line_of_each_kind(tmp_path):
    """Points are no curves; the lines are there as they are, and the health status is."""
    shown = show(write_run(tmp_path / "run", lines_of([10, 20])[1:]))
    assert shown.data["charts"] == [] and "the lines of metrics.jsonl, too few" in shown.text
    assert " step 20 20 split train heldout loss 7.49 7.49 mlm_loss 6.8 6.8 " in shown.text


def test_a_damaged_line_at_the_end(tmp_path, caplog):
    run = write_run(tmp_path / "run", lines_of([10, 20]))
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 30, "split": "tr\n')  # damage
        file.write('{"step": 30, "split": "train", "lo')  # the run is writing it
    with caplog.at_level(logging.WARNING):
        shown = show(run)
    assert [record.message for record in caplog.records] == [
        f"{run / 'metrics.jsonl'}: 1 damaged lines are left out"
    ]
    assert shown.curve(0, "training")[0] == [10, 20]


def test_several_runs_are_compared(tmp_path):
    one = write_run(tmp_path / "one", lines_of(range(10, 60, 10)))
    two = write_run(tmp_path / EVIL.replace("/", ""), lines_of(range(15, 80, 15), offset=0.5))
    shown = show(one, two)
    charts = [{curve["name"] for curve in chart["curves"]} for chart in shown.data["charts"]]
    assert charts[0] == charts[1] == {"one", two.name}
    assert shown.curve(0, two.name)[0] == [15, 30, 45, 60, 75]
    assert shown.curve(1, "one")[0] == [20, 40]
    assert shown.text.count("unigram baseline 6.50") == 2  # in the health statuses
    assert "loss, training" in shown.text and "loss, held-out" in shown.text


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [write_run(tmp_path / n / "run", lines_of(range(10, 60, 10))) for n in ("a", "b/c")]
    shown = show(*runs)
    assert [each["name"] for each in shown.data["charts"][0]["curves"]] == ["a/run", "b/c/run"]


def test_runs_over_minutes_and_tokens(tmp_path):
    """Of the updates: each stretch has the pace of its line."""
    rows = [
        {"step": 10, "split": "train", "loss": 9.0, "tokens": 1200, "tokens_per_second": 20.0},
        {"step": 15, "split": "heldout", "loss": 8.0},
        {"step": 20, "split": "train", "loss": 7.0, "tokens": 3600, "tokens_per_second": 80.0},
    ]
    one = write_run(tmp_path / "one", rows)
    fast = [row | {"tokens_per_second": 160.0} if "tokens" in row else row for row in rows]
    two = write_run(tmp_path / "two", [*fast, {"step": 20, "split": "heldout", "loss": 6.0}])
    over = {
        name: Page(page("A page", sections([one, two], name))) for name in ("minutes", "tokens")
    }
    assert over["minutes"].curve(0, "one") == ([1.0, 1.5], [9, 7])
    assert over["minutes"].curve(0, "two") == ([0.125, 0.375], [9, 7])
    assert over["minutes"].curve(1, "two") == ([0.25, 0.375], [8, 6])
    assert over["tokens"].curve(0, "one") == ([1200, 3600], [9, 7])
    assert over["tokens"].curve(1, "two") == ([2400, 3600], [8, 6])
    assert "loss, training over minutes" in over["minutes"].text
    alone = Page(page("A page", sections([two], "minutes")))
    assert alone.curve(0, "held-out") == ([0.25, 0.375], [8, 6])
    rows = [{key: value for key, value in row.items() if key != "tokens"} for row in rows]
    with pytest.raises(InputError, match="--over=tokens: no line of three says its tokens"):
        sections([one, write_run(tmp_path / "three", rows)], "tokens")


def write_results(folder, trials=(0, 1)):
    """A run of fine-tuning of two seeds with metrics, results and predictions."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"task": {"name": EVIL}, "data": "glue"}))
    found = []
    for seed in trials:
        trial = folder / "trials" / f"seed{seed}"
        trial.mkdir(parents=True)
        rows = [{"step": s, "split": "train", "loss": 1.0 / s + seed} for s in (2, 4, 6)]
        (trial / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        dev = {"dev": {"accuracy": 70.0 + seed}}
        result = {"dev": dev, "settings": {}, "data": {}, "value": 70.0, "degenerate": ""}
        (trial / "results.json").write_text(json.dumps(result))
        found.append({"seed": seed, "seconds": 3.5, "dev": dev})
    return found


def test_a_run_of_fine_tuning(tmp_path):
    run = tmp_path / "run"
    trials = write_results(run)
    before = show(run)
    assert "trials that are done trial dev accuracy seed0 70 seed1 71" in before.text
    results = {"task": EVIL, "metric": "accuracy", "dev": trials[1]["dev"], "trials": trials}
    results["predictions"] = {"dev.jsonl": "a digest"}
    (run / "results.json").write_text(json.dumps(results))
    (run / "predictions").mkdir()
    answer = {"text": EVIL, "label": "1", "probabilities": {"1": 0.75}}
    (run / "predictions" / "dev.jsonl").write_text(json.dumps(answer) + "\n{damaged\n")
    (run / "predictions" / "test.tsv").write_text("index\tprediction\n0\t" + "x" * 1_000 + "\n")
    after = show(run)
    assert state_of([run]) != "" and before.data["charts"] == after.data["charts"]
    assert after.curve(0, "seed1") == ([2, 4, 6], pytest.approx([1.5, 1.25, 1.1666667]))
    assert f"task {EVIL} metric accuracy dev accuracy 71" in after.text
    assert "trials seed seconds dev accuracy 0 3.5 70 1 3.5 71" in after.text
    assert f'text label probabilities damaged {EVIL} 1 {{"1": 0.75}} {{damaged' in after.text
    assert "a digest" not in after.text and "x" * 398 + "…" in after.text
    assert [name for name, _ in after.elements].count("script") == 2


def test_a_run_over_fixed_features(tmp_path):
    """It has a folder for each choice of layers; many scores are rows, means have deviations."""
    run = tmp_path / "run"
    write_results(run, ())
    kinds = [f"{metric}_{kind}" for kind in ("LOC", "PER", "ORG") for metric in ("f1", "recall")]
    found = {}
    for place, choice in enumerate(("embeddings", "last")):
        trials = write_results(run / choice, (place, 2))
        scores = {name: 50.5 + n for n, name in enumerate(["f1", "recall", *kinds])}
        spread = {name: {"mean": value, "deviation": 0.0} for name, value in scores.items()}
        spread["f1"]["deviation"] = None
        found[choice] = {"task": "NER", "dev": {"dev": scores}, "trials": trials}
        found[choice] |= {"data": {"test": "digest"}, "predictions": {"a.txt": "digest"}}
        found[choice]["summary"] = [{"epochs": n, "dev": {"dev": spread}} for n in (3, 4)]
        (run / choice / "predictions").mkdir()
        (run / choice / "predictions" / "a.txt").write_text(f"moo {choice}\n")
        (run / choice / "config.json").unlink()
    before = show(run)
    done = "embeddings seed0 70 embeddings seed2 72 last seed1 71 last seed2 72"
    assert f"trials that are done trial dev accuracy {done}" in before.text
    (run / "results.json").write_text(json.dumps(found))
    shown = show(run)
    names = ["embeddings seed0", "embeddings seed2", "last seed1", "last seed2"]
    assert [each["name"] for each in shown.data["charts"][0]["curves"]] == names
    assert "Scores of embeddings" in shown.text and "Scores of last" in shown.text
    assert "task NER dev f1 50.5 dev recall 51.5 dev f1_LOC 52.5" in shown.text
    assert "summary 1 2 epochs 3 4 dev f1 50.5 50.5 dev recall 51.5 ± 0 51.5 ± 0" in shown.text
    assert "last a.txt: the first 1 lines moo last" in shown.text and "digest" not in shown.text


def test_evaluations_and_pictures(tmp_path):
    run = write_run(tmp_path / "run", lines_of([10, 20]))
    (run / "masked_text.json").write_text('{"step": 20, "mlm_loss": 1.25, "others": {}}')
    (run / "words.png").write_bytes(b"\x89PNG tiny")
    (run / "loss.png").write_bytes(b"\x89PNG tiny")
    (run / "large.png").write_bytes(bytes(500_000))
    shown = show(run)
    assert "masked_text.json figure value step 20 mlm_loss 1.25" in shown.text
    pictures = [a for name, a in shown.elements if name == "img"]
    assert [each["alt"] for each in pictures] == ["words.png"]
    assert pictures[0]["src"] == "data:image/png;base64,iVBORyB0aW55"
    assert "large.png: 500,000 bytes, too large" in shown.text


def test_a_study(tmp_path):
    """Its table is that of `bertjax.lab.studies.table`, and its runs are compared."""
    stages = [Stage(name, "pretrain", config="a.py") for name in ("first", "second")]
    columns = (Column("LM loss", "run", "128/mlm_loss", published={"row 0": 3.1}),)
    rows = tuple(Row(f"row {n}", {"run": each}) for n, each in enumerate(stages))
    study = Study("A <b>study</b>", rows, columns, "a paper")
    (tmp_path / "mine.plan.json").write_text("{}")
    for n, stage in enumerate(stages):
        write_run(tmp_path / "runs" / stage.name, lines_of([10, 20, 30], offset=n))
    assert "mine It has no table yet." in show(tmp_path).text
    (tmp_path / "mine.json").write_text(json.dumps(content(study, tmp_path)))
    shown = show(tmp_path)
    assert "A <b>study</b>" in shown.text and "LM loss row 0 - (3.1) row 1 -" in shown.text
    assert "In brackets: a paper." in shown.text
    assert shown.curve(0, "second")[1] == pytest.approx([8.59, 8.49, 8.39])
    (tmp_path / "mine.json").write_text('{"title": 3}')
    with pytest.raises(InputError, match="mine.json: damaged .*remove it"):
        show(tmp_path)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(InputError, match=": not a run: it has no config.json"):
        show(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="not a run, but a model as transformers has it"):
        show(tmp_path)
    (tmp_path / "config.json").write_text('{"corpus": ')
    with pytest.raises(InputError, match="config.json: damaged"):
        show(tmp_path)


def test_the_state_changes_with_each_file(tmp_path):
    run = write_run(tmp_path / "run", lines_of([10, 20]))
    states = [state_of([run])]
    with open(run / "metrics.jsonl", "a") as file:
        file.write("\n")
    states.append(state_of([run]))
    (run / "evaluation.json").write_text("{}")
    states.append(state_of([run]))
    about = (run / "evaluation.json").stat()
    for written, later in (("[]", 1), ("{ }", 0)):  # of the same size, and of the same time
        (run / "evaluation.json").write_text(written)
        os.utime(run / "evaluation.json", ns=(0, about.st_mtime_ns + later))
        states.append(state_of([run]))
    (run / "evaluation.json").rename(run / "grammar.json")
    states.append(state_of([run]))
    for name in ("trials", "last/trials"):
        (run / name / "seed0").mkdir(parents=True)
        (run / name / "seed0" / "metrics.jsonl").write_text("{}")
        states.append(state_of([run]))
    (run / "watch.html").write_text("the page itself changes nothing")
    assert state_of([run]) == states[-1] and len(set(states)) == len(states) == 8
    shutil.rmtree(run)
    assert state_of([run]) not in states
