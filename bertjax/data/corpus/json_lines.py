"""Files with a JSON object on each line, of which one field is read, or two that are a pair."""

import json
import re
from collections.abc import Iterator
from typing import Any

from bertjax.base.errors import InputError
from bertjax.data.corpus.line_files import SKIP_HINT, LineFiles, at_line, decoded_line, not_text
from bertjax.data.corpus.source import Document, Range, Skip, paragraphs

# JSON can contain these as escapes. Python decodes them into text that UTF-8 cannot encode.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonLines(LineFiles):
    """A JSON object on each line; a line belongs to the range in which it begins.

    The text of one field is cut into paragraphs. Those of two fields are a pair, as they are.
    """

    def __init__(self, pattern: str, *fields: str):
        super().__init__(pattern)
        self._fields = fields

    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        path = range_.path
        for offset, line in self.lines(range_):
            text = decoded_line(line, path, offset, skip)
            yield None if text is None else self._document(text, path, offset, skip)

    def _document(self, line: str, path: str, offset: int, skip: Skip) -> Document | None:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{at_line(path, offset)}: not JSON ({error}).") from error
        texts = []
        for field in self._fields:
            text = _text_of(record, field, path, offset, skip)
            if text is None:
                return None
            texts.append(text)
        for field, text in zip(self._fields, texts, strict=True):
            if "\\u" in line and LONE_SURROGATE.search(text):
                if Skip.UNDECODABLE in skip:
                    return None
                half = "half a surrogate pair, which is no character"
                raise InputError(
                    f"{at_line(path, offset)}: field {field!r} holds {half}. {SKIP_HINT}"
                )
        return paragraphs(texts[0]) if len(texts) == 1 else [text.strip() for text in texts]


def _text_of(record: Any, field: str, path: str, offset: int, skip: Skip) -> str | None:
    value = record.get(field) if isinstance(record, dict) else None
    if isinstance(value, str):
        return value
    where = at_line(path, offset)
    if not isinstance(record, dict):
        raise InputError(f"{where}: not a JSON object.")
    if field not in record:
        fields = ", ".join(map(repr, record)) or "none"
        raise InputError(f"{where}: no field {field!r}; its fields are {fields}.")
    if value is None and Skip.NULLS in skip:
        return None
    raise InputError(f"{where}: field {field!r} is {not_text(value)}")
