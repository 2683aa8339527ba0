"""Fits a scaling law to runs: python launch/scaling.py --runs='ladder/runs/ladder-*'

The runs are of several sizes and lengths; launch/evaluate.py --same_text has evaluated them. The
study configs/studies/ladder.py makes such runs.
"""

from absl import flags

from bertjax.programs import commandline

_RUNS = flags.DEFINE_string("runs", None, "The folders of the runs, as a pattern with *.")
_BY = flags.DEFINE_string("by", "", "A key of the config that tells kinds: optimizer.name, ...")
_CONFIGS = flags.DEFINE_list("configs", [], "Files of configs whose loss the law shall say.")
_OUTPUT = flags.DEFINE_string("output", None, "A .json file; the curves go into a .png next to it.")
flags.mark_flag_as_required("runs")


def main(_) -> None:
    from bertjax.programs import scaling

    scaling.run(_RUNS.value, _BY.value, _CONFIGS.value, _OUTPUT.value)


if __name__ == "__main__":
    commandline.run(main)
