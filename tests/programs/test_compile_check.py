"""The report of launch/compile_check.py: the real TPU compiler, small models, and refusals."""

import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from PIL import Image

from bertjax.base import progress
from bertjax.base.errors import InputError
from bertjax.compile_report.topology import describe
from bertjax.config import paper_config, place_on_pod
from bertjax.programs import compile_check
from tests.helpers.checkout import REPOSITORY

ON_FILE = REPOSITORY / "tests" / "benchmarks" / "results"

needs_libtpu = pytest.mark.needs("libtpu")


def _small(**model):
    """One phase of a model of odd sizes, on 16 chips."""
    config = place_on_pod(paper_config())
    config.total_steps, config.optimizer.warmup_steps = 7_200, 10
    config.phase_1.update(share=1.0, batch_size=128)
    config.phase_2.update(share=0.0)
    sizes = dict(size="tiny", num_hidden_layers=3, hidden_size=256, num_attention_heads=4)
    config.model = config.model.to_dict() | sizes | model
    return config


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    files = str(folder / "report.json"), str(folder / "report.png")
    (report,) = compile_check.run(_small(), "v5e:4x4", *files, "small")
    return report, folder


@needs_libtpu
@pytest.mark.slow
def test_what_the_compiler_says(reported):
    report, _ = reported
    assert (report.chips, report.step.steps) == (16, 7_200)
    # A 16th of the parameters in float32 and of their two moments, and the batch.
    embeddings = (30_592 + 512 + 2) * 256
    assert 3 * 4 * embeddings / 16 < report.arguments < 1.5 * 3 * 4 * embeddings / 16
    assert 0 < report.temporaries < report.memory
    for times in report.yardsticks.values():
        parts = {part for part, _ in times.parts}
        assert {"attention", "feed-forward", "heads and losses", "optimizer", "dropout"} <= parts
        assert all(seconds >= 0 for seconds in times.parts.values())
        assert 0.01 < report.mfu(times) < 1
        assert report.mfu(times) == pytest.approx(report.step.flops / times.seconds / 16 / 197e12)
    # Of all instructions that the compiler estimates, the bundles are known, except of products
    # that run next to a collective.
    assert not report.without_bundles
    assert 0 < report.count.borrowed < 0.25 * report.count.seconds
    # The estimate has 1,800 cycles for the smallest instruction, and a small model has many.
    assert 0.3 < report.count.seconds / report.estimate.seconds < 1.0


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, peak",
    [
        *[("v2:4x4", 45e12), ("v3:4x4", 123e12), ("v4:2x2x4", 275e12), ("v5p:2x2x4", 459e12)],
        ("v6e:4x4", 918e12),
    ],
)
def test_every_generation_compiles(name, peak):
    (report,) = compile_check.run(_small(num_hidden_layers=1), name)
    assert report.chips == 16
    assert report.count.borrowed < 0.25 * report.count.seconds
    # A layer's weights, its products of queries and keys and with values, and the head of 20
    # predicted positions of 128: six operations each for a token. A device has its share of tokens.
    weights = 4 * 256 * 256 + 2 * 256 * 512
    head = 20 / 128 * (256 * 30_522 + 256 * 256)
    flops = 128 * 128 * 6 * (weights + 2 * 256 * 128 + head)
    for times in report.yardsticks.values():
        assert report.mfu(times) == pytest.approx(flops / times.seconds / (16 * peak))
        # No chip is faster than its peak; a small model is far from it.
        assert flops / (16 * peak) < times.seconds < 200 * flops / (16 * peak)


@needs_libtpu
@pytest.mark.slow
def test_a_student_and_its_teacher_are_told_apart():
    config = _small(num_hidden_layers=1)
    teacher = {**config.model.to_dict(), "num_hidden_layers": 3}
    sizes = {k: teacher[k] for k in ("size", "num_hidden_layers", "hidden_size")}
    del config.objective  # a name; here it is a section
    config.objective = dict(name="distillation", teacher=sizes | {"num_attention_heads": 4})
    (report,) = compile_check.run(config, "v5e:4x4")
    for times in report.yardsticks.values():
        assert set(times.models) == {"student", "teacher"}
        student, teacher = times.models["student"], times.models["teacher"]
        assert teacher["backward"] == 0.0 < student["backward"]
        assert 1 < teacher["forward"] / student["forward"] < 3  # the heads are alike
        assert sum(sum(each.values()) for each in times.models.values()) < times.seconds


