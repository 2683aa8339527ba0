"""Trials: microbatches, partial batches and devices change nothing; the steps are PyTorch's."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.config import finetune_config
from bertjax.interop import names
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.objectives.fine_tuning import FineTuning, TaskObjective
from bertjax.objectives.task_losses import TASK_LOSSES, Settings
from bertjax.runs.fine_tuning import trials
from bertjax.runs.fine_tuning.data import Split, TaskData
from bertjax.runs.fine_tuning.model import class_names, encoder_with_head
from bertjax.runs.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.tasks.encoded import IGNORED, Encoded
from bertjax.training.metrics_log import TRAIN, read_metrics
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.helpers.task_files import change
from tests.runs.fine_tuning.random_tasks import FAMILIES, LONGEST, SPEC, random_sequences

pytestmark = pytest.mark.devices(8)


@dataclasses.dataclass(frozen=True)
class _Task:
    """What trials use of a task."""

    family: object
    objective_settings: Mapping[str, Any]


@pytest.fixture
def make_trials(monkeypatch):
    """Trials over random sequences of a family, on the first `devices`."""

    def make(
        name: str,
        encoded: Encoded,
        devices: int = 8,
        spec: BertSpec = SPEC,
        settings: Mapping[str, Any] = MappingProxyType({}),
        penalty: float = 0.0,
        **changes,
    ) -> trials.Trials:
        family = FAMILIES[name]
        # With this epsilon, gradients that are zero except for rounding cause no update.
        config = change(
            finetune_config(),
            task=dict(kind="glue", name="CoLA"),
            data="none",
            init_from="none",
            max_length=LONGEST,
            optimizer=dict(epsilon=1e-3),
            intervals=dict(log=1),
            grid=dict(batch_size=(8,)),
        )
        recipe = TaskRecipe.from_config(change(config, **changes))
        recipe = dataclasses.replace(recipe, tasks={"": _Task(family, settings)})
        identity = dict(train="the same", dev="the same", weights="the same")
        data = TaskData(encoded, {}, {}, identity, {})
        whole = trials.make_placement
        with monkeypatch.context() as patched:
            some = jax.devices()[:devices]
            patched.setattr(trials, "make_placement", lambda *arguments: whole(*arguments, some))
            return trials.Trials(
                recipe,
                {"": data},
                encoder_with_head(family, spec, recipe.bilstm.module()),
                max_length=LONGEST,
                flops_per_token=lambda length: 1.0,
                penalty=penalty,
            )

    return make


def _trained(made: trials.Trials, trial: Trial, folder):
    """Parameters on the host, by name, and the losses of all steps."""
    params, complete = made.train(trial, folder)
    assert complete
    losses = [row["loss"] for row in read_metrics(folder) if row["split"] == TRAIN]
    return flatten_dict(jax.device_get(params), sep="/"), losses


def _assert_same(one, two):
    (params, losses), (other, other_losses) = one, two
    assert_close(losses, other_losses, terms=1024)
    # A scale of a layer norm is 1; Adam divides rounded gradients by small roots.
    assert_close(params, other, terms=1024, size=1.0)


_SIZES = """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size
    max_position_embeddings hidden_dropout_prob attention_probs_dropout_prob""".split()

TRIAL = Trial(batch_size=8, learning_rate=3e-3, epochs=2, seed=1)


_WEIGHTS = {"class_weights": (0.2, 1.0, 5.0), "focal_gamma": 2.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"), [*((name, {}) for name in FAMILIES), ("classification", _WEIGHTS)]
)
def test_microbatches_of_like_length_take_the_update_of_the_padded_random_batch(
    make_trials, tmp_path, name, settings
):
    """So they do where classes have weights, which each batch is divided by as a whole."""
    encoded = random_sequences(FAMILIES[name], examples=45)
    options = dict(devices=1, settings=settings)
    bucketed = make_trials(name, encoded, buckets=3, accumulate=4, **options)
    padded = make_trials(name, encoded, buckets=1, accumulate=1, **options)
    wanted = TaskObjective(FAMILIES[name].objective, Settings(**settings))
    assert bucketed.experiment.objective == FineTuning({"": wanted})
    assert len(bucketed.buckets) == 3 and padded.buckets == (LONGEST,)
    microbatches = [bucketed.epochs(TRIAL).microbatches(step) for step in range(12)]
    # The last batch has 5 examples, in microbatches of 3.
    assert {len(of_batch) for of_batch in microbatches} == {4, 3}
    assert max(len({bucket for _, bucket in of_batch}) for of_batch in microbatches) == 3
    one = _trained(bucketed, TRIAL, tmp_path / "bucketed")
    two = _trained(padded, TRIAL, tmp_path / "padded")
    assert len(one[1]) == 12 and len(set(one[1])) == 12
    _assert_same(one, two)
    initial = flatten_dict(jax.device_get(bucketed.experiment.initial_state(1).params), sep="/")
    moved = {key: np.abs(leaf - initial[key]).max() for key, leaf in one[0].items()}
    assert min(moved[key] for key in moved if key.endswith("kernel")) > 1e-3


def test_a_penalty_stands_beside_the_task(make_trials):
    encoded = random_sequences(FAMILIES["classification"], examples=45)
    tasks = {"": TaskObjective(FAMILIES["classification"].objective)}
    for penalty, added in ((0.3, {"penalty": 0.3}), (0.0, {})):
        made = make_trials("classification", encoded, devices=1, penalty=penalty)
        assert made.experiment.objective == FineTuning(tasks, added)


def test_an_objective_of_whole_batches_takes_each_in_one_part(make_trials, monkeypatch):
    encoded = random_sequences(FAMILIES["classification"], examples=45)
    parted = make_trials("classification", encoded, devices=1, buckets=3).epochs(TRIAL)
    name = FAMILIES["classification"].objective
    monkeypatch.setitem(TASK_LOSSES, name, TASK_LOSSES[name]._replace(needs_full_batch=True))
    whole = make_trials("classification", encoded, devices=1, buckets=3).epochs(TRIAL)
    assert max(len(parted.microbatches(step)) for step in range(12)) > 1
    for step in range(12):
        ((examples, _),) = whole.microbatches(step)
        assert set(examples) == set(whole.batch(step))
    with pytest.raises(InputError, match="accumulate=2: the task compares the rows .*set it to 0"):
        make_trials("classification", encoded, accumulate=2)


@pytest.mark.slow
def test_all_trials_share_what_is_compiled(make_trials, tmp_path):
    """Another rate, another number of epochs, another seed: nothing is compiled again."""
    encoded = random_sequences(FAMILIES["classification"], examples=45)
    made = make_trials("classification", encoded, devices=1, buckets=2, accumulate=2)
    several = [
        TRIAL,
        dataclasses.replace(TRIAL, learning_rate=1e-2),
        dataclasses.replace(TRIAL, epochs=3),
        dataclasses.replace(TRIAL, seed=2),
    ]
    shapes, outcomes = set(), []
    for number, trial in enumerate(several):
        epochs = made.epochs(trial)
        shapes |= {
            bucket for step in range(epochs.steps) for _, bucket in epochs.microbatches(step)
        }
        outcomes.append(_trained(made, trial, tmp_path / str(number)))
        step = made._trainer.step(accumulate=1)
        assert (step._add._cache_size(), step._update._cache_size()) == (len(shapes), 1)
    assert made.experiment.initial_state._cache_size() == 1
    last = [losses[-1] for _, losses in outcomes]
    assert len(set(last)) == len(several)
    # Trials do not affect each other: the first one, repeated, is bit-equal.
    again, losses = _trained(made, TRIAL, tmp_path / "again")
    assert losses == outcomes[0][1]
    assert all((leaf == outcomes[0][0][key]).all() for key, leaf in again.items())
    # Another batch size is another shape, which is compiled.
    made.train(dataclasses.replace(TRIAL, batch_size=16), tmp_path / "larger")
    assert step._add._cache_size() > len(shapes)


def _part(encoded: Encoded, examples: int) -> Encoded:
    """The first examples."""
    sequences = examples * encoded.choices
    tokens = encoded.starts[sequences]
    labels = {
        name: label[: tokens if len(label) == len(encoded.ids) else examples]
        for name, label in encoded.labels.items()
    }
    return dataclasses.replace(
        encoded,
        ids=encoded.ids[:tokens],
        token_types=encoded.token_types[:tokens],
        starts=encoded.starts[: sequences + 1],
        labels=labels,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classification", "tagging", "choice"])
def test_a_batch_that_is_not_full_is_a_smaller_batch(make_trials, tmp_path, name):
    """Five examples in batches of eight train as in batches of five: each has a weight of 1/5."""
    encoded = _part(random_sequences(FAMILIES[name], examples=20), 5)
    trial = dataclasses.replace(TRIAL, epochs=3)
    grid = dict(batch_size=(5,))
    filled = _trained(make_trials(name, encoded, devices=1), trial, tmp_path / "filled")
    whole = dataclasses.replace(trial, batch_size=5)
    exact = _trained(make_trials(name, encoded, devices=1, grid=grid), whole, tmp_path / "exact")
    assert len(exact[1]) == 3
    _assert_same(filled, exact)


def test_a_batch_is_no_larger_than_the_data(make_trials):
    """The mean length of a batch of 1,000 with five examples in it is that of the five."""
    encoded = _part(random_sequences(FAMILIES["classification"], examples=20), 5)
    made = make_trials("classification", encoded, devices=1)
    large, whole = (made.epochs(dataclasses.replace(TRIAL, batch_size=size)) for size in (1_000, 5))
    assert (large.batch_size, large.rows, large.tokens) == (5, whole.rows, whole.tokens)
    assert round(large.tokens / large.batch_size) >= encoded.lengths.min()


@pytest.mark.slow
def test_microbatches_train_the_same(make_trials, tmp_path):
    """`accumulate`, with batches that are not full and tokens that do not count."""
    encoded = random_sequences(FAMILIES["tagging"], examples=13)
    whole = _trained(make_trials("tagging", encoded, devices=2), TRIAL, tmp_path / "whole")
    accumulated = make_trials("tagging", encoded, devices=2, accumulate=4)
    _assert_same(whole, _trained(accumulated, TRIAL, tmp_path / "accumulated"))


# Questions are left out, because transformers counts padding as a possible answer; and an answer
# network, which it has not.
@pytest.mark.peers
@pytest.mark.parametrize(
    "name", others_slow(sorted(FAMILIES.keys() - {"answers", "questions"}), "tagging")
)
def test_a_trial_takes_the_steps_of_pytorch(make_trials, tmp_path, name):
    """Compares losses and final parameters, from the same parameters and over the same batches."""
    import torch
    import transformers

    family = FAMILIES[name]
    encoded = random_sequences(family, examples=45)
    optimizer = dict(warmup_proportion=0.25, weight_decay=0.5, epsilon=1e-3)
    made = make_trials(name, encoded, devices=1, optimizer=optimizer, accumulate=2)
    params, losses = _trained(made, TRIAL, tmp_path)

    kind = TASK_LOSSES[family.objective].head_type
    head_spec = PUBLISHED["bert"].classes[kind]
    entries = array_names(HEAD_SPECS[kind].parts(SPEC), SPEC, kind, len(class_names(family)))
    initial = jax.device_get(made.experiment.initial_state(TRIAL.seed).params)
    peer = getattr(transformers, head_spec)(
        transformers.BertConfig(
            **{key: getattr(SPEC, key) for key in _SIZES},
            num_labels=len(class_names(family)),
            problem_type="multi_label_classification" if name == "labels" else None,
        )
    )
    state = {key: torch.tensor(leaf) for key, leaf in names.to_hf(initial, entries).items()}
    peer.load_state_dict(state)
    groups = [
        {"params": [p for p in peer.parameters() if p.ndim > 1], "weight_decay": 0.5},
        {"params": [p for p in peer.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-3)
    reference = []
    for step in range(12):
        # The rate rises for 3 of 12 steps, then falls to 0 at step 12.
        for group in adamw.param_groups:
            group["lr"] = TRIAL.learning_rate * min((step + 1) / 3, (12 - step) / 9)
        examples = made.epochs(TRIAL).batch(step)
        fields = TASK_LOSSES[family.objective].fields
        batch = encoded.batch(fields, examples, len(examples), LONGEST, pad_id=0)
        label = batch["targets" if "targets" in batch else "label_ids"]
        ids, mask, segments = (
            torch.tensor(batch[key]).long() for key in ("input_ids", "input_mask", "token_type_ids")
        )
        labels = torch.tensor(np.where(label == IGNORED, -100, label))
        labels = labels.float() if "targets" in batch else labels.long()
        out = peer(input_ids=ids, attention_mask=mask, token_type_ids=segments, labels=labels)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        reference.append(out.loss.item())
    arrays = {key: leaf.detach().numpy() for key, leaf in peer.named_parameters()}
    arrays = flatten_dict(names.to_jax(arrays, entries, "transformers"), sep="/")
    _assert_same((params, losses), (arrays, reference))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["data", "fsdp"])
def test_eight_devices_train_what_one_trains(make_trials, tmp_path, layout):
    encoded = random_sequences(FAMILIES["questions"], examples=21)
    options = dict(layout=layout, buckets=2)
    made = make_trials("questions", encoded, devices=8, **options)
    many = _trained(made, TRIAL, tmp_path / "many")
    one = make_trials("questions", encoded, devices=1, buckets=2)
    _assert_same(many, _trained(one, TRIAL, tmp_path / "one"))
    table = made.experiment.initial_state(0).params["bert"]["embeddings"]["position"]
    assert table.sharding.is_fully_replicated == (layout == "data")


@pytest.mark.slow
def test_left_to_right_with_a_bilstm_eight_devices_train_what_one_trains(make_trials, tmp_path):
    """Table 5's "+ BiLSTM", split over both axes of the mesh."""
    encoded = random_sequences(FAMILIES["classification"], examples=21)
    spec = dataclasses.replace(SPEC, causal=True, vocab_multiple=2)
    options = dict(spec=spec, buckets=1, accumulate=1, bilstm=dict(hidden=12, dropout=0.25))
    split = dict(layout="tensor_fsdp", mesh=dict(data=4, model=2))
    made = make_trials("classification", encoded, devices=8, **options, **split)
    many = _trained(made, TRIAL, tmp_path / "many")
    one = make_trials("classification", encoded, devices=1, **options)
    _assert_same(many, _trained(one, TRIAL, tmp_path / "one"))
    assert made.parameters.keys() == {"bert", "bilstm", "classifier"}
    for lstm in made.experiment.initial_state(0).params["bilstm"].values():
        for leaf in jax.tree.leaves(lstm):
            assert not leaf.sharding.is_fully_replicated


