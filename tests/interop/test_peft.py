"""Adapters in the folders of the library peft: its outputs, its updates and its files."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.interop import transformers_check
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.peft import ADAPTER_CONFIG, read_peft, write_peft
from bertjax.models.encoders.presets import BertSpec, Gpt2Spec, ModernBertSpec
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.runs.initialize import learned_branches, low_rank
from bertjax.training.model import Model, merged
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.state import TrainState
from bertjax.training.step import train_step
from bertjax.training.subset import AdapterSpec, with_subset
from tests.helpers.closeness import LOGITS, assert_close
from tests.helpers.small_models import CLASSES, SPEC, small_model

pytestmark = [pytest.mark.peers, pytest.mark.needs("peft")]

STEPS, RATE = 20, 0.01


def _spec(name: str):
    sizes = dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=3)
    rest = dict(vocab_size=SPEC.vocab_size, max_position_embeddings=13, initializer_range=0.2)
    still = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    made = {"bert": BertSpec, "modernbert": ModernBertSpec, "gpt2": Gpt2Spec}[name]
    return made(intermediate_size=20, **sizes, **rest, **still)


class Adapted:
    """A classifier on the disk, and around it an adapter with random factors and a new head."""

    def __init__(self, vocabulary, tmp_path, name: str, targets: str):
        self.folder = tmp_path / "base"
        self.folder.mkdir()
        made = small_model(vocabulary, "BertForSequenceClassification", _spec(name))
        write_hugging_face(made, self.folder)
        self.base = read_hugging_face(self.folder, f"hf:{self.folder}")
        inputs = self.base.head_spec.inputs(self.base.spec, B=1, S=8)
        whole = Model.of(self.base.model(), inputs)
        adapter = AdapterSpec("lora", 3, 5.0, targets)
        self.model = with_subset(whole, adapter, "", learned_branches({"": self.base}))
        rng = np.random.default_rng(5)
        shapes = nn.unbox(jax.eval_shape(self.model.init, jax.random.key(0)))
        self.trained = jax.tree.map(lambda x: rng.normal(0, 0.2, x.shape).astype("f4"), shapes)
        stay = jax.eval_shape(partial(self.model.init, frozen=True), jax.random.key(0))
        self.frozen = {branch: self.base.params[branch] for branch in stay}

    def packed(self):
        """The model, with its adapter."""
        params = merged(self.trained, self.frozen)
        adapter = low_rank(self.model, params, self.base, self.base)
        merged_params = jax.device_get(self.model.params_of(params))
        return dataclasses.replace(self.base, params=merged_params, adapter=adapter)

    def logits(self, batch):
        """Of the model as it is trained."""
        apply = jax.jit(lambda params: self.model(params, batch)["logits"])
        return apply(merged(self.trained, self.frozen))

    def reference(self):
        """The folder's model of transformers, in float64."""
        return transformers_check.load(self.folder, self.base.class_name, "float64", "eager")


