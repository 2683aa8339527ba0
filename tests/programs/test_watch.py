"""bertjax watch: the file, its server, what the model does with a text, and a real browser."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.blanks import fill
from bertjax.inference.features.attention_maps import attention_maps
from bertjax.lab.pages.model import blanks, gray_png
from bertjax.programs import commandline, watch
from bertjax.runs.source import open_model
from bertjax.training.metrics_log import read_metrics
from tests.helpers.browser import browser
from tests.helpers.page_data import Page
from tests.helpers.patience import PATIENCE

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy of a finished run, without what only training needs."""
    ignored = shutil.ignore_patterns("tensorboard", ".lock")
    return shutil.copytree(tiny_run, tmp_path / "run", ignore=ignored)


def test_the_page_of_a_real_run(run, capsys):
    watch.run([str(run)])
    assert capsys.readouterr().out == f"{run / 'watch.html'}: open it in a browser\n"
    shown = Page((run / "watch.html").read_text(encoding="utf-8"))
    rows = [row for row in read_metrics(run) if row["split"] == "train"]
    assert shown.curve(0, "training")[0] == [row["step"] for row in rows]
    values = [row["mlm_loss"] for row in rows]
    assert shown.curve(0, "training")[1] == pytest.approx(values, rel=1e-6)
    assert "healthy: held-out mlm_loss" in shown.text and shown.data["renews"] == 0


def test_a_model_is_shown_with_texts(run):
    texts = ["Meow meow, quack meow!", f"oink [MASK] {EVIL}"]
    watch.run([str(run)], texts)
    shown = Page((run / "watch.html").read_text(encoding="utf-8"))
    model = open_model(str(run))
    maps = [attention_maps(model, text, 64) for text in texts]
    assert shown.data["texts"] == [each.tokens for each in maps]
    images = [a for name, a in shown.elements if name == "img"]
    layers, heads = maps[0].maps.shape[:2]
    assert [a["alt"] for a in images[:heads]] == [f"layer 1, head {n + 1}" for n in range(heads)]
    assert len(images) == 2 * layers * heads
    assert {a["data-text"] for a in images} == {"0", "1"}
    ((guesses,),) = fill(model, ["Meow meow, [MASK] meow!"], 5)
    row = " ".join(f"{token} {share:.1%}" for token, share in guesses)
    assert f"quack {row}" in shown.text
    assert sum(name == "script" for name, _ in shown.elements) == 2 and EVIL in shown.text


def test_words_are_masked_one_by_one():
    assert blanks("It's (so) old.") == [
        ("It", "[MASK]'s (so) old."),
        ("s", "It'[MASK] (so) old."),
        ("so", "It's ([MASK]) old."),
        ("old", "It's (so) [MASK]."),
    ]
    assert blanks("a [MASK] b") == [("[MASK]", "a [MASK] b")]
    assert blanks("...") == []


def test_a_model_that_fills_no_blanks_shows_its_attention(left_to_right_run, tmp_path):
    run = shutil.copytree(left_to_right_run, tmp_path / "run")
    watch.run([str(run)], ["moo moo"])
    shown = Page((run / "watch.html").read_text(encoding="utf-8"))
    assert "No words are guessed: " in shown.text and "left to right" in shown.text
    assert any(name == "img" for name, _ in shown.elements)


def test_a_picture_is_its_numbers(tmp_path):
    import matplotlib.image

    values = np.linspace(0, 1, 15, dtype=np.float32).reshape(3, 5)
    (tmp_path / "a.png").write_bytes(gray_png(values))
    np.testing.assert_allclose(matplotlib.image.imread(tmp_path / "a.png"), values, atol=0.002)