@needs_libtpu
@pytest.mark.slow
def test_gradients_are_summed_in_bfloat16_and_weights_gathered(reported):
    sums = {(row.kind, row.moves, row.dtype): row for row in reported[0].collectives}
    kernels = 3 * (3 + 1 + 2 * 2) * 256 * 256 * 2  # of the layers (feed-forward: 2 x 256), bytes
    assert sums["all-reduce", "gradients", "bf16"].bytes >= kernels
    assert sums["all-gather", "weights", "bf16"].bytes >= kernels


@needs_libtpu
@pytest.mark.slow
def test_small_shares_are_gathered_and_not_summed():
    """Left alone, libtpu sums zeros and the share of each of 64 devices."""
    (report,) = compile_check.run(_small(num_hidden_layers=1), "v5e:8x8")
    assert {row.kind for row in report.collectives if row.moves == "weights"} == {"all-gather"}


@needs_libtpu
@pytest.mark.slow
def test_small_shares_are_gathered_together_where_libtpu_would_sum_them():
    """The shares of feed-forward weights are 256 KiB; those of attention stay small together."""
    (report,) = compile_check.run(_small(num_hidden_layers=2, intermediate_size=32_768), "v6e:8x8")
    gathered = sum(row.bytes for row in report.collectives if row.kind == "all-gather")
    assert gathered >= 2 * 2 * 256 * 32_768 * 2


@needs_libtpu
@pytest.mark.slow
def test_the_files(reported):
    report, folder = reported
    written = json.loads((folder / "report.json").read_text())
    (phase,) = written["phases"]
    assert written["topology"] == "v5e:4x4"
    assert written["versions"] == {name: version(name) for name in ("jax", "libtpu")}
    for name, times in report.yardsticks.items():
        assert phase[name]["seconds"] == pytest.approx(times.seconds)
        total = sum(sum(ways.values()) for ways in phase[name]["parts"].values())
        assert total == pytest.approx(times.seconds)
    with Image.open(folder / "report.png") as picture:
        assert picture.width > 800


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, topology",
    [
        *[("base_16", "v5e:4x4"), ("large_64", "v5e:8x8"), ("large_64_lamb", "v5e:8x8")],
        *[("modern_base_16", "v5e:4x4"), ("modern_large_64", "v5e:8x8")],
    ],
)
def test_shipped_configs_fit_and_take_the_time_on_file(name, topology):
    """The steps of the shipped configs are compiled; docs/tpu.md shows these reports."""
    config = importlib.import_module(f"configs.pretrain_{name}").get_config()
    on_file = json.loads((ON_FILE / f"{name}_v5e.json").read_text())["phases"]
    for report, expected in zip(compile_check.run(config, topology), on_file, strict=True):
        assert report.step.length == expected["step"]["length"]
        assert report.estimate.seconds == pytest.approx(expected["estimate"]["seconds"], rel=0.02)
        assert report.count.seconds == pytest.approx(expected["count"]["seconds"], rel=0.02)
        assert report.temporaries == pytest.approx(expected["temporaries"], rel=0.02)


@needs_libtpu
@pytest.mark.slow
def test_a_loop_over_layers_counts_every_layer(reported):
    """A loop takes as long as the unrolled layers, plus the cost of the loop."""
    unrolled, _ = reported
    (looped,) = compile_check.run(_small(scan_layers=True), "v5e:4x4")
    for name in ("estimate", "count"):
        parts = [report.yardsticks[name].parts for report in (unrolled, looped)]
        forward = [of["feed-forward", "forward"] for of in parts]
        assert forward[1] == pytest.approx(forward[0], rel=0.5)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:4x4", "v6e:4x4"])
def test_kernels_are_compiled_and_counted(topology):
    """One forward and one backward, and nothing of the size of all pairs of positions."""
    config = _small(num_hidden_layers=1, attention="kernel")
    config.phase_1.update(length=512)
    (report,) = compile_check.run(config, topology)
    assert {name: kernel.calls for name, kernel in report.kernels.items()} == {
        "attention_forward": 1,
        "attention_backward": 1,
    }
    counted = sum(kernel.seconds for kernel in report.kernels.values())
    assert report.estimate.borrowed == pytest.approx(counted)
    for times in report.yardsticks.values():
        attention = sum(times.parts["attention", way] for way in ("forward", "backward"))
        assert counted <= attention < 1.2 * counted
    rows, heads, length = 128 // 16, 4, 512
    gathered = sum(row.bytes for row in report.collectives if row.moves == "weights")
    assert report.temporaries - gathered < 2 * rows * heads * length * length * 2


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:4x4", "v5p:2x2x4"])
def test_kernels_are_counted_by_the_blocks_that_they_compute(topology):
    """A sequence of 4,096 has 8 x 8 blocks; its documents leave out the share that is reported."""
    config = _small(num_hidden_layers=1, attention="kernel", max_position_embeddings=4096)
    config.phase_1.update(length=4096)
    whole, packed = (
        compile_check.run(config, topology, document=document)[0] for document in (0, 700)
    )
    assert 0.4 < packed.step.share < 0.6 and packed.step.flops < whole.step.flops
    for name, kernel in packed.kernels.items():
        assert packed.step.share < kernel.seconds / whole.kernels[name].seconds < 0.75


