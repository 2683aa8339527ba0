"""Evaluates models of any objective on the same masked text: see `bertjax.runs.same_text`."""

from collections.abc import Sequence
from typing import NamedTuple

from bertjax.base.cloud_storage import checked_path, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.data.corpus.store import open_tokenizer
from bertjax.interop.pretrained import Pretrained
from bertjax.runs import same_text
from bertjax.runs.pretrained_run import LoadedRun
from bertjax.runs.run_folder import MASKED_TEXT_FILE, source_of
from bertjax.runs.source import Published, SomeLayers, Source, load_run, open_source

Figures = dict[str, dict[str, float]]  # corpus -> the result of `same_text.evaluate`


class _Opened(NamedTuple):
    """A model, and the run that it is of, if it is one."""

    model: Pretrained
    run: LoadedRun | None


def _open(source: Source) -> _Opened:
    """Reads a model once; the folder of a run must take a file."""
    if isinstance(source, Published | SomeLayers):
        return _Opened(source.weights(), None)
    checked_path(source_of(source.name)[0], write=True)
    loaded = load_run(source)
    return _Opened(loaded.weights(), loaded)


def compare(models: Sequence[str], corpora: Sequence[str]) -> dict[str, Figures]:
    """Evaluates each model on those of the corpora that have its vocabulary, as `run`.

    Raises InputError also for a model without a corpus, or a corpus without a model.
    """
    if not all(corpora):
        raise InputError("--model names several models: give --corpus, one for each vocabulary")
    made_by = {corpus: open_tokenizer(corpus).identity for corpus in corpora}
    opened = {model: _open(open_source(model)) for model in models}
    reads = {name: each.model.tokenizer.identity for name, each in opened.items()}
    for name, identity in (reads | made_by).items():
        others, what = (made_by, "--corpus") if name in reads else (reads, "--model")
        if identity not in others.values():
            raise InputError(
                f"{name}: none of {what}={','.join(others)} has its vocabulary: add one that has"
            )
    found = {}
    for model, identity in reads.items():
        print(f"{model}:")
        found[model] = _figures(opened[model], [c for c in corpora if made_by[c] == identity])
    return found


def run(model: str, corpus: str | None) -> Figures:
    """Evaluates a model on corpora of its vocabulary, with commas between; None: the run's own.

    For a run, it writes RUN/masked_text.json: the figures of the first corpus, and under "others"
    those of the others.

    Raises:
      InputError: no such model, a corpus of another tokenizer, or a model without a corpus.
    """
    source = open_source(model)
    if not corpus and isinstance(source, Published | SomeLayers):
        raise InputError(f"{model}: no run, which has a corpus of its own: give --corpus=DIR")
    opened = _open(source)
    corpora = opened.run.recipe.corpus[:1] if opened.run else ()
    return _figures(opened, corpus.split(",") if corpus else corpora)


def _figures(opened: _Opened, corpora: Sequence[str]) -> Figures:
    """Evaluates a model on corpora, and prints and writes what is found."""
    model, loaded = opened
    found = {corpus: same_text.evaluate(model, corpus) for corpus in corpora}
    where = f"step {loaded.step}, " if loaded else ""
    spans, length = same_text.BATCHES * same_text.BATCH, same_text.LENGTH
    for name, each in found.items():
        print(
            f"{where}{spans:,} spans of {length} held-out tokens of {name}: masked-LM "
            f"loss {each['mlm_loss']:.4f}, accuracy {each['mlm_accuracy']:.4f} ± "
            f"{each['mlm_accuracy_stderr']:.4f}; {each['tokens_per_word']:.3f} pieces a word, loss "
            f"of a whole word {each['word_loss']:.4f}"
        )
    if loaded:
        (first, figures), *rest = found.items()
        content = {"step": loaded.step, "corpus": first, **figures, "others": dict(rest)}
        write_json(path_of(source_of(model.origin)[0]) / MASKED_TEXT_FILE, content)
    return found
