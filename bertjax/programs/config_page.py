"""Every key of a config, with its values, default and explanation: made from the classes.

docs/reference.py writes them to docs/config.md; --config=NAME --help prints those of a config.
"""

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

from bertjax.base.limits import COMMA, FREE, TRIED
from bertjax.base.validation import limits_in_words
from bertjax.models.encoders.registry import ENCODERS
from bertjax.runs.contrastive.recipe import SimilarityRecipe, is_similarity
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.read import Config, OneOf, Parted, config_dict_of
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import is_of_tasks
from bertjax.runs.training_recipe import TrainingRecipe

_ROOTS = {
    "Pre-training": Recipe,
    "Fine-tuning": TaskRecipe,
    "Contrastive training": SimilarityRecipe,
}
_WORDS = {int: "whole number", float: "number", bool: "True or False", str: "text"}
_REQUIRED = "must be given"


class Row(NamedTuple):
    """A key.

    Attributes:
      values: what it may be, in words.
      default: as Python writes it; "" of sections.
      what: its explanation.
      choice: the classes that the section chooses from, if it does.
    """

    key: str
    values: str
    default: str
    what: str
    choice: OneOf | None = None


def rows_of(type_: Any, prefix: str = "", default: Any = None) -> Iterator[Row]:
    """The keys of a dataclass and of the sections within it.

    Args:
      prefix: the name of the section, with a point.
      default: what has other defaults than the class.
    """
    for field in dataclasses.fields(type_):
        parted, explained = Parted.of(field.type), explanations(type_)
        value = getattr(default, field.name, field.default)
        within = None if parted.choice else parted.section
        changes = "".join(f" It {word}." for word in (FREE, TRIED) if word in parted.words)
        keys = parted.key.names if parted.key else (field.name,)
        for number, key in enumerate(keys):
            what = explained.get(key) or explained.get(field.name, "")
            inherited = within or (parted.choice and prefix)
            shown = "" if inherited else _default(field, value, parted)
            yield Row(prefix + key, values_of(field.type), shown, what + changes, parted.choice)
            if within and not number and not prefix:  # those within sections are listed above
                instance = value if dataclasses.is_dataclass(value) else None
                yield from rows_of(within, f"{prefix}{key}.", instance)


@cache
def explanations(type_: Any) -> Mapping[str, str]:
    """What the docstrings of a class and of its bases say of its fields."""
    found: dict[str, str] = {}
    for each in reversed(type_.__mro__):
        listed = re.search(r"\n *Attributes:\n(.*?)(\n\n|\n *Raises:|\Z)", each.__doc__ or "", re.S)
        text = textwrap.dedent(listed[1]) if listed else ""
        for entry in re.split(r"\n(?=\w)", text):
            names, _, what = entry.partition(":")
            names = [name.strip() for name in names.split(",")]
            if all(name.isidentifier() for name in names):
                found |= dict.fromkeys(names, " ".join(what.split()))
    return found


def values_of(type_: Any) -> str:
    """What a value of a type may be, as "whole number, at least 1"."""
    bare, words, choice, key = parted = Parted.of(type_)
    if choice:
        return f"section; its `{choice.key}` is one of {', '.join(choice.types)}"
    if COMMA in words:
        return COMMA
    if parted.section or key or get_origin(bare) is Mapping:
        return "section"
    if get_origin(bare) is tuple:
        each, *others = get_args(bare)
        number = "several of" if others == [...] else f"{1 + len(others)} of"
        return f"{number}: {values_of(each)}"
    if bare not in _WORDS:
        return "; or ".join(map(values_of, get_args(bare)))
    limits = limits_in_words(type_)
    return _WORDS[bare] + (f", {limits}" if limits else "")


def _default(field: dataclasses.Field, value: Any, parted: Parted) -> str:
    if value is dataclasses.MISSING:
        return "" if field.default_factory is not dataclasses.MISSING else _REQUIRED
    if parted.choice:
        return repr(value.name)
    return repr("" if COMMA in parted.words else value)


# ------------------------------------------------------------------------------ for a terminal


