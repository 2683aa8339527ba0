"""Evaluates models of any objective on the same masked text, so that their losses compare.

The text is spans of 128 tokens of held-out documents of a corpus. 15 % of the tokens are predicted:
80 % of these become [MASK], 10 % another token, and 10 % stay (section 3.1). Other ways of masking
change the loss by up to a nat.
"""

import jax

from bertjax.base.cloud_storage import checked_path
from bertjax.base.files import write_json
from bertjax.corpus.shards import HELDOUT
from bertjax.corpus.store import TokenStore
from bertjax.encoders import kinds
from bertjax.examples.batches import Examples, ExampleSpec
from bertjax.examples.corruption import MaskedTokens
from bertjax.examples.layout import SINGLE_SPANS
from bertjax.examples.masking import MaskingRule
from bertjax.heads.architectures import text_inputs
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.runs.open_model import open_model
from bertjax.runs.run_folder import MASKED_TEXT_FILE, load_run, source_of
from bertjax.sharding.placement import data_parallel
from bertjax.training.evaluation import Evaluator, HeldOut
from bertjax.training.model import Model

LENGTH, BATCH, BATCHES = 128, 32, 40


def run(model: str, corpus: str | None) -> dict[str, float]:
    """Evaluates a run, and writes RUN/masked_text.json.

    Args:
      model: RUN, or RUN@STEP.
      corpus: a corpus made with the same vocabulary; None for the run's own.

    Raises:
      InputError: no such run, or a corpus of another tokenizer.
    """
    folder = checked_path(source_of(model)[0], write=True)
    loaded = load_run(model)
    of_corpus = corpus or loaded.recipe.corpus[0]
    found = evaluate(model, of_corpus)
    print(
        f"step {loaded.step}, {BATCHES * BATCH:,} spans of {LENGTH} held-out tokens of "
        f"{of_corpus}: masked-LM loss {found['mlm_loss']:.4f}, "
        f"accuracy {found['mlm_accuracy']:.4f} ± {found['mlm_accuracy_stderr']:.4f}"
    )
    write_json(folder / MASKED_TEXT_FILE, {"step": loaded.step, "corpus": of_corpus, **found})
    return found


def evaluate(model: str, corpus: str) -> dict[str, float]:
    """The masked-LM loss (nats) and accuracy of a model, with the accuracy's standard error.

    Args:
      model: a RUN, or hf:FOLDER, with the vocabulary of the corpus.
    """
    given = open_model(model)
    store = TokenStore.open([corpus], HELDOUT, tokenizer_identity=given.tokenizer.identity)
    spec = ExampleSpec(
        layout=SINGLE_SPANS,
        corruption=MaskedTokens(MaskingRule()),
        length=LENGTH,
        batch_size=BATCH,
        seed=0,
        stream="masked text",
        short_probability=0.0,
    )
    held_out = HeldOut(Examples(store, given.tokenizer, spec).batch, BATCH)
    placement = data_parallel()
    params = jax.device_put(given.params, placement.replicated)
    masked_lm = Model.of(given.model(kinds.MASKED_LM), text_inputs(given.spec, B=1, S=LENGTH))
    metrics = Evaluator(MaskedLM(), masked_lm, placement).evaluate(params, held_out, BATCHES)
    return {name: metrics[name] for name in ("mlm_loss", "mlm_accuracy", "mlm_accuracy_stderr")}
