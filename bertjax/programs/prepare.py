"""Prepares a corpus: sources -> filters -> vocabulary -> token store -> report, in one folder.

Reads the sources and perhaps a vocabulary file. Writes DIR/plan.json (what was asked for),
vocab.txt (or sentencepiece.model, or bpe.json) with vocabulary.json, store/, report.json, and on
request cleaning/, new_pieces.json and installed-docs.txt. The same arguments again do only what is
missing.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertjax.base.checks import check_choice
from bertjax.base.errors import InputError
from bertjax.base.files import exclusive, local_folder, read_json, write_json
from bertjax.base.limits import Pieces, Rate, Workers, check
from bertjax.base.validation import record
from bertjax.data.corpus import cleaning
from bertjax.data.corpus.build import build_store, build_store_with_beam, read_shards
from bertjax.data.corpus.filters import open_cleaning
from bertjax.data.corpus.installed_docs import write_installed_docs
from bertjax.data.corpus.languages import split_language
from bertjax.data.corpus.manifest import PLAN_FILE, is_corpus, is_finished, read_manifest
from bertjax.data.corpus.plan import Plan, check_documents, make_plan, warn_of_missing_blank_lines
from bertjax.data.corpus.shards import HELDOUT, SPLITS, TRAIN, store_directory
from bertjax.data.corpus.source import Skip
from bertjax.data.corpus.sources import INSTALLED_DOCS, parse_sources
from bertjax.programs import vocabularies
from bertjax.tasks.texts import texts
from bertjax.text.sentences import check_language
from bertjax.text.tokenizer import (
    DESCRIPTION_FILE,
    VOCABULARY_FILES,
    WORDPIECE,
    Tokenizer,
)
from bertjax.text.vocabulary import (
    MODEL_TYPES,
)

RUNNERS = ("local", "beam")
_INSTALLED_DOCS_FILE = "installed-docs.txt"
_REPORT_FILE = "report.json"
_NEW_PIECES = record(
    pieces=list[str],
    sample_pieces_before=int,
    sample_pieces_after=int,
    saved_percent=float | None,
)

# What corpora from before these settings were made with.
_BEFORE_THEM: dict[str, Any] = {
    "nulls": "error",
    "filters": {"language_filter": [], "deduplicate": None, "decontaminate": []},
}
_SHOWN = 100  # new pieces that are printed; the report has all


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
    nulls: str = "error",
    language_filter: Sequence[str] = (),
    deduplicate: str | None = None,
    decontaminate: Sequence[str] = (),
    verify: bool = False,
    runner: str = "local",
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Prepares a corpus folder and returns its report.

    Args:
      sources: specs (`bertjax.data.corpus.sources`), each perhaps with @WEIGHT.
      learn_vocabulary: the number of pieces to learn. Give either this or `vocabulary`.
      vocabulary: a vocab.txt, a SentencePiece .model, the tokenizer.json of a byte-level BPE, GPT's
        BPE or a unigram model, the folder of a run or a corpus, or a model as hf:FOLDER or hf:NAME.
      domain_words: how many [unusedN] pieces of that vocab.txt become words of the text.
      extend_vocabulary: how many pieces of the text are added after those of that vocabulary.
      tokenizer: "wordpiece" (the default for a learned vocabulary), "words", "sentencepiece",
        "bpe", "gpt2", a byte-level BPE whose only special token is <|endoftext|>, or "xlnet", a
        SentencePiece whose sequences end with [SEP] and [CLS].
      cased: whether upper case is kept. None: a learned vocabulary is uncased, but "bpe", "gpt2",
        "words" and "xlnet" are cased; and a given one is used as it is.
      language: of the sentence splitter, for sources that name none with rules.
      language_alpha: the power by which languages are drawn for the vocabulary, by the sizes of
        their files (`bertjax.data.corpus.languages.language_shares`). Below 1, sources name theirs.
      undecodable, nulls: whether documents that are not UTF-8, or null in a .jsonl or a Parquet
        file, raise an "error", or "skip" them.
      language_filter, deduplicate, decontaminate: the filters (`bertjax.data.corpus.filters`).
      verify: whether to compare all checksums at the end.

    Raises:
      InputError: an argument or a source is wrong, or `output` has another content.
    """
    start = time.monotonic()
    output = local_folder(output)
    workers = os.cpu_count() or 1 if workers is None else workers
    check_choice("--tokenizer", tokenizer or WORDPIECE, vocabularies.LEARNED)
    check_choice("--model_type", model_type, MODEL_TYPES)
    check_choice("--undecodable", undecodable, ("error", "skip"))
    check_choice("--nulls", nulls, ("error", "skip"))
    check_choice("--runner", runner, RUNNERS)
    check("--held_out", held_out, Rate)
    check("--workers", workers, Workers)
    check("--learn_vocabulary", learn_vocabulary, Pieces | None)
    if beam_options and runner != "beam":
        raise InputError(
            f"--beam_option={beam_options[0]}: works only with --runner=beam: add that flag."
        )
    check_language(language)
    weighted = parse_sources(list(sources))
    specs = [spec for spec, _ in weighted]
    filters = open_cleaning(language_filter, deduplicate, decontaminate, specs)
    # The given one is opened now, because it may lie in an unfinished corpus that is removed below.
    corpus_tokenizer, request = vocabularies.requested(
        learn_vocabulary=learn_vocabulary,
        vocabulary=vocabulary,
        domain_words=domain_words,
        extend_vocabulary=extend_vocabulary,
        tokenizer=tokenizer,
        model_type=model_type,
        cased=cased,
        language_alpha=language_alpha,
        sources=specs,
    )
    _check_output(output)
    request_dict: dict[str, Any] = {
        "source": specs,
        "held_out": held_out,
        "language": language,
        "undecodable": undecodable,
        "nulls": nulls,
        "vocabulary": request,
        "filters": {
            "language_filter": list(language_filter),
            "deduplicate": deduplicate,
            "decontaminate": list(decontaminate),
        },
    }
    _check_claim(output, request_dict)

    installed_docs = output / _INSTALLED_DOCS_FILE
    unnamed = [split_language(spec)[1] for spec in specs]
    if INSTALLED_DOCS in unnamed and not installed_docs.exists():
        with exclusive(output):
            write_installed_docs(installed_docs, workers)
    plan = make_plan(
        weighted,
        installed_docs=installed_docs,
        held_out=held_out,
        language=language,
        skip=(Skip.UNDECODABLE if undecodable == "skip" else Skip.NOTHING)
        | (Skip.NULLS if nulls == "skip" else Skip.NOTHING),
        filters=filters.identity,
    )
    if not is_finished(output):
        check_documents(plan)
        warn_of_missing_blank_lines(plan)
        vocabularies.warn_of_marks(plan, request)
    with exclusive(output):
        request_dict["files"] = plan.identity
        if _check_claim(output, request_dict):
            _clear(output)
        write_json(output / PLAN_FILE, request_dict)

        seconds = {"sources": time.monotonic() - start}
        stage = time.monotonic()
        cleaned: dict[str, Any] = {}
        if filters.identity:
            plan, report = cleaning.clean(output, plan, filters, texts=texts, workers=workers)
            cleaned = {"cleaning": report}
            seconds["cleaning"] = time.monotonic() - stage

        stage = time.monotonic()
        new_vocabulary = not (output / DESCRIPTION_FILE).exists()
        if new_vocabulary:
            corpus_tokenizer = vocabularies.make(plan, output, corpus_tokenizer, request)
        seconds["vocabulary"] = time.monotonic() - stage

        stage = time.monotonic()
        if runner == "beam":
            new_store = build_store_with_beam(output, plan, options=beam_options)
        else:
            new_store = build_store(output, plan, workers=workers)
        seconds["store"] = time.monotonic() - stage
        read_manifest(output, verify=verify)
        if new_vocabulary or new_store:
            vocabularies.remember_usual(output, corpus_tokenizer)

        report_file = output / _REPORT_FILE
        if new_vocabulary or new_store or not report_file.exists():
            seconds["all"] = time.monotonic() - start
            times = {stage: round(each, 1) for stage, each in seconds.items()}
        else:
            print(f"{output}: vocabulary and token store are there already.")
            hint = "remove it: the same command writes it again"
            times = read_json(report_file, record(seconds=dict), hint=hint)["seconds"]
        report = {**_report(output, plan), **cleaned, "seconds": times}
        write_json(report_file, report)
        print(_summary(output, report))
        return report


