"""Reads a tokenizer.json of the library `tokenizers`.

The file holds the pieces, how text becomes pieces, the added tokens, and the special tokens around
a text (its "post_processor"). The ids are those of the library, and so those of transformers. A
file for which bertjax cannot give these ids is refused.
"""

import abc
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.validation import optional, parsed, record
from bertjax.text.offsets import behind_marks, without_white_space
from bertjax.text.special_tokens import names_by_role
from bertjax.text.template import Template, TokenSequence

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

# The types of the parts of a tokenizer.json that bertjax reads.
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
_PARTS = dict(
    normalizer=optional(**_STEP, normalizers=list[_ONE_STEP]),
    pre_tokenizer=optional(**_STEP, pretokenizers=list[_ONE_STEP]),
    post_processor=optional(**_PROCESSOR, processors=list[_ONE_PROCESSOR]),
    added_tokens=list[_ADDED],
)
_LOWERCASE = "Lowercase"

# The types of the fields of a BPE's "model".
BPE_MODEL = (
    dict.fromkeys(("type", "continuing_subword_prefix", "end_of_word_suffix"), str)
    | dict.fromkeys(("byte_fallback", "fuse_unk", "ignore_merges"), bool)
    | {"dropout": float, "unk_token": str}
    | {"vocab": dict[str, int], "merges": list[tuple[str, str] | str]}
)


