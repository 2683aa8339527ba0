"""Parses the TPU compiler's output for a step: instructions, loops, collectives, bytes of HBM."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_BYTES = {
    **dict.fromkeys(("pred", "s4", "u4", "s8", "u8", "f8e4m3fn", "f8e5m2"), 1),
    **dict.fromkeys(("s16", "u16", "bf16", "f16"), 2),
    **dict.fromkeys(("s32", "u32", "f32"), 4),
    **dict.fromkeys(("s64", "u64", "f64"), 8),
}
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_SLICES = ("dynamic-slice", "slice", "gather")  # they read a slice of their first operand
_UPDATE = "dynamic-update-slice"  # it writes its second operand into its first, in place
_KERNEL_METADATA = re.compile(r'kernel_metadata=\{\s*"rounds":"(\d+)"\s*\}')  # on three lines
_NO_ESTIMATE = str(2**63 - 1)  # what libtpu 0.0.50.1 gives an embedding's gather on v6e


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction of a computation.

    Attributes:
      type: the type of its result, as written in the text.
      operands: their names.
      source: its origin in the model, as JAX's path of scopes; "" if unknown.
      cycles: the compiler's estimate; None if the compiler gives none.
      chain: the number of an asynchronous collective, which all of its steps have; else None.
      runs: the computations whose instructions it runs: their names, and how many times each runs.
      holds: the computations inside the instruction itself, in a fusion.
      form: its text without names, origins and estimates.
      rounds: of a kernel, the most rounds of its loop over blocks of keys; 0 if it has none.
    """

    name: str
    opcode: str
    type: str
    operands: tuple[str, ...]
    source: str
    cycles: int | None
    chain: int | None
    runs: tuple[tuple[str, int], ...]
    holds: tuple[str, ...]
    form: str
    rounds: int

    @property
    def collective(self) -> str:
        """The opcode of a collective, one of `COLLECTIVES`; "" for other instructions."""
        opcode = self.opcode.removesuffix("-start")
        return opcode if opcode in COLLECTIVES else ""

    @property
    def bytes(self) -> dict[str, int]:
        """The bytes of the result's elements, by dtype; of an all-gather-start, only the result."""
        sizes: dict[str, int] = collections.Counter()
        arrays = list(_arrays(self.type))
        # "(operand, result)"; an all-reduce-start has the type of its result.
        for array in arrays[len(arrays) // 2 :] if self.opcode == "all-gather-start" else arrays:
            sizes[array.dtype] += array.bytes
        return sizes

    @property
    def copied(self) -> int:
        """The bytes that an asynchronous copy, of a whole array or of a slice, moves; else 0."""
        if self.opcode not in ("copy-start", "slice-start"):
            return 0
        return min(array.bytes for array in _arrays(self.type) if array.dimensions)


class Array(NamedTuple):
    """One array of a type: bf16[16,512]{1,0:T(8,128)(2,1)S(1)}."""

    dtype: str
    dimensions: tuple[int, ...]
    layout: str

    @property
    def bytes(self) -> int:
        """The bytes of its elements."""
        return _BYTES.get(self.dtype, 4) * math.prod(self.dimensions)

    @property
    def hbm_bytes(self) -> int:
        """The bytes that it has in HBM, with the padding of its tiles; 0 if it lies elsewhere."""
        if re.search(r"S\([1-9]", self.layout):
            return 0
        order, _, tiling = self.layout.partition(":")
        stored = [self.dimensions[int(i)] for i in reversed(order.split(",")) if i]
        if tile := re.match(r"T\(([\d,]+)\)", tiling):
            sizes = [int(size) for size in tile[1].split(",")]
            for place in range(1, 1 + min(len(sizes), len(stored))):
                stored[-place] += -stored[-place] % sizes[-place]
        return _BYTES.get(self.dtype, 4) * math.prod(stored or [1])


def _arrays(type_: str) -> Iterator[Array]:
    for match in re.finditer(r"(\w+)\[([\d,]*)\](?:\{([^}]*)\})?", type_):
        yield Array(match[1], tuple(map(int, filter(None, match[2].split(",")))), match[3] or "")


class Program:
    """The computations of an optimized HLO module (`jax.stages.Compiled.as_text`)."""

    def __init__(self, text: str):
        self._computations: dict[str, list[Instruction]] = {}
        self._types: dict[str, str] = {}  # the type of every instruction, by its name
        self._entry = ""
        limits: dict[str, list[int]] = collections.defaultdict(list)  # computation -> integers
        name = ""
        for line in _KERNEL_METADATA.sub(r"rounds=\1", text).splitlines():
            if match := re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line):
                name = match[2]
                self._computations[name] = []
                self._entry = name if match[1] else self._entry
            elif line.startswith("  ") and " = " in line and name:
                self._computations[name].append(instruction := _instruction(line, limits))
                self._types[instruction.name] = instruction.type
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
        """Yields each collective, also in fusions, and how often it runs; of a chain, the first."""
        chains = set()
        for name, times in self._times(follow_fusions=True).items():
            for instruction in self._computations[name]:
                chain = instruction.chain
                if instruction.collective and (chain is None or chain not in chains):
                    chains.add(chain)
                    yield instruction, times

    def communicates(self, instruction: Instruction) -> bool:
        """Whether it is a collective, or a fusion with one."""
        inside = self._inside(instruction)
        return bool(instruction.collective) or any(self.communicates(inner) for inner in inside)

    def hbm_bytes(self, instruction: Instruction) -> int:
        """The bytes of HBM that an instruction reads and writes, with the padding of tiles.

        Of an operand that a fusion slices or updates in place, only that slice is counted.
        """
        read = sum(self._read(instruction, place) for place in range(len(instruction.operands)))
        updates = [inner for inner in self._inside(instruction) if inner.opcode == _UPDATE]
        in_place = sum(self._hbm(inner.name) - self._hbm(inner.operands[1]) for inner in updates)
        return read + max(0, self._hbm(instruction.name) - in_place)

    def _read(self, instruction: Instruction, place: int) -> int:
        """The bytes of HBM that an instruction, or a fusion inside it, reads of an operand."""
        whole = self._hbm(instruction.operands[place])
        inside = self._inside(instruction)
        parameter = ("parameter", (str(place),))
        names = [inner.name for inner in inside if (inner.opcode, inner.operands) == parameter]
        reads = [
            self._bytes_read_by(user, at)
            for user in inside
            for at, operand in enumerate(user.operands)
            if operand in names
        ]
        return min(whole, sum(reads)) if reads else whole

    def _bytes_read_by(self, user: Instruction, place: int) -> int:
        """The bytes that an instruction of a fusion reads of an operand."""
        if place == 0 and user.opcode in (*_SLICES, _UPDATE):
            return self._hbm(user.name) if user.opcode in _SLICES else 0
        return self._read(user, place)

    def _inside(self, instruction: Instruction) -> list[Instruction]:
        return [inner for name in instruction.holds for inner in self._computations[name]]

    def form(self, instruction: Instruction) -> str:
        """A text that is equal for instructions with the same computation and operand types."""
        operands = [self._types.get(operand, "") for operand in instruction.operands]
        held = [self._form_of(name) for name in instruction.holds]
        return "\n".join((instruction.form, *operands, *held))

    def _form_of(self, computation: str) -> str:
        order: dict[str, int] = {}
        lines = []
        for instruction in self._computations[computation]:
            order[instruction.name] = len(order)
            operands = (str(order.get(name, name)) for name in instruction.operands)
            held = (self._form_of(name) for name in instruction.holds)
            lines.append(" ".join((instruction.form, *operands, *held)))
        return "\n".join(lines)

    def _hbm(self, name: str) -> int:
        return sum(array.hbm_bytes for array in _arrays(self._types.get(name, "")))

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
    name, _, rest = line.partition(" = ")
    end = _closing(rest) + 1 if rest.startswith("(") else rest.index(" ")
    type_, opcode = rest[:end], rest[end + 1 :].partition("(")[0]
    cycles = re.search(r'"estimated_cycles":"(\d+)"', rest)
    source = re.search(r'op_name="([^"]*)"', rest)
    chain = re.search(r'chain_id="(\d+)"', rest)
    blocks = re.search(r"\brounds=(\d+)", rest)
    arguments = rest[end + 1 + len(opcode) :]
    arguments = arguments[1 : _closing(arguments)]
    runs, holds = [], []
    if opcode == "while":
        trips = re.search(r'known_trip_count"?:\{"n":"(\d+)"\}', rest)
        condition, body = (
            re.findall(rf"{role}=%?([\w.-]+)", rest)[0] for role in ("condition", "body")
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
        name=name.split()[-1].removeprefix("%"),
        opcode=opcode,
        type=type_,
        operands=tuple(re.findall(r"%([\w.-]+)", arguments)) or tuple(arguments.split(",")),
        source=source[1] if source else "",
        cycles=int(cycles[1]) if cycles and cycles[1] != _NO_ESTIMATE else None,
        chain=int(chain[1]) if chain else None,
        runs=tuple(runs),
        holds=tuple(holds),
        form=_form(rest),
        rounds=int(blocks[1]) if blocks else 0,
    )


def _form(text: str) -> str:
    """An instruction's text without what does not change how it is compiled."""
    text = re.sub(r", (?:metadata|control-predecessors)=\{[^}]*\}|, calls=[^ ,]*", "", text)
    kernel = re.search(r'"body":"[^"]*"', text)  # the program of a custom call
    return re.sub(r"%[\w.-]+", "%", text.partition(", backend_config=")[0]) + (kernel or [""])[0]


def _closing(text: str) -> int:
    """The index of the parenthesis that closes the first one."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index
    raise ValueError(f"unbalanced: {text[:200]}")
