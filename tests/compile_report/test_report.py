"""The sums of both yardsticks over a compiled program's instructions."""

# ruff: noqa: E501

from types import SimpleNamespace

import pytest

from bertjax.compile_report.report import Step, report_of, table
from bertjax.compile_report.topology import CHIPS, Slice

# A gather that goes on while a product is computed: the compiler dumps no bundles of such a fusion.
TEXT = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(bf16[2,768]{1,0})->bf16[32,768]{1,0}}

%starting (p: bf16[2,768]) -> bf16[32,768] {
  %p = bf16[2,768]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %gather = bf16[32,768]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=5, dimensions={0}, metadata={op_name="jit(step)/jvp(Bert)/w"}
}

%going_on (q: bf16[32,768], r: bf16[8192,768]) -> bf16[8192,768] {
  %q = bf16[32,768]{1,0:T(8,128)(2,1)} parameter(0)
  %r = bf16[8192,768]{1,0:T(8,128)(2,1)} parameter(1)
  %next = bf16[32,768]{1,0:T(8,128)(2,1)} all-gather(%q), channel_id=5, dimensions={0}
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
    report = report_of(TEXT, {"fusion.8": 900}, step, where, [("output", "feed-forward")], 0, 0)
    assert report.estimate.seconds == pytest.approx(360_000 / 1.5e9)
    # The sum's bytes of HBM take longer than its bundles.
    moved = 2 * 2 * 8192 * 768 / 819e9
    assert report.count.seconds == pytest.approx(300_000 / 1.5e9 + moved)
    assert report.count.borrowed == pytest.approx(300_000 / 1.5e9)
    assert report.estimate.borrowed == 0
    assert (report.without_bundles, report.without_estimate) == ({}, {})
    without_dumps = report_of(TEXT, {}, step, where, [("output", "feed-forward")], 0, 0)
    assert without_dumps.without_bundles == {"fusion": 1}  # fusion.8: fusion.7 cannot have any
    assert "step by count: 0.2 ms" in table(report) and "; 0.2 ms of it by the other" in table(
        report
    )
