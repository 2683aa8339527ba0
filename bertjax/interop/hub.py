"""Models of the Hugging Face hub: from a name to a folder on this machine, and back."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bertjax.base import hub
from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError

# Only these files are downloaded, and never pickles.
_FILES = ("*.json", "*.safetensors", "vocab.txt", "merges.txt", "*.model")


def model_folder(name: str) -> Path:
    """The folder of that name, or that of the hub's model, which is downloaded if necessary."""
    if Path(name).is_dir():
        return Path(name)
    if Path(name).is_file():
        raise InputError(f"hf:{name}: a file: name the folder that it is in")
    return hub.download(
        f"hf:{name}",
        name,
        _FILES,
        no_name="no such folder, and not the name of a model on the hub",
        absent="no such folder, and the hub has no model of that name (or it is private: set "
        "HF_TOKEN)",
        unreached="no such folder, and the hub cannot be reached: on a machine with network, "
        f"download config.json, model.safetensors, tokenizer_config.json and vocab.txt (or "
        f"tokenizer.json) of {name} into a folder, and give hf:FOLDER",
    )


def check_access(name: str) -> None:
    """Checks that a model can be pushed, before there is one; InputError if not."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    with input_error_at(f"--push={name}", HFValidationError):
        validate_repo_id(name)
    if not get_token():
        raise InputError(
            f"--push={name}: no token of the hub: make one with write access at "
            "huggingface.co/settings/tokens, and set HF_TOKEN"
        )
    with _hub_errors(name, "the token"):
        HfApi().whoami()


def push(folder: Path, name: str) -> str:
    """Uploads a folder to the model's repository, which is made if need be; gives the address.

    If the hub refuses it or does not answer (InputError), the folder stays as it is.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    with _hub_errors(name, "it", f"; the model is in {folder}"):
        api.create_repo(name, exist_ok=True)
        done = api.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Written by bertjax"
        )
    return done.commit_url


@contextlib.contextmanager
def _hub_errors(name: str, what: str, also: str = "") -> Iterator[None]:
    """Converts the hub's errors in the block to an InputError."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    try:
        yield
    except HfHubHTTPError as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"--push={name}: the hub refuses {what}: {reason}{also}") from error
    except (HTTPError, OSError) as error:
        raise InputError(f"--push={name}: the hub cannot be reached: {error}{also}") from error
