"""Values of another type than their reader needs, and numbers that cannot be meant."""

import dataclasses
import json
import math
import re
from decimal import Decimal

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.base.validation import (
    check_numbers,
    converted,
    integer,
    optional,
    parsed,
    real,
    record,
)

TOKEN = str | record(content=str)
KIND = optional(
    model=optional(vocab=dict[str, int] | list[tuple[str, float]], rate=float),
    tokens=dict[str, TOKEN],
    added=list[TOKEN],
    cased=bool,
    size=int,
)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"size": "3"}, "size='3': expected `int | null`, got `str`"),
        ({"size": 3.0}, "size=3.0: expected `int | null`, got `float`"),
        ({"size": True}, "size=True: expected `int | null`, got `bool`"),
        ({"cased": 1}, "cased=1: expected `bool | null`, got `int`"),
        ({"model": []}, "model=[]: expected `object | null`, got `array`"),
        ({"model": {"rate": True}}, "model.rate=True: expected `float | null`, got `bool`"),
        ({"model": {"rate": 10**400}}, "model.rate=10*...0*: number out of range"),
        ({"model": {"vocab": {"a": 1, "b.c": "1"}}}, "model.vocab['b.c']='1': expected `int`, got"),
        ({"model": {"vocab": [["a", 1], ["b"]]}}, "model.vocab[1]=['b']: expected `array` of len"),
        ({"added": ["a", None]}, "added[1]=None: expected `str | object`, got `null`"),
        ({"added": [{"id": 3}]}, "added[0]={'id': 3}: object missing required field `content`"),
        (
            {"tokens": {"a": "x", "b": ["x"], "c": {"content": "x"}, "d": {"id": 4}}},
            "tokens['b']=['x']: expected `str | object`, got `array`",
        ),
        (
            {"tokens": {"a": "x", "c": {"content": "x"}, "d": {"content": 4}, "e": ["x"]}},
            "tokens['d'].content=4: expected `str`, got `int`",
        ),
        (
            {"tokens": {"a": "x", "c": {"content": "x"}, "d": {"id": 4}}},
            "tokens['d']={'id': 4}: object missing required field `content`",
        ),
        ([3], "[3]: expected `object`, got `array`"),
        ({"size": "x" * 999}, f"size='{'x' * 30}*x': expected"),
        (
            {"added": {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}}},
            "added={'a': *...*: expect",
        ),
    ],
)
def test_a_value_of_another_type_is_shown_at_its_place(value, problem):
    with pytest.raises(InputError) as error:
        parsed(json.dumps(value).encode(), KIND, "a.json", "mend it")
    pattern = re.escape(f"a.json: damaged ({problem}").replace(r"\*", ".*")
    assert re.match(pattern, str(error.value)) and str(error.value).endswith("): mend it")
    assert len(str(error.value)) < 200


def test_values_that_json_does_not_have():
    with pytest.raises(InputError, match=re.escape("layers[0]='cat': expected `int`, got `str`")):
        converted({"layers": {"cat"}}, record(layers=tuple[int, ...]))
    with pytest.raises(InputError, match="top=.*: half a surrogate pair in a text"):
        converted("\ud800", int, "top")


def test_names_with_the_signs_of_paths():
    files = record(**dict.fromkeys(("a.bin", "a.bin.b", "a"), record(bytes=int)))
    value = {"a": {"bytes": 1}, "a.bin": {"bytes": 2}, "a.bin.b": {"bytes": "3"}}
    with pytest.raises(InputError, match=r"^files\.a\.bin\.b\.bytes='3': expected `int`"):
        converted(value, files, "files")


def test_what_no_type_names_is_free():
    value = {"size": 3, "more": [None, {"size": "3"}], "model": {"rate": 2, "vocab": None}}
    assert parsed(json.dumps(value).encode(), KIND, "a.json", "") == value
    assert converted(value, KIND) == {"size": 3, "model": {"rate": 2.0, "vocab": None}}


