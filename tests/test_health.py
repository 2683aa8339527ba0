"""The bands on file, the verdict on a run's folder, and the program that adds runs to the bands."""

import copy
import json
import shutil

import pytest
from benchmarks import health_bands, text_words
from benchmarks.tables import RESULTS
from tiny_run import tiny_config

from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.files import read_json
from bertjax.corpus.store import TokenStore, open_tokenizer
from bertjax.programs import pretrain
from bertjax.runs.health import (
    BANDS_FILE,
    describe_text,
    find_band,
    health_of,
    read_bands,
    read_text,
    verdict_of_run,
    write_text,
)
from bertjax.runs.recipe import Recipe
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.loop import Trainer
from bertjax.training.verdict import HEALTHY, PLATEAU, UNKNOWN
from configs import pretrain_modern_tiny, pretrain_tiny

# The run of docs/training.md on English Wikipedia, whose curve is on file.
TEXT = {
    "vocabulary_size": 30_000,
    "without_context": 6.6064,
    "words": read_bands()["bands"][0]["words"],
}


def mini_config(**changes):
    config = pretrain_tiny.get_config()
    config.total_steps = 3_000
    config.phase_1.batch_size, config.phase_2.batch_size = 16, 4
    config.model.size = "mini"
    config.optimizer.update(learning_rate=1e-3, warmup_steps=300)
    return {**config.to_dict(), **changes}


