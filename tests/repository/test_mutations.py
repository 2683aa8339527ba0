"""The bugs of tests/mutations.py: valid and different; one that no test sees is found."""

import ast
import subprocess

import pytest

from tests.mutations import folder_of_tests, mutations, try_mutations

_CODE = '''"""Text with 1 number."""
def draw(é, low: int = 3, *, whole=True) -> "list[1]":
    """One of 7 numbers."""
    if low < é <= 9 and whole or not é:  # é is two bytes
        raise ValueError(f"{low + 1}")
    for each in [n for n in range(2, low) if n]:
        while each is not None:
            low += each * 0.5
            break
    seen[low] = max(low, -é, key=str)
    seen.add(low)
    return low - 4 if é == 5 else seen
'''


def test_every_operator():
    made = {(bug.kind, bug.line, bug.old, bug.new) for bug in mutations(_CODE)}
    condition = "low < é <= 9 and whole or not é"
    assert made == {
        *(("constant", 2, "3", new) for new in ("2", "4")),
        ("constant", 2, "True", "False"),
        ("condition negated", 4, condition, "not (low < é <= 9 and whole or not é)"),
        ("operator", 4, condition, "(low < é <= 9 and whole) and (not é)"),
        ("operator", 4, "low < é <= 9 and whole", "low < é <= 9 or whole"),
        ("comparison", 4, "low < é <= 9", "low <= é <= 9"),
        ("comparison", 4, "low < é <= 9", "low < é < 9"),
        *(("constant", 4, "9", new) for new in ("8", "10")),
        ("operator dropped", 4, "not é", "é"),
        ("statement dropped", 5, 'raise ValueError(f"{low + 1}")', "pass"),
        ("arguments swapped", 6, "range(2, low)", "range(low, 2)"),
        *(("constant", 6, "2", new) for new in ("1", "3")),
        ("condition negated", 6, "n", "not n"),
        ("comparison", 7, "each is not None", "each is None"),
        ("statement dropped", 8, "low += each * 0.5", "pass"),
        ("operator", 8, "each * 0.5", "each / 0.5"),
        ("constant", 8, "0.5", "1.0"),
        ("statement dropped", 9, "break", "pass"),
        ("statement dropped", 10, "seen[low] = max(low, -é, key=str)", "pass"),
        ("function", 10, "max", "min"),
        ("arguments swapped", 10, "max(low, -é, key=str)", "max(-é, low, key=str)"),
        ("keyword dropped", 10, "max(low, -é, key=str)", "max(low, -é)"),
        ("operator dropped", 10, "-é", "é"),
        ("statement dropped", 11, "seen.add(low)", "pass"),
        ("result dropped", 12, "return low - 4 if é == 5 else seen", "return"),
        ("operator", 12, "low - 4", "low + 4"),
        *(("constant", 12, "4", new) for new in ("3", "5")),
        ("comparison", 12, "é == 5", "é != 5"),
        *(("constant", 12, "5", new) for new in ("4", "6")),
    }


def test_every_bug_is_valid_and_another_program(repository):
    for source in (_CODE, (repository / "bertjax/data/examples/mixture.py").read_text("utf-8")):
        programs = {ast.dump(ast.parse(bug.source)) for bug in mutations(source)}
        assert len(programs) == len(mutations(source)) > 20
        assert ast.dump(ast.parse(source)) not in programs


def test_the_folder_of_a_file(repository):
    file = "bertjax/models/encoders/elmo/lstm.py"
    assert folder_of_tests(repository, file) == "tests/models/encoders"
    assert folder_of_tests(repository, "bertjax/runs/job.py") == "tests/runs"
    assert folder_of_tests(repository, "launch/study.py") == "tests/launch"
    with pytest.raises(SystemExit, match=r"no folder of tests for bertjax/config\.py: name its"):
        folder_of_tests(repository, "bertjax/config.py")


@pytest.mark.slow
def test_a_bug_that_no_test_sees_is_found(tmp_path):
    checkout = tmp_path / "checkout"
    (checkout / "bertjax" / "words").mkdir(parents=True)
    (checkout / "tests" / "words").mkdir(parents=True)
    source = "def half(n, big=8):\n    return n // 2 if n < big else 0\n"
    (checkout / "bertjax" / "words" / "half.py").write_text(source)
    test = "from bertjax.words.half import half\n\n\ndef test_it():\n    assert half({}) == 3\n"
    (checkout / "tests" / "words" / "test_half.py").write_text(test.format(6))
    subprocess.run(["git", "init", "-q", checkout], check=True)
    bugs = {bug.new: bug for bug in mutations(source)}
    found = list(
        try_mutations(checkout, "bertjax/words/half.py", "tests/words", [bugs["9"], bugs["n * 2"]])
    )
    assert [noticed for noticed, _ in found] == [None, "tests/words/test_half.py::test_it"]
    assert (checkout / "bertjax" / "words" / "half.py").read_text() == source
