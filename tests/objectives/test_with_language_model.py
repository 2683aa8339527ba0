"""A task with language modelling next to it: the sum of two losses that are known separately."""

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.base.errors import InputError
from bertjax.models.encoders.presets import Gpt2Spec
from bertjax.objectives.fine_tuning import FineTuning, TaskObjective
from bertjax.runs.fine_tuning.model import encoder_with_head, predicting_next
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import Classification
from bertjax.training.objective import Rngs
from tests.helpers.closeness import assert_close
from tests.helpers.small_gpt import gpt2_tokenizer, small_gpt
from tests.helpers.small_models import PIECES, small_model
from tests.helpers.task_files import FAMILIES, tiny_finetuning

SPEC = Gpt2Spec(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=9,
    initializer_range=0.3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


@pytest.mark.parametrize("family", [Classification(("a", "b", "c")), MultipleChoice(3)])
def test_both_losses(family):
    task_model = encoder_with_head(family, SPEC)
    model, task = predicting_next(task_model), TaskObjective(family.objective)
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0)))
    rng = np.random.default_rng(2)
    choices = (3,) if isinstance(family, MultipleChoice) else ()
    shape = (4, *choices, 7)
    lengths = rng.integers(2, 8, shape[:-1])
    batch = {
        "input_ids": rng.integers(0, 31, shape),
        "input_mask": (np.arange(7) < lengths[..., None]).astype(np.int32),
        "is_real_example": np.array([1, 1, 0, 1], np.float32),
        "label_ids": np.array([0, 2, 1, 1]),
    }
    objective = FineTuning({"": task}, {"lm_loss": 0.5})
    rngs = Rngs(jax.random.key(1), deterministic=True)
    sums, _ = jax.jit(lambda p, b: objective.sums(model, p, b, rngs))(params, batch)
    of_task, _ = jax.jit(lambda p, b: task.sums(task_model, p, b, rngs))(params, batch)
    for name, pair in of_task.items():
        assert_close(sums[name], pair)
    logits = np.asarray(jax.jit(lambda p, b: model(p, b))(params, batch)["next"], np.float64)
    log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    means = []
    for place in np.ndindex(*shape[:-1]):
        if place[0] != 2:
            ids = batch["input_ids"][place]
            losses = [-log[place][i, ids[i + 1]] for i in range(lengths[place] - 1)]
            means.append(np.mean(losses))
    assert_close(sums["lm_loss"], (np.sum(means), len(means)))
    assert objective.loss_weights == {"task_loss": 1.0, "lm_loss": 0.5}


def test_what_predicts_no_next_token_is_refused(tmp_path):
    family = FAMILIES["MRPC"]
    family.write(tmp_path)
    config = tiny_finetuning("run", tmp_path, task=family.task)
    config.max_length, config.lm_weight = 12, -1.0
    with pytest.raises(InputError, match="config.lm_weight=-1.0: must be at least 0"):
        TaskRecipe.from_config(config)
    config.lm_weight, config.model.compute_dtype = 0.5, "float32"
    pretrained = small_gpt(gpt2_tokenizer(tmp_path))
    assert TaskRecipe.from_config(config).spec(pretrained).causal
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    with pytest.raises(InputError, match="and this is a bert for sequence_classification"):
        TaskRecipe.from_config(config).spec(small_model(tmp_path / "vocab.txt"))
    config.bilstm.hidden = 8
    with pytest.raises(InputError, match="a BiLSTM reads on after each token"):
        TaskRecipe.from_config(config)
