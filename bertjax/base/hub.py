"""Downloads from the Hugging Face hub, which keeps the files for the next time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError


def download(
    name: str, patterns: Sequence[str], no_name: str, absent: str, unreached: str, **which: Any
) -> Path:
    """The folder of a repository's files that have one of the patterns.

    The messages of an InputError: `no_name` is that of a name that cannot be one, `absent` of a
    repository that is not there, and `unreached` of a hub that does not answer.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        with input_error_at(no_name, HFValidationError):
            return Path(snapshot_download(name, allow_patterns=list(patterns), **which))
    except RepositoryNotFoundError as error:
        raise InputError(absent) from error
    except (LocalEntryNotFoundError, HfHubHTTPError) as error:
        raise InputError(unreached) from error
