"""The vocabulary of a corpus: what was asked for, and how it is learned, extended and described."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.base.validation import check_numbers
from bertjax.data.corpus.frequencies import word_frequencies
from bertjax.data.corpus.languages import split_language
from bertjax.data.corpus.plan import Plan
from bertjax.data.corpus.store import TokenStore
from bertjax.data.corpus.vocabulary_sample import vocabulary_sample
from bertjax.interop.hub import model_folder
from bertjax.interop.tokenizer_files import read_tokenizer
from bertjax.text.byte_level import BYTES
from bertjax.text.domain_words import (
    choose_words,
    count_pieces,
    count_words,
    unused_ids,
    with_words,
)
from bertjax.text.extension import check_extensible, extended
from bertjax.text.sentences import split_sentences
from bertjax.text.special_tokens import GPT2, SPECIAL_TOKENS
from bertjax.text.template import Template
from bertjax.text.tokenizer import (
    BPE,
    KINDS,
    SENTENCEPIECE,
    VOCABULARY_FILES,
    WORDPIECE,
    WORDS,
    Tokenizer,
)
from bertjax.text.vocabulary import learn

END_OF_TEXT_ALONE = "gpt2"  # a byte-level BPE without other special tokens
CLS_LAST = "xlnet"  # SentencePiece, with the special tokens after the text
LEARNED = (*KINDS, END_OF_TEXT_ALONE, CLS_LAST)
NEW_PIECES_FILE = "new_pieces.json"

# The size in bytes of the sample from which a vocabulary is learned: 22 million words of English,
# or about as many sentences as SentencePiece can take.
_SAMPLE_BYTES = dict.fromkeys(VOCABULARY_FILES, 128 << 20) | {SENTENCEPIECE: 32 << 20}
# In so many documents words with accents or other marks are counted. A warning is printed if they
# have more than this share.
_DOCUMENTS_READ, _MANY_MARKED = 1000, 0.02


def requested(
    *,
    learn_vocabulary: int | None,
    vocabulary: str | os.PathLike | None,
    domain_words: int,
    extend_vocabulary: int,
    tokenizer: str | None,
    model_type: str,
    cased: bool | None,
    language_alpha: float,
    sources: Sequence[str],
) -> tuple[Tokenizer | None, dict[str, Any]]:
    """The given vocabulary, if one was given, and the request in the form of plan.json.

    The arguments are those of `bertjax.programs.prepare.run`; `sources` have no weights.
    """
    if (learn_vocabulary is None) == (vocabulary is None):
        raise InputError("give one of --learn_vocabulary=SIZE and --vocabulary=FILE.")
    opened = None if vocabulary is None else _open_vocabulary(vocabulary, cased)
    request = _vocabulary_request(
        learn_vocabulary, opened, vocabulary, tokenizer, model_type, cased
    )
    request |= _domain_words_request(domain_words, opened, vocabulary)
    request |= _extension_request(extend_vocabulary, opened, vocabulary)
    return opened, request | _alpha_request(language_alpha, request, sources)


def make(
    plan: Plan, output: Path, tokenizer: Tokenizer | None, request: dict[str, Any]
) -> Tokenizer | None:
    """Saves the requested vocabulary in `output`; returns the given one, with its new pieces."""
    if tokenizer is None:
        _learn(plan, output, request)
        return None
    words, added = (request.get(name, 0) for name in ("domain_words", "extend_vocabulary"))
    if words or added:
        tokenizer = _with_pieces(plan, output, tokenizer, words, added)
    tokenizer.save(output)
    return tokenizer


def _open_vocabulary(path: str | os.PathLike, cased: bool | None) -> Tokenizer:
    """The vocabulary of --vocabulary: a file, a folder of ours, or a model of Hugging Face."""
    prefix, _, name = str(path).partition(":")
    if prefix != "hf":
        return Tokenizer.open(path, cased)
    tokenizer = read_tokenizer(model_folder(name))
    if cased not in (None, tokenizer.cased):
        raise InputError(f"--vocabulary={path}: says cased={tokenizer.cased}, asked for {cased}.")
    return tokenizer


def _vocabulary_request(
    learn: int | None,
    tokenizer: Tokenizer | None,
    path: str | os.PathLike | None,
    kind: str | None,
    model_type: str,
    cased: bool | None,
) -> dict[str, Any]:
    """The requested vocabulary, in the form of plan.json."""
    if tokenizer:
        if kind not in (None, tokenizer.kind):
            raise InputError(
                f"--vocabulary={path}: is a {tokenizer.kind} one, not --tokenizer={kind}."
            )
        return {"kind": tokenizer.kind, "cased": tokenizer.cased, "identity": tokenizer.identity}
    assert learn is not None
    if learn <= len(SPECIAL_TOKENS):
        raise InputError(f"--learn_vocabulary={learn}: too few pieces; the paper has 30000.")
    special = {"special_tokens": sorted(set(GPT2.values()))} if kind == END_OF_TEXT_ALONE else {}
    cls_last = {"cls_last": True} if kind == CLS_LAST else {}
    kind = BPE if special else SENTENCEPIECE if cls_last else kind
    first = len(special.get("special_tokens", SPECIAL_TOKENS)) + BYTES
    if kind == BPE and learn < first:
        raise InputError(
            f"--learn_vocabulary={learn}: too few pieces: {BYTES} bytes and the special tokens "
            f"make {first}; ModernBERT has 50368."
        )
    cased = kind in (BPE, WORDS) or bool(cls_last) if cased is None else cased
    request = {"kind": kind or WORDPIECE, "cased": cased, "learn": learn, **special, **cls_last}
    return request if kind != SENTENCEPIECE else {**request, "model_type": model_type}


def _alpha_request(alpha: float, request: dict[str, Any], specs: Sequence[str]) -> dict[str, float]:
    """The field of plan.json for --language_alpha; {} if it is 1."""
    if alpha == 1.0:
        return {}
    if not 0 < alpha < 1:
        raise InputError(f"--language_alpha={alpha}: must be in (0, 1].")
    if "learn" not in request:
        raise InputError(f"--language_alpha={alpha}: is for a vocabulary that is learned here.")
    if unnamed := [spec for spec in specs if not split_language(spec)[0]]:
        raise InputError(
            f"--language_alpha={alpha}: {unnamed[0]} names no language: write sw=text:... "
            "(its code) before each source."
        )
    return {"language_alpha": alpha}


def _domain_words_request(
    number: int, tokenizer: Tokenizer | None, path: str | os.PathLike | None
) -> dict[str, int]:
    """The fields of plan.json for --domain_words; {} without domain words."""
    if not number:
        return {}
    if number < 0:
        raise InputError(f"--domain_words={number}: a number of words, from 0.")
    if tokenizer is None:
        raise InputError(
            f"--domain_words={number}: they go into the [unusedN] pieces of a given vocabulary: "
            "give --vocabulary=vocab.txt."
        )
    if tokenizer.kind != WORDPIECE:
        raise InputError(
            f"--domain_words={number}: --vocabulary={path} is a {tokenizer.kind} one, and only a "
            f"{WORDPIECE} one has [unusedN] pieces."
        )
    if number > (places := len(unused_ids(tokenizer))):
        raise InputError(
            f"--domain_words={number}: --vocabulary={path} has only {places} [unusedN] pieces to "
            "put them in: request at most that number."
        )
    return {"domain_words": number}


def _extension_request(
    number: int, tokenizer: Tokenizer | None, path: str | os.PathLike | None
) -> dict[str, int]:
    """The fields of plan.json for --extend_vocabulary; {} without it."""
    if not number:
        return {}
    check_numbers("--extend_vocabulary", number)
    if number < 0:
        raise InputError(f"--extend_vocabulary={number}: a number of pieces, from 0.")
    if tokenizer is None:
        raise InputError(
            f"--extend_vocabulary={number}: the new pieces come after those of a given "
            "vocabulary: give --vocabulary=hf:FOLDER, or a file."
        )
    check_extensible(tokenizer, f"--vocabulary={path}")
    return {"extend_vocabulary": number}


def warn_of_marks(plan: Plan, request: dict[str, Any]) -> None:
    """Prints a warning if an uncased vocabulary takes accents or tone marks from many words."""
    if request["cased"] or request["kind"] != WORDPIECE:
        return
    words = marked = 0
    for document in islice(chain.from_iterable(map(plan.documents, plan.shards)), _DOCUMENTS_READ):
        for word in chain.from_iterable(map(str.split, document or ())):
            words += 1
            marked += any(map(_is_mark, unicodedata.normalize("NFD", word)))
    if marked > _MANY_MARKED * words:
        print(
            f"warning: uncased: {marked / words:.1%} of the words lose accents, tone marks or "
            "vowel signs: --cased keeps them",
            flush=True,
        )


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


def _learn(plan: Plan, output: Path, request: dict[str, Any]) -> None:
    """Learns the requested vocabulary, and saves its tokenizer."""
    kind, cased, size = request["kind"], request["cased"], request["learn"]
    sample = vocabulary_sample(plan, _SAMPLE_BYTES[kind], request.get("language_alpha", 1.0))
    path = output / VOCABULARY_FILES[kind]
    characters = sum(map(len, sample))
    print(f"learning {size:,} {kind} pieces from {characters:,} characters", flush=True)
    settings = {name: request[name] for name in ("special_tokens", "model_type") if name in request}
    texts: Iterable[str] = sample
    if kind == SENTENCEPIECE:
        texts = (
            sentence
            for text in sample
            for paragraph in text.split("\n")
            for sentence in split_sentences(paragraph, plan.language)
        )
    learned = learn(kind, texts, path, size=size, cased=cased, **settings)
    if learned < size:
        print(f"The text has only {learned} pieces to learn, not {size}.")
    nfc = kind == WORDPIECE and cased
    tokenizer = Tokenizer(kind, path.read_bytes(), str(path), cased=cased, nfc=nfc)
    if request.get("cls_last"):
        last = Template.xlnet(tokenizer.roles)
        tokenizer = tokenizer.with_vocabulary(tokenizer.vocabulary, str(path), template=last)
    tokenizer.save(output)


def _with_pieces(
    plan: Plan, output: Path, tokenizer: Tokenizer, words: int, added: int
) -> Tokenizer:
    """Gives a tokenizer `words` in [unusedN] places and `added` pieces; writes what that saves."""
    texts = vocabulary_sample(plan, _SAMPLE_BYTES[tokenizer.kind])
    counts = count_words(texts, tokenizer)
    changed = with_words(tokenizer, choose_words(counts, tokenizer, words))
    changed = extended(changed, texts, counts, added)
    old = set(tokenizer.tokens)
    pieces = [
        readable
        for piece, readable in zip(changed.tokens, changed.readable, strict=True)
        if piece not in old
    ]
    if len(pieces) < words + added:
        print(f"The text has only {len(pieces)} pieces to add, not {words + added}.")
    before, after = count_pieces(counts, tokenizer), count_pieces(counts, changed)
    saved = {
        "pieces": pieces,
        "sample_pieces_before": before,
        "sample_pieces_after": after,
        "saved_percent": 100 * (before - after) / before if before else None,
    }
    write_json(output / NEW_PIECES_FILE, saved)
    return changed


def remember_usual(output: Path, opened: Tokenizer | None) -> None:
    """Writes with the vocabulary how it splits this text; warns if that is unlike its own text."""
    tokenizer, store = Tokenizer.open(output), TokenStore.open(output)
    pieces = set(tokenizer.special_ids) - {tokenizer.roles.get("unk")}
    found = tokenizer.shares(word_frequencies(store, pieces))
    if opened and opened.usual and (difference := opened.usual.difference(found)):
        print(f"warning: {difference}: learn a vocabulary of this text", flush=True)
    tokenizer.usual = found
    tokenizer.save_description(output)
