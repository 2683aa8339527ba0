"""Prepares a corpus: sources -> vocabulary -> token store -> report, all in one folder.

Reads the sources and perhaps a vocabulary file. Writes DIR/plan.json (what was asked for),
vocab.txt (or sentencepiece.model, or bpe.json) with vocabulary.json, store/, report.json, and on
request new_pieces.json and installed-docs.txt. The same arguments again do only what is missing.
"""

import dataclasses
import os
import shutil
import time
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

from bertjax.base.errors import InputError
from bertjax.base.files import exclusive, local_folder, read_json, write_json
from bertjax.base.progress import Progress
from bertjax.base.validation import check_numbers, record
from bertjax.corpus.build import (
    Plan,
    build_store,
    build_store_with_beam,
    check_documents,
    make_plan,
    read_shards,
)
from bertjax.corpus.frequencies import word_frequencies
from bertjax.corpus.installed_docs import write_installed_docs
from bertjax.corpus.languages import language_shares, split_language, table
from bertjax.corpus.manifest import is_finished, read_manifest
from bertjax.corpus.sampling import sample_documents
from bertjax.corpus.shards import HELDOUT, SPLITS, TRAIN, store_directory
from bertjax.corpus.sources import INSTALLED_DOCS, parse_sources
from bertjax.corpus.store import TokenStore
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
from bertjax.text.sentences import check_language, split_sentences
from bertjax.text.special_tokens import GPT2
from bertjax.text.tokenizer import (
    BPE,
    DESCRIPTION_FILE,
    KINDS,
    SENTENCEPIECE,
    SPECIAL_TOKENS,
    VOCABULARY_FILES,
    WORDPIECE,
    Tokenizer,
)
from bertjax.text.vocabulary import (
    MODEL_TYPES,
    learn_byte_level_bpe,
    learn_sentencepiece,
    learn_wordpiece,
)

RUNNERS = ("local", "beam")
END_OF_TEXT_ALONE = "gpt2"  # a byte-level BPE without other special tokens
LEARNED = (*KINDS, END_OF_TEXT_ALONE)
PLAN_FILE = "plan.json"
_REPORT_FILE = "report.json"
_NEW_PIECES_FILE = "new_pieces.json"
_NEW_PIECES = record(
    pieces=list[str],
    sample_pieces_before=int,
    sample_pieces_after=int,
    saved_percent=float | None,
)

# The size in bytes of the sample from which a vocabulary is learned: 22 million words of English,
# or about as many sentences as SentencePiece can take.
_SAMPLE_BYTES = {WORDPIECE: 128 << 20, SENTENCEPIECE: 32 << 20, BPE: 128 << 20}
# At most this multiple of the sample is read, to choose the sample from it.
_READ_PER_SAMPLED = 8
_SHOWN = 100  # new pieces that are printed; the report has all
# In so many documents words with accents or other marks are counted. A warning is printed if they
# have more than this share.
_DOCUMENTS_READ, _MANY_MARKED = 1000, 0.02


