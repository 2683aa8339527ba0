"""Reads the token store, a tokenized corpus on disk.

Tokens are read through memory maps. The positions where sentences and documents begin are held in
memory, 8 bytes for each (1.3 GB for 3.3 billion words). The files are those of
`bertjax.data.corpus.shards` and `bertjax.data.corpus.manifest`.
"""

import copy
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from bertjax.base.cloud_storage import checked_path
from bertjax.base.errors import InputError
from bertjax.data.corpus.languages import is_parallel, language_shares, split_language, table
from bertjax.data.corpus.manifest import REBUILD, canonical_hash, checked_manifest, local_store
from bertjax.data.corpus.shards import HELDOUT, TRAIN, token_dtype
from bertjax.data.corpus.weights import check_weights, shares, split_weight
from bertjax.text.tokenizer import Tokenizer


def open_tokenizer(corpus: str) -> Tokenizer:
    """Opens the tokenizer that a corpus, DIR or DIR@WEIGHT, was prepared with."""
    name, _ = split_weight(corpus)
    if not checked_path(name).is_dir():
        raise InputError(
            f"{name}: no such corpus: name a folder that launch/prepare_corpus.py wrote"
        )
    return Tokenizer.open(name)


class SourceSpan(NamedTuple):
    """The documents of one source: first_document <= document < last_document_exclusive."""

    name: str
    share: float  # of the training examples; all shares of a store sum to 1
    tokens: int
    first_document: int
    last_document_exclusive: int

    @property
    def language(self) -> str:
        """The code of its language, or those of a pair, as in "en-sw"; "" if it names none."""
        return split_language(self.name)[0]

    @property
    def is_parallel(self) -> bool:
        """Whether its documents are pairs, of two sentences each: a text and its translation."""
        return is_parallel(self.name)


class _Shard(NamedTuple):
    tokens: np.ndarray  # [tokens] memory map
    document_starts: np.ndarray  # [documents] token position within the shard
    sentence_starts: np.ndarray  # [sentences] token position within the shard


def _read_shard(store: Path, counts: dict[str, Any], dtype: np.dtype) -> _Shard:
    """Maps the files of one split of one shard, and checks that their offsets agree."""
    tokens, sentences, documents = (store / name for name in counts["files"])
    lengths, sentence_counts = np.fromfile(documents, "<u4").reshape(-1, 2).astype(np.int64).T
    first_tokens = np.cumsum(lengths) - lengths
    first_sentences = np.cumsum(sentence_counts) - sentence_counts
    starts = np.fromfile(sentences, "<u4").astype(np.int64)
    agree = (
        len(lengths) == counts["documents"]
        and len(starts) == counts["sentences"] == sentence_counts.sum()
        and tokens.stat().st_size == counts["tokens"] * dtype.itemsize
        and counts["tokens"] == lengths.sum()
        and (lengths >= 2).all()
        and (sentence_counts >= 1).all()
    )
    if agree:
        starts += np.repeat(first_tokens, sentence_counts)
        agree = (
            (starts[first_sentences] == first_tokens).all()
            and (starts[1:] > starts[:-1]).all()
            and (len(starts) == 0 or starts[-1] < counts["tokens"])
        )
    if not agree:
        raise InputError(f"{documents} and {sentences.name}: their offsets do not agree. {REBUILD}")
    # An empty file cannot be mapped.
    mapped = np.memmap(tokens, dtype, "r") if counts["tokens"] else np.empty(0, dtype)
    return _Shard(np.asarray(mapped), first_tokens, starts)


