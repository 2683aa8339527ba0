"""Reports of one phase and of the whole run, as numbers and as tables.

Two models give the time of a step; docs/results/tpu.md compares them. Both add the times of all
instructions but collectives.

  estimate  the cycles that XLA's cost model gives each instruction; it has none for kernels
  count     the bundles that the compiled instruction executes, or the bytes of HBM that it reads
            and writes at the published rate, whichever takes longer
"""

import collections
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax

from bertjax.base.errors import InputError
from bertjax.compile_report import bundles
from bertjax.compile_report.parts import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PARTS,
    Scopes,
    direction_of,
    layer_of,
    model_of,
    moved,
    part_of,
)
from bertjax.compile_report.program import Instruction, Program
from bertjax.compile_report.topology import GIB, Slice
from bertjax.training.memory import is_out_of_memory, needs_of


@dataclasses.dataclass(frozen=True)
class Step:
    """A phase of a run, which is to be compiled.

    Attributes:
      steps: the number of the run's updates in this phase.
      flops: the useful operations of one update, on all chips together.
      share: the share of the blocks of keys that kernels of attention compute, in layers without a
        window; the others hold other documents.
    """

    length: int
    batch_size: int
    accumulate: int
    steps: int
    flops: float
    share: float = 1.0


@dataclasses.dataclass(frozen=True)
class Collective:
    """Collectives of one kind and content: their number in a step, and their bytes on a device."""

    kind: str
    moves: str
    dtype: str
    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class LayerType:
    """The layers of one type, if an encoder has several: their number, and the seconds of one."""

    count: int
    forward: float
    backward: float


_NAMES = ("estimate", "count")  # of the yardsticks


@dataclasses.dataclass(frozen=True)
class Times:
    """The seconds of one update by one yardstick.

    Attributes:
      parts: (part, "forward" or "backward") -> seconds.
      layers: type -> the seconds of one of its layers, without the update of its weights; empty if
        all layers are of one type.
      models: name -> the seconds of each part of one of several models, such as a teacher, without
        the update of its weights; else empty.
      borrowed: the seconds that come from the other yardstick: the estimate takes the count for
        kernels, and the count takes the estimate for instructions without bundles.
    """

    parts: dict[tuple[str, str], float]
    layers: dict[str, LayerType]
    models: dict[str, dict[str, float]]
    borrowed: float

    @property
    def seconds(self) -> float:
        """The time of one update: the sum over all instructions, without collectives."""
        return sum(self.parts.values())


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The calls of one of our own kernels in a step, and the counted seconds of all of them."""

    calls: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of one phase on one slice. Bytes and seconds are for one device and one update.

    Attributes:
      arguments: the bytes of parameters, optimizer state and batch.
      temporaries: the bytes of all other arrays.
      collective_seconds: the time of all collectives, if each could use the links at full speed.
      copy_seconds: the time of asynchronous copies between HBM and the chip's own memory at the
        published rate of HBM; neither yardstick has them.
      kernels: name -> its calls, and their time by the count.
      without_estimate: opcode -> the number of other instructions without the compiler's estimate.
      without_bundles: opcode -> the number of instructions whose bundles were not found, without
        products that run during a collective as one instruction, which have none.
    """

    step: Step
    slice: str
    chips: int
    memory: float
    arguments: int
    temporaries: int
    collectives: tuple[Collective, ...]
    collective_seconds: float
    copy_seconds: float
    estimate: Times
    count: Times
    kernels: dict[str, Kernel]
    without_estimate: dict[str, int]
    without_bundles: dict[str, int]
    peak: float

    @property
    def yardsticks(self) -> dict[str, Times]:
        return {name: getattr(self, name) for name in _NAMES}

    def mfu(self, times: Times) -> float:
        """The useful operations, divided by what all chips could do in that time."""
        return self.step.flops / (times.seconds * self.chips * self.peak)

    def tokens_per_second(self, times: Times) -> float:
        """The tokens per second of all chips, including padding."""
        return self.step.batch_size * self.step.length / times.seconds

    def as_dict(self) -> dict[str, Any]:
        """The report as a JSON object."""
        report = dataclasses.asdict(self)
        for name, times in self.yardsticks.items():
            report[name]["parts"] = {
                part: {way: times.parts.get((part, way), 0.0) for way in (FORWARD, BACKWARD)}
                for part in PARTS
            }
            report[name] |= {
                "seconds": times.seconds,
                "mfu": self.mfu(times),
                "tokens_per_second": self.tokens_per_second(times),
            }
        return report


