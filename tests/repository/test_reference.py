"""docs/reference.py: what the documents take from the code is what the code says now."""

import importlib.util
import re

import pytest

from bertjax.__main__ import GROUPS
from tests.helpers.checkout import REPOSITORY


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("reference", REPOSITORY / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documents_are_as_the_program_writes_them(program):
    for path, text in program.rendered().items():
        assert path.read_text(encoding="utf-8") == text, "run: python docs/reference.py"


def test_every_mark_is_a_block(program):
    for path in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]:
        text = path.read_text(encoding="utf-8")
        started = re.findall(r"^<!-- generated: (\S+) -->$", text, re.MULTILINE)
        assert set(started) <= set(program.BLOCKS)
        assert (
            len(started) == text.count("<!-- end of generated -->") == text.count("<!-- generated")
        )


def test_every_program_is_in_a_group():
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(path.stem for path in (REPOSITORY / "launch").glob("*.py"))


def test_flags_are_those_of_help(program):
    """Read from the code, as absl lists them: `test_help_of_a_config` runs one of them."""
    flags = {flag.name: flag for flag in program.flags_of(REPOSITORY / "launch" / "evaluate.py")}
    assert set(flags) == {
        *("model", "corpus", "same_text", "batches", "on", "dimensions"),
        *("stride", "memory", "output"),
    }
    assert flags["model"].default == "must be given"
    assert flags["batches"][1:3] == ("whole number, at least 1", "`50`")
    ensemble = program.flags_of(REPOSITORY / "launch" / "ensemble.py")
    assert ensemble[2][:3] == ("by", "one of probabilities, logits, votes", "`probabilities`")
    for path in (REPOSITORY / "launch").glob("*.py"):
        defined = path.read_text(encoding="utf-8").count("DEFINE_")
        found = program.flags_of(path)
        assert len({flag.name for flag in found}) == len(found) == defined > 0
        assert all(flag.values and flag.what for flag in found)


def test_each_block_names_all_that_there_is(program):
    extras = program.extras()
    assert "| `cuda` | an NVIDIA GPU with CUDA 13, and FlashAttention |" in extras
    setup = (REPOSITORY / "setup.py").read_text(encoding="utf-8").partition("extras_require")[2]
    names = re.findall(r'^ {8}"([\w-]+)": \[', setup, re.MULTILINE)
    assert re.findall(r"^\| `([\w-]+)` \| \S", extras, re.MULTILINE) == names
    assert all(f"| `{name}` | A" in program.layouts() for name in ("tensor_zero1", "sequence"))
    assert "| `gpt2` | `GPT2` | Model, LMHeadModel, For" in program.classes()


def test_links_of_a_block_are_those_of_its_page(program):
    text = "[a](docs/config.md#x) docs/gpu.md"
    assert program._linked(text, REPOSITORY) == "[a](docs/config.md#x) [gpu](docs/gpu.md)"
    assert program._linked(text, REPOSITORY / "docs") == "[a](config.md#x) [gpu](gpu.md)"
    assert program._linked(text, REPOSITORY / "docs/dev").startswith("[a](../config.md#x)")


def test_a_docstring_says_what_to_expect(program):
    said = (
        "A model.\n\nHardware: 2 CPU cores; in\nminutes.\nExpected: 1.5 nats. Not yet run.\n\nPaper"
    )
    assert program._clause(said.replace("\nExpected", "\n\nExpected"), "Hardware") == "2 CPU cores"
    assert program._clause(said, "Expected") == "1.5 nats; not yet run"
    with pytest.raises(ValueError, match="no line Expected: in the docstring 'A model.'"):
        program._clause("A model.", "Expected")
    for name in ("pretrain", "finetune"):
        assert all(
            re.search("CPU|GPU|TPU", program._clause(text, "Hardware"))
            for text in program.docstrings(name).values()
        )