def text(config: Config) -> str:
    """The keys of a config, for a terminal; of what a section chooses, those of its class."""
    config_dict = config_dict_of(config)
    of_tasks = SimilarityRecipe if is_similarity(config_dict) else TaskRecipe
    type_ = of_tasks if is_of_tasks(config_dict) else Recipe
    lines = []
    for row in _with_rows_of_choices(rows_of(type_), config_dict):
        default = row.default if row.default in ("", _REQUIRED) else f"default {row.default}"
        default = f" ({default})" if default else ""
        lines.append(f"  --config.{row.key}: {row.values}{default}")
        lines += textwrap.wrap(row.what, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(["The keys of the config:", *lines])


def _with_rows_of_choices(rows: Iterator[Row], config_dict: Mapping[str, Any]) -> Iterator[Row]:
    """The rows, after each that chooses a class those of the class."""
    for row in rows:
        yield row
        section: Any = config_dict
        for key in row.key.split("."):
            section = section.get(key) if isinstance(section, Mapping) else None
        if row.choice and section is not None:
            name = section if isinstance(section, str) else section.get(row.choice.key)
            if made := row.choice.types.get(str(name)):
                yield from rows_of(made, f"{row.key}.")


# ------------------------------------------------------------------------------ for docs/


_INTRODUCTION = """\
# Every key and flag

`--config.KEY=VALUE` sets a key, `--config=NAME --help` prints those of a config. What a config
leaves out has the default of this page; the files of `configs/` start from `bertjax/config.py`,
which changes some. Numbers are of int32 or float32. After the keys
follow the [flags of the programs](#flags-of-the-programs), [the configs](#the-configs) and the
[extras](#extras). This page is made from the code by `python docs/reference.py`."""


def page() -> str:
    """The page docs/config.md."""
    shared = list(rows_of(TrainingRecipe))
    paragraphs = [_INTRODUCTION, "## Every config", _table(shared)]
    choices: dict[int, tuple[str, Row]] = {}
    for title, type_ in _ROOTS.items():
        rows = [row for row in rows_of(type_) if row not in shared]
        paragraphs += [f"## {title}", _table(rows)]
        for row in shared + rows:
            if row.choice:
                choices.setdefault(id(row.choice), (title, row))
    for title, row in choices.values():
        if row.choice and row.choice.key != "encoder":
            paragraphs += [f"## {title}: settings of `{row.key}`", *_classes(row.choice)]
    return "\n\n".join([*paragraphs, "## Settings of `model`", _MODELS, _models()]) + "\n"


def _classes(choice: OneOf) -> Iterator[str]:
    names: dict[type, list[str]] = {}
    for name, type_ in choice.types.items():
        names.setdefault(type_, []).append(name)
    known: set[Row] = set()
    for type_, own in names.items():
        listed = ", ".join(f'"{name}"' for name in own)
        rows = [row for row in rows_of(type_) if row.key != choice.key]
        same = ", ".join(f"`{row.key}`" for row in rows if row in known)
        caption = (type_.__doc__ or "").splitlines()[0]
        yield f"**`{choice.key}` {listed}**: {caption}" + f" As above: {same}." * bool(same)
        if new := [row for row in rows if row not in known]:
            yield _table(new)
            known.update(new)


_MODELS = """\
A default after names of families is theirs alone."""


def _models() -> str:
    specs: dict[str, Any] = {name: family.spec for name, family in ENCODERS.items()}
    found: dict[str, list[tuple[str, Row]]] = {}
    for name, spec in specs.items():
        for row in rows_of(spec):
            found.setdefault(row.key, []).append((name, row))
    rows = []
    for own in found.values():
        defaults: dict[str, list[str]] = {}
        for name, row in own:
            defaults.setdefault(row.default, []).append(name)
        usual, *others = sorted(defaults, key=lambda each: -len(defaults[each]))
        cells = [f"`{usual}`", *(f"{', '.join(defaults[each])}: `{each}`" for each in others)]
        of = "" if len(own) > len(ENCODERS) / 2 else f" Of {', '.join(name for name, _ in own)}."
        rows.append(own[0][1]._replace(default="; ".join(cells), what=own[0][1].what + of))
    sizes = "; ".join(f"{name}: {', '.join(spec.sizes)}" for name, spec in specs.items())
    rows.insert(0, Row("size", "text", "", f"The name of a size. {sizes}."))
    rows.insert(0, Row("encoder", f"one of {', '.join(ENCODERS)}", "", "The family."))
    return _table(rows)


def _table(rows: list[Row]) -> str:
    lines = ["| key | values | default | |", "|---|---|---|---|"]
    for row in rows:
        bare = row.default in ("", _REQUIRED) or "`" in row.default
        default = row.default if bare else f"`{row.default}`"
        cells = (f"`{row.key}`", row.values, default, row.what)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