@pytest.mark.parametrize("value", [math.nan, 1e39, -1e39])
def test_only_settings_have_limits(value):
    data = json.dumps({"size": 2**40, "model": {"rate": value}, "more": 2**40}).encode()
    assert parsed(data, KIND, "a.json", "")["size"] == 2**40
    with pytest.raises(InputError, match=r"\(size=1099511627776: must be at most 2,147,483,647\)"):
        parsed(data, KIND, "a.json", "", limited=True)
    type_ = optional(model=optional(rate=float))
    with pytest.raises(InputError, match=r"^a.json: damaged \(model.rate=.*: must be 0, or of"):
        parsed(data, type_, "a.json", "", limited=True)


@dataclasses.dataclass(frozen=True)
class _Section:
    length: int
    rate: float = 0.5
    names: tuple[str, ...] = ()

    def __post_init__(self):
        if self.rate > 1:
            raise ValueError(f"rate={self.rate}: must be at most 1")
        if self.length < 1:
            raise InputError(f"length={self.length}: has no place")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "config.a={}: object missing required field `length`"),
        ({"length": 1.0}, "config.a.length=1.0: expected `int`, got `float`"),
        ({"length": 3, "names": ["a", 3]}, "config.a.names[1]=3: expected `str`, got `int`"),
        ({"length": 3, "rate": 2}, "config.a: rate=2.0: must be at most 1"),
        ({"length": 0}, "length=0: has no place"),
        (None, "config.a=None: expected `object`, got `null`"),
    ],
)
def test_a_section_becomes_a_dataclass(value, problem):
    whole = converted({"length": 3, "rate": 1, "names": ["a"]}, _Section, "config.a")
    assert whole == _Section(3, 1.0, ("a",)) and type(whole.rate) is float
    with pytest.raises(InputError, match=f"^{re.escape(problem)}$"):
        converted(value, _Section, "config.a")


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-12, -3.0, 3.4e38, 1.2e-38, np.pi])
def test_what_float32_holds(value):
    check_numbers("rate", value)
    assert np.isfinite(np.float32(value)) and (value == 0) == (np.float32(value) == 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39, 1e-39, -1e300])
def test_floats_outside_float32_are_refused(value):
    with pytest.raises(InputError) as error:
        check_numbers("rate", value)
    assert str(error.value) == f"rate={value}: must be 0, or of a size from 1.2e-38 to 3.4e+38" + (
        " (float32)"
    )


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("config.seed", 2**31, "must be at most 2,147,483,647"),
        ("config.seed", -(2**31) - 1, "must be at least -2,147,483,648"),
    ],
)
def test_limits_of_whole_numbers(name, value, problem):
    check_numbers(name, value + (1 if value < 0 else -1))
    with pytest.raises(InputError) as error:
        check_numbers(name, value)
    assert str(error.value) == f"{name}={value}: {problem}"


def test_every_number_of_a_config_is_checked():
    config = {"a": {"b": ["x", None, 1.0, [2, {"c": math.nan}]]}, "d": "inf", "e": True}
    with pytest.raises(InputError, match="^config.a.b.c=nan: must be 0, or of a size"):
        check_numbers("config", config)
    config["a"] = 10**400
    with pytest.raises(InputError, match=r"^config.a=10{17}\.\.\.0{19}: must be at most"):
        check_numbers("config", config)
    config["a"] = -(10**5000)
    with pytest.raises(InputError, match="^config.a=a number of 16,610 bits: must be at least"):
        check_numbers("config", config)
    config["a"] = ()
    check_numbers("config", config)
    check_numbers("--learn_vocabulary", None)


def test_numbers_of_files():
    """Python's own readers take more: signs between digits, other digits, truth, no number."""
    read = {"1": 1, " -2.50": -2.5, "+.5": 0.5, "7.": 7, "1e3": 1000, 3: 3, -1.5: -1.5}
    read[Decimal("0.25")] = 0.25
    assert [real(text) for text in read] == list(read.values())
    bad = ["", "x", "1_000", "１", "nan", "inf", "1e39", "1,5", "0x1", "1 2", True, None, [1]]
    bad += [float("nan"), float("inf"), 10**400, "9" * 5000, 1e39]
    assert all(real(value) is None for value in bad)
    assert [integer(value) for value in ("3", "3.0", 3.0, "-4", 2**31 - 1)] == [
        3,
        3,
        3,
        -4,
        2**31 - 1,
    ]
    assert all(integer(value) is None for value in (*bad, "1.5", 1.5, 2**31, "9" * 30))
