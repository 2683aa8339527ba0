"""Downloads from the Hugging Face hub, which keeps the files for the next time."""

from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError


def download(
    where: str,
    name: str,
    patterns: Sequence[str],
    *,
    no_name: str,
    absent: str,
    unreached: str,
    repo_type: str = "model",
    revision: str | None = None,
) -> Path:
    """The folder of a repository's files that have one of the patterns.

    The messages of an InputError begin with `where`. `no_name` is that of a name that cannot be
    one, `absent` of a repository that is not there, and `unreached` of a hub that does not answer.
    Of another answer they say its status.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        HTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    page = "https://huggingface.co/" + "datasets/" * (repo_type == "dataset") + name
    try:
        with input_error_at(f"{where}: {no_name}", HFValidationError):
            return Path(
                snapshot_download(
                    name, repo_type=repo_type, revision=revision, allow_patterns=list(patterns)
                )
            )
    except RevisionNotFoundError as error:
        missing = f"no revision {revision or 'main'!r}: those that it has: {page}/tree/main"
        raise InputError(f"{where}: {missing}") from error
    except GatedRepoError as error:  # it is a RepositoryNotFoundError, too
        raise InputError(f"{where}: gated: accept its terms at {page}, and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise InputError(f"{where}: {absent}") from error
    except (LocalEntryNotFoundError, HTTPError) as error:
        answer = getattr(error.__cause__, "response", getattr(error, "response", None))
        if answer is None:
            raise InputError(f"{where}: {unreached}") from error
        later = answer.status_code == HTTPStatus.TOO_MANY_REQUESTS or answer.is_server_error
        what = "try later" if later else f"look whether you may read {page}, and set HF_TOKEN"
        status = f"{answer.status_code} {answer.reason_phrase}"
        raise InputError(f"{where}: the hub answers {status}: {what}") from error
