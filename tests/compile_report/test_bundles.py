"""The bundles that a dump's program executes."""

import os

from bertjax.compile_report import bundles

# Two bundles, a loop of 5 rounds with 2 of its own, in it one of 3 rounds with 3 (one of them came
# from outside of all loops) and one of unknown rounds with 1, then 2 again.
DUMP = """= control target key start
LB: loop body
= control target key end

     0   :  { %s1 = smov 0  ;;  %p0 = scmp.ge.s32.totalorder %s1, 9 }
   0x1   :  { %v2 = vmov 0.0 }
   0x2 LB: > { %s3 = sadd.s32 1, %s1 /* iteration index, stage = 0 */ }
   0x3 LB: > > { %v4 = vadd.f32 %v2, %v2  ;;  %p3 = scmp.ge.s32.totalorder %s3, 3 /* loop exit test */ }
   0x4   :  { %v6 = vmov 1.0 }
   0x5   : >> {}
   0x6 LB: >> { %v5 = vmul.f32 %v2, %v2 }
   0x7 PF: > { %p7 = scmp.ge.s32.totalorder %s3, 5 /* loop exit test */  ;;  %s9 = smov 1 }
   0x8   :  { %8 = sbr.rel (!%p7) target = $region2 }
   0x9 CT:  { %9 = vnop }
"""  # noqa: E501


def test_loops_are_multiplied_out():
    assert bundles.executed(DUMP) == 2 + 5 * (2 + 3 * 3 + 1) + 2


def test_the_dumps_of_a_folder(tmp_path):
    name = "17954380-fusion.2-03-final_bundles.txt"
    (tmp_path / name).write_text(DUMP)
    (tmp_path / name.replace("final", "schedule-analysis_final")).write_text("0x1 : {}")
    assert bundles.dumped(tmp_path) == {"fusion.2": 64}
    bundles.forget(tmp_path)
    assert bundles.dumped(tmp_path) == {}


def test_libtpu_is_asked_once(monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_a=1")
    bundles.ask_libtpu()
    bundles.ask_libtpu()
    given = f"--xla_tpu_a=1 {bundles.flags(bundles.folder())}"
    assert os.environ["LIBTPU_INIT_ARGS"] == given