def _batch(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    lengths = rng.integers(3, 12, 6)
    inside = (np.arange(11) < lengths[:, None]).astype(np.int32)
    return {
        "input_ids": (rng.integers(5, SPEC.vocab_size, (6, 11)) * inside).astype(np.int32),
        "input_mask": inside,
        "token_type_ids": np.zeros((6, 11), np.int32),
        "label_ids": rng.integers(0, len(CLASSES), 6).astype(np.int32),
        "is_real_example": np.ones(6, np.float32),
    }


@pytest.mark.parametrize(
    "name, targets", [("bert", "."), ("modernbert", "."), ("gpt2", "attention")]
)
def test_peft_loads_what_is_written_and_it_is_read_back(name, targets, vocabulary, tmp_path):
    """Kernels that are one array there, and arrays that are stored [in, out] there, too."""
    import peft
    import torch

    result, folder = Adapted(vocabulary, tmp_path, name, targets), tmp_path / "adapter"
    folder.mkdir()
    write_peft(result.packed(), folder)
    base, batch = result.reference(), _batch(0)
    if name != "bert":
        del batch["token_type_ids"]
    with torch.inference_mode():
        before = base(**transformers_check.inputs(batch)).logits.numpy()
        loaded = peft.PeftModel.from_pretrained(base, folder).to(torch.float64).eval()
        after = loaded(**transformers_check.inputs(batch)).logits.numpy()
    found = result.logits(batch)
    assert np.abs(after - before).max() > 0.1
    assert_close(found, after, size=LOGITS)
    again = read_peft(folder, "hf:adapter", lambda name: read_hugging_face(Path(name), "base"))
    assert (again.classes, again.spec) == (CLASSES, result.base.spec)
    assert_close(again.params, result.packed().params)


def test_the_updates_are_those_of_peft(vocabulary, tmp_path):
    """20 updates of the same factors and head by Adam, with one rate, on the same batches."""
    import peft
    import torch

    result, folder = Adapted(vocabulary, tmp_path, "bert", "attention|intermediate"), tmp_path / "a"
    folder.mkdir()
    write_peft(result.packed(), folder)
    reference = peft.PeftModel.from_pretrained(result.reference(), folder, is_trainable=True)
    reference = reference.to(torch.float64).eval()  # without dropout
    trained = [p for p in reference.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trained) == sum(x.size for x in jax.tree.leaves(result.trained))
    adam = torch.optim.Adam(trained, lr=RATE, eps=1e-4)
    spec = OptimizerSpec(epsilon=1e-4, weight_decay=0.0, clip_norm=1e9)
    optimizer = make_optimizer(spec)
    objective = TaskObjective("sequence_classification")
    how = dict(model=result.model, objective=objective, optimizer=optimizer)
    step = jax.jit(partial(train_step, **how, accumulate=1))
    state = TrainState(np.int32(0), result.trained, optimizer.init(result.trained))
    losses = []
    for number in range(STEPS):
        batch = _batch(number % 2)
        adam.zero_grad()
        labels = torch.tensor(batch["label_ids"]).long()
        loss = reference(**transformers_check.inputs(batch), labels=labels).loss
        loss.backward()
        adam.step()
        state, sums = step(state, result.frozen, batch, RATE, 0)
        losses.append((float(sums["loss"][0]), loss.item()))
    assert losses[-1][1] < 0.7 * losses[0][1]
    assert_close(*np.array(losses).T, terms=4096, size=LOGITS)
    result.trained = state.params
    with torch.inference_mode():
        expected = reference(**transformers_check.inputs(_batch(7))).logits.numpy()
    assert_close(result.logits(_batch(7)), expected, terms=4096, size=LOGITS)


def test_a_folder_that_peft_wrote_is_read(vocabulary, tmp_path):
    """Ranks and scales of single modules, rank-stabilized; without a config.json next to it."""
    import peft
    import torch

    result = Adapted(vocabulary, tmp_path, "bert", "attention")
    config = peft.LoraConfig(
        r=4,
        lora_alpha=7,
        use_rslora=True,
        task_type="SEQ_CLS",
        target_modules=["query", "dense"],
        rank_pattern={"attention.output.dense": 2},
        alpha_pattern={"layer.1.intermediate.dense": 3},
        init_lora_weights=False,
    )
    torch.manual_seed(0)
    reference = peft.get_peft_model(result.reference(), config).eval()
    reference.float().save_pretrained(tmp_path / "written")
    reference.double()
    file = tmp_path / "written" / ADAPTER_CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": "x"}))
    found = read_peft(tmp_path / "written", "hf:written", lambda name: result.base)
    batch = _batch(1)
    with torch.inference_mode():
        expected = reference(**transformers_check.inputs(batch)).logits.numpy()
    logits = jax.jit(partial(found.model().apply, deterministic=True))
    assert_close(logits({"params": found.params}, batch)["logits"], expected, size=LOGITS)
