"""Shows a run as a page for a browser: bertjax watch RUN, or python launch/watch.py RUN

The page is RUN/watch.html: the curves, the health status and the scores of a run of pre-training or
fine-tuning, or of a study. Several runs are compared on the same axes: bertjax watch 'runs/*'.
"""

from absl import flags

from bertjax.programs import commandline

_PORT = flags.DEFINE_integer(
    "port", None, "Serve the page at this port of this machine, and renew it as the run goes on."
)
_TEXT = flags.DEFINE_multi_string(
    "text", [], "A text whose attention and masked words the model of the run shows; repeatable."
)
_OVER = flags.DEFINE_enum(
    "over",
    "steps",
    ["steps", "minutes", "tokens"],
    "What the curves are over. The minutes are those of the updates alone.",
)


def main(runs: list[str]) -> None:
    from bertjax.programs import watch

    watch.run(runs, _TEXT.value, _PORT.value, _OVER.value)


if __name__ == "__main__":
    commandline.run(main, names="RUN")
