"""Runs with rotary positions that read left to right write what the whole text gives."""

import numpy as np
import pytest

from bertjax.interop.proof import outputs
from bertjax.programs import complete
from bertjax.runs.source import open_model
from tests.helpers.tiny_run import ONE_LENGTH, tiny_config


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        dict(encoder="modernbert", local_attention=6, global_attn_every_n_layers=2),
        dict(encoder="eurobert", num_key_value_heads=1, hidden_act="silu"),
    ],
    ids=lambda model: model["encoder"],
)
def test_each_token_follows_from_all_before_it(model, tiny_corpus, pretrained_once):
    """Also beyond the window of ModernBERT's second layer, which is of 3 tokens."""
    settings = dict(objective="left_to_right", short_probability=0.0, total_steps=24)
    settings["model"] = dict(size="tiny", num_hidden_layers=2) | model
    config = tiny_config(tiny_corpus, **settings | ONE_LENGTH)
    run = str(pretrained_once(f"left_to_right_{model['encoder']}", config))
    trained, prompts = open_model(run), ["moo moo", "quack"]
    given = map(len, trained.tokenizer.encode(prompts))
    for text, first in zip(complete.run(run, prompts, 40), given, strict=True):
        (ids,) = trained.tokenizer.encode([text])
        assert len(ids) > first + 6
        whole = np.array([[trained.tokenizer.cls_id, *ids]])
        batch = {"input_ids": whole, "input_mask": np.ones_like(whole)}
        best = outputs(trained.model(), trained.params, batch)["masked_lm"][0].argmax(-1)
        assert best[first:-1].tolist() == ids[first:]
