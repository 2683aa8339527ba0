"""The parsed text of a compiled program: repetitions in loops, fusions and collectives."""

# ruff: noqa: E501

import pytest

from bertjax.compile_report.program import Program

# A text in the TPU compiler's form, with a loop of 5 rounds, a loop of 3 rounds in it, and a
# reduce-scatter inside a fusion.
TEXT = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[]{:T(128)} parameter(0)
  %y = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%x, %y)
}

%fused_scatter (p: bf16[32,768]) -> bf16[2,768] {
  %p = bf16[32,768]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %rs = bf16[2,768]{1,0:T(8,128)(2,1)} reduce-scatter(%p), dimensions={0}, to_apply=%add, metadata={op_name="jit(step)/transpose(jvp(Bert))/dot_general"}
}

%inner (q: f32[8]) -> f32[8] {
  %q = f32[8]{0:T(128)} parameter(0)
  ROOT %work.1 = f32[8]{0:T(128)} fusion(%q), kind=kLoop, calls=%fused, metadata={op_name="jit(step)/jvp(Bert)/a"}, backend_config={"window_config":{"estimated_cycles":"7"}}
}

%outer (r: (s32[], f32[8])) -> (s32[], f32[8]) {
  %r = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %loop.2 = f32[8]{0:T(128)} while(%r), condition=%c, body=%inner, backend_config={"known_trip_count":{"n":"3"}}
  %gathered = (f32[8]{0}, f32[128]{0:T(128)}) all-gather-start(%loop.2), dimensions={0}, metadata={op_name="jit(step)/jvp(Bert)/w"}
  %gathered.done = f32[128]{0:T(128)} all-gather-done(%gathered)
  ROOT %work.2 = (s32[]{:T(128)}, f32[8]{0:T(128)}) fusion(%r, /*index=5*/%loop.2), kind=kLoop, calls=%fused, backend_config={"window_config":{"estimated_cycles":"100"}}
}

%fused (s: f32[8]) -> f32[8] {
  %s = f32[8]{0:T(128)} parameter(0)
  ROOT %never.counted = f32[8]{0:T(128)} exponential(%s), backend_config={"window_config":{"estimated_cycles":"999"}}
}

ENTRY %main (t: f32[8]) -> f32[8] {
  %t = f32[8]{0:T(128)} parameter(0)
  %loop.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}) while(%t), condition=%c, body=%outer, backend_config={"known_trip_count":{"n":"5"}}
  %scatter = bf16[2,768]{1,0:T(8,128)(2,1)} fusion(%t), kind=kCustom, calls=%fused_scatter
  ROOT %last = f32[8]{0:T(128)} copy(%t), metadata={op_name="jit(step)/optimizer/add"}, backend_config={"estimated_cycles":"11"}
}
"""


def test_cycles_of_loops_are_multiplied_out():
    found = [(i.opcode, i.cycles, times) for i, times in Program(TEXT).executed() if i.cycles]
    assert sorted(found) == [("copy", 11, 1), ("fusion", 7, 15), ("fusion", 100, 5)]


def test_collectives_are_found_in_loops_and_in_fusions():
    found = {i.opcode: (i.bytes, i.source, n) for i, n in Program(TEXT).collectives()}
    assert found == {
        "all-gather-start": (4 * (8 + 128), "jit(step)/jvp(Bert)/w", 5),
        "reduce-scatter": (2 * 2 * 768, "jit(step)/transpose(jvp(Bert))/dot_general", 1),
    }


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        Program("HloModule jit_step")
    with pytest.raises(ValueError, match="a loop without a known number of rounds: %loop.2"):
        Program(TEXT.replace('{"known_trip_count":{"n":"3"}}', "{}"))
