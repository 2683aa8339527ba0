"""Parses the TPU compiler's output for a step: instructions, loops and collectives."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping

_BYTES = {
    **dict.fromkeys(("pred", "s4", "u4", "s8", "u8", "f8e4m3fn", "f8e5m2"), 1),
    **dict.fromkeys(("s16", "u16", "bf16", "f16"), 2),
    **dict.fromkeys(("s32", "u32", "f32"), 4),
    **dict.fromkeys(("s64", "u64", "f64"), 8),
}
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction of a computation.

    Attributes:
      opcode: "fusion", "while", "all-reduce", ...
      type: the type of its result, as written in the text.
      source: its origin in the model, as JAX's path of scopes; "" if unknown.
      cycles: the compiler's estimate; None if the compiler gives none.
      runs: the computations whose instructions it runs: their names, and how many times each runs.
      holds: the computations that are part of the instruction itself, in a fusion.
    """

    opcode: str
    type: str
    source: str
    cycles: int | None
    runs: tuple[tuple[str, int], ...]
    holds: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of the result in bytes."""
        return sum(
            _BYTES.get(dtype, 4) * math.prod(map(int, filter(None, dims)))
            for dtype, dims in (
                (m[1], m[2].split(",")) for m in re.finditer(r"(\w+)\[([\d,]*)\]", self.type)
            )
        )


class Program:
    """The computations of an optimized HLO module (`jax.stages.Compiled.as_text`)."""

    def __init__(self, text: str):
        self._computations: dict[str, list[Instruction]] = {}
        self._entry = ""
        limits: dict[str, list[int]] = collections.defaultdict(list)  # computation -> integers
        name = ""
        for line in text.splitlines():
            if match := re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line):
                name = match[2]
                self._computations[name] = []
                self._entry = name if match[1] else self._entry
            elif line.startswith("  ") and " = " in line and name:
                self._computations[name].append(_instruction(line, limits))
                if match := re.search(r" = [su]32\[\]\S* constant\((\d+)\)", line):
                    limits[name].append(int(match[1]))
        if not self._entry:
            raise ValueError("not the text of an HLO module: it has no ENTRY")

    def executed(self) -> Iterator[tuple[Instruction, int]]:
        """Yields each instruction that runs by itself, and how many times it runs in all loops."""
        for name, times in self._times(follow_fusions=False).items():
            for instruction in self._computations[name]:
                yield instruction, times

    def collectives(self) -> Iterator[tuple[Instruction, int]]:
        """Yields each collective, also inside fusions, and how many times it runs."""
        for name, times in self._times(follow_fusions=True).items():
            for instruction in self._computations[name]:
                if instruction.opcode.removesuffix("-start") in COLLECTIVES:
                    yield instruction, times

    def _times(self, follow_fusions: bool) -> dict[str, int]:
        """Maps each computation to the number of times that it runs."""
        times: dict[str, int] = collections.Counter({self._entry: 1})
        # In the text, a computation is before those that use it, so the last one is visited first.
        for name in reversed(self._computations):
            for instruction in self._computations[name] if times[name] else ():
                held = [(held, 1) for held in instruction.holds] if follow_fusions else []
                for used, count in [*instruction.runs, *held]:
                    times[used] += times[name] * count
        return {name: count for name, count in times.items() if count}


def _instruction(line: str, limits: Mapping[str, list[int]]) -> Instruction:
    _, _, rest = line.partition(" = ")
    end = _closing(rest) + 1 if rest.startswith("(") else rest.index(" ")
    kind, opcode = rest[:end], rest[end + 1 :].partition("(")[0]
    cycles = re.search(r'"estimated_cycles":"(\d+)"', rest)
    source = re.search(r'op_name="([^"]*)"', rest)
    runs, holds = [], []
    if opcode == "while":
        trips = re.search(r'known_trip_count"?:\{"n":"(\d+)"\}', rest)
        condition, body = (
            re.search(rf"{role}=%?([\w.-]+)", rest)[1] for role in ("condition", "body")
        )
        # A loop that XLA made itself counts from 0 to the only number in its condition.
        rounds = [int(trips[1])] if trips else limits[condition]
        if len(rounds) != 1:
            raise ValueError(f"a loop without a known number of rounds: {line.strip()[:200]}")
        runs = [(body, rounds[0])]
    elif opcode == "conditional":
        # At most one branch runs, but all branches are counted.
        listed = re.search(r"branch_computations=\{([^}]*)\}", rest)
        names = re.findall(r"%?([\w.-]+)", listed[1]) if listed else []
        names += re.findall(r"(?:true|false)_computation=%?([\w.-]+)", rest)
        runs = [(name, 1) for name in names]
    elif opcode == "call" or opcode.endswith("-start"):
        runs = [(name, 1) for name in re.findall(r"(?:calls|to_apply)=%?([\w.-]+)", rest)]
        runs = [] if opcode.removesuffix("-start") in COLLECTIVES else runs
    elif opcode == "custom-call" and (target := re.search(r'custom_call_target="(\w+)"', rest)):
        opcode = f"custom-call {target[1]}"
    elif opcode == "fusion":
        holds = re.findall(r"calls=%?([\w.-]+)", rest)
    return Instruction(
        opcode=opcode,
        type=kind,
        source=source[1] if source else "",
        cycles=int(cycles[1]) if cycles else None,
        runs=tuple(runs),
        holds=tuple(holds),
    )


def _closing(text: str) -> int:
    """The index of the parenthesis that closes the first one."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index
    raise ValueError(f"unbalanced: {text[:200]}")
