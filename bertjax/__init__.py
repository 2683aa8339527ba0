"""bertjax: pre-train BERT-style encoders in JAX, from raw text to a checkpoint.

As a library: `bertjax.load` opens a model (docs/library.md). All else is private, and may change.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertjax.library import TextModel

__version__ = "0.1.0"
__all__ = ["load"]


def load(source: str) -> "TextModel":
    """Opens a model.

    All that it is given is checked: what is wrong raises `bertjax.base.errors.InputError`, a
    ValueError whose message says what to do.

    Args:
      source: a name on the Hugging Face hub, "hf:google-bert/bert-base-uncased"; a folder that
        transformers wrote, "hf:FOLDER"; a run of pre-training or fine-tuning, "RUN" or "RUN@STEP";
        "tf1:FOLDER", a release of google-research/bert.

    Raises:
      InputError: there is no such model, or it cannot be read completely.
      OSError: a file or folder that the system does not open.
    """
    from bertjax.library import TextModel

    return TextModel(source)
