"""Tokens a second of finished batches on one core, next to the same work done example by example.

  python tests/benchmarks/input_pipeline.py --corpus=DIR [--output=FILE.json]

All ways read the same prepared corpus. They make the arrays of masked LM + next sentence from
sentence pairs, or of masked LM from packed documents. The per-example way, for pairs alone, is a
plain loop like google-research/bert `create_pretraining_data.py`. It gets its documents as lists of
ids, whereas the reference reads strings and also looks up their ids. Tokens are positions of the
batch, including padding. The rounds of all cases are interleaved.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.corruption import MaskedTokens
from bertjax.data.examples.layout import PAIRS
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.packed_layout import PACKED_DOCUMENTS
from bertjax.text.tokenizer import Tokenizer

Document = list[list[int]]  # sentences of ids

# What a row holds: its layout, its lengths, and the share of shorter rows.
TEXTS = {
    "sentence pairs": (PAIRS, (128, 512), 0.1),
    "packed documents": (PACKED_DOCUMENTS, (128, 512, 1024), 0.0),
}
AT_ONCE, PER_EXAMPLE = "batch at once", "per example"


class PerExample:
    """The reference's rules, one example and one token at a time.

    Args:
      documents: the documents, which are used in order, again and again.
      tokenizer: the special ids, and which pieces continue a word.
      spec: the spec of the examples.
    """

    def __init__(self, documents: list[Document], tokenizer: Tokenizer, spec: ExampleSpec):
        self._documents, self._tokenizer, self._spec = documents, tokenizer, spec
        self._room = spec.length - 3
        self._rng = random.Random(spec.seed)
        self._continues = tokenizer.continues_word.tolist()
        self._ordinary = [
            i for i in range(tokenizer.vocabulary_size) if i not in tokenizer.special_ids
        ]
        self._examples = self._endless()

    def batch(self) -> dict[str, np.ndarray]:
        """Makes the next examples, as arrays."""
        rows, length, width = self._spec.batch_size, self._spec.length, self._spec.predicted
        arrays = {
            "input_ids": np.zeros((rows, length), np.int32),
            "input_mask": np.zeros((rows, length), np.int32),
            "token_type_ids": np.zeros((rows, length), np.int32),
            "masked_lm_positions": np.zeros((rows, width), np.int32),
            "masked_lm_ids": np.zeros((rows, width), np.int32),
            "masked_lm_weights": np.zeros((rows, width), np.float32),
            "next_sentence_labels": np.zeros(rows, np.int32),
        }
        for row in range(rows):
            ids, segments, positions, originals, is_random = next(self._examples)
            arrays["input_ids"][row, : len(ids)] = ids
            arrays["input_mask"][row, : len(ids)] = 1
            arrays["token_type_ids"][row, : len(ids)] = segments
            arrays["masked_lm_positions"][row, : len(positions)] = positions
            arrays["masked_lm_ids"][row, : len(positions)] = originals
            arrays["masked_lm_weights"][row, : len(positions)] = 1
            arrays["next_sentence_labels"][row] = is_random
        return arrays

    def _endless(self) -> Iterator[tuple]:
        while True:
            for number in range(len(self._documents)):
                yield from self._from_document(number)

    def _from_document(self, number: int) -> Iterator[tuple]:
        rng, document = self._rng, self._documents[number]
        target = self._target()
        chunk: Document = []
        length = place = 0
        while place < len(document):
            chunk.append(document[place])
            length += len(document[place])
            if place == len(document) - 1 or length >= target:
                cut = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                first = [token for sentence in chunk[:cut] for token in sentence]
                is_random = len(chunk) == 1 or rng.random() < 0.5
                if is_random:
                    second = self._elsewhere(number, target - len(first))
                    place -= len(chunk) - cut  # unused sentences are used next
                else:
                    second = [token for sentence in chunk[cut:] for token in sentence]
                yield self._example(first, second, is_random)
                chunk, length, target = [], 0, self._target()
            place += 1

    def _target(self) -> int:
        if self._rng.random() < self._spec.short_probability:
            return self._rng.randint(2, self._room)
        return self._room

    def _elsewhere(self, number: int, wanted: int) -> list[int]:
        rng = self._rng
        other = number
        while other == number:
            other = rng.randint(0, len(self._documents) - 1)
        document = self._documents[other]
        second: list[int] = []
        for sentence in document[rng.randint(0, len(document) - 1) :]:
            second.extend(sentence)
            if len(second) >= wanted:
                break
        return second

    def _example(self, first: list[int], second: list[int], is_random: bool) -> tuple:
        rng, tokenizer = self._rng, self._tokenizer
        first, second = list(first), list(second)
        while len(first) + len(second) > self._room:
            longer = first if len(first) > len(second) else second
            if rng.random() < 0.5:
                del longer[0]
            else:
                longer.pop()
        ids = [tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id]
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        return (*self._mask(ids, segments), is_random)

    def _mask(self, ids: list[int], segments: list[int]) -> tuple:
        rng, rule, tokenizer = self._rng, self._spec.corruption.rule, self._tokenizer
        candidates: list[list[int]] = []
        for place, token in enumerate(ids):
            if token in (tokenizer.cls_id, tokenizer.sep_id):
                continue
            if rule.whole_words and candidates and self._continues[token]:
                candidates[-1].append(place)
            else:
                candidates.append([place])
        rng.shuffle(candidates)
        count = min(self._spec.predicted, max(1, round(len(ids) * rule.rate)))
        hidden: dict[int, int] = {}
        for word in candidates:
            if len(hidden) >= count:
                break
            if len(hidden) + len(word) > count:
                continue
            for place in word:
                hidden[place] = ids[place]
                if rng.random() < rule.mask:
                    ids[place] = tokenizer.mask_id
                elif rng.random() < rule.random / (1 - rule.mask):
                    ids[place] = self._ordinary[rng.randint(0, len(self._ordinary) - 1)]
        positions = sorted(hidden)
        return ids, segments, positions, [hidden[place] for place in positions]


def read_documents(store: TokenStore, tokens: int) -> list[Document]:
    """Reads the store's first documents as lists, about `tokens` tokens."""
    documents, starts = [], store.sentence_starts
    for begin, end in zip(store.document_starts[:-1], store.document_starts[1:], strict=True):
        first, last = np.searchsorted(starts, [begin, end])
        places = starts[first : last + 1]
        ids = store.read_spans(places[:-1], np.diff(places)).tolist()
        places = (places - begin).tolist()
        documents.append([ids[a:b] for a, b in zip(places[:-1], places[1:], strict=True)])
        if end > tokens:
            break
    return documents


