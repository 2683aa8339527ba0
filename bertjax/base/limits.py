"""Limits of numbers in a config or in a model's files: outside them is a typing error or damage."""

from typing import Any

from bertjax.base.errors import InputError

_WHOLE = 2**31  # steps, ids and seeds are int32 on the devices
_SMALLEST, _LARGEST = 1.2e-38, 3.4e38  # limits of float32; devices round smaller numbers to 0

# The greatest plausible value, by the last part of a name. A greater one would take endless time or
# memory.
_MOST = {
    **dict.fromkeys(("vocab_size", "learn_vocabulary", "batch_tokens"), 10_000_000),
    **dict.fromkeys(("max_position_embeddings", "intermediate_size"), 1_000_000),
    **dict.fromkeys(("batch_size", "eval_batch_size", "eval_batches", "batches"), 1_000_000),
    **dict.fromkeys(("hidden_size", "hidden", "vocab_multiple"), 100_000),
    **dict.fromkeys(("type_vocab_size", "workers"), 10_000),
    **dict.fromkeys(("num_hidden_layers", "depth", "buckets"), 1_000),
    **dict.fromkeys(("epochs", "restarts", "max_answer_length", "n_best"), 1_000),
}


def problem_with(name: str, value: float) -> str:
    """Why a number cannot be right, such as "must be at most 1,000"; "" if it is plausible.

    Args:
      name: its name, such as "config.grid.restarts" or "--batches"; the last part determines the
        limit.
    """
    if isinstance(value, float):
        size = abs(value)
        fits = size == 0 or _SMALLEST <= size <= _LARGEST  # False for NaN
        return "" if fits else f"must be 0, or of a size from {_SMALLEST} to {_LARGEST} (float32)"
    most = _MOST.get(name.rpartition(".")[2].removeprefix("--"), _WHOLE - 1)
    if value > most:
        return f"must be at most {most:,}"
    return "" if value >= -_WHOLE else f"must be at least {-_WHOLE:,}"


def check_numbers(name: str, value: Any) -> None:
    """Checks all numbers in a value, which is a number, or dicts and lists that contain numbers.

    Raises:
      InputError: a number is outside its limits; the message names it.
    """
    if isinstance(value, dict):
        for key, each in value.items():
            check_numbers(f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_numbers(name, each)
    elif isinstance(value, int | float) and (problem := problem_with(name, value)):
        raise InputError(f"{name}={shown(value)}: {problem}")


def shown(value: float) -> str:
    """Formats a number for a message; a very long one is cut after its first digits."""
    text = str(value)
    return text if len(text) <= 30 else f"{text[:30]}... ({len(text)} digits)"
