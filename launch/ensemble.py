"""Makes one model of several fine-tuned ones.

python launch/ensemble.py --runs=RUN,RUN,... --workdir=ENSEMBLE
"""

from absl import flags

from bertjax.programs import commandline

_RUNS = flags.DEFINE_list("runs", None, "Finished runs of launch/finetune.py on the same task.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where the ensemble lies, for launch/predict.py.")
_BY = flags.DEFINE_enum(
    "by",
    "probabilities",
    ["probabilities", "logits", "votes"],
    "What is combined: the mean of probabilities or of logits, or one vote of each run.",
)
flags.mark_flags_as_required(["runs", "workdir"])


def main(_) -> None:
    from bertjax.programs import ensemble

    ensemble.run(_RUNS.value, _WORKDIR.value, _BY.value)


if __name__ == "__main__":
    commandline.run(main)
