"""Fits a scaling law to runs of pre-training, and says what it expects of larger ones."""

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertjax.base.checks import check_output
from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.lab.studies.files import read_config_file
from bertjax.lab.studies.ladder import described, draw, lead, parameters, read_run
from bertjax.lab.studies.scaling_law import Run
from bertjax.runs.read import flat
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import read_config


def run(
    runs: str, by: str = "", configs: Sequence[str] = (), output: str | None = None
) -> dict[str, Any]:
    """Prints the law of each kind of runs.

    Args:
      runs: folders of runs that were evaluated on the same text, as a pattern of files.
      by: the key of the config that tells kinds of runs apart; "": all are of one kind.
      configs: files of configs; the law says what loss to expect of such runs.

    Returns:
      "kinds", kind -> what `bertjax.lab.studies.ladder.described` returns; and "lead" of the
      first kind over the second, or None.

    Raises:
      InputError: no such runs; one was not evaluated; they lack the key.
    """
    if output:
        check_output(output)
    groups: dict[str, list[Run]] = {}
    folders = sorted(map(Path, glob.glob(runs)))
    if not folders:
        raise InputError(f"--runs={runs}: no such folder")
    at = {Path(name).stem: _place(read_config_file(name)) for name in configs}
    for folder in folders:
        groups.setdefault(_group(folder, by), []).append(read_run(folder))
    found = {group: described(each, at) for group, each in groups.items()}
    gain = lead(*groups.values()) if len(groups) == 2 else None
    for group, each in found.items():
        _print(group, each)
    if gain:
        first, second = found
        print(
            f"{first}: {gain.mean:.3f} nats below {second} in {gain.runs} pairs of runs, and "
            f"{gain.by_size:+.3f} ± {gain.stderr:.3f} with each tenfold size"
        )
    result = {"by": by, "kinds": found, "lead": gain and gain._asdict()}
    if output:
        path = Path(output)
        write_json(path, result)
        draw(found, path.with_suffix(".png"))
    return result


def _group(folder: Path, by: str) -> str:
    config = flat(read_config(folder))
    if by and by not in config:
        raise InputError(f"--by={by}: {folder} has no such key in its config")
    return str(config[by]) if by else "all runs"


def _place(config: Any) -> tuple[float, float]:
    recipe = Recipe.from_config(config)
    return parameters(recipe), float(recipe.tokens)


def _print(group: str, found: Mapping[str, Any]) -> None:
    print(f"{group}: {len(found['runs'])} runs")
    rows: list[Sequence[str]] = [("parameters", "tokens", "FLOPs", "loss")]
    for each in found["runs"]:
        *used, loss = each.values()
        rows.append((*(f"{number:.2e}" for number in used), f"{loss:.3f}"))
    print(*("  ".join(f"{cell:>10}" for cell in row) for row in rows), sep="\n")
    for best in found["best_sizes"]:
        where = (
            f"best with {best['parameters']:.2e} parameters, loss {best['loss']:.3f}"
            if "loss" in best
            else "the best size is not between the sizes"
        )
        print(f"{best['flops']:.1e} FLOPs: {where}")
    if not found["law"]:
        print(f"no law: {found['why']}\n")
        return
    numbers = ", ".join(f"{name} {_shown(each)}" for name, each in found["law"].items())
    print(f"L = E + A / N^alpha + B / D^beta: {numbers}")
    print(f"the best size grows with FLOPs to the power {_shown(found['exponent'])}")
    for name, each in found["at"].items():
        used = f"{each['parameters']:.1e} parameters, {each['tokens']:.1e} tokens"
        print(f"{name}, {used}: loss {_shown(each)}")
    print()


def _shown(estimate: Mapping[str, Any]) -> str:
    low, high = estimate["interval"]
    return f"{estimate['value']:.4g} ({low:.4g} to {high:.4g})"
