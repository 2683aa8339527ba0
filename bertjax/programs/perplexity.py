"""The perplexity of held-out text for a model that reads left to right, by a sliding window."""

from functools import partial

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import check_json_output, write_json
from bertjax.base.progress import Progress
from bertjax.base.validation import check_numbers
from bertjax.data.corpus.shards import HELDOUT
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.stream_layout import Stream
from bertjax.inference.batcher import Batcher
from bertjax.interop.pretrained import Pretrained
from bertjax.lab.minimal_pairs.likelihood import log_probabilities
from bertjax.models.encoders import kinds
from bertjax.runs.open_model import is_run, load_run, open_model
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.sharding.placement import HostBatch, data_parallel


def run(
    model: str, corpus: str | None, stride: int, output: str | None = None
) -> dict[str, float | int]:
    """Prints, and returns, the perplexity and the bits per byte of all held-out documents.

    Args:
      model: RUN, RUN@STEP, hf:FOLDER or hf:NAME.
      corpus: a corpus made with the model's vocabulary; None for the run's own.
      stride: see `evaluate`.
      output: a JSON file of the result, or None.

    Returns:
      "perplexity", "bits_per_byte", "nats_per_token"; the numbers of "tokens" and "bytes" that they
      are means over, and "stride" and "length" of the windows.

    Raises:
      InputError: no such model or corpus, or one of another tokenizer; a model that does not read
        left to right; a stride that does not fit; an output that cannot be written.
    """
    if output:
        check_json_output(output)
    if corpus is None and not is_run(model):
        raise InputError(f"--model={model}: has no corpus of its own: name one with --corpus")
    given = open_model(model, kinds.CAUSAL_LM)
    corpora = [corpus] if corpus else list(load_run(model).recipe.corpus)
    store = TokenStore.open(corpora, HELDOUT, tokenizer_identity=given.tokenizer.identity)
    stream = Stream(store, given.tokenizer.end_id)
    ids = stream.read(np.array([0]), np.array([stream.size]))
    nats = evaluate(given, ids, stride)
    size = _bytes(store, given.tokenizer)
    found = {
        "perplexity": float(np.exp(nats / (len(ids) - 1))),
        "bits_per_byte": float(nats / np.log(2) / size),
        "nats_per_token": float(nats / (len(ids) - 1)),
        "tokens": len(ids) - 1,
        "bytes": size,
        "stride": stride,
        "length": given.spec.max_position_embeddings,
    }
    print(
        f"held-out text of {', '.join(corpora)}, {found['tokens']:,} tokens, windows of "
        f"{found['length']:,} that move on by {stride:,}: perplexity {found['perplexity']:.3f}, "
        f"{found['bits_per_byte']:.4f} bits per byte"
    )
    if output:
        write_json(output, found)
    return found


def evaluate(given: Pretrained, ids: np.ndarray, stride: int) -> float:
    """The sum of -log p over all tokens but the first, in nats.

    A window of the model's length moves on by `stride` tokens, and those that it shows first are
    predicted, from all before them in the window.

    Args:
      given: a model that reads left to right.
      ids: int [N], the text.
      stride: a smaller one gives each token more text before it, and takes more time.

    Raises:
      InputError: the stride does not fit; the model cannot do it; the result is not finite.
    """
    spec, length = given.spec, given.spec.max_position_embeddings
    check_numbers("--stride", stride)
    if not spec.causal:
        raise InputError(
            f"{given.origin}: a {given.class_name}, which does not read left to right: leave "
            "--stride out"
        )
    if not 1 <= stride < length:
        raise InputError(
            f"--stride={stride}: must be at least 1, and less than the {length} tokens of a window"
        )
    count = 1 + -(-max(0, len(ids) - length) // stride)
    begin = np.arange(count) * stride
    end = np.minimum(begin + length, len(ids))
    first = np.append(1, end[:-1])  # that each window predicts
    places = np.arange(length)

    def make(numbers: np.ndarray, rows: int, _: int) -> HostBatch:
        place = np.zeros((rows, length), np.int64)
        scored = np.zeros((rows, length), np.float32)
        mask = np.zeros((rows, length), np.int32)
        of_text = begin[numbers, None] + places
        place[: len(numbers)] = np.minimum(of_text, len(ids) - 1)
        mask[: len(numbers)] = of_text < end[numbers, None]
        following = of_text + 1
        scored[: len(numbers)] = (following >= first[numbers, None]) & (
            following < end[numbers, None]
        )
        return {
            "input_ids": ids[place],
            "input_mask": mask,
            "token_type_ids": np.zeros_like(mask),
            "target_ids": ids[np.minimum(place + 1, len(ids) - 1)],
            "target_weights": scored,
        }

    placement = data_parallel()
    params = jax.device_put(given.params, placement.replicated)
    batcher = Batcher(placement, None)
    batches = batcher.run(
        np.full(count, length),
        (length,),
        rows=lambda tokens: batcher.rows(tokens, count),
        make=make,
        compute=partial(
            log_probabilities,
            given.model(kinds.CAUSAL_LM),
            given.tokenizer.vocabulary_size,
            params,
        ),
    )
    nats = 0.0
    with Progress("Reading", count, " windows") as progress:
        for numbers, found in batches:
            nats -= float(found[: len(numbers)].astype(np.float64).sum())
            progress.update(len(numbers))
    if not np.isfinite(nats):
        raise InputError(
            f"{given.origin}: gives probabilities that are not finite: its weights are damaged"
        )
    return nats


def _bytes(store: TokenStore, tokenizer: Tokenizer) -> int:
    """The bytes of UTF-8 of all documents, as their tokens give the text back."""
    bounds = store.document_starts
    return sum(
        len(tokenizer.decode(store.read_spans(bounds[i : i + 1], bounds[i + 1 : i + 2] - bounds[i]))
            .encode())
        for i in range(len(bounds) - 1)
    )  # fmt: skip
