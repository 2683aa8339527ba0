"""Paths of scopes in the compiler's text, and the parts of the model that they belong to."""

import pytest

from bertjax.compile_report.parts import direction_of, layer_of, model_of, moved, part_of
from bertjax.models.encoders.registry import ENCODERS

LAYER = "jit(step)/jvp(BertForPreTraining)/bert/encoder/layer_3"


@pytest.mark.parametrize(
    "source, part",
    [
        (f"{LAYER}/attention/qkv/abi,iopq->abopq/dot_general", "attention projections"),
        (f"{LAYER}/attention/output/abij,ijo->abo/dot_general", "attention projections"),
        (f"{LAYER}/attention/bnsh,bnth->bnst/dot_general", "attention"),
        (f"{LAYER}/attention_dropout/select_n", "dropout"),
        (f"{LAYER}/attention_norm/reduce_sum", "layer norm"),
        (f"{LAYER}/intermediate/abi,io->abo/dot_general", "feed-forward"),
        (f"{LAYER}/output/abi,io->abo/dot_general", "feed-forward"),
        (f"{LAYER}/activation/mul", "feed-forward"),
        ("jit(step)/jvp(BertForPreTraining)/bert/embeddings/gather", "embeddings"),
        ("jit(step)/jvp(BertForPreTraining)/masked_lm/bpd,vd->bpv/dot_general", "heads and losses"),
        ("jit(step)/jvp(Discriminator)/replaced_tokens/output/dot_general", "heads and losses"),
        ("jit(step)/jvp(samples)/argmax", "heads and losses"),
        ("jit(step)/jvp(losses)/reduce_sum", "heads and losses"),
        ("jit(step)/optimizer/add", "optimizer"),
        ("jit(step)/somewhere", "other"),
    ],
)
def test_part(source, part):
    assert part_of("fusion", source, ENCODERS["bert"].scopes) == part


LAYERS = "jit(step)/transpose(jvp(ModernBert))/encoder"


@pytest.mark.parametrize(
    "source, part, layer",
    [
        (
            f"{LAYERS}/global_layer/layer_12/attention/qkv/dot",
            "attention projections",
            ("global", 12),
        ),
        (f"{LAYERS}/global_layer/layer_12/attention/exp", "attention", ("global", 12)),
        (f"{LAYERS}/local_layer/layer_5/attention/exp", "local attention", ("local", 5)),
        (
            f"{LAYERS}/local_layer/checkpoint/layer_5/attention/output/dot",
            "attention projections",
            ("local", 5),
        ),
        (f"{LAYERS}/local_layer/layer_5/intermediate/dot", "feed-forward", ("local", 5)),
        ("jit(step)/jvp(ModernBert)/embeddings/gather", "embeddings", None),
    ],
)
def test_parts_and_kinds_of_modern_layers(source, part, layer):
    assert part_of("fusion", source, ENCODERS["modernbert"].scopes) == part
    assert layer_of(source) == layer


def test_what_only_moves_is_a_copy():
    assert (part_of("copy", "", ()), part_of("fusion", "", ())) == ("layout copies", "other")


@pytest.mark.parametrize(
    "source, name",
    [
        ("jit(step)/jvp(student_part)/MaskedLM/encoder/layer_0/dot", "student"),
        ("jit(step)/transpose(jvp(student_part))/MaskedLM/dot", "student"),
        ("jit(step)/teacher_part/MaskedLM/encoder/layer_0/dot", "teacher"),
        ("jit(step)/jvp(MaskedLM)/encoder/layer_0/dot", None),
    ],
)
def test_parts_of_a_model_of_several(source, name):
    assert model_of(source) == name


def test_direction():
    assert direction_of(f"{LAYER}/attention/add") == "forward"
    assert direction_of("jit(step)/transpose(jvp(Bert))/dot_general") == "backward"
    assert direction_of("jit(step)/optimizer/add") == "backward"


def test_what_a_collective_moves():
    gradient = "jit(step)/transpose(jvp(Bert))/dot_general"
    assert moved("all-reduce", gradient) == "gradients"
    assert moved("all-gather", gradient) == "weights, for gradients"
    assert moved("all-gather", LAYER) == "weights"
    assert moved("all-reduce", "") == "weights"
    assert moved("all-gather", "jit(step)/optimizer/add") == "updated weights"
    assert moved("all-reduce", "jit(step)/jvp(losses)/reduce_sum").startswith("sums of losses")
