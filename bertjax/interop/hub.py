"""Downloads models from the Hugging Face hub: from a model's name to a folder on this machine."""

from pathlib import Path

from bertjax.base.errors import InputError

# Only these files are downloaded, and never pickles.
_FILES = ("*.json", "*.safetensors", "vocab.txt", "sentencepiece.model")


def model_folder(name: str) -> Path:
    """The folder of that name, or the folder of the hub's model, which is downloaded if necessary.

    Raises:
      InputError: neither exists, or the download fails.
    """
    if Path(name).is_dir():
        return Path(name)
    if Path(name).is_file():
        raise InputError(f"hf:{name}: a file: name the folder that it is in")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except RepositoryNotFoundError as error:
        raise InputError(
            f"hf:{name}: no such folder, and the hub has no model of that name (or it is private: "
            "set HF_TOKEN)"
        ) from error
    except HFValidationError as error:
        raise InputError(
            f"hf:{name}: no such folder, and not the name of a model on the hub: {error}"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError) as error:
        raise InputError(
            f"hf:{name}: no such folder, and the hub cannot be reached: on a machine with network, "
            f"download config.json, model.safetensors, tokenizer_config.json and vocab.txt (or "
            f"tokenizer.json) of {name} into a folder, and give hf:FOLDER"
        ) from error
