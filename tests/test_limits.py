"""Numbers that are outside the limits of a config or a model's file."""

import math

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.base.limits import check_numbers, problem_with


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-12, -3.0, 3.4e38, 1.2e-38, np.pi])
def test_what_float32_holds(value):
    assert problem_with("rate", value) == ""
    assert np.isfinite(np.float32(value)) and (value == 0) == (np.float32(value) == 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39, 1e-39, -1e300])
def test_floats_outside_float32_are_refused(value):
    assert problem_with("rate", value).startswith("must be 0, or of a size from 1.2e-38 to 3.4e+38")


def test_limits_of_whole_numbers():
    for value in (2**31 - 1, -(2**31), 0, True):
        assert problem_with("config.seed", value) == ""
    assert problem_with("config.seed", 2**31) == "must be at most 2,147,483,647"
    assert problem_with("config.seed", -(2**31) - 1) == "must be at least -2,147,483,648"
    assert problem_with("config.grid.restarts", 1_000) == ""
    for name in ("config.grid.restarts", "num_hidden_layers"):
        assert problem_with(name, 1_001) == "must be at most 1,000"
    assert problem_with("--batches", 10**20) == "must be at most 1,000,000"


def test_every_number_of_a_config_is_checked():
    config = {"a": {"b": ["x", None, 1.0, [2, {"c": math.nan}]]}, "d": "inf", "e": True}
    with pytest.raises(InputError, match="^config.a.b.c=nan: must be 0, or of a size"):
        check_numbers("config", config)
    config["a"] = 10**400
    with pytest.raises(InputError, match=r"^config.a=10{29}\.\.\. \(401 digits\): must be at most"):
        check_numbers("config", config)
    config["a"] = ()
    check_numbers("config", config)
    check_numbers("--learn_vocabulary", None)
