"""Evaluates models of any objective on the same masked text, so that their losses compare.

The text is spans of 128 tokens of held-out documents of a corpus. 15 % of the tokens are predicted:
80 % of these become [MASK], 10 % another token, and 10 % stay (section 3.1). Other ways of masking
change the loss by up to a nat.

The loss of a piece says nothing across vocabularies, because a word that is cut into more pieces
has easier ones. The loss of a word does: whole words are masked, and the loss of their pieces is
multiplied by the pieces of a word in the held-out text (words are what stands between white space).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax

from bertjax.base.cloud_storage import checked_path, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.data.corpus.manifest import read_manifest
from bertjax.data.corpus.shards import HELDOUT
from bertjax.data.corpus.store import TokenStore, open_tokenizer
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.corruption import HiddenTokens
from bertjax.data.examples.layout import SINGLE_SPANS
from bertjax.data.examples.masking import MaskingRule
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import kinds
from bertjax.models.heads.architectures import text_inputs
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.runs.open_model import LoadedRun, is_run, load_run, of_run, open_model
from bertjax.runs.run_folder import MASKED_TEXT_FILE, source_of
from bertjax.training.evaluation import Evaluator, HeldOut
from bertjax.training.model import Model
from bertjax.training.sharding.placement import data_parallel

LENGTH, BATCH, BATCHES = 128, 32, 40

Figures = dict[str, dict[str, float]]  # corpus -> the result of `evaluate`


class _Opened(NamedTuple):
    """A model, and the run that it is of, if it is one."""

    model: Pretrained
    run: LoadedRun | None


def _open(source: str) -> _Opened:
    """Reads a model once; the folder of a run must take a file."""
    if not is_run(source):
        return _Opened(open_model(source), None)
    checked_path(source_of(source)[0], write=True)
    loaded = load_run(source)
    return _Opened(of_run(loaded, source), loaded)


def compare(models: Sequence[str], corpora: Sequence[str]) -> dict[str, Figures]:
    """Evaluates each model on those of the corpora that have its vocabulary: see `run`.

    Returns:
      The figures of each model.

    Raises:
      InputError: as `run`; also for a model without a corpus, or a corpus without a model.
    """
    if not all(corpora):
        raise InputError("--model names several models: give --corpus, one for each vocabulary")
    made_by = {corpus: open_tokenizer(corpus).identity for corpus in corpora}
    opened = {model: _open(model) for model in models}
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
    """Evaluates a model on corpora; for a run, writes RUN/masked_text.json.

    The file has the figures of the first corpus, and under "others" those of the others.

    Args:
      model: RUN, or RUN@STEP; or hf:FOLDER or hf:NAME, of a masked LM.
      corpus: corpora made with the same vocabulary, with commas between; None for the run's own.

    Returns:
      The result of `evaluate` for each corpus.

    Raises:
      InputError: no such model, a corpus of another tokenizer, or a model without a corpus.
    """
    if not corpus and not is_run(model):
        raise InputError(f"{model}: no run, which has a corpus of its own: give --corpus=DIR")
    opened = _open(model)
    own = opened.run.recipe.corpus[:1] if opened.run else ()
    return _figures(opened, corpus.split(",") if corpus else own)


def _figures(opened: _Opened, corpora: Sequence[str]) -> Figures:
    """Evaluates a model on corpora, and prints and writes what is found: see `run`."""
    model, loaded = opened
    found = {corpus: evaluate(model, corpus) for corpus in corpora}
    where = f"step {loaded.step}, " if loaded else ""
    for name, each in found.items():
        print(
            f"{where}{BATCHES * BATCH:,} spans of {LENGTH} held-out tokens of {name}: masked-LM "
            f"loss {each['mlm_loss']:.4f}, accuracy {each['mlm_accuracy']:.4f} ± "
            f"{each['mlm_accuracy_stderr']:.4f}; {each['tokens_per_word']:.3f} pieces a word, loss "
            f"of a whole word {each['word_loss']:.4f}"
        )
    if loaded:
        (first, figures), *rest = found.items()
        content = {"step": loaded.step, "corpus": first, **figures, "others": dict(rest)}
        write_json(path_of(source_of(model.origin)[0]) / MASKED_TEXT_FILE, content)
    return found


def evaluate(model: Pretrained, corpus: str) -> dict[str, float]:
    """The figures of a model on one corpus.

    Args:
      model: one with the vocabulary of the corpus.

    Returns:
      "mlm_loss" (nats of a piece), "mlm_accuracy" with its standard error "mlm_accuracy_stderr",
      "tokens_per_word", and "word_loss" (nats of a word that is masked whole).

    Raises:
      InputError: a model without a masked LM or with fewer positions, or a corpus of another
        tokenizer or without held-out text.
    """
    if (longest := model.spec.max_position_embeddings) < LENGTH:
        raise InputError(
            f"{model.origin}: reads at most {longest} tokens, and the spans have {LENGTH}"
        )
    identity = model.tokenizer.identity
    store = TokenStore.open([corpus], HELDOUT, tokenizer_identity=identity)
    placement = data_parallel()
    params = jax.device_put(model.params, placement.replicated)
    masked_lm = Model.of(model.model(kinds.MASKED_LM), text_inputs(model.spec, B=1, S=LENGTH))
    evaluator = Evaluator(MaskedLM(), masked_lm, placement)

    def metrics(rule: MaskingRule) -> dict[str, float]:
        spec = ExampleSpec(
            layout=SINGLE_SPANS,
            corruption=HiddenTokens(rule),
            length=LENGTH,
            batch_size=BATCH,
            seed=0,
            stream="masked text",
            short_probability=0.0,
        )
        held_out = HeldOut(Examples(store, model.tokenizer, spec).batch, BATCH)
        return evaluator.evaluate(params, held_out, BATCHES)

    pieces, words = metrics(MaskingRule()), metrics(MaskingRule(whole_words=True))
    found = {name: pieces[name] for name in ("mlm_loss", "mlm_accuracy", "mlm_accuracy_stderr")}
    counts = [shard["splits"][HELDOUT] for shard in read_manifest(corpus)["shards"]]
    each_word = sum(each["tokens"] for each in counts) / sum(each["words"] for each in counts)
    return found | {"tokens_per_word": each_word, "word_loss": words["mlm_loss"] * each_word}
