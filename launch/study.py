"""Runs a table of many runs, and draws it.

python launch/study.py --study=configs/studies/table_5.py ... --workdir=STUDY

All of them, pre-training included; then the table as text, JSON and picture.
"""

from absl import flags

from bertjax.programs import commandline

_STUDY = flags.DEFINE_string("study", None, "A file of configs/studies/, or one of your own.")
_CORPUS = flags.DEFINE_string("corpus", None, "A corpus of launch/prepare_corpus.py.")
_DATA = flags.DEFINE_string("data", "", "The folder of glue/ squad/ swag/ conll2003/ triviaqa/.")
_WORKDIR = flags.DEFINE_string("workdir", None, "STUDY: a study found there goes on.")
_SCALE = flags.DEFINE_enum("scale", "cpu", ["cpu", "chip", "16", "64"], "How large the runs are.")
_ONLY = flags.DEFINE_list("only", [], "Only these tasks, as MRPC,SQuAD; all by default.")
_AT_ONCE = flags.DEFINE_integer("at_once", 1, "Runs at a time, each on its device.", 1, 1000)
_DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Only print what would run, and how long.")
_STAGE = flags.DEFINE_string("stage", "", "Run only this stage, in this process.")
flags.mark_flags_as_required(["study", "corpus", "workdir"])


def main(_) -> int:
    from bertjax.programs import study

    values = (_STUDY.value, _SCALE.value, _CORPUS.value, _DATA.value, _WORKDIR.value)
    if _STAGE.value:
        return study.run_stage(*values, _ONLY.value, _STAGE.value)
    return study.run(
        *values, _ONLY.value, program=__file__, at_once=_AT_ONCE.value, dry_run=_DRY_RUN.value
    )


if __name__ == "__main__":
    commandline.run(main)