class TokenStore:
    """One split of one or several corpora, as one long sequence of tokens.

    Open it with `TokenStore.open`. The tokens of a document are contiguous, and so are the
    documents of a source. A position is an index into the sequence of all tokens.

    Attributes:
      document_starts: int64 [documents + 1]; the last element is `token_count`.
      sentence_starts: int64 [sentences + 1]; the last element is `token_count`. A document's first
        sentence starts where the document starts.
      sources: a `SourceSpan` for every source that has documents in this split.
      vocabulary_size: every token id is below it.
      tokenizer_identity: `Tokenizer.identity` of the tokenizer that made the tokens.
      identity: a hash of the data, the mixing weights and the split.
    """

    def __init__(
        self,
        shards: Iterable[_Shard],
        sources: Sequence[SourceSpan],
        *,
        sentence_count: int,
        vocabulary_size: int,
        tokenizer_identity: str,
        identity: str,
    ):
        self.document_starts = np.empty(sources[-1].last_document_exclusive + 1, np.int64)
        self.sentence_starts = np.empty(sentence_count + 1, np.int64)
        self._shards: list[np.ndarray] = []
        token = document = sentence = 0
        shard_starts = [0]
        for shard in shards:  # an iterator may give them one by one, to save memory
            next_document = document + len(shard.document_starts)
            next_sentence = sentence + len(shard.sentence_starts)
            np.add(shard.document_starts, token, out=self.document_starts[document:next_document])
            np.add(shard.sentence_starts, token, out=self.sentence_starts[sentence:next_sentence])
            document, sentence = next_document, next_sentence
            token += len(shard.tokens)
            shard_starts.append(token)
            self._shards.append(shard.tokens)
        self.document_starts[-1] = self.sentence_starts[-1] = self.token_count = token
        self._shard_starts = np.array(shard_starts)  # [shards + 1]
        self.dtype = self._shards[0].dtype
        self.sources = tuple(sources)
        self.vocabulary_size = vocabulary_size
        self.tokenizer_identity = tokenizer_identity
        self.identity = identity

    @classmethod
    def open(
        cls,
        directories: str | os.PathLike | Sequence[str | os.PathLike],
        split: str = TRAIN,
        *,
        alpha: float = 1.0,
        tokenizer_identity: str | None = None,
        verify: bool = False,
    ) -> Self:
        """Opens one split of one corpus folder, or of several mixed.

        Args:
          directories: corpus folders, on this machine or in buckets. "DIR@0.7" gives a corpus its
            share of the examples. Either all corpora have a weight or none has; then their shares
            are in proportion to their tokens. Sources keep their shares within their corpus.
          split: "train" or "heldout".
          alpha: the power of sampling by language (`language_shares`). Unless it is 1, no corpus
            and no source has a weight, and all sources name their language.
          tokenizer_identity: that of the caller's tokenizer, which is compared.
          verify: whether to read all files and compare their checksums.

        Raises:
          InputError: a store is missing, unfinished, truncated, damaged or built with another
            tokenizer; or the split is empty.
        """
        if isinstance(directories, str | os.PathLike):
            directories = [directories]
        names, weights = zip(*(split_weight(os.fspath(name)) for name in directories), strict=True)
        check_weights(names, weights)
        stores = [local_store(name) for name in names]
        manifests = [
            checked_manifest(store, name, verify) for store, name in zip(stores, names, strict=True)
        ]
        first = manifests[0]
        expected = tokenizer_identity or first["tokenizer_identity"]
        for name, manifest in zip(names, manifests, strict=True):
            if manifest["tokenizer_identity"] != expected:
                other = "the tokenizer in use" if tokenizer_identity else f"that of {names[0]}"
                raise InputError(
                    f"{name}: built with another tokenizer ({manifest['tokenizer_identity'][:12]}) "
                    f"than {other} ({expected[:12]}): prepare it again with that vocabulary."
                )
        sources = _nonempty_sources(stores, weights, manifests, split)
        if alpha != 1.0:
            _check_alpha(names, weights, manifests, alpha)
            languages_and_tokens = (
                [split_language(s.name)[0] for s in sources],
                [s.tokens for s in sources],
            )
            by_language = language_shares(*languages_and_tokens, alpha)
            sources = [s._replace(share=x) for s, x in zip(sources, by_language, strict=True)]
        if not sources:
            hint = "--held_out=0.05" if split == HELDOUT else "more text or a smaller --held_out"
            raise InputError(
                f"{', '.join(names)}: no document in the split {split!r}: prepare the corpus "
                f"again with {hint}."
            )
        dtype = token_dtype(first["vocabulary_size"])
        shards = [(source.store, counts) for source in sources for counts in source.shards]
        spans: list[SourceSpan] = []
        document = 0
        for source in sources:
            count = sum(counts["documents"] for counts in source.shards)
            last = document + count
            spans.append(SourceSpan(source.name, source.share, source.tokens, document, last))
            document += count
        return cls(
            (_read_shard(store, counts, dtype) for store, counts in shards),
            spans,
            sentence_count=sum(counts["sentences"] for _, counts in shards),
            vocabulary_size=first["vocabulary_size"],
            tokenizer_identity=expected,
            identity=canonical_hash(
                [split, weights, [each["identity"] for each in manifests]]
                + ([alpha] if alpha != 1.0 else [])
            ),
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that its sources name, in order; () if these are fewer than two."""
        names = tuple(dict.fromkeys(s.language for s in self.sources if s.language))
        return names if len(names) > 1 else ()

    def of_language(self, language: str) -> Self:
        """The same store, of which only the sources of one language are read."""
        of_language = [source for source in self.sources if source.language == language]
        total_share = sum(source.share for source in of_language)
        store = copy.copy(self)
        store.sources = tuple(
            source._replace(share=source.share / total_share) for source in of_language
        )
        store.identity = canonical_hash([self.identity, language])
        return store

    def table_of_languages(self) -> str:
        """Lines with the share of each language; "" if there are fewer than two."""
        if not self.languages:
            return ""
        return table(*zip(*((s.language, s.tokens, s.share) for s in self.sources), strict=True))

    def read_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The tokens of R runs, each within one document: [sum(lengths)], in the store's dtype."""
        shard = np.searchsorted(self._shard_starts, starts, side="right") - 1
        starts = starts - self._shard_starts[shard]
        # For runs of about 30 tokens and more, slices are faster than one ragged gather, and they
        # need no index array.
        runs = zip(shard.tolist(), starts.tolist(), (starts + lengths).tolist(), strict=True)
        return np.concatenate([self._shards[shard][start:stop] for shard, start, stop in runs])


class _Source(NamedTuple):
    name: str
    share: float
    tokens: int
    store: Path
    shards: list[dict[str, Any]]  # the counts of this split, without shards that have no document


def _check_alpha(
    names: Sequence[str],
    weights: Sequence[float | None],
    manifests: Sequence[dict[str, Any]],
    alpha: float,
) -> None:
    """Raises InputError if the sources cannot be drawn by language."""
    for name, weight, manifest in zip(names, weights, manifests, strict=True):
        for source in manifest["sources"]:
            if weight is not None or source["weight"] is not None:
                raise InputError(
                    f"{name}: has a weight, and language_alpha={alpha} weighs by language: leave "
                    "one out"
                )
            if not split_language(source["name"])[0]:
                raise InputError(
                    f"{name}: its source {source['name']} names no language, which "
                    f"language_alpha={alpha} needs: prepare it as sw=text:..., or set 1"
                )


def _nonempty_sources(
    stores: Sequence[Path],
    weights: Sequence[float | None],
    manifests: Sequence[dict[str, Any]],
    split: str,
) -> list[_Source]:
    """All sources with documents in `split`, in order, each with its share of the examples."""
    corpora: list[tuple[float | None, int, list[_Source]]] = []
    for store, weight, manifest in zip(stores, weights, manifests, strict=True):
        found = []
        for number, source in enumerate(manifest["sources"]):
            counts = [
                shard["splits"][split] for shard in manifest["shards"] if shard["source"] == number
            ]
            counts = [each for each in counts if each["documents"]]
            if counts:
                found.append((source, counts, sum(each["tokens"] for each in counts)))
        if not found:
            continue
        sizes = [size for _, _, size in found]
        source_shares = shares([source["weight"] for source, _, _ in found], sizes)
        corpora.append(
            (
                weight,
                sum(sizes),
                [
                    _Source(source["name"], share, size, store, counts)
                    for (source, counts, size), share in zip(found, source_shares, strict=True)
                ],
            )
        )
    if not corpora:
        return []
    corpus_shares = shares([each[0] for each in corpora], [each[1] for each in corpora])
    return [
        source._replace(share=source.share * corpus_share)
        for corpus_share, (_, _, sources) in zip(corpus_shares, corpora, strict=True)
        for source in sources
    ]
