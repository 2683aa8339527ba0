"""Calls all that `bertjax.load` offers with wrong arguments, and judges its answers.

  python tests/campaigns/library.py --minutes=1 [--seed=1] [--output=FILE.json]

The models are small and random, in folders of transformers. A try is a call in which one argument,
or a piece of one, is another value; it ends as "reported" with an InputError of one line. If the
value is accepted, the result must be that of the call without it; otherwise it is "silent".
"""

import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import other_json
import programs
from outcome import SILENT, End, Meant, Try, arguments, judge, report
from tries import chosen

_TRIES_A_MINUTE = 1_200  # on two cores
_SECONDS, _MEMORY = 60, 16 << 30  # the limits of one call, and bytes of address space

_TEXT = "any text is a text, and an object of a task is one"
_OTHER = "another value that is right"
MEANT = (
    Meant("*=None", SILENT, "None is the default"),
    Meant("*: texts=[[]]", SILENT, "no texts have no results"),
    Meant("*: texts=()", SILENT, "no texts have no results"),
    Meant("*: texts=('a', 'b')", SILENT, _TEXT),
    Meant("*: texts=array(*", SILENT, _TEXT),
    Meant("*: texts[[]*]='*", SILENT, _TEXT),
    Meant("predict*: texts[[]*]={*", SILENT, _TEXT),
    Meant("encode: length=7", SILENT, _OTHER),
    Meant("fill: t*", SILENT, _OTHER),
    Meant("function: kind=*", SILENT, _OTHER),
    Meant("vectors: normalize=True", SILENT, _OTHER),
    Meant("vectors: layers[[]0]=0", SILENT, _OTHER),
    Meant("vectors: batch_tokens=7", SILENT, "another order of sums, another rounding"),
)


class Call(NamedTuple):
    """A call that works.

    Attributes:
      model: the class of its model in transformers; it becomes the argument "source" of `load`.
      result: (the opened model, the arguments by name) -> what the call returns.
      arguments: the arguments by name; or (the opened model) -> these.
    """

    model: str
    result: Callable[..., Any]
    arguments: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]


class _Planned(NamedTuple):
    """A try: see `outcome.Try`; `place` leads to the argument, or into it, that becomes `value`."""

    group: str
    name: str
    place: other_json.Place
    value: Any

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"


def _method(name: str) -> Callable[..., Any]:
    return lambda opened, /, **kwargs: getattr(opened, name)(**kwargs)


def _called(opened: Any, /, **kwargs: Any) -> Any:
    return opened.function()(**kwargs)


def _of_a_function(opened: Any, /, **kwargs: Any) -> Any:
    return opened.function(**kwargs)(opened.params, opened.encode(["a cat"], 8))


def _sharded(opened: Any, /, **kwargs: Any) -> Any:
    import jax

    return jax.tree.map(str, opened.shardings(**kwargs))


def _arrays(opened: Any) -> dict[str, Any]:
    return {"params": opened.params, "inputs": opened.encode(["the cat"], 9), "dropout": None}


_TEXTS = ["the cat runs", "a dog"]
_VECTORS: dict[str, Any] = dict(
    **dict(texts=_TEXTS, features="mean", layers=[-1], combine="concat", normalize=False),
    **dict(max_length=13, truncate=False, compute_dtype="float32", batch_tokens=64, streams=0),
)
_SEQUENCE, _TAGGER = "BertForSequenceClassification", "BertForTokenClassification"
CALLS = {
    "load": Call(_SEQUENCE, repr, {}),
    "vectors": Call("BertModel", _method("vectors"), _VECTORS),
    "fill": Call("BertForPreTraining", _method("fill"), dict(text="the [MASK] runs", top=3)),
    "predict a class": Call(_SEQUENCE, _method("predict"), {"texts": _TEXTS}),
    "predict tags": Call(_TAGGER, _method("predict"), {"texts": _TEXTS}),
    "encode": Call("BertModel", _method("encode"), dict(texts=_TEXTS, length=9)),
    "function": Call("BertForPreTraining", _of_a_function, {"kind": "pre_training"}),
    "call": Call(_TAGGER, _called, _arrays),
    "shardings": Call("BertModel", _sharded, dict(layout="data", data=-1, model=1)),
}

# Values that are seldom right, of types that JSON has and of others.
_WRONG: tuple[Any, ...] = (
    *other_json.OTHER_VALUES,
    *("", "\0", "n" * 300, b"bytes", float("inf"), -(10**20), 10**400),
    *((), (None,), ("a", "b"), {"text": "cat"}, {"words": ["cat"]}, {"text": None}, {1: object()}),
    *({"cat"}, object(), len, np.float32(2.5), np.array([1.5, 2]), np.array("text", object)),
    *(np.zeros((1, 9), np.float32), np.zeros((1, 10), np.int32), np.zeros((9,), np.int32)),
    *("\ud800", "the cat \u0007", " ||| ", "moo " * 40, [["the"], ["cat"]]),
)