@pytest.mark.slow
def test_an_answer_network_drops_the_same_on_eight_devices(make_trials, tmp_path, monkeypatch):
    """Steps and elements, and its parameters are split over both axes of the mesh."""
    family = dataclasses.replace(FAMILIES["answers"], step_dropout=0.4)
    monkeypatch.setitem(FAMILIES, "answers", family)
    encoded = random_sequences(family, examples=21)
    spec = dataclasses.replace(SPEC, hidden_dropout_prob=0.2, vocab_multiple=2)
    options = dict(spec=spec, buckets=1, accumulate=1)
    split = dict(layout="tensor_fsdp", mesh=dict(data=4, model=2))
    made = make_trials("answers", encoded, devices=8, **options, **split)
    many = _trained(made, TRIAL, tmp_path / "many")
    _assert_same(
        many, _trained(make_trials("answers", encoded, devices=1, **options), TRIAL, tmp_path)
    )
    gru = made.experiment.initial_state(0).params["answer_network"]["gru"]
    assert not any(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(gru))


@pytest.mark.slow
def test_predictions_follow_the_examples(make_trials):
    """Predictions have the order of the examples, for any lengths and parameters on devices."""
    family = FAMILIES["regression"]
    encoded = random_sequences(family, examples=27)
    made = make_trials("regression", encoded, buckets=3)
    params = made.experiment.initial_state(0).params
    alone = make_trials("regression", encoded, devices=1, buckets=1)
    split = Split([None] * 27, encoded)
    found = made.outputs(params, split, "predicting")
    wanted = alone.outputs(alone.experiment.initial_state(0).params, split, "predicting")
    found, wanted = (family.decode(split.examples, encoded, each) for each in (found, wanted))
    assert len(set(found)) == 27
    assert_close(list(found), list(wanted))
