"""Reads a tokenizer.json of the library `tokenizers`.

The file holds the pieces, how text becomes pieces, the added tokens, and the special tokens around
a text (its "post_processor"). The ids are those of the library, and so those of transformers. A
file for which bertjax cannot give these ids is refused.
"""

import abc
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bertjax.base.errors import InputError
from bertjax.base.validation import optional, parsed, record
from bertjax.text.pieces import LibraryPieces
from bertjax.text.special_tokens import names_by_role
from bertjax.text.template import Template, TokenSequence

# The types of the fields of a tokenizer.json that bertjax reads.
_STEP = dict(type=str, prepend_scheme=str, replacement=str, add_prefix_space=bool, split=bool)
_ONE_STEP: Any = optional(**_STEP)
_NAMED = record(id=str, type_id=int)
_IN_TEMPLATE: Any = optional(SpecialToken=_NAMED, Sequence=_NAMED)
_SPECIAL: Any = record(ids=list[int])
_PROCESSOR = dict(
    **dict(type=str, sep=tuple[str, int], cls=tuple[str, int]),
    **dict(single=list[_IN_TEMPLATE], pair=list[_IN_TEMPLATE]),
    special_tokens=dict[str, _SPECIAL],
)
_ONE_PROCESSOR: Any = optional(**_PROCESSOR)
_ADDED: Any = record(content=str, id=int, special=bool)
_FIELDS = dict(
    normalizer=optional(**_STEP, normalizers=list[_ONE_STEP]),
    pre_tokenizer=optional(**_STEP, pretokenizers=list[_ONE_STEP]),
    post_processor=optional(**_PROCESSOR, processors=list[_ONE_PROCESSOR]),
    added_tokens=list[_ADDED],
)
_LOWERCASE = "Lowercase"

# A value of a file, and those that are read, of which the first is usual.
Check = tuple[Any, tuple]


class LibraryFile(LibraryPieces):
    """A vocabulary whose file is a tokenizer.json. A subclass says what it may have.

    `vocabulary` is the file in one form: without padding, truncation and template.

    Attributes:
      special: the names of the added tokens that are special tokens.
    """

    KIND: ClassVar[str]  # for messages
    MODEL: ClassVar[Mapping[str, Any]]  # the types of the fields of "model"
    NEEDED: ClassVar[Sequence[str]]  # the fields of "model" without which there is none
    WITHOUT: ClassVar[str]  # what a file has not that has not these, and what to do
    NORMALIZERS: ClassVar[Sequence[str]]  # those that are read
    NAMES: ClassVar[Mapping[str, str]] = {}  # of special tokens, where no file gives another

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        """Reads a tokenizer.json; `origin` is its name, for messages.

        `named` has the known names of special tokens by role (`special_tokens.names_by_role`).

        Raises:
          InputError: a damaged file, one of another kind, or one without these special tokens.
        """
        from tokenizers import Tokenizer as Library

        description = _read(data, origin, self.MODEL)
        model, normalizers = description.get("model") or {}, steps_of(description, "normalizer")
        if any(model.get(name) is None for name in self.NEEDED) or model["vocab"] == []:
            raise InputError(f"{origin}: no model with {self.WITHOUT}")
        refuse_others(self._checks(description, model), self.KIND, origin)
        for type_ in (step.get("type") for step in normalizers):
            if type_ not in self.NORMALIZERS:
                raise InputError(
                    f"{origin}: its normalizer is {type_!r}; bertjax reads "
                    f"{', '.join(self.NORMALIZERS)}: it cannot give the ids of this tokenizer"
                )
        self.cased = not any(s.get("lowercase", s.get("type") == _LOWERCASE) for s in normalizers)
        usual_fields = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": sorted(description["added_tokens"], key=lambda token: token["id"]),
            "normalizer": description.get("normalizer"),
            "post_processor": None,
            **self._library_fields(description, model, origin),
        }
        written = json.dumps(
            usual_fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True
        )
        self.vocabulary = written.encode()
        try:
            self.library = Library.from_buffer(self.vocabulary)
        except ValueError as error:
            reason = str(error).removeprefix("Cannot instantiate Tokenizer from buffer: ")
            raise InputError(
                f"{origin}: the library tokenizers cannot read it: {reason}: download it again"
            ) from error
        ids = self.library.get_vocab()
        self.tokens = self.readable = _tokens(ids, description, origin)
        self.added = {token["content"] for token in description["added_tokens"]}
        self.special = {t["content"] for t in description["added_tokens"] if t["special"]}
        names = names_by_role(self.special, {**self.NAMES, **named})
        if missing := [name for name in dict.fromkeys(names.values()) if name not in self.special]:
            raise InputError(
                f"{origin}: {' '.join(missing)} not among its special tokens: it needs "
                f"{' '.join(dict.fromkeys(names.values()))}: put them in with add_special_tokens "
                "of the library tokenizers"
            )
        self.roles = {role: ids[name] for role, name in names.items()}
        self.template = template_of(description, ids, origin)

    @abc.abstractmethod
    def _checks(self, description: dict[str, Any], model: dict[str, Any]) -> Mapping[str, Check]:
        """The values that the file must have, by the place in it."""

    @abc.abstractmethod
    def _library_fields(self, description: dict, model: dict, origin: str) -> dict[str, Any]:
        """The model, pre_tokenizer and decoder of the checked file, in one form."""

    def description(self) -> dict[str, Any]:
        """A new copy of the content of `vocabulary`."""
        return json.loads(self.vocabulary)