@pytest.mark.slow
def test_a_long_run_makes_a_small_page(run, capsys):
    with open(run / "metrics.jsonl", "w") as file:
        for step in range(1, 100_001):
            row = {"step": step, "split": "train", "loss": 5 + step % 7, "mlm_loss": 5 + step % 11}
            row |= {f"other{n}": step * n % 13 for n in range(8)}
            row["mlm_loss"] = 99.0 if step == 54_321 else row["mlm_loss"]
            file.write(json.dumps(row) + "\n")
    watch.run([str(run)])
    text = (run / "watch.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 2_000_000
    steps, values = Page(text).curve(0, "training")
    assert values[steps.index(54_321)] == 99 and steps[-1] == 100_000


def test_several_runs_are_beside_each_other(run, capsys):
    shutil.copytree(run, run.parent / "other")
    (run.parent / "a file").touch()
    watch.run([str(run.parent / "*")])
    path = run.parent / "watch.html"
    assert capsys.readouterr().out == f"{path}: open it in a browser\n"
    names = {each["name"] for each in Page(path.read_text()).data["charts"][0]["curves"]}
    assert names == {"run", "other"}


@pytest.mark.parametrize(
    "names, texts, message",
    [
        ([], [], "name a run: bertjax watch RUN"),
        (["nowhere*"], [], r"nowhere\*: no such folder"),
        (["gs://bucket/run"], [], "gs://bucket/run: not a folder; mount the bucket"),
        (["."], [], ": not a run: it has no config.json"),
        (["run/vocab.txt"], [], "run/vocab.txt: not a run"),
        (["run"], ["moo " * 99], "101 tokens, and the model takes 64: shorten it"),
        (["run", "run/../run"], ["moo"], "--text: there are several folders: name one run"),
    ],
)
def test_bad_input(run, monkeypatch, names, texts, message):
    monkeypatch.chdir(run.parent)
    with pytest.raises(InputError, match=message):
        watch.run(names, texts)
    assert not list(run.parent.rglob("watch.html"))


def test_only_this_door_takes_words_that_are_no_flags():
    assert commandline._with_arguments(list, "RUN", ["watch.py", "a", "b"]) == ["a", "b"]
    with pytest.raises(InputError, match="no RUN is given: write it after the program's name"):
        commandline._with_arguments(list, "RUN", ["watch.py"])
    with pytest.raises(InputError, match="'a' is no flag: write --name=value"):
        commandline._with_arguments(list, "", ["fill_mask.py", "a"])


@pytest.fixture
def served(run):
    """The address of a server of `run`."""
    server = watch._server(watch._Watched([run], []), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def _get(url, **headers):
    asked = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        return answer.read().decode()


def _append(run, step, loss):
    row = {"step": step, "split": "train", "loss": loss, "mlm_loss": loss}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


def test_a_served_page_is_renewed(run, served):
    first = Page(_get(served))
    assert _get(served + "state") == first.data["state"] and first.data["renews"] > 0
    _append(run, 200, 3.25)
    assert _get(served + "state") != first.data["state"]
    again = Page(_get(served))
    assert again.curve(0, "training")[0][-1] == 200
    assert _get(served + "state") == again.data["state"]
    assert Page((run / "watch.html").read_text()).curve(0, "training")[0][-1] == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _get(served + "config.json")
    for name in ("localhost", "LOCALHOST:9000", "127.0.0.1:80"):  # as through a tunnel
        assert _get(served + "state", Host=name) == again.data["state"]
    for name in ("evil.example", "localhost.evil.example", "evil.example:8000", "", "127.0.0.12"):
        with pytest.raises(urllib.error.HTTPError, match="403: open http://127.0.0.1 or http://lo"):
            _get(served + "state", Host=name)
    (run / "health.json").write_text("{damaged")
    with pytest.raises(urllib.error.HTTPError, match="503") as error:
        _get(served)
    assert "health.json: damaged" in error.value.read().decode()
    port = int(served.rpartition(":")[2][:-1])
    with pytest.raises(InputError, match=f"--port={port}: cannot be used: .*: choose another"):
        watch.run([str(run)], port=port)


@pytest.mark.slow
def test_ctrl_c_ends_the_server(run, repository):
    program = [sys.executable, repository / "launch" / "watch.py", run, "--port=0"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(program, text=True, **pipes) as process:
        said = process.stdout.readline()
        assert said.startswith("http://127.0.0.1:") and said.endswith(": until Ctrl-C\n")
        assert Page(_get(said.partition(": until")[0])).data["charts"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and errors.startswith("interrupted: ")


@pytest.mark.needs("playwright")
def test_a_real_browser_shows_it(run, served):
    """No error on its console; the curve is drawn; a pointer gets the value; the page renews."""
    _append(run, 170, 3.25)
    with browser() as opened:
        page = opened.new_page(viewport={"width": 700, "height": 900})
        errors = []
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(served)
        curve = page.locator("svg[data-chart='0'] path.curve").first
        box = curve.bounding_box()
        assert box["width"] > 300 and box["height"] > 50
        picture = page.locator("svg[data-chart='0']")
        whole = picture.bounding_box()
        picture.hover(position={"x": whole["width"] - 15, "y": whole["height"] / 2})
        here = page.locator("figure").first.locator(".here")
        assert "training 3.25 (step 170)" in here.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        _append(run, 180, 4.5)
        renewed = page.get_by_role("row", name="training 4.5 180").first
        renewed.wait_for(timeout=1_000 * PATIENCE)
        assert errors == []


@pytest.mark.needs("playwright")
def test_a_real_browser_shows_attention(run):
    watch.run([str(run)], ["moo quack"])
    (_, maps) = attention_maps(open_model(str(run)), "moo quack", 64)
    with browser() as opened:
        page = opened.new_page(color_scheme="dark", viewport={"width": 400, "height": 700})
        errors = []
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((run / "watch.html").as_uri())
        head = page.locator("img[alt='layer 1, head 2']")
        size = head.bounding_box()["width"]
        head.hover(position={"x": size * 2.5 / 4, "y": size * 1.5 / 4})  # row 2, column 3 of 4
        said = page.locator("figure", has=head).locator(".here").inner_text()
        text, _, share = said.rpartition(" ")
        assert text == "layer 1, head 2: moo → quack"
        assert float(share) == pytest.approx(maps[0, 1, 1, 2], abs=0.01)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert errors == []