def run(
    sources: Sequence[str],
    output: str | os.PathLike,
    *,
    learn_vocabulary: int | None = None,
    vocabulary: str | os.PathLike | None = None,
    domain_words: int = 0,
    extend_vocabulary: int = 0,
    tokenizer: str | None = None,
    model_type: str = "unigram",
    cased: bool | None = None,
    held_out: float = 0.01,
    workers: int | None = None,
    language: str = "en",
    language_alpha: float = 1.0,
    undecodable: str = "error",
    verify: bool = False,
    runner: str = "local",
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Prepares a corpus folder and returns its report.

    Args:
      sources: specs (see `bertjax.corpus.sources`), each perhaps with @WEIGHT.
      output: the corpus folder.
      learn_vocabulary: the number of pieces to learn. Give either this or `vocabulary`.
      vocabulary: a vocab.txt, a SentencePiece .model, the tokenizer.json of a byte-level BPE, GPT's
        BPE or a unigram model, the folder of a run or a corpus, or a model as hf:FOLDER or hf:NAME.
      domain_words: how many [unusedN] pieces of that vocab.txt become words of the text.
      extend_vocabulary: how many pieces of the text are added behind those of that vocabulary.
      tokenizer: "wordpiece" (the default for a learned vocabulary), "sentencepiece", "bpe" or
        "gpt2", a byte-level BPE whose only special token is <|endoftext|>.
      model_type: the type of a learned SentencePiece model: "unigram" or "bpe".
      cased: whether upper case is kept. None: a learned vocabulary is uncased, but a byte-level BPE
        is cased; and a given one is used as it is.
      held_out: the fraction of the documents for evaluation.
      workers: the number of processes; None for one per CPU.
      language: the language of the sentence splitter, for sources that name none with rules.
      language_alpha: the power by which languages are drawn for the vocabulary, by the sizes of
        their files (`bertjax.corpus.languages.language_shares`). Below 1, sources name theirs.
      undecodable: whether documents that are not UTF-8 raise an "error", or "skip" them.
      verify: whether to compare all checksums at the end.
      runner: "local" processes or "beam".
      beam_options: options for the Beam pipeline, such as "--runner=FlinkRunner".

    Raises:
      InputError: an argument or a source is wrong, or `output` has another content.
    """
    start = time.monotonic()
    output = local_folder(output)
    workers = os.cpu_count() or 1 if workers is None else workers
    _check_choices(
        tokenizer=(tokenizer or WORDPIECE, LEARNED),
        model_type=(model_type, MODEL_TYPES),
        undecodable=(undecodable, ("error", "skip")),
        runner=(runner, RUNNERS),
    )
    _check_numbers(held_out, workers)
    check_numbers("--learn_vocabulary", learn_vocabulary)
    if beam_options and runner != "beam":
        raise InputError(
            f"--beam_option={beam_options[0]}: works only with --runner=beam: add that flag."
        )
    check_language(language)
    weighted = parse_sources(list(sources))
    if (learn_vocabulary is None) == (vocabulary is None):
        raise InputError("give one of --learn_vocabulary=SIZE and --vocabulary=FILE.")
    # It is opened now, because it may lie in an unfinished corpus that is removed below.
    given = None if vocabulary is None else _open_vocabulary(vocabulary, cased)
    request = _vocabulary_request(learn_vocabulary, given, vocabulary, tokenizer, model_type, cased)
    request |= _domain_words_request(domain_words, given, vocabulary)
    request |= _extension_request(extend_vocabulary, given, vocabulary)
    request |= _alpha_request(language_alpha, request, [spec for spec, _ in weighted])
    if output.exists() and not output.is_dir():
        raise InputError(f"--output={output}: a file is in the way.")
    asked: dict[str, Any] = {
        "source": [spec for spec, _ in weighted],
        "held_out": held_out,
        "language": language,
        "undecodable": undecodable,
        "vocabulary": request,
    }
    _check_claim(output, asked)

    installed_docs = output / "installed-docs.txt"
    unnamed = [split_language(spec)[1] for spec, _ in weighted]
    if INSTALLED_DOCS in unnamed and not installed_docs.exists():
        with exclusive(output):
            write_installed_docs(installed_docs, workers)
    plan = make_plan(
        weighted,
        installed_docs=installed_docs,
        held_out=held_out,
        language=language,
        skip_undecodable=undecodable == "skip",
    )
    if not is_finished(output):
        check_documents(plan)
        _warn_of_marks(plan, request)
    with exclusive(output):
        asked["files"] = plan.identity
        if _check_claim(output, asked):
            _clear(output)
        write_json(output / PLAN_FILE, asked)

        seconds = {"sources": time.monotonic() - start}
        stage = time.monotonic()
        new_vocabulary = not (output / DESCRIPTION_FILE).exists()
        if new_vocabulary:
            if given:
                if domain_words or extend_vocabulary:
                    given = _with_pieces(plan, output, given, domain_words, extend_vocabulary)
                given.save(output)
            else:
                _learn(plan, output, request)
        seconds["vocabulary"] = time.monotonic() - stage

        stage = time.monotonic()
        if runner == "beam":
            new_store = build_store_with_beam(output, plan, options=beam_options)
        else:
            new_store = build_store(output, plan, workers=workers)
        seconds["store"] = time.monotonic() - stage
        read_manifest(output, verify=verify)
        if new_vocabulary or new_store:
            _remember_usual(output, given)

        report_file = output / _REPORT_FILE
        if new_vocabulary or new_store or not report_file.exists():
            seconds["all"] = time.monotonic() - start
            times = {stage: round(each, 1) for stage, each in seconds.items()}
        else:
            print(f"{output}: vocabulary and token store are there already.")
            cure = "remove it: the same command writes it again"
            times = read_json(report_file, record(seconds=dict), cure=cure)["seconds"]
        report = {**_report(output, plan), "seconds": times}
        write_json(report_file, report)
        print(_summary(output, report))
        return report


# -------------------------------------------------------------------- checks of arguments


def _check_choices(**chosen: tuple[str, Sequence[str]]) -> None:
    for flag, (value, choices) in chosen.items():
        if value not in choices:
            raise InputError(f"--{flag}={value}: must be one of {', '.join(choices)}.")


def _check_numbers(held_out: float, workers: int) -> None:
    if not 0 <= held_out < 1:
        raise InputError(f"--held_out={held_out}: a fraction of the documents, from 0 to below 1.")
    if workers < 1:
        raise InputError(f"--workers={workers}: at least one process is needed.")
    check_numbers("--workers", workers)


def _open_vocabulary(path: str | os.PathLike, cased: bool | None) -> Tokenizer:
    """The vocabulary of --vocabulary: a file, a folder of ours, or a model of Hugging Face."""
    kind, _, name = str(path).partition(":")
    if kind != "hf":
        return Tokenizer.open(path, cased)
    given = read_tokenizer(model_folder(name))
    if cased not in (None, given.cased):
        raise InputError(f"--vocabulary={path}: says cased={given.cased}, asked for {cased}.")
    return given


def _vocabulary_request(
    learn: int | None,
    given: Tokenizer | None,
    path: str | os.PathLike | None,
    kind: str | None,
    model_type: str,
    cased: bool | None,
) -> dict[str, Any]:
    """The requested vocabulary, in the form of plan.json."""
    if given:
        if kind not in (None, given.kind):
            raise InputError(f"--vocabulary={path}: is a {given.kind} one, not --tokenizer={kind}.")
        return {"kind": given.kind, "cased": given.cased, "identity": given.identity}
    assert learn is not None
    if learn <= len(SPECIAL_TOKENS):
        raise InputError(f"--learn_vocabulary={learn}: too few pieces; the paper has 30000.")
    special = {"special_tokens": sorted(set(GPT2.values()))} if kind == END_OF_TEXT_ALONE else {}
    kind = BPE if special else kind
    if kind == BPE and learn < (first := len(SPECIAL_TOKENS) + BYTES):
        raise InputError(
            f"--learn_vocabulary={learn}: too few pieces: {BYTES} bytes and the special tokens "
            f"make {first}; ModernBERT has 50368."
        )
    cased = kind == BPE if cased is None else cased
    request = {"kind": kind or WORDPIECE, "cased": cased, "learn": learn, **special}
    return request if kind != SENTENCEPIECE else {**request, "model_type": model_type}


def _alpha_request(alpha: float, request: dict[str, Any], specs: list[str]) -> dict[str, float]:
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
    number: int, given: Tokenizer | None, path: str | os.PathLike | None
) -> dict[str, int]:
    """The fields of plan.json for --domain_words; {} without domain words."""
    if not number:
        return {}
    if number < 0:
        raise InputError(f"--domain_words={number}: a number of words, from 0.")
    if given is None:
        raise InputError(
            f"--domain_words={number}: they go into the [unusedN] pieces of a given vocabulary: "
            "give --vocabulary=vocab.txt."
        )
    if given.kind != WORDPIECE:
        raise InputError(
            f"--domain_words={number}: --vocabulary={path} is a {given.kind} one, and only a "
            f"{WORDPIECE} one has [unusedN] pieces."
        )
    if number > (places := len(unused_ids(given))):
        raise InputError(
            f"--domain_words={number}: --vocabulary={path} has only {places} [unusedN] pieces to "
            "put them in: request at most that number."
        )
    return {"domain_words": number}


def _extension_request(
    number: int, given: Tokenizer | None, path: str | os.PathLike | None
) -> dict[str, int]:
    """The fields of plan.json for --extend_vocabulary; {} without it."""
    if not number:
        return {}
    check_numbers("--extend_vocabulary", number)
    if number < 0:
        raise InputError(f"--extend_vocabulary={number}: a number of pieces, from 0.")
    if given is None:
        raise InputError(
            f"--extend_vocabulary={number}: the new pieces come behind those of a given "
            "vocabulary: give --vocabulary=hf:FOLDER, or a file."
        )
    check_extensible(given, f"--vocabulary={path}")
    return {"extend_vocabulary": number}


def _check_claim(output: Path, asked: dict[str, Any]) -> list[str]:
    """How the request for the corpus in `output` differs from this one; [] if it does not.

    Raises:
      InputError: they differ, and that corpus is finished.
    """
    path = output / PLAN_FILE
    if not path.exists():
        return []
    fields = record(**dict.fromkeys(asked, Any))
    earlier = read_json(path, fields, cure="delete the folder, or choose another --output")
    changed = [
        "the source files have changed since, in number, names or sizes"
        if key == "files"
        else f"{key} was {earlier[key]!r}, now {value!r}"
        for key, value in asked.items()
        if earlier[key] != value
    ]
    if changed and is_finished(output):
        raise InputError(
            f"--output={output}: holds a corpus with other settings ({'; '.join(changed)}): choose "
            "another --output, or delete that folder."
        )
    return changed


def _clear(output: Path) -> None:
    """Removes what an unfinished corpus of another request has left."""
    print(f"{output}: removing the unfinished corpus of another request", flush=True)
    vocabulary = (*VOCABULARY_FILES.values(), DESCRIPTION_FILE)
    for name in (*vocabulary, _NEW_PIECES_FILE, _REPORT_FILE):
        (output / name).unlink(missing_ok=True)
    if (store := store_directory(output)).exists():
        shutil.rmtree(store)


def _warn_of_marks(plan: Plan, request: dict[str, Any]) -> None:
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


# ----------------------------------------------------------------------------- the stages


def _learn(plan: Plan, output: Path, request: dict[str, Any]) -> None:
    """Learns the requested vocabulary, and saves its tokenizer."""
    kind, cased, size = request["kind"], request["cased"], request["learn"]
    texts = _sample_by_language(plan, kind, request.get("language_alpha", 1.0))
    path = output / VOCABULARY_FILES[kind]
    characters = sum(map(len, texts))
    print(f"learning {size:,} {kind} pieces from {characters:,} characters", flush=True)
    learned, rules = size, {}
    if kind == WORDPIECE:
        learned = learn_wordpiece(texts, path, size=size, cased=cased)
        rules = {"nfc": cased}
    elif kind == BPE:
        special = request.get("special_tokens", SPECIAL_TOKENS)
        learned = learn_byte_level_bpe(texts, path, size=size, cased=cased, special_tokens=special)
    else:
        sentences = (
            sentence
            for text in texts
            for paragraph in text.split("\n")
            for sentence in split_sentences(paragraph, plan.language)
        )
        model_type = request["model_type"]
        learn_sentencepiece(sentences, path, size=size, cased=cased, model_type=model_type)
    if learned < size:
        print(f"The text has only {learned} pieces to learn, not {size}.")
    Tokenizer(kind, path.read_bytes(), str(path), cased=cased, **rules).save(output)


def _remember_usual(output: Path, given: Tokenizer | None) -> None:
    """Writes with the vocabulary how it splits this text; warns if that is unlike its own text."""
    tokenizer, store = Tokenizer.open(output), TokenStore.open(output)
    pieces = set(tokenizer.special_ids) - {tokenizer.roles.get("unk")}
    found = tokenizer.shares(word_frequencies(store, pieces))
    if given and given.usual and (difference := given.usual.difference(found)):
        print(f"warning: {difference}: learn a vocabulary of this text", flush=True)
    tokenizer.usual = found
    tokenizer.save_description(output)


def _with_pieces(plan: Plan, output: Path, given: Tokenizer, words: int, more: int) -> Tokenizer:
    """Gives a tokenizer pieces of the sample, and writes what that saves.

    Args:
      words: how many words go into its [unusedN] places.
      more: how many pieces come behind its own.
    """
    texts = _sample(plan, _SAMPLE_BYTES[given.kind])
    counts = count_words(texts, given)
    changed = with_words(given, choose_words(counts, given, words))
    changed = extended(changed, texts, counts, more)
    old = set(given.tokens)
    pieces = [
        readable
        for piece, readable in zip(changed.tokens, changed.readable, strict=True)
        if piece not in old
    ]
    if len(pieces) < words + more:
        print(f"The text has only {len(pieces)} pieces to add, not {words + more}.")
    before, after = count_pieces(counts, given), count_pieces(counts, changed)
    saved = {
        "pieces": pieces,
        "sample_pieces_before": before,
        "sample_pieces_after": after,
        "saved_percent": 100 * (before - after) / before if before else None,
    }
    write_json(output / _NEW_PIECES_FILE, saved)
    return changed


def _sample_by_language(plan: Plan, kind: str, alpha: float) -> list[str]:
    """The sample of training text from which a vocabulary of this kind is learned.

    With alpha below 1 each language has its share of the bytes; the documents of one that has not
    so much text are repeated.
    """
    if alpha == 1.0:
        return _sample(plan, _SAMPLE_BYTES[kind])
    languages = [split_language(spec)[0] for spec, _ in plan.sources]
    sizes = [0] * len(languages)
    for shard in plan.shards:
        sizes[shard.source] += shard.size
    shares = language_shares(languages, sizes, alpha)
    print(table(languages, sizes, shares), flush=True)
    texts: list[str] = []
    for language in dict.fromkeys(languages):
        mine = [number for number, each in enumerate(languages) if each == language]
        shards = tuple(shard for shard in plan.shards if shard.source in mine)
        own = dataclasses.replace(plan, shards=shards)
        share = sum(shares[number] for number in mine)
        wanted = round(share * min(_SAMPLE_BYTES[kind], plan.size))
        found = _sample(own, wanted)
        for text in cycle(found):
            texts.append(text)
            wanted -= len(text.encode())
            if wanted <= 0:
                break
    return texts


def _sample(plan: Plan, most: int) -> list[str]:
    """About `most` bytes of the training text of a plan."""
    documents = _spread_documents(plan, most * _READ_PER_SAMPLED)
    return sample_documents(documents, held_out=plan.held_out, max_bytes=most)


def _spread_documents(plan: Plan, most: int) -> Iterator[list[str] | None]:
    """Yields documents of every n-th shard of each source, about `most` bytes of text together."""
    every = max(1, plan.size // most)
    of_source: dict[int, list] = {}
    for shard in plan.shards:
        of_source.setdefault(shard.source, []).append(shard)
    chosen = [shard for shards in of_source.values() for shard in shards[::every]]
    total = sum(shard.size for shard in chosen)
    with Progress("reading a sample for the vocabulary", total, "B", scale=True) as progress:
        for shard in chosen:
            # A compressed shard has more text than its size says, so it may be read only in part.
            left = most * shard.size / total
            for document in plan.documents(shard):
                progress.update(0)  # a shard may have millions of documents
                yield document
                left -= sum(len(paragraph.encode()) for paragraph in document or ())
                if left <= 0:
                    break
            progress.update(shard.size)


def _report(output: Path, plan: Plan) -> dict[str, Any]:
    """Makes the report of a built store: its counts and rates."""
    shards = read_shards(output, plan)
    sources = []
    for number, (spec, weight) in enumerate(plan.sources):
        its_shards = [shard for shard in shards if shard["source"] == number]
        sources.append({"source": spec, "weight": weight, **_counts(its_shards)})
    peaks = [shard["peak_bytes"] for shard in shards if shard["peak_bytes"]]
    tokenizer = Tokenizer.open(output)
    pieces_file = output / _NEW_PIECES_FILE
    new = {}
    if pieces_file.exists():
        cure = "delete the folder and prepare the corpus again, or restore it from a copy"
        new["new_pieces"] = read_json(pieces_file, _NEW_PIECES, cure=cure)
    return {
        "tokenizer": {
            "kind": tokenizer.kind,
            "cased": tokenizer.cased,
            "vocabulary_size": tokenizer.vocabulary_size,
            "identity": tokenizer.identity,
        },
        **new,
        **_counts(shards),
        "sources": sources,
        "shards": len(shards),
        "peak_worker_bytes": max(peaks, default=None),
    }


def _counts(shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The totals of each split over `shards`, with rates that show how good the vocabulary is."""
    counts: dict[str, Any] = {}
    for split in SPLITS:
        of_split = [shard["splits"][split] for shard in shards]
        total = {
            key: sum(each[key] for each in of_split)
            for key in ("documents", "sentences", "tokens", "words", "unknown")
        }
        unknown = total.pop("unknown")
        total["unknown_rate"] = unknown / total["tokens"] if total["tokens"] else None
        total["tokens_per_word"] = total["tokens"] / total["words"] if total["words"] else None
        counts[split] = total
    for key in ("dropped_documents", "skipped_documents"):
        counts[key] = sum(shard[key] for shard in shards)
    return counts


def _summary(output: Path, report: dict[str, Any]) -> str:
    tokenizer = report["tokenizer"]
    lines = [
        f"{output}: {tokenizer['vocabulary_size']:,} {tokenizer['kind']} pieces, "
        f"{'cased' if tokenizer['cased'] else 'uncased'}"
    ]
    if new := report.get("new_pieces"):
        before, after = new["sample_pieces_before"], new["sample_pieces_after"]
        percent = f" ({new['saved_percent']:.2f}%)" if before else ""
        lines.append(
            f"  {len(new['pieces']):,} new pieces save {before - after:,}{percent} of the "
            f"sample's {before:,} pieces: {' '.join(new['pieces'][:_SHOWN])}"
        )
    for split in SPLITS:
        counts = report[split]
        if counts["tokens"]:
            lines.append(
                f"  {split}: {counts['documents']:,} documents, {counts['sentences']:,} sentences, "
                f"{counts['tokens']:,} tokens; {counts['tokens_per_word']:.3f} tokens a word, "
                f"{counts['unknown_rate']:.4%} unknown"
            )
    lines += map("  {}".format, _too_few_documents(report))
    for key, reason in (
        ("dropped", "shorter than 2 tokens, or a pair with an empty text"),
        ("skipped", "not UTF-8"),
    ):
        if report[f"{key}_documents"]:
            lines.append(f"  {key}: {report[f'{key}_documents']:,} documents ({reason})")
    return "\n".join(lines)


def _too_few_documents(report: dict[str, Any]) -> Iterator[str]:
    """Yields a warning for each source and split with too few documents for sentence pairs."""
    for source in report["sources"]:
        for split, kind, use, cure in (
            (TRAIN, "training", "training", "give it more text"),
            (HELDOUT, "held-out", "evaluation", "use a larger --held_out"),
        ):
            count = source[split]["documents"]
            if count < 2 and report[split]["documents"]:
                effect = f"next-sentence {use} needs 2" if count else f"{use} goes without it"
                yield (
                    f"warning: source {source['source']}: {count} {kind} "
                    f"document{'s' * (count != 1)}: {effect}: {cure}"
                )
