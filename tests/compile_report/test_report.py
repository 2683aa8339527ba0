"""The sums of both yardsticks over a compiled program's instructions."""

# ruff: noqa: E501

from types import SimpleNamespace

import pytest

from bertjax.compile_report.program import Program
from bertjax.compile_report.report import Step, report_of, run_table, table
from bertjax.compile_report.topology import CHIPS, Slice

# A gather that goes on while a product is computed: the compiler dumps no bundles of such a fusion.
TEXT = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(bf16[2,768]{1,0})->bf16[32,768]{1,0}}

%starting (p: bf16[2,768]) -> bf16[32,768] {
  %p = bf16[2,768]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %gather = bf16[32,768]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=5, dimensions={0}, frontend_attributes={chain_id="0"}, metadata={op_name="jit(step)/jvp(Bert)/w"}
}

%going_on (q: bf16[32,768], r: bf16[8192,768]) -> bf16[8192,768] {
  %q = bf16[32,768]{1,0:T(8,128)(2,1)} parameter(0)
  %r = bf16[8192,768]{1,0:T(8,128)(2,1)} parameter(1)
  %next = bf16[32,768]{1,0:T(8,128)(2,1)} all-gather(%q), channel_id=5, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %product = bf16[8192,768]{1,0:T(8,128)(2,1)} convolution(%r, %next), dim_labels=bf_io->bf
}

%added (s: bf16[8192,768]) -> bf16[8192,768] {
  %s = bf16[8192,768]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %sum = bf16[8192,768]{1,0:T(8,128)(2,1)} add(%s, %s)
}

ENTRY %main (t: bf16[2,768], x: bf16[8192,768]) -> bf16[8192,768] {
  %t = bf16[2,768]{1,0:T(8,128)(2,1)} parameter(0)
  %x = bf16[8192,768]{1,0:T(8,128)(2,1)} parameter(1)
  %async-collective-start = bf16[32,768]{1,0:T(8,128)(2,1)} fusion(%t), kind=kCustom, calls=%starting
  %fusion.7 = bf16[8192,768]{1,0:T(8,128)(2,1)} fusion(%async-collective-start, %x), kind=kOutput, calls=%going_on, metadata={op_name="jit(step)/jvp(Bert)/output/dot_general"}, backend_config={"window_config":{"estimated_cycles":"300000"}}
  ROOT %fusion.8 = bf16[8192,768]{1,0:T(8,128)(2,1)} fusion(%fusion.7), kind=kLoop, calls=%added, metadata={op_name="jit(step)/jvp(Bert)/output/add"}, backend_config={"window_config":{"estimated_cycles":"60000"}}
}
"""


def test_what_carries_a_collective_is_counted_by_its_estimate():
    device = SimpleNamespace(device_kind="TPU v5 lite")
    where = Slice("v5e:4x4", CHIPS["v5e"], 16, [device] * 16)
    step = Step(length=512, batch_size=256, accumulate=1, steps=1, flops=1e12)
    report = report_of(
        Program(TEXT), {"fusion.8": 900}, step, where, [("output", "feed-forward")], 0, 0
    )
    assert report.estimate.seconds == pytest.approx(360_000 / 1.5e9)
    # The sum's bytes of HBM take longer than its bundles.
    moved = 2 * 2 * 8192 * 768 / 819e9
    assert report.count.seconds == pytest.approx(300_000 / 1.5e9 + moved)
    assert report.count.borrowed == pytest.approx(300_000 / 1.5e9)
    assert report.estimate.borrowed == 0
    assert (report.without_bundles, report.without_estimate) == ({}, {})
    without_dumps = report_of(Program(TEXT), {}, step, where, [("output", "feed-forward")], 0, 0)
    assert without_dumps.without_bundles == {"fusion": 1}  # fusion.8: fusion.7 cannot have any
    assert "step by count: 0.2 ms" in table(report) and "; 0.2 ms of it by the other" in table(
        report
    )


# An all-reduce of 4 MiB, an all-gather that makes 1 MiB, and a sum of 24 MiB read and written.
COLLECTIVES = """HloModule jit_step, is_scheduled=true

%added (s: bf16[8192,768]) -> bf16[8192,768] {
  %s = bf16[8192,768]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %sum = bf16[8192,768]{1,0:T(8,128)(2,1)} add(%s, %s)
}

ENTRY %main (g: f32[1024,1024], w: bf16[32,512], x: bf16[8192,768]) -> bf16[8192,768] {
  %g = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %w = bf16[32,512]{1,0:T(8,128)(2,1)} parameter(1)
  %x = bf16[8192,768]{1,0:T(8,128)(2,1)} parameter(2)
  %all-reduce.1 = f32[1024,1024]{1,0:T(8,128)} all-reduce(%g), channel_id=1, to_apply=%add
  %all-gather.1 = bf16[1024,512]{1,0:T(8,128)(2,1)} all-gather(%w), channel_id=1, dimensions={0}
  ROOT %fusion.1 = bf16[8192,768]{1,0:T(8,128)(2,1)} fusion(%x), kind=kLoop, calls=%added, backend_config={"window_config":{"estimated_cycles":"94000"}}
}
"""


@pytest.mark.parametrize(
    "name, kind, devices, hbm, links, clock, peak",
    [
        # Of a device; a chip of v3 has two, 900 GB/s of HBM and 328 GB/s of links.
        ("v3:4x4", "TPU v3", 32, 450e9, 164e9, 0.94e9, 61.5e12),
        ("v5e:4x4", "TPU v5 lite", 16, 819e9, 200e9, 1.5e9, 197e12),
    ],
)
def test_seconds_are_of_a_device(name, kind, devices, hbm, links, clock, peak):
    where = Slice(name, CHIPS[name[:-4]], 16, [SimpleNamespace(device_kind=kind)] * devices)
    step = Step(length=512, batch_size=256, accumulate=1, steps=10**9, flops=1e12)
    report = report_of(Program(COLLECTIVES), {"fusion.1": 900}, step, where, (), 0, 0)
    assert report.estimate.seconds == pytest.approx(94_000 / clock)
    assert report.count.seconds == pytest.approx(48 * 2**20 / 2 / hbm)
    # An all-reduce moves every byte twice: it scatters sums and gathers them.
    assert report.collective_seconds == pytest.approx((2 * 4 + 1) * 2**20 / links)
    for times in (report.estimate, report.count):
        assert report.mfu(times) == pytest.approx(1e12 / times.seconds / (devices * peak))
        assert report.tokens_per_second(times) == pytest.approx(512 * 256 / times.seconds)
    hidden, bare = report.count.seconds, report.count.seconds + report.collective_seconds
    days = " to ".join(f"{1e9 * seconds / 86_400:.2f}" for seconds in (hidden, bare))
    hours = " to ".join(f"{16 * 1e9 * seconds / 3_600:,.0f}" for seconds in (hidden, bare))
    assert f"by count: {days} days, {hours} chip-hours" in run_table([report])


def test_the_memory_of_a_device():
    """A program can use nearly all of the published GiB of a chip, shared by its devices."""
    published = {"v2": 16, "v3": 32, "v4": 32, "v5e": 16, "v5p": 96, "v6e": 32}
    for name, gib in published.items():
        assert 0.93 * gib < CHIPS[name].devices * CHIPS[name].memory / 2**30 < gib
