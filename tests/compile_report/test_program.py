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


def test_the_greatest_number_is_no_estimate():
    """libtpu 0.0.50.1 gives an embedding's gather on v6e 2^63 - 1 cycles."""
    text = TEXT.replace('"estimated_cycles":"11"', f'"estimated_cycles":"{2**63 - 1}"')
    found = {i.name: i.cycles for i, _ in Program(text).executed()}
    assert found["last"] is None and found["work.2"] == 100


def test_collectives_are_found_in_loops_and_in_fusions():
    found = {i.collective: (i.bytes, i.source, n) for i, n in Program(TEXT).collectives()}
    assert found == {
        "all-gather": ({"f32": 4 * 128}, "jit(step)/jvp(Bert)/w", 5),
        "reduce-scatter": ({"bf16": 2 * 2 * 768}, "jit(step)/transpose(jvp(Bert))/dot_general", 1),
    }


# Two layers alike but for names and places; a third with its result in another memory; a gather in
# two steps, and a combined sum, in which `jax.shard_map` gives all the same channel; a fusion that
# slices one operand and updates another; one with two slices that overlap; one in which
# another fusion slices.
LAYERS = """HloModule jit_step

%half (x: bf16[16,64]) -> bf16[16,64] {
  %x = bf16[16,64]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %y.1 = bf16[16,64]{1,0:T(8,128)(2,1)} exponential(%x), metadata={op_name="jit(step)/layer_0/exp" stack_frame_id=1}
}

%half.clone (x.2: bf16[16,64]) -> bf16[16,64] {
  %x.2 = bf16[16,64]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %y.2 = bf16[16,64]{1,0:T(8,128)(2,1)} exponential(%x.2), metadata={op_name="jit(step)/layer_1/exp" stack_frame_id=9}
}

%steps (z: f32[24,200]) -> f32[24,200] {
  %z = f32[24,200]{1,0:T(8,128)} parameter(0)
  ROOT %g = f32[24,200]{1,0:T(8,128)} all-gather(%z), channel_id=1, dimensions={0}, frontend_attributes={chain_id="0"}
}

%steps.clone (z.2: f32[24,200]) -> f32[24,200] {
  %z.2 = f32[24,200]{1,0:T(8,128)} parameter(0)
  ROOT %g.2 = f32[24,200]{1,0:T(8,128)} all-gather(%z.2), channel_id=1, dimensions={0}, frontend_attributes={chain_id="0"}
}

%parts (all: f32[40,256], some: f32[8,256], at: s32[]) -> f32[40,256] {
  %all = f32[40,256]{1,0:T(8,128)} parameter(0)
  %some = f32[40,256]{1,0:T(8,128)} parameter(1)
  %at = s32[]{:T(128)} parameter(2)
  %slice = f32[8,256]{1,0:T(8,128)} dynamic-slice(%some, %at, %at), dynamic_slice_sizes={8,256}
  ROOT %put = f32[40,256]{1,0:T(8,128)} dynamic-update-slice(%all, %slice, %at, %at)
}

%overlapping (w: f32[24,256]) -> f32[16,256] {
  %w = f32[24,256]{1,0:T(8,128)} parameter(0)
  %first = f32[16,256]{1,0:T(8,128)} slice(%w), slice={[0:16], [0:256]}
  %second = f32[16,256]{1,0:T(8,128)} slice(%w), slice={[8:24], [0:256]}
  ROOT %both = f32[16,256]{1,0:T(8,128)} add(%first, %second)
}

%pick (p: f32[24,256]) -> f32[8,256] {
  %p = f32[24,256]{1,0:T(8,128)} parameter(0)
  ROOT %picked = f32[8,256]{1,0:T(8,128)} slice(%p), slice={[8:16], [0:256]}
}

%nest (q: f32[24,256]) -> f32[8,256] {
  %q = f32[24,256]{1,0:T(8,128)} parameter(0)
  %nested = f32[8,256]{1,0:T(8,128)} fusion(%q), kind=kLoop, calls=%pick
  ROOT %minus = f32[8,256]{1,0:T(8,128)} negate(%nested)
}

ENTRY %main (a: bf16[16,64], z.1: f32[3,200], t: f32[40,256], u: f32[40,256], i: s32[]) -> bf16[16,64] {
  %a = bf16[16,64]{1,0:T(8,128)(2,1)} parameter(0)
  %z.1 = f32[24,200]{1,0:T(8,128)} parameter(1)
  %t = f32[40,256]{1,0:T(8,128)} parameter(2)
  %u = f32[40,256]{1,0:T(8,128)} parameter(3)
  %i = s32[]{:T(128)} parameter(4)
  %one = bf16[16,64]{1,0:T(8,128)(2,1)} fusion(%a), kind=kLoop, calls=%half, metadata={op_name="jit(step)/layer_0/exp"}, backend_config={"window_config":{"estimated_cycles":"7"}}
  %two = bf16[16,64]{1,0:T(8,128)(2,1)} fusion(%one), kind=kLoop, calls=%half.clone, metadata={op_name="jit(step)/layer_1/exp"}, backend_config={"window_config":{"estimated_cycles":"8"}}
  %fast = bf16[16,64]{1,0:T(8,128)(2,1)S(1)} fusion(%two), kind=kLoop, calls=%half
  %start = f32[24,200]{1,0:T(8,128)} fusion(%z.1), kind=kCustom, calls=%steps
  %go = f32[24,200]{1,0:T(8,128)} fusion(%start), kind=kCustom, calls=%steps.clone
  %sums = (f32[24,200]{1,0:T(8,128)}, bf16[16,64]{1,0:T(8,128)(2,1)}, f32[]{:T(128)}) all-reduce(%go, %two, %i), channel_id=1, to_apply=%add
  %new = f32[40,256]{1,0:T(8,128)} fusion(%t, %u, %i), kind=kLoop, calls=%parts
  %v = f32[24,256]{1,0:T(8,128)} parameter(5)
  %overlap = f32[16,256]{1,0:T(8,128)} fusion(%v), kind=kLoop, calls=%overlapping
  %within = f32[8,256]{1,0:T(8,128)} fusion(%v), kind=kOutput, calls=%nest
  %next = f32[24,200]{1,0:T(8,128)} all-gather(%z.1), channel_id=1, dimensions={0}
  %moved = (f32[24,200]{1,0:T(8,128)S(1)}, f32[24,200]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%go)
  ROOT %part = ((f32[40,256]{1,0:T(8,128)}), f32[8,256]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%new), slice={[0:8], [0:256]}
}
"""


