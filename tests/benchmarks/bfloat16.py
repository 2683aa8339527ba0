"""Measures how often bfloat16 and float32 predict the same masked token of held-out text.

  python tests/benchmarks/bfloat16.py --model=RUN --corpus=DIR [--tokens=1000] [--output=JSON]

The model (a run, hf:..., tf1:...) has a masked-LM head; the corpus was prepared with its
vocabulary. Tokens are masked by the rule of section 3.1, in sequences of 128.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import jax
import numpy as np

from bertjax.data.corpus.store import HELDOUT, TokenStore
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders import head_types
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.runs.source import open_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()

    pretrained = open_model(options.model)
    identity = pretrained.tokenizer.identity
    store = TokenStore.open([options.corpus], HELDOUT, tokenizer_identity=identity)
    spec = ExampleSpec(
        layout=MaskedLM().layout,
        corruption=MaskedLM().corruption(MaskingRule()),
        length=128,
        batch_size=32,
        seed=0,
        stream="bfloat16",
        short_probability=0.1,
    )
    examples = Examples(store, pretrained.tokenizer, spec)
    module = pretrained.model(head_types.MASKED_LM)

    def logits(dtype: str):
        other = module.clone(spec=dataclasses.replace(module.spec, compute_dtype=dtype))
        return jax.jit(
            lambda params, batch: other.apply({"params": params}, batch, deterministic=True)[
                "masked_lm"
            ]
        )

    exact, narrow = logits("float32"), logits("bfloat16")
    params = jax.device_put(pretrained.params)
    same = right = count = step = 0
    greatest = 0.0
    while count < options.tokens:
        batch = examples.batch(step)
        wanted, found = (np.asarray(compute(params, batch)) for compute in (exact, narrow))
        masked = batch["masked_lm_weights"] > 0
        same += int((wanted.argmax(-1) == found.argmax(-1))[masked].sum())
        right += int((wanted.argmax(-1) == batch["masked_lm_ids"])[masked].sum())
        greatest = max(greatest, float(np.abs(wanted - found)[masked].max()))
        count, step = count + int(masked.sum()), step + 1
    result = {
        "masked_tokens": count,
        "same_prediction": same / count,
        "right_in_float32": right / count,
        "greatest_difference_of_logits": greatest,
    }
    print(json.dumps(result, indent=2))
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
