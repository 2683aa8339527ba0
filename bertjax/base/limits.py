"""Types of fields with limits, and marks: what of a config may differ when a run goes on."""

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from bertjax.base.checks import check_choice
from bertjax.base.validation import converted, shown

T = TypeVar("T")

# A number above the greatest would take endless time or memory: a typing error, or damage.
Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]  # 0: none
Few = Annotated[int, Meta(ge=1, le=1_000)]  # layers, epochs, answers
FewOrNone = Annotated[int, Meta(ge=0, le=1_000)]
Kinds = Annotated[int, Meta(ge=0, le=10_000)]  # of tokens
Workers = Annotated[int, Meta(ge=1, le=10_000)]
Width = Annotated[int, Meta(ge=1, le=100_000)]
WidthOrNone = Annotated[int, Meta(ge=0, le=100_000)]
Many = Annotated[int, Meta(ge=1, le=1_000_000)]  # rows, batches, positions
Pieces = Annotated[int, Meta(ge=1, le=10_000_000)]
Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]  # 0: as many as suit the device
Rate = Annotated[float, Meta(ge=0, lt=1)]  # of dropout, of decay
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]

# How a field stands in a config.
FREE = "may change when the run goes on"  # it changes no result
TRIED = "may change when the run goes on, which then has other trials"
COMMA = "names with commas between"


@dataclasses.dataclass(frozen=True)
class Key:
    """The mark of a field that a config has by other keys; (): by none."""

    names: tuple[str, ...] = ()


Free = Annotated[T, FREE]
Tried = Annotated[T, TRIED]
Names = Annotated[tuple[str, ...], COMMA]


def check(name: str, value: Any, type_: Any) -> None:
    """Raises InputError unless a value has a type, with its limits."""
    converted(value, type_, name)


def require(holds: object, settings: Any, field: str, problem: str) -> None:
    """Raises ValueError about a field of some settings, with its value, unless something holds."""
    if not holds:
        raise ValueError(f"{field}={shown(getattr(settings, field))}: {problem}")


def check_limits(settings: Any, **choices: Iterable[Any]) -> None:
    """Checks the fields of a dataclass by their types, and some by their choices.

    Raises ValueError, which names a field that does not fit, without a place: the caller knows it.
    """
    try:
        for name, known in choices.items():
            check_choice(name, getattr(settings, name), known)
        for field in dataclasses.fields(settings):
            check(field.name, getattr(settings, field.name), field.type)
    except ValueError as error:
        raise ValueError(str(error)) from error