def steps_of(description: dict[str, Any], component: str) -> list[dict[str, Any]]:
    """The steps of a component of the file: those of a sequence, or itself as one step."""
    value = description.get(component)
    if not value:
        return []
    if value.get("type") != "Sequence":
        return [value]
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
    return value.get(names.get(component, "processors")) or []


def refuse_others(found: Mapping[str, Check], kind: str, origin: str) -> None:
    """Raises InputError for the first value, by its place in the file, that is not read."""
    for place, (value, known) in found.items():
        if value not in known:
            raise InputError(
                f"{origin}: {place} is {value!r}, where {kind} has {known[0]!r}: bertjax cannot "
                "give the ids of this tokenizer"
            )


def _read(data: bytes, origin: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a tokenizer.json, each field of the type that it must have."""
    type_ = optional(model=optional(**model), **_FIELDS)
    description = parsed(data, type_, origin, "correct it, or download it again")
    description["added_tokens"] = description.get("added_tokens") or []
    return description


def _tokens(ids: dict[str, int], description: dict[str, Any], origin: str) -> list[str]:
    """The pieces in the order of their ids, which the library gave them."""
    tokens = sorted(ids, key=ids.__getitem__)
    for number, piece in enumerate(tokens):
        if ids[piece] != number:
            raise InputError(
                f"{origin}: {piece!r} has id {ids[piece]}, and is number {number} in the order of "
                "ids: these must run from 0, without gaps, one for each piece"
            )
    for token in description["added_tokens"]:
        if ids[token["content"]] != token["id"]:
            raise InputError(
                f"{origin}: the added token {token['content']!r} has id {token['id']}, where the "
                f"next is {ids[token['content']]}: ids must run from 0, without gaps"
            )
    return tokens


# ----------------------------------------------------------------------------- the template


def template_of(description: dict[str, Any], ids: dict[str, int], origin: str) -> Template | None:
    """The special tokens that the file puts around texts; None if it puts none there.

    Raises InputError if it puts them in other places than a `Template`, or under other ids.
    """
    steps = steps_of(description, "post_processor")
    # ByteLevel changes offsets only.
    processors = [step for step in steps if step.get("type") != "ByteLevel"]
    if not processors:
        return None
    types = [processor.get("type") for processor in processors]
    (processor,) = processors if len(processors) == 1 else ({},)
    template = None
    cls, sep = processor.get("cls"), processor.get("sep")
    if types in (["BertProcessing"], ["RobertaProcessing"]) and cls and sep:
        used = dict([cls, sep])
        first, last = (cls[1],), (sep[1],)
        if types == ["BertProcessing"]:
            template = Template(first, last, last)
        else:
            template = Template(first, last + last, last, second_type=0)
    elif types == ["TemplateProcessing"]:
        tokens = processor.get("special_tokens") or {}
        used = {name: number for name, each in tokens.items() for number in each["ids"]}
        template = _of_sequences(*(_laid_out(processor, name) for name in ("single", "pair")))
    if template is None:
        raise InputError(
            f"{origin}: its post_processor ({', '.join(map(str, types))}) puts texts otherwise "
            "than special tokens before A, between A and B, and after the last text: bertjax "
            "cannot give the ids of this tokenizer"
        )
    for name, number in used.items():
        if ids.get(name) != number:
            raise InputError(
                f"{origin}: its post_processor has id {number} for {name!r}, and the vocabulary "
                f"{ids.get(name)}: correct it, or download it again"
            )
    return template if template.specials(pair=True) else None


_TEXTS = {"A": -1, "B": -2}  # what stands for a text among the ids of special tokens
_UNKNOWN = -3


def _laid_out(processor: dict[str, Any], name: str) -> TokenSequence:
    """A sequence of a TemplateProcessing: ids of special tokens, and `_TEXTS`."""
    tokens = processor.get("special_tokens") or {}
    laid_out = TokenSequence([], [])
    for step in processor.get(name) or []:
        special, text = step.get("SpecialToken"), step.get("Sequence")
        each = special or text or {"id": "", "type_id": 0}
        is_known = special and each["id"] in tokens
        ids = tokens[each["id"]]["ids"] if is_known else [_TEXTS.get(each["id"], _UNKNOWN)]
        laid_out.ids.extend(ids)
        laid_out.token_types.extend([each["type_id"]] * len(ids))
    return laid_out


def _of_sequences(single: TokenSequence, pair: TokenSequence) -> Template | None:
    """The template that makes these two sequences; None if there is none."""
    ids, types = pair
    a, b = _TEXTS.values()
    if {each for each in ids if each < 0} != {a, b}:
        return None
    first, second = ids.index(a), ids.index(b)
    template = Template(
        tuple(ids[:first]),
        tuple(ids[first + 1 : second]),
        tuple(ids[second + 1 :]),
        second_type=types[second],
        last_type=types[-1] if types[-1] != types[second] else None,
        between_type=types[second - 1] if second > first + 1 else 0,
    )
    made = [template.sequence([a]), template.sequence([a], [b])]
    return template if made == [single, pair] else None
