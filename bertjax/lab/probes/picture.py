"""Pictures of probes: predicted trees next to the gold ones."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertjax.base import figures
from bertjax.lab.probes.trees import Tree

Edges = Iterable[tuple[int, int]]


def draw_trees(
    trees: Sequence[Tree], golds: Sequence[Edges], found: Sequence[Edges], path: Path
) -> None:
    """Writes a PNG of sentences: gold edges above the words, predicted ones below."""
    longest = max(len(tree.words) for tree in trees)
    with figures.png(path, figsize=(2 + 0.8 * longest, 3.2 * len(trees))) as figure:
        panels = figure.subplots(len(trees), 1, squeeze=False)[:, 0]
        for panel, tree, gold, predicted in zip(panels, trees, golds, found, strict=True):
            gold = set(gold)
            for place, word in enumerate(tree.words):
                panel.text(place, 0, word, ha="center", va="center")
            for edges, side in ((gold, 1), (set(predicted), -1)):
                for left, right in edges:
                    color = "black" if (left, right) in gold else "tab:red"
                    panel.annotate(
                        "",
                        xy=(left, 0.25 * side),
                        xytext=(right, 0.25 * side),
                        arrowprops=dict(
                            arrowstyle="-",
                            color=color,
                            connectionstyle=f"arc3,rad={0.5 * side:g}",
                        ),
                    )
            panel.set(xlim=(-0.5, longest - 0.5), ylim=(-3, 3))
            panel.set_axis_off()