class LibraryPieces(abc.ABC):
    """A tokenizer of the library, with the members that `bertjax.text.tokenizer` needs.

    A subclass is a kind of model: what its file may have, and what its pieces mean.

    Attributes:
      vocabulary: the bytes of the file, in one form: without padding, truncation and template.
      cased: False if the file says that text is lower-cased first.
      tokens: the piece of each id, as the file writes it.
      added: the names of the added tokens.
      special: the names of the added tokens that are special tokens.
      roles: the id of each role's special token.
      template: None if the file has none.
    """

    MODEL: ClassVar[Mapping[str, Any]]  # the types of the fields of "model"
    keeps_spaces: ClassVar[bool]
    readable: list[str]
    continues_word: np.ndarray
    word_links: np.ndarray | None
    _TEXTS_AT_ONCE = 1000  # with offsets, the library takes about 20 kB for a paragraph

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        """Reads a tokenizer.json; `origin` is its name, for messages.

        `named` has the known names of special tokens by role (`special_tokens.names_by_role`).

        Raises:
          InputError: a damaged file, one of another kind, or one without these special tokens.
        """
        from tokenizers import Tokenizer as Library

        description = _read(data, origin, self.MODEL)
        normalizers = steps_of(description, "normalizer")
        self.cased = not any(s.get("lowercase", s.get("type") == _LOWERCASE) for s in normalizers)
        self.vocabulary = _serialized(description, *self._own_parts(description, origin))
        try:
            self._loaded = Library.from_buffer(self.vocabulary)
        except ValueError as error:
            reason = str(error).removeprefix("Cannot instantiate Tokenizer from buffer: ")
            raise InputError(
                f"{origin}: the library tokenizers cannot read it: {reason}: download it again"
            ) from error
        ids = self._loaded.get_vocab()
        self.tokens = _tokens(ids, description, origin)
        self.added = {token["content"] for token in description["added_tokens"]}
        self.special = {t["content"] for t in description["added_tokens"] if t["special"]}
        names = names_by_role(self.special, named)
        if missing := [name for name in dict.fromkeys(names.values()) if name not in self.special]:
            raise InputError(
                f"{origin}: {' '.join(missing)} not among its special tokens: it needs "
                f"{' '.join(dict.fromkeys(names.values()))}: put them in with add_special_tokens "
                "of the library tokenizers"
            )
        self.roles = {role: ids[name] for role, name in names.items()}
        self.template = template_of(description, ids, origin)

    @abc.abstractmethod
    def _own_parts(
        self, description: dict[str, Any], origin: str
    ) -> tuple[dict, dict, dict | None]:
        """The model, pre_tokenizer and decoder of the file, checked and in one form."""

    def _library(self, *, special: bool) -> "Library":
        """The library's tokenizer that reads names of special tokens as such, or else as text."""
        self._loaded.encode_special_tokens = not special
        return self._loaded

    def _spans(self, text: str, offsets: np.ndarray) -> np.ndarray:
        """The library's offsets as spans of `Tokenizer.encode_with_offsets`, int32 [N, 2]."""
        starts, ends = np.maximum.accumulate(offsets, axis=0).T
        return without_white_space(text, starts, behind_marks(text)[ends])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens are text."""
        return self._encode(texts, special=False)

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens mean themselves, as in transformers."""
        return self._encode(texts, special=True)

    def _encode(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        library = self._library(special=special)
        encodings = library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        """The ids of `encode`, and the characters of each piece."""
        for first in range(0, len(texts), self._TEXTS_AT_ONCE):
            some = list(texts[first : first + self._TEXTS_AT_ONCE])
            library = self._library(special=False)
            encodings = library.encode_batch(some, add_special_tokens=False)
            for text, encoding in zip(some, encodings, strict=True):
                offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
                yield encoding.ids, self._spans(text, offsets)

    def decode(self, ids: list[int]) -> str:
        """The text of ids, as the library gives it."""
        return self._library(special=True).decode(ids, skip_special_tokens=False)


def is_unigram(data: bytes) -> bool:
    """Whether a tokenizer.json is of a unigram model; False for a damaged one.

    Older files do not name the model; its vocabulary is a list.
    """
    return _has_model(data, vocab=list, type=NotRequired[Literal["Unigram"] | None])


def marks_word_ends(data: bytes) -> bool:
    """Whether a tokenizer.json is of a BPE with a suffix at the end of words, as GPT's."""
    return _has_model(data, end_of_word_suffix=Literal["</w>"])


def is_word_level(data: bytes) -> bool:
    """Whether a tokenizer.json is of a vocabulary of whole words."""
    return _has_model(data, type=Literal["WordLevel"])


def cuts_at_spaces(data: bytes) -> bool:
    """Whether a tokenizer.json cuts words at spaces alone, as that of words cut by Moses."""
    kind = record(pre_tokenizer=record(type=Literal["WhitespaceSplit"]))
    return _has(data, kind)


def _has_model(data: bytes, **fields: Any) -> bool:
    return _has(data, record(model=record(**fields)))


def _has(data: bytes, kind: Any) -> bool:
    try:
        parsed(data, kind, "tokenizer.json", "")
    except InputError:
        return False
    return True


def merges_of(model: Mapping[str, Any], origin: str) -> list[list[str]]:
    """The two pieces of each merge of a BPE, which older files write as one text."""
    found = []
    for number, merge in enumerate(model["merges"]):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if len(parts) != 2:
            raise InputError(
                f"{origin}: model.merges[{number}] is {merge!r}, must be two pieces with a space "
                "between them: download it again"
            )
        found.append(list(parts))
    return found


def steps_of(description: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """The steps of a part of the file: those of a sequence, or the part itself as one step."""
    value = description.get(part)
    if not value:
        return []
    if value.get("type") != "Sequence":
        return [value]
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
    return value.get(names.get(part, "processors")) or []


def refuse_others(found: Mapping[str, tuple[Any, tuple]], kind: str, origin: str) -> None:
    """Raises InputError for a value that is not read: place in the file -> (value, those read)."""
    for place, (value, known) in found.items():
        if value not in known:
            raise InputError(
                f"{origin}: {place} is {value!r}, where {kind} has {known[0]!r}: bertjax cannot "
                "give the ids of this tokenizer"
            )


def check_normalizers(description: dict[str, Any], known: Sequence[str], origin: str) -> None:
    """Raises InputError for a step of normalization that is not known."""
    for step in steps_of(description, "normalizer"):
        if step.get("type") not in known:
            raise InputError(
                f"{origin}: its normalizer is {step.get('type')!r}; bertjax reads "
                f"{', '.join(known)}: it cannot give the ids of this tokenizer"
            )


def _read(data: bytes, origin: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a tokenizer.json, each field of the type that it must have."""
    kind = optional(model=optional(**model), **_PARTS)
    description = parsed(data, kind, origin, "correct it, or download it again")
    description["added_tokens"] = description.get("added_tokens") or []
    return description


def _serialized(
    description: dict[str, Any], model: dict, pre_tokenizer: dict, decoder: dict | None
) -> bytes:
    """The file in one order, without the parts that do not change the ids of a text."""
    plain = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(description["added_tokens"], key=lambda token: token["id"]),
        "normalizer": description.get("normalizer"),
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


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
    kinds = [processor.get("type") for processor in processors]
    (processor,) = processors if len(processors) == 1 else ({},)
    template = None
    cls, sep = processor.get("cls"), processor.get("sep")
    if kinds in (["BertProcessing"], ["RobertaProcessing"]) and cls and sep:
        used = dict([cls, sep])
        first, last = (cls[1],), (sep[1],)
        if kinds == ["BertProcessing"]:
            template = Template(first, last, last)
        else:
            template = Template(first, last + last, last, second_type=0)
    elif kinds == ["TemplateProcessing"]:
        tokens = processor.get("special_tokens") or {}
        used = {name: number for name, each in tokens.items() for number in each["ids"]}
        template = _of_sequences(*(_laid_out(processor, name) for name in ("single", "pair")))
    if template is None:
        raise InputError(
            f"{origin}: its post_processor ({', '.join(map(str, kinds))}) puts texts otherwise "
            "than special tokens before A, between A and B, and behind the last text: bertjax "
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
    for part in processor.get(name) or []:
        special, text = part.get("SpecialToken"), part.get("Sequence")
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
