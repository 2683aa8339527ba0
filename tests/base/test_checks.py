"""Checks that many files make."""

import re

import pytest

from bertjax.base.checks import (
    check_choice,
    check_divides,
    check_file,
    check_given,
    check_in_folder,
    check_new_output,
    check_output,
    check_range,
    input_error_at,
)
from bertjax.base.errors import InputError


@pytest.mark.parametrize(
    "check, message",
    [
        (
            lambda folder: check_choice("config.layout", "zero", ["data", "zero1"]),
            "config.layout='zero': must be one of data, zero1: did you mean zero1?",
        ),
        (
            lambda folder: check_choice("--masking", "pieces", ["token", "word"]),
            "--masking=pieces: must be one of token, word",
        ),
        (
            lambda folder: check_choice("name", ["lora"], ["", "lora"]),
            "name=['lora']: must be one of '', lora: did you mean lora?",
        ),
        (
            lambda folder: check_range("--top", 0, 1, 9, ", the pieces"),
            "--top=0: must be from 1 to 9, the pieces",
        ),
        (lambda folder: check_range("--top", 10, 1, 9), "--top=10: must be from 1 to 9"),
        (
            lambda folder: check_divides("batch_size", 8, "chunks", 3),
            "batch_size=8 is not a multiple of chunks=3",
        ),
        (
            lambda folder: check_given("config.data", (), "name a folder"),
            "config.data is empty: name a folder",
        ),
        (
            lambda folder: check_in_folder(folder / "merges.txt", "hf:model"),
            "hf:model: no merges.txt in it: download it, too",
        ),
        (
            lambda folder: check_file(folder / "a", "input"),
            "--input={folder}/a: no such file: check the path",
        ),
        (
            lambda folder: check_output(f"{folder}/a.txt", ".png", "image"),
            "--image={folder}/a.txt: must be a .png file in an existing folder",
        ),
        (
            lambda folder: check_new_output(folder),
            "--output={folder}: is there already: choose another, or remove it",
        ),
        (
            lambda folder: check_new_output(folder / "a" / "b"),
            "--output={folder}/a/b: no folder {folder}/a: make it",
        ),
    ],
)
def test_each_check_names_the_place_the_value_and_the_cure(tmp_path, check, message):
    with pytest.raises(InputError) as error:
        check(tmp_path)
    assert str(error.value) == message.replace("{folder}", str(tmp_path))


def test_what_fits_passes(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    check_choice("name", "", ["", "lora"])
    check_range("--top", 1, 1, 9)
    check_range("--top", 9, 1, 9)
    check_divides("batch_size", 8, "accumulate", 0)
    check_divides("batch_size", 8, "accumulate", 4)
    check_given("config.data", ("a",), "name a folder")
    check_in_folder(tmp_path / "a.json", "hf:model")
    check_file(tmp_path / "a.json")
    check_output(str(tmp_path / "a.json"))
    check_new_output(tmp_path / "b.json")


def test_an_error_is_told_with_its_place_and_its_cure():
    with pytest.raises(InputError, match=re.escape("a.json: not a number: correct it")) as told:
        with input_error_at("a.json", hint="correct it"):
            raise ValueError("not a number")
    assert isinstance(told.value.__cause__, ValueError)
    with pytest.raises(KeyError), input_error_at("a.json", (OSError, ValueError)):
        raise KeyError("another")