_COMPUTE = ("fusion", "convolution", "custom-call")
_FREE = ("ConcatBitcast", "AssumeGatherIndicesInBound", "LayoutConstraint")  # annotations
_KERNEL = "custom-call tpu_custom_call"
_SMALL = 2**20  # bytes


def compile_and_report(
    lowered: jax.stages.Lowered, step: Step, where: Slice, scopes: Scopes
) -> Report:
    """Compiles one update for a slice; InputError, with what helps, if it does not fit."""
    bundles.forget(bundles.folder())
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        raise _memory_error(error, step, where) from error
    text = compiled.as_text()
    assert text is not None  # libtpu has it
    program = Program(text)
    rounds = {
        instruction.name: instruction.rounds * step.share
        for instruction, _ in program.executed()
        if instruction.rounds
    }
    dumped = bundles.dumped(bundles.folder(), rounds)
    return report_of(program, dumped, step, where, scopes, *needs_of(compiled))


def report_of(
    program: Program,
    dumped: Mapping[str, int],
    step: Step,
    where: Slice,
    scopes: Scopes,
    arguments: int,
    temporaries: int,
) -> Report:
    """Makes a report from a compiled step; of equal instructions, one in `dumped` is enough."""
    chip = where.chip
    of_forms = {
        program.form(instruction): dumped[instruction.name]
        for instruction, _ in program.executed()
        if instruction.name in dumped
    }
    estimate, count = _Sums(scopes), _Sums(scopes)
    kernels: dict[str, Kernel] = {}
    no_estimate: collections.Counter[str] = collections.Counter()
    no_bundles: collections.Counter[str] = collections.Counter()
    copied = 0.0
    for instruction, times in program.executed():
        opcode = instruction.opcode
        if instruction.collective:
            continue
        copied += times * instruction.copied / where.device_hbm
        executed = dumped.get(instruction.name)
        if executed is None:
            executed = of_forms.get(program.form(instruction))
        large = sum(instruction.bytes.values()) > _SMALL
        computes = opcode.partition(" ")[0] in _COMPUTE and opcode.partition(" ")[2] not in _FREE
        communicates = program.communicates(instruction)
        missed = computes and large and not communicates
        estimated = counted = None
        if instruction.cycles is not None:
            estimated = instruction.cycles * times / chip.clock
            estimate.add(instruction, estimated)
        elif missed and opcode != _KERNEL:
            no_estimate[opcode] += times
        if executed is not None:
            moved_bytes = 0 if communicates else program.hbm_bytes(instruction)
            counted = times * max(executed / chip.clock, moved_bytes / where.device_hbm)
            count.add(instruction, counted)
        elif (estimated is not None or missed) and not communicates:
            no_bundles[opcode] += times
        if opcode == _KERNEL and counted is not None:
            name = re.sub(r"\.\d+$", "", instruction.name)
            known = kernels.get(name, Kernel(0, 0.0))
            kernels[name] = Kernel(known.calls + times, known.seconds + counted)
            estimate.borrow(instruction, counted)
        if counted is None and estimated is not None:
            count.borrow(instruction, estimated)
    collectives = _collectives(program)
    sent = sum(row.bytes * (2 if row.kind == "all-reduce" else 1) for row in collectives)
    return Report(
        step=step,
        slice=where.name,
        chips=where.chips,
        memory=chip.memory,
        arguments=arguments,
        temporaries=temporaries,
        collectives=collectives,
        collective_seconds=sent * chip.devices / chip.links,
        copy_seconds=copied,
        estimate=estimate.times(),
        count=count.times(),
        kernels=kernels,
        without_estimate=dict(no_estimate),
        without_bundles=dict(no_bundles),
        peak=where.peak,
    )


