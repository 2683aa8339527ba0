"""Reads the class, special tokens and added tokens that a tokenizer's folder names."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bertjax.base.errors import InputError
from bertjax.interop import json_files
from bertjax.interop.json_files import EXTRA_ROLES, read_optional
from bertjax.text.special_tokens import ROLES

CONFIG_FILE = "tokenizer_config.json"
SPECIAL_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"


@dataclasses.dataclass(frozen=True)
class NamedTokens:
    """The content of tokenizer_config.json and special_tokens_map.json (`special`).

    A token in them is its text, or an object with settings.
    """

    folder: Path
    config: Mapping[str, Any]
    special: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the files, each of which may be absent."""
        config = read_optional(folder / CONFIG_FILE, json_files.TOKENIZER_CONFIG) or {}
        special = read_optional(folder / SPECIAL_FILE, json_files.SPECIAL_TOKENS_MAP) or {}
        return cls(folder, config, special)

    @property
    def class_name(self) -> str | None:
        """The tokenizer_class without "Fast" at its end, except of PreTrainedTokenizerFast."""
        name = self.config.get("tokenizer_class")
        return name if name in (None, "PreTrainedTokenizerFast") else name.removesuffix("Fast")

    def check_class(self, known: Sequence[str]) -> None:
        """Raises InputError for a tokenizer_class that is not known."""
        name = self.config.get("tokenizer_class")
        if self.class_name not in (None, *known):
            raise InputError(
                f"{self.folder / CONFIG_FILE}: tokenizer_class is {name!r}; bertjax reads "
                f"{', '.join(known)}. If the tokenizer is of this kind all the same, write "
                f"{known[0]} there."
            )

    def by_role(self) -> dict[str, Any]:
        """The special tokens that the files name, by role; InputError if they disagree."""
        found = {}
        for role in ROLES:
            tokens = [file.get(f"{role}_token") for file in (self.config, self.special)]
            tokens = [token for token in tokens if token is not None]
            if len({*map(content_of, tokens)}) > 1:
                one, other = map(content_of, tokens)
                raise InputError(
                    f"{self.folder / CONFIG_FILE}: {role}_token is {one!r}, where {SPECIAL_FILE} "
                    f"has {other!r}: correct it, or remove the file that is not this model's"
                )
            if tokens:  # with settings, if one of the files has them
                found[role] = next((t for t in tokens if isinstance(t, dict)), tokens[0])
        return found

    def added(self) -> dict[str, list[Any]]:
        """The tokens that each file adds to the vocabulary, by file."""
        added = read_optional(self.folder / ADDED_FILE, json_files.PIECES) or {}
        numbered = (self.config.get("added_tokens_decoder") or {}).values()
        return {
            ADDED_FILE: list(added),
            CONFIG_FILE: [*numbered, *_extra(self.config)],
            SPECIAL_FILE: _extra(self.special),
        }

    def added_ids(self) -> dict[str, dict[str, int]]:
        """The ids that files give to tokens, by file."""
        decoder = self.config.get("added_tokens_decoder") or {}
        numbered = {content_of(token): number for number, token in decoder.items()}
        return {
            ADDED_FILE: read_optional(self.folder / ADDED_FILE, json_files.PIECES) or {},
            CONFIG_FILE: {name: int(each) for name, each in numbered.items() if each.isdigit()},
            SPECIAL_FILE: {},
        }


def content_of(token: Any) -> str:
    """The text of a token."""
    return token["content"] if isinstance(token, dict) else token


def first_of(names: Sequence[str]) -> str:
    """The first names of a list, for a message."""
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def _extra(named: Mapping[str, Any]) -> list[Any]:
    """The tokens of no role: a file has a list of them, or a dict with names of its own."""
    groups = [named.get(role) or [] for role in EXTRA_ROLES]
    return [t for group in groups for t in (group.values() if isinstance(group, dict) else group)]
