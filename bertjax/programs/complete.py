"""Continues texts by a model that reads left to right."""

from collections.abc import Sequence

from bertjax.inference.generate import complete
from bertjax.models.encoders import head_types
from bertjax.runs.source import open_model


def run(
    model: str,
    texts: Sequence[str],
    tokens: int = 40,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[str]:
    """Prints, and returns, the texts with their continuations, as `complete` makes them.

    Of a run with the objective "hybrid", the model is the part that reads left to right. Raises
    InputError also if there is no such model.
    """
    pretrained = open_model(model, head_types.CAUSAL_LM)
    completed = complete(pretrained, texts, tokens, temperature, top_p, seed)
    found = [pretrained.tokenizer.decode(ids) for ids in completed]
    print("\n\n".join(found))
    return found