# -------------------------------------------------------------------- checks of arguments


def _check_output(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise InputError(f"--output={output}: a file is in the way.")
    if not output.exists() or is_corpus(output):
        return
    # An early stop may leave these: the lock, temporary files and the text of installed-docs.
    found = (path.name for path in output.iterdir() if path.name[0] != ".")
    if foreign := sorted(set(found) - {_INSTALLED_DOCS_FILE}):
        raise InputError(
            f"--output={output}: holds something else than a corpus ({', '.join(foreign[:3])}): "
            "name a new folder, or an empty one"
        )


def _check_claim(output: Path, request: dict[str, Any]) -> list[str]:
    """How this request differs from that for the corpus in `output`, which is not finished."""
    path = output / PLAN_FILE
    if not path.exists():
        return []
    fields = record(**dict.fromkeys(request.keys() - _BEFORE_THEM.keys(), Any))
    earlier = read_json(path, fields, hint="delete the folder, or choose another --output")
    earlier = _BEFORE_THEM | earlier
    changed = [
        "the source files have changed since, in number, names or sizes (or those of the tasks)"
        if key == "files"
        else f"{key} was {earlier[key]!r}, now {value!r}"
        for key, value in request.items()
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
    for name in (*vocabulary, vocabularies.NEW_PIECES_FILE, _REPORT_FILE):
        (output / name).unlink(missing_ok=True)
    for folder in (store_directory(output), output / cleaning.FOLDER):
        if folder.exists():
            shutil.rmtree(folder)


# ----------------------------------------------------------------------------- the stages


def _report(output: Path, plan: Plan) -> dict[str, Any]:
    shards = read_shards(output, plan)
    sources = []
    for number, (spec, weight) in enumerate(plan.sources):
        its_shards = [shard for shard in shards if shard["source"] == number]
        sources.append({"source": spec, "weight": weight, **_counts(its_shards)})
    peaks = [shard["peak_bytes"] for shard in shards if shard["peak_bytes"]]
    tokenizer = Tokenizer.open(output)
    pieces_file = output / vocabularies.NEW_PIECES_FILE
    new = {}
    if pieces_file.exists():
        hint = "delete the folder and prepare the corpus again, or restore it from a copy"
        new["new_pieces"] = read_json(pieces_file, _NEW_PIECES, hint=hint)
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
    if cleaned := report.get("cleaning"):
        lines += map("  {}".format, cleaning.summary(output, cleaned))
    lines += map("  {}".format, _too_few_documents(report))
    for key, reason in (
        ("dropped", "shorter than 2 tokens, or a pair with an empty text"),
        ("skipped", "not UTF-8, or null"),
    ):
        if report[f"{key}_documents"]:
            lines.append(f"  {key}: {report[f'{key}_documents']:,} documents ({reason})")
    return "\n".join(lines)


def _too_few_documents(report: dict[str, Any]) -> Iterator[str]:
    """Yields a warning for each source and split with too few documents for sentence pairs."""
    for source in report["sources"]:
        for split, adjective, use, hint in (
            (TRAIN, "training", "training", "give it more text"),
            (HELDOUT, "held-out", "evaluation", "use a larger --held_out"),
        ):
            count = source[split]["documents"]
            if count < 2 and report[split]["documents"]:
                effect = f"next-sentence {use} needs 2" if count else f"{use} goes without it"
                yield (
                    f"warning: source {source['source']}: {count} {adjective} "
                    f"document{'s' * (count != 1)}: {effect}: {hint}"
                )
