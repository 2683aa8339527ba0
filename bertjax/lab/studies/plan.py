"""The plan of a study as text: what runs for each row, and how long it takes."""

from collections.abc import Mapping, Set

from bertjax.lab.studies.estimates import Pace, Work
from bertjax.lab.studies.scales import Scale
from bertjax.lab.studies.study import Stage, Study

_HOUR = 3600.0


def text(
    study: Study,
    work: Mapping[str, Work],
    done: Set[str],
    pace: Pace | None,
    scale: Scale,
    at_once: int,
) -> str:
    """The stages of each row with their time; those that an earlier row has are left out.

    Without a pace, no times are given; `at_once` stages run at a time.
    """
    lines, listed = [study.title, ""], set(done)
    hours, chip_hours = 0.0, 0.0
    for row in study.rows:
        stages = study.stages(row)
        times = {
            stage.name: work[stage.name].seconds(pace, _chips(stage, scale)) / _HOUR
            for stage in stages
            if pace and stage.name not in listed
        }
        hours += sum(times.values())
        chip_hours += sum(times.get(each.name, 0.0) * _chips(each, scale) for each in stages)
        lines.append(f"{row.name}: {_in_words(sum(times.values()))}" if pace else row.name)
        for name in (stage.name for stage in stages):
            if name in times:
                lines.append(f"  {name}: {_in_words(times[name])}")
            elif name in done:
                lines.append(f"  {name}: done")
            elif name not in listed:
                lines.append(f"  {name}")
        listed.update(stage.name for stage in stages)
    if pace:
        how = "launch/compile_check.py" if scale.rate else "a step measured here"
        total = f"in all {_in_words(hours)}, {chip_hours:,.1f} chip-hours (by {how})"
        if at_once > 1:
            total += f"; {at_once} at a time, {_in_words(hours / at_once)} at least"
        lines += ["", total]
    return "\n".join(lines)


def _chips(stage: Stage, scale: Scale) -> int:
    return scale.chips if stage.program == "pretrain" else 1


def _in_words(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 2 else f"{60 * hours:,.0f} min"
