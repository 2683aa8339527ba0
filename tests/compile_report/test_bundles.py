"""The bundles that a dump's program executes."""

import os
from pathlib import Path

from bertjax.compile_report import bundles

HERE = Path(__file__).parent

# Two bundles. A loop of 5 rounds, whose counter returns from memory: 8 bundles in all rounds, and
# 2 + 3 x 5 + 3 + 3 in all but the first. Among these are a loop from 1 to 7 by 2 (5 bundles), one
# whose rounds depend on data (3), and a bundle that data may skip. One bundle at the end.
DUMP = """= control target key start
LB: loop body
= control target key end

     0   :  { %s1_s1 = smov 0 }
   0x1   :  { %s2_s2 = smov 0 /* copy for cssa */ }
   0x2 LB: > { %s3_s3 = sphi %s2_s2, %s9_s9 /* iteration index, stage = 0 */ } /* Start region 9 */
   0x3   : > { %p1_p1 = scmp.lt.s32.totalorder %s3_s3, 1  ;;  %7 = sbr.rel (%p1_p1) target = $region5 }
   0x4   :  {} /* End region 2 */
   0x5   : > { %4 = dma.hbm_to_vmem [thread:$0]  /*
base_bounds: (3, 1)
strides: (1, 1) */ } /* Start region 3 */
   0x6   : > { %s4_s4 = smov (!%p1_p1), 1 /* copy for cssa */ }
   0x7 LB: >> { %s5_s5 = sphi %s4_s4, %s6_s6 /* phi copy */ } /* Start region 7 */
   0x8   : >> { %s6_s6 = sadd.s32 2, %s5_s5 /* copy for cssa */ }
   0x9   : >> { %p2_p2 = scmp.ge.s32.totalorder %s6_s6, 7 /* loop exit test */ }
   0xa   : > { %8 = sbr.rel (!%p2_p2) target = $region7 }
   0xb   : >> { %v2_v2 = vadd.f32 %v1_v1, %v1_v1 } /* End region 7 */
   0xc LB: >> { %p3_p3 = scmp.ge.s32.totalorder %s10_s10, %s11_s11 /* loop exit test */ } /* Start region 8 */
   0xd   : >> { %8 = sbr.rel (!%p3_p3) target = $region8 }
   0xe   :  {} /* End region 8 */
   0xf   : > { %p4_p4 = scmp.eq.s32.totalorder %s7_s7, 0  ;;  %9 = sbr.rel (%p4_p4) target = $region6 }
  0x10   :  {} /* End region 4 */
  0x11   : > { %v3_v3 = vmul.f32 %v2_v2, %v2_v2 }
  0x12 PF: > { %s8_s8 = sld [smem:[#allocation7_spill]] } /* Start/End empty region 6 :: Start/End empty region 5 */
  0x13   : > { %s9_s9 = sadd.s32 1, %s8_s8 /* iteration index, stage = 0 */ }
  0x14   : > { %p5_p5 = scmp.ge.s32.totalorder %s9_s9, 5 /* loop exit test */ }
  0x15   :  { %9 = sbr.rel (!%p5_p5) target = $region9 }
  0x16   :  {} /* End region 1 */
  0x17   :  { %10 = vnop }
"""  # noqa: E501
COUNTED = 2 + 5 * 8 + 4 * (2 + 3 * 5 + 3 + 3) + 1


def test_loops_are_multiplied_out():
    assert bundles.executed(DUMP) == COUNTED
    # The loop whose rounds depend on data has 3 bundles, in 4 rounds of the loop around it.
    assert bundles.executed(DUMP, rounds=2.5) == COUNTED + 1.5 * 3 * 4


def test_a_kernel_of_the_compiler():
    """A kernel of libtpu 0.0.50.1 for v5e, counted by hand.

    It is `o[8 i : 8 i + 8] = exp(x[8 i : 8 i + 8])` for 32 i, unrolled by 2, on a grid of 3. Its
    outer loop has 5 rounds of 46 bundles, of which 3 have 20 more, 14 of them 16 times. Before it
    are 5 bundles, after it 4.
    """
    dump = (HERE / "kernel_v5e.txt").read_text(encoding="utf-8")
    assert bundles.executed(dump) == 5 + 5 * 46 + 3 * (6 + 16 * 14) + 4


def test_the_dumps_of_a_folder(tmp_path):
    name = "17954380-fusion.2-03-final_bundles.txt"
    (tmp_path / name).write_text(DUMP)
    (tmp_path / name.replace("final", "schedule-analysis_final")).write_text("0x1 : {}")
    assert bundles.dumped(tmp_path, {}) == {"fusion.2": COUNTED}
    bundles.forget(tmp_path)
    assert bundles.dumped(tmp_path, {}) == {}


def test_libtpu_is_asked_once(monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_a=1")
    bundles.ask_libtpu()
    bundles.ask_libtpu()
    given = f"--xla_tpu_a=1 {bundles.flags(bundles.folder())}"
    assert os.environ["LIBTPU_INIT_ARGS"] == given
