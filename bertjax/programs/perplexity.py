"""The perplexity of held-out text for a model that reads left to right, by a sliding window."""

import numpy as np

from bertjax.base.checks import check_output
from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.data.corpus.shards import HELDOUT
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.stream_layout import Stream
from bertjax.inference.likelihood import nats_of_text
from bertjax.models.encoders import head_types
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.runs.pretrained_run import PretrainedRun
from bertjax.runs.source import Published, SomeLayers, open_model, open_source, run_of_pretraining
from bertjax.text.tokenizer import Tokenizer


def run(
    model: str,
    corpus: str | None,
    stride: int,
    output: str | None = None,
    memory: int | None = None,
) -> dict[str, float | int]:
    """Prints, and returns, the perplexity and the bits per byte of all held-out documents.

    The corpus is made with the model's vocabulary; None for the run's own. `stride` and `memory`
    are those of `nats_of_text`; None: the memory with which the run was trained.

    Returns:
      "perplexity", "bits_per_byte", "nats_per_token"; the numbers of "tokens" and "bytes" that they
      are means over, "stride" and "length" of the windows, and "memory".

    Raises:
      InputError: no such model or corpus, or one of another tokenizer; a model that does not read
        left to right; a stride or memory that does not fit; an output that cannot be written.
    """
    if output:
        check_output(output)
    source = open_source(model)
    if corpus is None and isinstance(source, Published | SomeLayers):
        raise InputError(f"--model={model}: has no corpus of its own: name one with --corpus")
    corpora = [corpus] if corpus else list(run_of_pretraining(source).recipe.corpus)
    pretrained = open_model(source, head_types.CAUSAL_LM)
    store = TokenStore.open(corpora, HELDOUT, tokenizer_identity=pretrained.tokenizer.identity)
    stream = Stream(store, pretrained.tokenizer.end_id)
    ids = stream.read(np.array([0]), np.array([stream.size]))
    if memory is None:
        learned = source.recipe.objective if isinstance(source, PretrainedRun) else None
        memory = learned.memory if isinstance(learned, LeftToRight) else 0
    nats = nats_of_text(pretrained, ids, stride, memory)
    size = _bytes(store, pretrained.tokenizer)
    found = {
        "perplexity": float(np.exp(nats / (len(ids) - 1))),
        "bits_per_byte": float(nats / np.log(2) / size),
        "nats_per_token": float(nats / (len(ids) - 1)),
        "tokens": len(ids) - 1,
        "bytes": size,
        "stride": stride,
        "length": stride + 1 if memory else pretrained.spec.max_position_embeddings,
        "memory": memory,
    }
    remembered = f" with a memory of {memory:,}" if memory else ""
    print(
        f"held-out text of {', '.join(corpora)}, {found['tokens']:,} tokens, windows of "
        f"{found['length']:,} that move on by {stride:,}{remembered}: perplexity "
        f"{found['perplexity']:.3f}, {found['bits_per_byte']:.4f} bits per byte"
    )
    if output:
        write_json(output, found)
    return found


def _bytes(store: TokenStore, tokenizer: Tokenizer) -> int:
    """The bytes of UTF-8 of all documents, as their tokens give the text back."""
    bounds = store.document_starts
    return sum(
        len(tokenizer.decode(store.read_spans(bounds[i : i + 1], bounds[i + 1 : i + 2] - bounds[i]))
            .encode())
        for i in range(len(bounds) - 1)
    )  # fmt: skip
