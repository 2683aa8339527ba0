"""The loss on masked text that is the same for models of any objective, so that they compare.

The text is spans of 128 tokens of held-out documents of a corpus. 15 % of the tokens are predicted:
80 % of these become [MASK], 10 % another token, and 10 % stay (section 3.1). Other ways of masking
change the loss by up to a nat.

The loss of a piece says nothing across vocabularies, because a word of more pieces has easier ones.
The loss of a word does: whole words are masked, and the loss of their pieces is multiplied by the
pieces of a word in the held-out text (words are what stands between white space).
"""

import jax

from bertjax.base.errors import InputError
from bertjax.data.corpus.manifest import read_manifest
from bertjax.data.corpus.shards import HELDOUT
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.corruption import HiddenTokens
from bertjax.data.examples.layout import SINGLE_SPANS
from bertjax.data.examples.masking import MaskingRule
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.heads.head_specs import text_inputs
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.training.evaluation import Evaluator, HeldOut
from bertjax.training.model import Model
from bertjax.training.sharding.placement import data_parallel

LENGTH, BATCH, BATCHES = 128, 32, 40


def evaluate(model: Pretrained, corpus: str) -> dict[str, float]:
    """The figures of a model on one corpus, whose vocabulary it has.

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
    masked_lm = Model.of(model.model(head_types.MASKED_LM), text_inputs(model.spec, B=1, S=LENGTH))
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