class _Sums:
    """Adds the seconds of instructions by part of the model and by layer."""

    def __init__(self, scopes: Scopes):
        self._scopes = scopes
        self._parts: dict[tuple[str, str], float] = collections.defaultdict(float)
        self._layers: dict[tuple[str, int], dict[str, float]] = {}
        self._models: dict[str, dict[str, float]] = {}
        self._borrowed = 0.0

    def add(self, instruction: Instruction, seconds: float) -> None:
        source = instruction.source
        part, way = part_of(instruction.opcode, source, self._scopes), direction_of(source)
        self._parts[part, way] += seconds
        if (layer := layer_of(source)) and part != OPTIMIZER:
            self._layers.setdefault(layer, collections.defaultdict(float))[way] += seconds
        if (name := model_of(source)) and part != OPTIMIZER:
            self._models.setdefault(name, {FORWARD: 0.0, BACKWARD: 0.0})[way] += seconds

    def borrow(self, instruction: Instruction, seconds: float) -> None:
        """Adds seconds that the other yardstick gives."""
        self.add(instruction, seconds)
        self._borrowed += seconds

    def times(self) -> Times:
        return Times(dict(self._parts), _mean_layers(self._layers), self._models, self._borrowed)


def _mean_layers(of_layers: dict[tuple[str, int], dict[str, float]]) -> dict[str, LayerType]:
    by_type = collections.defaultdict(list)
    for (layer_type, _), seconds in sorted(of_layers.items()):
        by_type[layer_type].append(seconds)
    return {
        layer_type: LayerType(
            count=len(layers),
            **{way: sum(each[way] for each in layers) / len(layers) for way in (FORWARD, BACKWARD)},
        )
        for layer_type, layers in by_type.items()
    }


def _collectives(program: Program) -> tuple[Collective, ...]:
    """A combined collective counts for each of its dtypes."""
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    sizes: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for instruction, times in program.collectives():
        moves = moved(instruction.collective, instruction.source)
        for dtype, size in instruction.bytes.items():
            key = instruction.collective, moves, dtype
            counts[key] += times
            sizes[key] += times * size
    rows = [Collective(*key, counts[key], sizes[key]) for key in counts]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _memory_error(error: Exception, step: Step, where: Slice) -> Exception:
    if not is_out_of_memory(error):
        return error
    message = " ".join(str(error).split())
    # "Used 20.1G of 15.75G hbm", or "required ... (240.00G) exceeds available HBM (15.75G)".
    used = re.search(r"(?i)([\d.]+)G\)? (?:of|exceeds available HBM) \(?[\d.]+G", message)
    needed, available = float(used[1]) if used else float("nan"), where.chip.memory / GIB
    return InputError(
        f"length {step.length}, {step.batch_size} sequences on {where.name}: does not fit: needs "
        f"{needed:.2f} GiB of a device's {available:.2f}, {needed - available:.2f} too many: raise "
        "the phase's accumulate, set config.model.remat='layer', or config.layout='zero1' or 'fsdp'"
    )


# ------------------------------------------------------------------------------ as a table


