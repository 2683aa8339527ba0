"""A trained model's predictions for [MASK]."""

import pytest

from bertjax.base.errors import InputError
from bertjax.programs import fill_mask
from bertjax.runs.source import load_run
from tests.helpers.closeness import assert_close


def test_it_finds_the_obvious_word(tiny_run, capsys):
    texts = ["quack quack [MASK] quack quack quack.", "Meow [MASK] meow. Meow meow [MASK] meow."]
    guesses = fill_mask.run(str(tiny_run), texts, top=3)
    assert [len(places) for places in guesses] == [1, 2]
    assert [place[0].token for places in guesses for place in places] == ["quack", "meow", "meow"]
    for place in (place for places in guesses for place in places):
        assert len(place) == 3
        assert [g.probability for g in place] == sorted(
            (g.probability for g in place), reverse=True
        )
        assert 0 < sum(guess.probability for guess in place) <= 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == texts[0] and lines[2] == texts[1]
    assert lines[1].startswith(f"  quack {guesses[0][0][0].probability:.1%}  ")


def test_all_guesses_together_are_certain(tiny_run):
    size = load_run(tiny_run).tokenizer.vocabulary_size
    ((place,),) = fill_mask.run(str(tiny_run), ["moo [MASK] moo"], top=size)
    assert len({guess.token for guess in place}) == size
    assert_close(sum(guess.probability for guess in place), 1.0)


def test_padding_does_not_matter(tiny_run):
    """A text of the model's full length and a short text give the same predictions."""
    words = "oink oink oink oink oink oink oink . " * 7
    text = words + "oink [MASK] oink oink oink oink"  # 62 pieces; with [CLS] and [SEP] 64
    ((place,),) = fill_mask.run(str(tiny_run), [text], top=1)
    assert place[0].token == "oink"
    with pytest.raises(InputError, match="65 tokens, and the model takes 64: shorten it"):
        fill_mask.run(str(tiny_run), [text + " oink"], top=1)


def test_no_mask(tiny_run):
    with pytest.raises(InputError, match=r"no \[MASK\] in 'quack quack': put it where"):
        fill_mask.run(str(tiny_run), ["a [MASK]", "quack quack"], top=5)


@pytest.mark.parametrize("top", [0, -1, 10_000])
def test_a_top_out_of_range(tiny_run, top):
    with pytest.raises(InputError, match=f"--top={top}: must be from 1 to "):
        fill_mask.run(str(tiny_run), ["[MASK]"], top=top)


def test_a_model_that_reads_left_to_right(left_to_right_run):
    with pytest.raises(InputError, match="trained left to right"):
        fill_mask.run(str(left_to_right_run), ["[MASK]"], top=1)