def timed(make: Callable[[int], object], batches: range) -> tuple[float, float]:
    """Measures the processor and wall seconds of make(i) for i in `batches`."""
    wall, processor = time.perf_counter(), time.process_time()
    for number in batches:
        make(number)
    return time.process_time() - processor, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", required=True, help="a folder of launch/prepare_corpus.py")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=40, help="batches of a round")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})

    tokenizer = Tokenizer.open(arguments.corpus)
    store = TokenStore.open(arguments.corpus, tokenizer_identity=tokenizer.identity)
    documents = read_documents(store, 500_000)
    cases: list[tuple[dict, Callable[[int], object], int]] = []
    shapes = [(text, length) for text, (_, lengths, _) in TEXTS.items() for length in lengths]
    for (text, length), whole_words in itertools.product(shapes, (False, True)):
        layout, _, short_probability = TEXTS[text]
        spec = ExampleSpec(
            layout=layout,
            corruption=MaskedTokens(MaskingRule(whole_words=whole_words)),
            length=length,
            batch_size=arguments.batch_size,
            seed=0,
            stream="benchmark",
            short_probability=short_probability,
        )
        masking = "whole words" if whole_words else "tokens"
        name = {"text": text, "length": length, "masking": masking}
        batch = Examples(store, tokenizer, spec).batch
        cases.append((name | {"way": AT_ONCE}, batch, arguments.batches))
        if layout is PAIRS:
            loop = PerExample(documents, tokenizer, spec)
            cases.append((name | {"way": PER_EXAMPLE}, lambda _, loop=loop: loop.batch(), 1))

    for _, make, batches in cases:
        timed(make, range(batches))  # warms the page cache and other caches
    seconds: list[list[tuple[float, float]]] = [[] for _ in cases]
    for round_number in range(1, arguments.rounds + 1):
        for (_, make, batches), times in zip(cases, seconds, strict=True):
            times.append(timed(make, range(round_number * batches, (round_number + 1) * batches)))

    results = []
    for (name, _, batches), times in zip(cases, seconds, strict=True):
        tokens = batches * arguments.batch_size * name["length"]
        by_processor, by_wall = (
            sorted(tokens / t for t in column) for column in zip(*times, strict=True)
        )
        results.append(
            name
            | {
                "tokens_per_second": statistics.median(by_processor),
                "minimum": by_processor[0],
                "maximum": by_processor[-1],
                "tokens_per_second_wall": statistics.median(by_wall),
            }
        )
    print(
        f"{store.token_count:,} tokens in {arguments.corpus}; batches of {arguments.batch_size}, "
        f"{arguments.rounds} rounds, one core; load {os.getloadavg()[0]:.1f}\n"
        "millions of tokens a second of processor time, and of wall time\n\n"
        "text              length  masking      way              median     min     max    wall"
    )
    for row in results:
        columns = ("tokens_per_second", "minimum", "maximum", "tokens_per_second_wall")
        figures = "".join(f"{row[column] / 1e6:8.2f}" for column in columns)
        print(
            f"{row['text']:16}  {row['length']:6}  {row['masking']:11}  {row['way']:13} {figures}"
        )
    if arguments.output:
        facts = {
            "corpus_tokens": store.token_count,
            "batch_size": arguments.batch_size,
            "rounds": arguments.rounds,
            "load": os.getloadavg()[0],
        }
        arguments.output.write_text(json.dumps(facts | {"results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