def mini_rows():
    """Its lines; older runs did not write how the next-sentence head answers."""
    lines = (RESULTS / "enwiki_mini.jsonl").read_text(encoding="utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: row["step"])
    for row in rows:
        # 136 of the 256 pairs at length 128 have one answer.
        if row["split"] == "heldout" and row["nsp_accuracy"] in (136 / 256, 120 / 256):
            row["nsp_random_answers"] = 1.0
    return rows


# ------------------------------------------------------------------------------ the curve on file


def test_the_curve_on_file_gives_no_alarm():
    """At no line, with its band and without one, though it stays on the plateau to its end."""
    rows, recipe = mini_rows(), Recipe.from_config(mini_config())
    constant = [row["step"] for row in rows if row.get("nsp_random_answers")]
    assert len(constant) >= 8  # it would be told of, were that not usual at first
    for bands, kinds in ((None, {HEALTHY, UNKNOWN}), ({"bands": []}, {UNKNOWN})):
        health = health_of(recipe, TEXT, bands)
        found = {health.verdict(rows[:end]).kind for end in range(1, len(rows) + 1)}
        assert found == kinds
    end = str(health_of(recipe, TEXT).verdict(rows))
    assert end == (
        "healthy: held-out masked-LM loss 6.70 (6.61 without context), accuracy 13.7%, "
        "after 6.1 M tokens; band 6.34 to 7.07, 9.2% to 18.2%, of enwiki-mini on English Wikipedia"
    )


def test_its_band_is_its_curve_and_the_measured_margin():
    health, margin = health_of(Recipe.from_config(mini_config()), TEXT), read_bands()["margin"]
    held_out = {row["step"]: row for row in mini_rows() if row["split"] == "heldout"}
    for step in (600, 1_400, 2_700, 3_000):
        low, high = health.bounds(step).loss
        assert (low + high) / 2 == pytest.approx(held_out[step]["mlm_loss"], abs=1e-3)
        assert high - low == pytest.approx(2 * margin["nats"])
    assert margin == health_bands.spread(read_json(health_bands.WALK, cure=""))
    assert 0.3 < margin["nats"] < 0.4


def test_the_same_run_with_flat_losses_is_told_by_a_band_that_has_left_the_plateau():
    bands = copy.deepcopy(read_bands())
    for band in bands["bands"]:
        for curve in band["curves"]:
            curve["loss"] = [loss - 1.5 for loss in curve["loss"]]
    health = health_of(Recipe.from_config(mini_config()), TEXT, bands)
    assert health.verdict(mini_rows()).kind == PLATEAU


@pytest.mark.parametrize(
    "changes, text, why",
    [
        ({"init_from": "hf:x"}, TEXT, "no band for runs from given weights"),
        ({"objective": "masked_lm"}, TEXT, "no band for bert of 4 layers of 256 with masked_lm "),
        ({"masking": {"rate": 0.3}}, TEXT, "no band for bert of 4 layers"),
        ({}, {}, "no band for bert of 4 layers"),
        (
            {},
            TEXT | {"without_context": 6.95},
            "of other text (English Wikipedia): without the context",
        ),
        (
            {},
            TEXT | {"words": {"der": 0.04, "die": 0.04, "und": 0.03, "in": 0.02}},
            "of another language or domain (English Wikipedia): this run's text has 6% of its "
            "frequent words, and must have 80%",
        ),
        ({}, {"without_context": 6.6064}, "lacks the frequent words of its text: give the run"),
        ({}, TEXT | {"words": None}, "lacks the frequent words of its text: give the run"),
        ({"total_steps": 9_000}, TEXT, "of shorter runs, to 5.5 M tokens"),
    ],
)
def test_only_like_is_compared_with_like(changes, text, why):
    recipe = Recipe.from_config(mini_config(**changes))
    band, reason = find_band(recipe, recipe.phases[0], text, read_bands())
    assert band is None and why in reason
    verdict = health_of(recipe, text).verdict(mini_rows()[-1:])
    assert verdict.kind == UNKNOWN


@pytest.mark.parametrize("place", [0, 1])
def test_a_band_reaches_as_far_as_its_longest_curve(place):
    """Beside the curve on file stands a shorter one, of half the batch, 0.2 nats above it."""
    recipe, bands = Recipe.from_config(mini_config()), copy.deepcopy(read_bands())
    (curves,) = (
        band["curves"] for band in bands["bands"] if band["curves"][0]["tokens"][-1] == 5_529_600
    )
    shorter = copy.deepcopy(curves[0])
    for name in ("tokens", "loss", "accuracy"):
        del shorter[name][3:]
    shorter["loss"] = [loss + 0.2 for loss in shorter["loss"]]
    shorter["recipe"]["batch_tokens"] //= 2
    end = shorter["tokens"][-1]
    assert 3 * end < 3_000 * 2_048  # alone, it would be too short for the run
    alone = find_band(recipe, recipe.phases[0], TEXT, bands)[0]
    curves.insert(place, shorter)
    band, why = find_band(recipe, recipe.phases[0], TEXT, bands)
    assert why == "" and (alone.batch_tokens, band.batch_tokens) == (2_048, 1_024)
    for tokens, higher in ((end, 0.2), (end + 1, 0.0), (5_529_600, 0.0)):
        low, high = alone.at(tokens).loss
        assert band.at(tokens).loss == pytest.approx((low, high + higher))
    assert band.at(5_529_601) is None
    longer = Recipe.from_config(mini_config(total_steps=9_000))
    assert "of shorter runs, to 5.5 M" in find_band(longer, longer.phases[0], TEXT, bands)[1]


@pytest.mark.parametrize("share, known", [(0.801, True), (0.799, False)])
def test_a_band_is_of_a_text_with_the_same_words(share, known):
    """Four fifths of the band's frequent words; by themselves, however much else there is."""
    recipe, bands = Recipe.from_config(mini_config()), copy.deepcopy(read_bands())
    for band in bands["bands"]:
        band["words"] = {"the": 0.06, "of": 0.04}
    words = {"the": 0.06, "of": round(0.1 * share - 0.06, 5), "zebra": 0.3}
    band, _ = find_band(recipe, recipe.phases[0], TEXT | {"words": words}, bands)
    assert (band is not None) == known


def test_words_go_before_the_loss_without_context():
    """Of two bands of one size, that of the run's language, though the other's loss is nearer."""
    recipe, bands = Recipe.from_config(mini_config()), copy.deepcopy(read_bands())
    german = copy.deepcopy(bands["bands"][0])
    german |= {"text": "German", "words": {"der": 0.04, "die": 0.03}, "without_context": 6.5}
    bands["bands"].insert(0, german)
    like_english = find_band(recipe, recipe.phases[0], TEXT | {"without_context": 6.5}, bands)[0]
    assert like_english.source == "enwiki-mini on English Wikipedia"
    words = {"der": 0.04, "die": 0.03, "the": 0.01}
    like_german = find_band(recipe, recipe.phases[0], TEXT | {"words": words}, bands)[0]
    assert like_german.source == "enwiki-mini on German"


def test_another_encoder_has_no_band():
    config = pretrain_modern_tiny.get_config()
    config.model.size = "mini"
    recipe = Recipe.from_config(config)
    assert find_band(recipe, recipe.phases[0], TEXT, read_bands())[0] is None


def test_losses_are_compared_below_that_without_context():
    """A text of slightly other words has its band moved by their difference."""
    recipe = Recipe.from_config(mini_config())
    here, there = (
        health_of(recipe, TEXT | {"without_context": value}).bounds(2_000)
        for value in (TEXT["without_context"], TEXT["without_context"] - 0.2)
    )
    assert there.loss == pytest.approx([loss - 0.2 for loss in here.loss])
    assert there.accuracy == here.accuracy


# ------------------------------------------------------------------------------------ whole runs


def test_a_run_says_at_its_end_whether_it_is_healthy(tiny_run, tmp_path, capsys):
    text = read_text(tiny_run)
    assert text["vocabulary_size"] == Tokenizer.open(tiny_run).vocabulary_size
    assert max(text["words"], key=text["words"].get) == "roar"
    verdict = verdict_of_run(tiny_run)
    assert verdict.kind == UNKNOWN
    assert "no band for bert of 1 layers of 32 with masked_lm_next_sentence" in verdict.says
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "health.json").unlink()  # as in runs from before it was written
    assert "without context" not in str(verdict_of_run(run))
    config = json.loads((run / "config.json").read_text())
    assert pretrain.run(config, str(run)) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [f"{run}: 160 steps done", str(verdict)]
    assert read_text(run) == text and verdict_of_run(run) == verdict


