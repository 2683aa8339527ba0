"""Files of BPEs have a model with merges, which join pieces to longer ones."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertjax.base.errors import InputError
from bertjax.text.library_file import Check, LibraryFile


class BPE(LibraryFile):
    """A BPE. A subclass says of what: of bytes, or of the words of a text."""

    MODEL = (
        dict.fromkeys(("type", "continuing_subword_prefix", "end_of_word_suffix"), str)
        | dict.fromkeys(("byte_fallback", "fuse_unk", "ignore_merges"), bool)
        | {"dropout": float, "unk_token": str}
        | {"vocab": dict[str, int], "merges": list[tuple[str, str] | str]}
    )
    NEEDED = ("vocab", "merges")
    PREFIX: ClassVar[str | None] = None  # of a piece within a word: none, as the library writes it
    SUFFIX: ClassVar[str | None] = None  # of a piece at the end of a word
    BYTE_FALLBACK: ClassVar = False  # whether a character without a piece becomes its bytes

    def _checks(self, description: dict[str, Any], model: dict[str, Any]) -> Mapping[str, Check]:
        suffix = model.get("end_of_word_suffix") or None
        return {
            "model.type": (model.get("type"), ("BPE",)),
            "model.continuing_subword_prefix": (
                model.get("continuing_subword_prefix") or None,
                (None,),
            ),
            "model.end_of_word_suffix": (suffix, (self.SUFFIX,)),
            "model.byte_fallback": (
                model.get("byte_fallback") or False,
                (self.BYTE_FALLBACK,),
            ),
            "model.dropout": (model.get("dropout") or None, (None,)),
        }

    def _library_fields(self, description: dict, model: dict, origin: str) -> dict[str, Any]:
        model_fields = {
            "type": "BPE",
            "dropout": None,
            "unk_token": model.get("unk_token"),
            "continuing_subword_prefix": self.PREFIX,
            "end_of_word_suffix": self.SUFFIX,
            "fuse_unk": bool(model.get("fuse_unk")),
            "byte_fallback": self.BYTE_FALLBACK,
            "ignore_merges": bool(model.get("ignore_merges")),
            "vocab": model["vocab"],
            "merges": _merges(model, origin),
        }
        return {"model": model_fields}


def _merges(model: Mapping[str, Any], origin: str) -> list[list[str]]:
    """The two pieces of each merge, which older files write as one text."""
    found = []
    for number, merge in enumerate(model["merges"]):
        pieces = merge.split(" ") if isinstance(merge, str) else merge
        if len(pieces) != 2:
            raise InputError(
                f"{origin}: model.merges[{number}] is {merge!r}, must be two pieces with a space "
                "between them: download it again"
            )
        found.append(list(pieces))
    return found
