"""Assigns an instruction to a part of the model, by the path of JAX scopes that it comes from."""

import re

OPTIMIZER, COPIES, OTHER = "optimizer", "layout copies", "other"
# The first pattern that matches decides.
_PARTS = tuple(
    (re.compile(pattern), part)
    for pattern, part in (
        (r"optimizer/", OPTIMIZER),
        (r"/attention/(qkv|output)/", "attention projections"),
        (r"/attention/", "attention"),
        (r"_dropout/|embeddings/dropout/", "dropout"),
        (r"_norm/|/norm/", "layer norm"),
        (r"/(intermediate|output|activation)/", "feed-forward"),
        (r"/embeddings/", "embeddings"),
        (r"/masked_lm/|/pooler/|/next_sentence_head/|bps,bsd->bpd|losses", "heads and losses"),
    )
)
_MOVES = ("copy", "transpose", "reshape", "pad", "slice", "concatenate", "convert")
PARTS = tuple(dict.fromkeys((*(part for _, part in _PARTS), COPIES, OTHER)))

FORWARD, BACKWARD = "forward", "backward"


def part_of(opcode: str, source: str) -> str:
    """The part of the model, one of `PARTS`."""
    for pattern, part in _PARTS:
        if pattern.search(source):
            return part
    return COPIES if opcode in _MOVES else OTHER


def direction_of(source: str) -> str:
    """Returns "backward" for gradients and all that is computed from them, else "forward"."""
    return BACKWARD if "transpose(" in source or "optimizer/" in source else FORWARD


def moved(kind: str, source: str) -> str:
    """The kind of data that a collective moves: "gradients", "weights", ..."""
    if "optimizer/" in source:
        return "updated weights" if kind == "all-gather" else "norms and gradients of the optimizer"
    if "transpose(" in source:
        return "weights, for gradients" if kind == "all-gather" else "gradients"
    # An all-reduce without a source adds shares and zeros, which is XLA's other way to gather.
    if kind == "all-gather" or not source:
        return "weights"
    return "sums of losses and activations"