def _plan(usual: Mapping[str, Mapping[str, Any]]) -> Iterator[_Planned]:
    """All tries: each argument, and each member of one, with each wrong value, or left out."""
    yield _Planned("vectors", "no_such_option=1", ("no_such_option",), 1)
    for group, kwargs in usual.items():
        for place in _places(kwargs):
            was = other_json.at(kwargs, place)
            for value in _WRONG:
                if type(value) is type(was) and repr(value) == repr(was):
                    continue
                yield _Planned(group, f"{_shown(place)}={_short(value)}", place, value)


def _places(kwargs: Mapping[str, Any]) -> Iterator[other_json.Place]:
    for name, value in kwargs.items():
        yield (name,)
        if isinstance(value, dict | list):  # the trees of parameters, the arrays, the texts
            keys = value if isinstance(value, dict) else range(len(value))
            yield from ((name, key) for key in keys)


def _shown(place: other_json.Place) -> str:
    return str(place[0]) + "".join(f"[{key!r}]" for key in place[1:])


def _short(value: Any) -> str:
    if callable(value) or type(value) is object:
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) > 10**30:
        return "a number of 401 digits"
    shown = repr(value).replace("\n", "")
    return shown if len(shown) < 100 else f"{shown[:80]}... of {len(shown)} characters"


def _changed(kwargs: Mapping[str, Any], place: other_json.Place, value: Any) -> dict[str, Any]:
    """A copy of the arguments with another value at a place."""
    name, *inside = place
    if not inside:
        return {**kwargs, name: value}
    members = kwargs[name].copy()
    members[inside[0]] = value
    return {**kwargs, name: members}


class _TooLong(Exception):
    """A call exceeds its limit of time."""


def _too_long(*_: Any) -> None:
    raise _TooLong


def _end(call: Callable[[], Any]) -> tuple[End, Any]:
    """The end of a call in the form of that of a process, and its result."""
    from bertjax.base.errors import InputError

    said = StringIO()
    signal.alarm(_SECONDS)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            return End(0, ""), call()
    except _TooLong:
        return End(None, ""), None
    except InputError as error:
        return End(2, f"error: {error}\n".encode(errors="replace").decode()), None
    except OSError as error:
        named = error.filename is not None  # of the system, with the file
        return (End(2, f"error: {error}\n") if named else End(1, traceback.format_exc())), None
    except Exception:
        return End(1, traceback.format_exc()), None
    finally:
        signal.alarm(0)


def _same(one: Any, other: Any) -> bool:
    import jax

    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


def _models(folder: Path) -> dict[str, str]:
    """The folder of each small model, as a source."""
    from bertjax.interop.hugging_face import write_hugging_face
    from tests.helpers.small_models import PIECES, small_model

    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    found = {}
    for name in {call.model for call in CALLS.values()}:
        (folder / name).mkdir()
        write_hugging_face(small_model(vocabulary, name), folder / name)
        found[name] = f"hf:{folder / name}"
    return found


def main() -> None:
    """Runs the campaign, and exits with its code."""
    options = arguments(__doc__).parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory(prefix="bertjax-campaign-") as name:
        folder = Path(name)
        programs.prepare_environment(folder)
        import jax

        import bertjax

        jax.config.update("jax_platforms", "cpu")  # JAX has read the environment
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
        sources = _models(folder)
        opened = {name: bertjax.load(source) for name, source in sources.items()}
        usual: dict[str, Mapping[str, Any]] = {"load": {"source": sources[CALLS["load"].model]}}
        for group, call in CALLS.items():
            if group != "load":
                own = call.arguments
                usual[group] = own(opened[call.model]) if callable(own) else own

        def made(group: str, kwargs: Mapping[str, Any]) -> Callable[[], Any]:
            call = CALLS[group]
            if group == "load":
                return lambda: call.result(bertjax.load(**kwargs))
            return lambda: call.result(opened[call.model], **kwargs)

        wanted = {group: made(group, each)() for group, each in usual.items()}
        matching = [each for each in _plan(usual) if fnmatchcase(str(each), options.only)]
        some = chosen(matching, round(options.minutes * _TRIES_A_MINUTE), options.seed)
        print(f"{len(some)} of {len(matching)} tries", flush=True)
        tries = []
        for each in some:
            changed = _changed(usual[each.group], each.place, each.value)
            end, found = _end(made(each.group, changed))
            right = end.code == 0 and _same(found, wanted[each.group])
            tries.append(Try(each.group, each.name, *judge(end, right=right)))
    sys.exit(report(sorted(tries), MEANT, options.output))


if __name__ == "__main__":
    main()
