"""Reports of one phase and of the whole run, as numbers and as tables."""

import collections
import dataclasses
import re
from typing import Any

import jax

from bertjax.base.errors import InputError
from bertjax.compile_report.parts import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PARTS,
    Scopes,
    direction_of,
    layer_of,
    moved,
    part_of,
)
from bertjax.compile_report.program import Program
from bertjax.compile_report.topology import GIB, Slice


@dataclasses.dataclass(frozen=True)
class Step:
    """A phase of a run, which is to be compiled.

    Attributes:
      length, batch_size, accumulate: the phase's settings.
      steps: the number of the run's updates in this phase.
      flops: the useful operations of one update, on all chips together.
    """

    length: int
    batch_size: int
    accumulate: int
    steps: int
    flops: float


@dataclasses.dataclass(frozen=True)
class Collective:
    """Collectives of one kind and content: their number in a step, and their bytes on a device."""

    kind: str
    moves: str
    dtype: str
    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class LayerKind:
    """The layers of one kind, of an encoder that has several: their number, and one's seconds."""

    count: int
    forward: float
    backward: float


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of one phase on one slice. Bytes and seconds are for one device and one update.

    Attributes:
      arguments: the bytes of parameters, optimizer state and batch.
      temporaries: the bytes of all other arrays.
      parts: (part, "forward" or "backward") -> seconds.
      layers: kind -> what one of its layers takes, without the update of its weights; empty if all
        layers are alike.
      collective_seconds: the time of all collectives, if each could use the links at full speed.
      without_estimate: opcode -> the number of instructions without the compiler's estimate.
    """

    step: Step
    slice: str
    chips: int
    memory: float
    arguments: int
    temporaries: int
    collectives: tuple[Collective, ...]
    collective_seconds: float
    parts: dict[tuple[str, str], float]
    layers: dict[str, LayerKind]
    without_estimate: dict[str, int]
    peak: float

    @property
    def seconds(self) -> float:
        """The estimated time of one update: the sum over all instructions, without collectives."""
        return sum(self.parts.values())

    @property
    def mfu(self) -> float:
        """The useful operations, divided by what all chips could do in the estimated time."""
        return self.step.flops / (self.seconds * self.chips * self.peak)

    @property
    def tokens_per_second(self) -> float:
        """The tokens per second of all chips, including padding."""
        return self.step.batch_size * self.step.length / self.seconds

    def as_dict(self) -> dict[str, Any]:
        """The report as a JSON object."""
        plain = dataclasses.asdict(self)
        plain["parts"] = {
            part: {way: self.parts.get((part, way), 0.0) for way in (FORWARD, BACKWARD)}
            for part in PARTS
        }
        more = ("seconds", "mfu", "tokens_per_second")
        return plain | {name: getattr(self, name) for name in more}


_COMPUTE = ("fusion", "convolution", "custom-call")
_FREE = ("ConcatBitcast", "AssumeGatherIndicesInBound", "LayoutConstraint")  # annotations
_SMALL = 2**20  # bytes


def compile_and_report(
    lowered: jax.stages.Lowered, step: Step, where: Slice, scopes: Scopes
) -> Report:
    """Compiles one update for a slice and reads what the compiler says of it.

    Args:
      scopes: of the encoder, see `bertjax.compile_report.parts`.

    Raises:
      InputError: the update does not fit into a device's memory. The message says by how much, and
        what helps.
    """
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        raise _does_not_fit(error, step, where) from error
    memory = compiled.memory_analysis()
    not_donated = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporaries = memory.temp_size_in_bytes + not_donated
    arguments = memory.argument_size_in_bytes
    return report_of(compiled.as_text(), step, where, scopes, arguments, temporaries)


def report_of(
    text: str, step: Step, where: Slice, scopes: Scopes, arguments: int, temporaries: int
) -> Report:
    """Makes a report from the text of a compiled step and its bytes of memory on a device."""
    program = Program(text)
    parts: dict[tuple[str, str], float] = collections.Counter()
    of_layers: dict[tuple[str, int], dict[str, float]] = {}
    missing: dict[str, int] = collections.Counter()
    for instruction, times in program.executed():
        source, opcode = instruction.source, instruction.opcode
        if instruction.cycles is not None:
            part, way = part_of(opcode, source, scopes), direction_of(source)
            seconds = instruction.cycles * times / where.chip.clock
            parts[part, way] += seconds
            if (layer := layer_of(source)) and part != OPTIMIZER:
                of_layers.setdefault(layer, collections.Counter())[way] += seconds
        elif opcode.partition(" ")[0] in _COMPUTE and opcode.partition(" ")[2] not in _FREE:
            missing[opcode] += times * (instruction.bytes > _SMALL)
    collectives = _collectives(program)
    sent = sum(row.bytes * (2 if row.kind == "all-reduce" else 1) for row in collectives)
    return Report(
        step=step,
        slice=where.name,
        chips=where.chips,
        memory=where.chip.memory,
        arguments=arguments,
        temporaries=temporaries,
        collectives=collectives,
        collective_seconds=sent * where.chip.devices / where.chip.links,
        parts=dict(parts),
        layers=_mean_layers(of_layers),
        without_estimate={opcode: count for opcode, count in missing.items() if count},
        peak=where.peak,
    )


def _mean_layers(of_layers: dict[tuple[str, int], dict[str, float]]) -> dict[str, LayerKind]:
    kinds = collections.defaultdict(list)
    for (kind, _), seconds in sorted(of_layers.items()):
        kinds[kind].append(seconds)
    return {
        kind: LayerKind(
            count=len(layers),
            **{way: sum(each[way] for each in layers) / len(layers) for way in (FORWARD, BACKWARD)},
        )
        for kind, layers in kinds.items()
    }


def _collectives(program: Program) -> tuple[Collective, ...]:
    counts, sizes = collections.Counter(), collections.Counter()
    for instruction, times in program.collectives():
        kind = instruction.opcode.removesuffix("-start")
        dtype = re.search(r"\w+(?=\[)", instruction.type)[0]
        key = kind, moved(kind, instruction.source), dtype
        counts[key] += times
        sizes[key] += times * instruction.bytes
    rows = [Collective(*key, counts[key], sizes[key]) for key in counts]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _does_not_fit(error: Exception, step: Step, where: Slice) -> Exception:
    message = " ".join(str(error).split())
    if "RESOURCE_EXHAUSTED" not in message:
        return error
    # "Used 20.1G of 15.75G hbm", or "required ... (240.00G) exceeds available HBM (15.75G)".
    used = re.search(r"(?i)([\d.]+)G\)? (?:of|exceeds available HBM) \(?[\d.]+G", message)
    needed, there = float(used[1]) if used else float("nan"), where.chip.memory / GIB
    return InputError(
        f"length {step.length}, {step.batch_size} sequences on {where.name}: does not fit: needs "
        f"{needed:.2f} GiB of a device's {there:.2f}, {needed - there:.2f} too many: raise the "
        "phase's accumulate, set config.model.remat='layer', or config.layout='zero1' or 'fsdp'"
    )


# ------------------------------------------------------------------------------ as a table


def table(report: Report) -> str:
    """The report of one phase, as lines of text."""
    step, total = report.step, report.seconds
    used = report.arguments + report.temporaries
    lines = [
        f"length {step.length}, {step.batch_size} sequences"
        + (f" in {step.accumulate} parts" if step.accumulate > 1 else "")
        + f", on {report.slice} ({report.chips} chips)",
        f"  memory of a device: {used / GIB:.2f} GiB of {report.memory / GIB:.2f}: state and batch "
        f"{report.arguments / GIB:.2f}, temporaries {report.temporaries / GIB:.2f}: "
        f"fits, {(report.memory - used) / GIB:.2f} GiB are left",
        f"  estimated step: {total * 1e3:.1f} ms, MFU {report.mfu:.1%}, "
        f"{report.tokens_per_second:,.0f} tokens/s",
        f"  collectives besides, partly behind it: {1e3 * report.collective_seconds:.1f} ms at the "
        "links' full speed",
        "",
        f"  {'part':24} {'forward':>9} {'backward':>9} {'ms':>9} {'share':>6}",
    ]
    for part in PARTS:
        ways = [report.parts.get((part, way), 0.0) for way in (FORWARD, BACKWARD)]
        if sum(ways):
            figures = " ".join(f"{1e3 * seconds:9.2f}" for seconds in (*ways, sum(ways)))
            lines.append(f"  {part:24} {figures} {sum(ways) / total:6.1%}")
    for kind, layer in report.layers.items():
        ways = layer.forward, layer.backward
        figures = " ".join(f"{1e3 * seconds:9.2f}" for seconds in (*ways, sum(ways)))
        lines.append(f"  {f'one of {layer.count} {kind} layers':24} {figures}")
    lines += ["", f"  {'collective':20} {'of':36} {'dtype':6} {'count':>5} {'MiB a device':>13}"]
    for row in report.collectives:
        size = f"{row.bytes / 2**20:13.2f}"
        lines.append(f"  {row.kind:20} {row.moves:36} {row.dtype:6} {row.count:5} {size}")
    if report.without_estimate:
        listed = ", ".join(f"{count} x {name}" for name, count in report.without_estimate.items())
        lines.append(f"  without an estimate of the compiler: {listed}")
    return "\n".join(lines)


LEFT_OUT = (
    "Estimated: the TPU compiler's own cycles, one instruction after the other; no TPU has taken\n"
    "part. Left out: how far collectives hide behind the rest, custom kernels, the host's input,\n"
    "evaluation and checkpoints."
)


def run_table(reports: list[Report]) -> str:
    """The whole run, for two cases: all collectives overlap with computation, or none does."""
    steps, chips = sum(report.step.steps for report in reports), reports[0].chips
    hidden = sum(report.seconds * report.step.steps for report in reports)
    bare = hidden + sum(report.collective_seconds * report.step.steps for report in reports)
    days = " to ".join(f"{seconds / 86400:.2f}" for seconds in (hidden, bare))
    hours = " to ".join(f"{seconds / 3600 * chips:,.0f}" for seconds in (hidden, bare))
    return f"{steps:,} steps: {days} days, {hours} chip-hours on {reports[0].slice}\n{LEFT_OUT}"