def test_a_run_whose_loss_is_not_finite(tiny_corpus, tmp_path, monkeypatch):
    def train(*_, **__):
        raise NonFiniteLoss("step 3: the loss is nan")

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train", train)
        with pytest.raises(NonFiniteLoss):
            pretrain.run(tiny_config(tiny_corpus), str(tmp_path / "run"))
    assert str(verdict_of_run(tmp_path / "run")) == "diverging: step 3: the loss is nan"


def test_a_damaged_file(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "health.json").write_text('{"vocabulary_size": 7}')
    with pytest.raises(InputError, match="health.json: damaged.*without_context.*remove it: the"):
        verdict_of_run(run)
    (run / "health.json").write_text('{"words": {"the": "often"}}')
    with pytest.raises(InputError, match=r"words\['the'\] is 'often', must be a number"):
        verdict_of_run(run)


def test_a_corpus_is_described_for_each_objective(tiny_corpus):
    """Of next tokens none is shown, so a guess by frequencies alone has the whole entropy."""
    tokenizer, train = open_tokenizer(str(tiny_corpus)), TokenStore.open(tiny_corpus)
    without = {
        name: describe_text(
            Recipe.from_config(tiny_config(tiny_corpus, objective=name)), tokenizer, train
        )["without_context"]
        for name in ("masked_lm", "masked_lm_next_sentence", "left_to_right")
    }
    assert without["masked_lm"] == without["masked_lm_next_sentence"]
    assert 0.8 < without["masked_lm"] / without["left_to_right"] < 1


# -------------------------------------------------------------------------- the program for bands


@pytest.fixture
def mini_run(tmp_path):
    """A run folder with the lines on file."""
    run = tmp_path / "enwiki-mini"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(mini_config()))
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in mini_rows()))
    write_text(run, TEXT)
    return run


def test_the_program_makes_what_is_on_file(mini_run):
    on_file = read_bands()
    content = {"bands": []}
    health_bands.add(content, mini_run, "English Wikipedia")
    assert [band["like"]["length"] for band in content["bands"]] == [128, 512]
    curves = [
        curve
        for band in on_file["bands"]
        for curve in band["curves"]
        if curve["run"] == "enwiki-mini"
    ]
    assert [band["curves"][0] for band in content["bands"]] == curves
    tokens = curves[0]["tokens"]
    assert all(b >= 1.15 * a for a, b in zip(tokens, tokens[1:-1], strict=False))
    assert tokens[-1] == 2_700 * 16 * 128


def test_a_second_run_joins_the_band_and_the_same_run_is_replaced(mini_run):
    content = {"bands": []}
    health_bands.add(content, mini_run, "English Wikipedia")
    before = copy.deepcopy(content)
    health_bands.add(content, mini_run, "English Wikipedia")
    assert content == before
    other = shutil.copytree(mini_run, mini_run.parent / "seed-1")
    health_bands.add(content, other, "English Wikipedia")
    assert [curve["run"] for curve in content["bands"][0]["curves"]] == ["enwiki-mini", "seed-1"]
    words = {"if": 0.02, "is": 0.01}
    write_text(other, {"vocabulary_size": 8_000, "without_context": 5.8, "words": words})
    health_bands.add(content, other, "documentation")
    write_text(other, TEXT | {"words": {"der": 0.04}})
    health_bands.add(content, other, "German")  # with the loss without context of the first
    assert [(band["text"], band["words"]) for band in content["bands"]] == [
        *[("English Wikipedia", TEXT["words"])] * 2,
        *[("documentation", words)] * 2,
        *[("German", {"der": 0.04})] * 2,
    ]


def test_the_program_for_words(tiny_corpus):
    """Its sounds of animals are no English; of its own words it has all."""
    rows = text_words.table([str(tiny_corpus)]).splitlines()
    assert rows[0] == f"| text | {tiny_corpus} |"
    assert "| English Wikipedia, 30,000 | 0.0% |" in rows
    assert rows[-1] == f"| {tiny_corpus} | 100.0% |" and len(rows) == 6


def test_what_is_no_measure_is_refused(mini_run):
    write_text(mini_run, {"vocabulary_size": 30_000, "without_context": 6.6064})
    with pytest.raises(SystemExit, match="lacks the loss without context, or the words"):
        health_bands.add({"bands": []}, mini_run, "x")
    write_text(mini_run, TEXT)
    rows = mini_rows()
    path = mini_run / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:-9]))
    with pytest.raises(SystemExit, match="not finished"):
        health_bands.add({"bands": []}, mini_run, "x")
    last = rows[-1] | {"mlm_loss": float("nan")}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows[:-1], last]))
    with pytest.raises(SystemExit, match="it diverged"):
        health_bands.add({"bands": []}, mini_run, "x")


def test_the_file_says_how_each_figure_was_measured():
    content = read_json(BANDS_FILE, cure="")
    for figure in content["published"]:
        assert figure.keys() == {"model", "figure", "value", "source", "measured"}
    for band in content["bands"]:
        for curve in band["curves"]:
            assert len(curve["tokens"]) == len(curve["loss"]) == len(curve["accuracy"])
            assert curve["tokens"] == sorted(curve["tokens"])