@pytest.fixture(scope="module")
def layers():
    program = Program(LAYERS)
    return program, {instruction.name: instruction for instruction, _ in program.executed()}


def test_instructions_alike_have_the_same_form(layers):
    program, named = layers
    assert program.form(named["one"]) == program.form(named["two"])
    assert program.form(named["one"]) != program.form(named["fast"])
    assert program.form(named["start"]) != program.form(named["new"])


def test_the_steps_of_a_chain_are_one_collective_with_all_its_dtypes(layers):
    program, named = layers
    found = [(i.collective, i.bytes, times) for i, times in program.collectives()]
    gathered, summed = 4 * 24 * 200, {"f32": 4 * 24 * 200 + 4, "bf16": 2 * 16 * 64}
    assert sorted(found, key=str) == [
        *2 * [("all-gather", {"f32": gathered}, 1)],
        ("all-reduce", summed, 1),
    ]
    assert [program.communicates(named[n]) for n in ("start", "sums", "new")] == [True, True, False]


def test_bytes_of_hbm(layers):
    """With the padding of tiles, without arrays elsewhere, and of slices only the slices."""
    program, named = layers
    half = 2 * 16 * 128  # 64 columns lie in 128 lanes
    assert program.hbm_bytes(named["one"]) == 2 * half
    assert program.hbm_bytes(named["fast"]) == half
    assert program.hbm_bytes(named["start"]) == 2 * 4 * 24 * 256
    assert program.hbm_bytes(named["new"]) == 2 * 4 * 8 * 256 + 4
    assert program.hbm_bytes(named["overlap"]) == 4 * (24 + 16) * 256  # not 16 + 16 rows read
    assert program.hbm_bytes(named["within"]) == 2 * 4 * 8 * 256  # the fusion inside slices


def test_bytes_of_asynchronous_copies(layers):
    _, named = layers
    copied = {name: named[name].copied for name in ("moved", "part", "one")}
    assert copied == {"moved": 4 * 24 * 200, "part": 4 * 8 * 256, "one": 0}


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        Program("HloModule jit_step")
    with pytest.raises(ValueError, match="a loop without a known number of rounds: %loop.2"):
        Program(TEXT.replace('{"known_trip_count":{"n":"3"}}', "{}"))