@needs_libtpu
@pytest.mark.slow
def test_too_little_memory_is_an_error():
    config = _small()
    config.phase_1.update(batch_size=16 * 8_192)  # 20 GiB of logits a chip
    with pytest.raises(InputError, match=r"does not fit: needs .* GiB of a device's 15.75"):
        compile_check.run(config, "v5e:4x4")


@needs_libtpu
def test_a_batch_that_does_not_divide():
    config = _small()
    config.phase_1.batch_size = 40
    with pytest.raises(InputError, match="a batch of 40 sequences does not divide over 16 dev"):
        compile_check.run(config, "v5e:4x4")


@needs_libtpu
def test_without_a_corpus_the_config_has_the_size_of_the_vocabulary():
    where = describe("v5e:4x4")
    phases = [compile_check._phases(_small(**v), where, 0)[0] for v in ({}, {"vocab_size": 257})]
    papers, of_bytes = (phase.step.flops for phase in phases)
    predicted = 128 * 20
    assert papers - of_bytes == 6 * predicted * 256 * (30_522 - 257)


@needs_libtpu
@pytest.mark.parametrize(
    "name, chips, devices, peak",
    [
        *[("v2:4x4", 16, 32, 45e12), ("v3:4x4", 16, 32, 123e12), ("v4:2x2x4", 16, 16, 275e12)],
        *[("v5e:8x8", 64, 64, 197e12), ("v5p:4x4x4", 64, 64, 459e12), ("v6e:4x4", 16, 16, 918e12)],
        *[("v5e:1x1", 1, 1, 197e12), ("v6e:1x1", 1, 1, 918e12)],
    ],
)
def test_slices(name, chips, devices, peak):
    found = describe(name)
    assert (found.chips, len(found.devices), found.peak) == (chips, devices, peak)


@needs_libtpu
def test_a_machine_without_a_tpu_prints_nothing_about_it(tmp_path):
    """A program must not print the five lines in which libtpu would report it."""
    program = (
        "from bertjax.programs import commandline\n"
        "def main(_):\n    import jax\n    jax.devices()\n"
        "commandline.run(main)"
    )
    (tmp_path / "program.py").write_text(program)
    environment = {name: text for name, text in os.environ.items() if name != "JAX_PLATFORMS"}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_instructions_that_are_compiled_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compile_check.bundles, "folder", lambda: tmp_path)
    monkeypatch.setattr(compile_check, "_SECONDS_BETWEEN_LOOKS", 0)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    (tmp_path / "1-fusion.7-64-final_bundles.txt").touch()
    said = ""
    with compile_check._shown("phase 2", 3):
        while "phase 2:  33% 1/3" not in said:  # while it compiles
            said += capsys.readouterr().err
        (tmp_path / "1-copy.2-64-final_bundles.txt").touch()
        (tmp_path / "1-copy.2-64-other.txt").touch()
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("phase 2:  67% 2/3 [") and last.endswith(" instructions/s]")


@pytest.mark.parametrize(
    "files, message",
    [
        (("a.txt", ""), "--json=.*a.txt: must be a .json file in an existing folder"),
        (("a.json", "b.txt"), "--image=.*b.txt: must be a .png file in an existing folder"),
        (("no/a.json", ""), "--json=.*no/a.json: must be a .json file in an existing folder"),
    ],
)
def test_files_that_cannot_be_written(tmp_path, files, message):
    """No file of another kind is written over."""
    paths = [str(tmp_path / name) if name else "" for name in files]
    with pytest.raises(InputError, match=message):
        compile_check.run(_small(), "v5e:4x4", *paths)


@pytest.mark.parametrize("name", ["v5e", "v5e:4", "v5e:4x4x4", "v9:4x4", "v5p:4x4", ""])
def test_an_unknown_slice(name):
    with pytest.raises(InputError, match=r"--topology=.*: must be like one of .*v5e:4x4, v5p:4x4x"):
        describe(name)


@needs_libtpu
def test_a_slice_that_libtpu_does_not_know():
    with pytest.raises(InputError, match="--topology=v5e:3x5: libtpu does not know it"):
        describe("v5e:3x5")