def table(report: Report) -> str:
    """The report of one phase, as lines of text."""
    step, yardsticks = report.step, report.yardsticks
    used = report.arguments + report.temporaries
    lines = [
        f"length {step.length}, {step.batch_size} sequences"
        + (f" in {step.accumulate} microbatches" if step.accumulate > 1 else "")
        + f", on {report.slice} ({report.chips} chips)",
        f"  memory of a device: {used / GIB:.2f} GiB of {report.memory / GIB:.2f}: state and batch "
        f"{report.arguments / GIB:.2f}, temporaries {report.temporaries / GIB:.2f}: "
        f"fits, {(report.memory - used) / GIB:.2f} GiB are left",
    ]
    if step.share < 1:
        lines.append(
            f"  kernels of attention without a window compute {step.share:.1%} of all blocks of "
            "pairs; MFU is of the pairs that see each other"
        )
    for name, times in yardsticks.items():
        lines.append(
            f"  step by {name}: {1e3 * times.seconds:.1f} ms, MFU {report.mfu(times):.1%}, "
            f"{report.tokens_per_second(times):,.0f} tokens/s"
            + (f"; {1e3 * times.borrowed:.1f} ms of it by the other" if times.borrowed else "")
        )
    lines += [
        f"  besides, partly behind it: collectives {1e3 * report.collective_seconds:.1f} ms at the "
        f"links' full speed, asynchronous copies {1e3 * report.copy_seconds:.1f} ms at HBM's",
        "",
        f"  {'ms':28}"
        + "".join(f" {name:>10} {'backward':>9} {'share':>6}" for name in yardsticks),
    ]
    totals = [times.seconds for times in yardsticks.values()]
    for part in PARTS:
        forward, backward = (
            [times.parts.get((part, way), 0.0) for times in yardsticks.values()]
            for way in (FORWARD, BACKWARD)
        )
        if any(forward + backward):
            lines.append(f"  {part:28}" + "".join(map(_cell, forward, backward, totals)))
    for layer_type, layer in report.count.layers.items():
        cells = (
            _cell(
                times.layers[layer_type].forward, times.layers[layer_type].backward, times.seconds
            )
            for times in yardsticks.values()
            if layer_type in times.layers
        )
        lines.append(f"  {f'one of {layer.count} {layer_type} layers':28}" + "".join(cells))
    for name in report.count.models:
        cells = (
            _cell(each.get(FORWARD, 0.0), each.get(BACKWARD, 0.0), times.seconds)
            for times in yardsticks.values()
            for each in [times.models.get(name, {})]
        )
        lines.append(f"  {f'all of the {name}':28}" + "".join(cells))
    for name, kernel in report.kernels.items():
        lines.append(
            f"  kernel {name}: {kernel.calls} calls, {1e3 * kernel.seconds:.2f} ms (count)"
        )
    lines += ["", f"  {'collective':20} {'of':36} {'dtype':6} {'count':>5} {'MiB a device':>13}"]
    for row in report.collectives:
        size = f"{row.bytes / 2**20:13.2f}"
        lines.append(f"  {row.kind:20} {row.moves:36} {row.dtype:6} {row.count:5} {size}")
    for what, missing in (
        ("an estimate of the compiler", report.without_estimate),
        ("known bundles", report.without_bundles),
    ):
        if missing:
            listed = ", ".join(f"{number} x {opcode}" for opcode, number in missing.items())
            lines.append(f"  without {what}: {listed}")
    return "\n".join(lines)


def _cell(forward: float, backward: float, total: float) -> str:
    share = (forward + backward) / total
    return f" {1e3 * forward:10.2f} {1e3 * backward:9.2f} {share:6.1%}"


LEFT_OUT = """\
No TPU was used. Estimate: the cycles of XLA's cost model. It charges a byte written to HBM
several times the published time, and knows no kernels of our own; of these it has the count. Count:
the compiled bundles, or the bytes of HBM at the published rate, if they take longer; without
waiting for results, and without rounds of loops that depend on data. The compiler dumps no bundles
of a product that runs next to a collective as one instruction; of these it has the estimate. Both
add one instruction after another. Left out: how far collectives and asynchronous copies hide behind
the rest, the host's input, evaluation and checkpoints."""


def run_table(reports: list[Report]) -> str:
    """The whole run, for two cases: all collectives overlap with computation, or none does."""
    steps, chips = sum(report.step.steps for report in reports), reports[0].chips
    lines = [f"{steps:,} steps on {reports[0].slice}"]
    for name in reports[0].yardsticks:
        hidden = sum(report.yardsticks[name].seconds * report.step.steps for report in reports)
        bare = hidden + sum(report.collective_seconds * report.step.steps for report in reports)
        days = " to ".join(f"{seconds / 86400:.2f}" for seconds in (hidden, bare))
        hours = " to ".join(f"{seconds / 3600 * chips:,.0f}" for seconds in (hidden, bare))
        lines.append(f"  by {name}: {days} days, {hours} chip-hours")
    return "\n".join([*lines, LEFT_OUT])
