"""A model for programs in Python: `bertjax.load` returns it. docs/library.md shows its use."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.base.checks import check_choice, check_range, input_error_at
from bertjax.base.errors import InputError
from bertjax.base.no_tpu import tell_libtpu_where_none_is
from bertjax.base.validation import converted
from bertjax.inference.blanks import Guess, fill
from bertjax.inference.features.compute import Extractor, Options
from bertjax.inference.features.texts import MEAN, POOLED
from bertjax.inference.generate import complete
from bertjax.inference.likelihood import log_likelihoods
from bertjax.inference.rows import Column, Columns
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.runs.fine_tuning.answers import numbered, predictions
from bertjax.runs.fine_tuning.fine_tuned import OneModel
from bertjax.runs.pretrained_run import PretrainedRun
from bertjax.runs.source import TasksRun, open_source
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Arrays, Model, Params
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import make_placement


class TextModel:
    """A trained model, its vocabulary, and what can be done with it.

    Attributes:
      source: what it was loaded from.
      tokenizer: its vocabulary: `encode` gives the ids of texts, `decode` the text of ids.
      spec: its sizes, such as `spec.hidden_size`.
      classes: the names of a classifier's classes.
      params: its parameters, nested dicts of float32 numpy arrays, for `function`.
    """

    def __init__(self, source: str):
        """Use `bertjax.load`."""
        tell_libtpu_where_none_is()  # JAX has used no device yet, unless the caller's program has
        self.source = converted(source, str, "source")
        if not self.source or "\0" in self.source:
            raise InputError(f"source={self.source!r}: names no model")
        self._opened = open_source(self.source)
        self._pretrained = self._opened.weights()
        self._extractors: dict[Options, Extractor] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """Its vocabulary."""
        return self._pretrained.tokenizer

    @property
    def spec(self) -> EncoderSpec:
        """Its sizes."""
        return self._pretrained.spec

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of a classifier's classes."""
        return self._pretrained.classes

    @property
    def params(self) -> Params:
        """Its parameters, nested dicts of float32 numpy arrays."""
        found, parts = self._pretrained.params, self._pretrained.parts
        return {part: found[part] for part in parts if part in found}

    def __repr__(self) -> str:
        return self._pretrained.summary().partition("\n")[0]

    # ------------------------------------------------------------------------- its uses

    def vectors(
        self, texts: Iterable[str], features: str | None = None, **options: Any
    ) -> np.ndarray | list[np.ndarray]:
        """The vectors of texts; "A ||| B" is a pair.

        Args:
          features: "mean", "max", "cls" or "last" for a vector of each text; "tokens", "words" or
            "first_pieces" for several. None: as the model has learned, or else "mean".
          options: other fields of `bertjax.inference.features.compute.Options`: layers, ...

        Returns:
          float32 [N, W] for a vector of each text; else for each text float32 [its vectors, W].

        Raises:
          InputError: options that do not fit the model, or a text that is too long for it.
        """
        chosen = _options(features=features, **options).of_model(self._pretrained)
        chosen = dataclasses.replace(chosen, features=chosen.features or MEAN)
        if chosen not in self._extractors:
            self._extractors[chosen] = Extractor(self._pretrained, chosen)
        extractor = self._extractors[chosen]
        encoded = list(extractor.encoder.encode(_texts(texts)))
        for number, text in enumerate(encoded):
            extractor.check(text, f"text {number}")
        found = extractor.vectors(encoded)
        if chosen.features not in POOLED:
            return found
        return np.concatenate(found) if found else np.zeros((0, extractor.width), np.float32)

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """The best guesses for each [MASK] of a text: their `token` and `probability`.

        Raises:
          InputError: no [MASK] in it, a text that is too long, or a model that fills in no blanks.
        """
        texts = [converted(text, str, "text")]
        return fill(self._pretrained, texts, converted(top, int, "top"))[0]

    def complete(
        self,
        texts: Iterable[str],
        tokens: int = 40,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """The texts with their continuations, as `bertjax.inference.generate.complete` makes them.

        Raises:
          InputError: a model that does not read left to right, a number that does not fit, or a
            text that is too long.
        """
        found = complete(
            self._left_to_right,
            _texts(texts),
            converted(tokens, int, "tokens"),
            converted(temperature, float, "temperature"),
            converted(top_p, float, "top_p"),
            converted(seed, int, "seed"),
        )
        return [self.tokenizer.decode(ids) for ids in found]

    @cached_property
    def _left_to_right(self) -> Pretrained:
        """The model itself; of the objective "hybrid", the part that reads left to right."""
        match self._opened:
            case PretrainedRun(recipe=recipe) as run:
                if head_types.CAUSAL_LM in recipe.objective.others.values():
                    return run.weights(head_types.CAUSAL_LM)
        return self._pretrained

    def score(self, texts: Iterable[str], masking: str = "token") -> np.ndarray:
        """The log-probability of each text in nats, float64 [N].

        Args:
          masking: how a masked LM is asked, "token" or "word"
            (`bertjax.inference.likelihood.log_likelihoods`).

        Raises:
          InputError: a model that predicts no tokens, or a text without one or with too many.
        """
        masking = converted(masking, str, "masking")
        return log_likelihoods(self._pretrained, _texts(texts), masking)

    def predict(self, texts: Iterable[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What a fine-tuned model says of each text: the objects that launch/predict.py writes.

        Args:
          texts: each in the form of the task: "A", "A ||| B", or a JSON object, as text or as a
            dict: {"text": "A", "text_b": "B"}, {"words": ["A", ...]}, ... An empty text gives {}.

        Raises:
          InputError: the model has learned no task, or a text has another form.
        """
        lines = numbered(map(_line, _listed(texts)), "texts")
        return list(predictions(self._fine_tuned, lines, "texts"))

    @cached_property
    def _fine_tuned(self) -> OneModel:
        if isinstance(self._opened, TasksRun):
            raise self._opened.refusal
        return OneModel(self._pretrained)

    # ------------------------------------------------------------- for a step of one's own

    def encode(self, texts: Iterable[str], length: int | None = None) -> dict[str, np.ndarray]:
        """The arrays that `function` reads, int32 [B, S], with special tokens and padding.

        Args:
          length: S; longer texts are cut at their end. None: that of the longest text, or the most
            that the model takes.

        Raises:
          InputError: the model reads words by their characters (ELMo), or takes no such length.
        """
        self._pretrained.check_reads_pieces()
        template, most = self.tokenizer.template, self.spec.max_position_embeddings
        ids = self.tokenizer.encode(_texts(texts))
        specials = template.specials(pair=False)
        longest = max((len(each) for each in ids), default=0) + specials
        given = converted(length, int | None, "length")  # type: ignore[arg-type]
        size = min(longest, most) if given is None else given
        check_range("length", size, specials, most)
        sequences = [template.sequence(each[: size - specials]) for each in ids]
        rows = Columns(
            {
                "input_ids": Column([each.ids for each in sequences], self.tokenizer.pad_id),
                "token_type_ids": Column([each.token_types for each in sequences]),
            }
        )
        batch = rows.batch(np.arange(len(ids)), len(ids), size)
        return {name: batch[name] for name in self._pretrained.family.text_inputs}

    def function(self, kind: str | None = None) -> Callable[..., dict[str, jax.Array]]:
        """The model as a pure function.

        Args:
          kind: a kind of `bertjax.models.encoders.head_types` whose heads the model has: "encoder"
            gives "sequence" [B, S, D], "masked_lm" the logits [B, S, V]. None: the model's own.

        Returns:
          function(params, inputs, dropout=None): the outputs by name; `dropout` is a key, with
          which activations are dropped as in training.

        Raises:
          InputError: no such kind, or the model lacks a part of it; also of the function, for
            parameters, arrays or a key that are none, or are not all there.
        """
        if kind is not None:
            check_choice("kind", kind, HEAD_SPECS)
        model = self._model(kind)
        parts = HEAD_SPECS[kind].parts(self.spec) if kind else self._pretrained.parts
        own_params = {part: self._pretrained.params[part] for part in parts}

        def call(
            params: Params, inputs: Arrays, dropout: jax.Array | None = None
        ) -> dict[str, jax.Array]:
            _check_params("params", params, own_params)
            _check_inputs(inputs, model.parts[""].inputs, self.spec.max_position_embeddings)
            if not isinstance(dropout, jax.Array | None):
                raise InputError(f"dropout={dropout!r:.80}: must be a key: jax.random.key(0)")
            return model(params, inputs, dropout)

        return call

    def shardings(self, layout: str = "data", data: int = -1, model: int = 1) -> Params:
        """The `NamedSharding` of each parameter over all devices, in a tree like `params`.

        Args:
          layout: "data", "zero1", "fsdp", ...: see docs/tpu.md.
          data, model: the sizes of the mesh's axes; -1: all remaining devices.

        Raises:
          InputError: no such layout, or a mesh that does not fit the devices or the parameters.
        """
        mesh = converted(dict(data=data, model=model), MeshSpec)
        placement = make_placement(mesh, converted(layout, str, "layout"))
        return placement.shardings(
            jax.eval_shape(self._model().init, jax.random.key(0)), stored=True
        )

    def _model(self, kind: str | None = None) -> Model:
        head_spec = HEAD_SPECS[kind or self._pretrained.head_type]
        sizes = {axis: min(8, self.spec.max_position_embeddings) for axis in head_spec.axes}
        inputs = head_spec.inputs(self.spec, **sizes)
        return Model.of(self._pretrained.model(kind), inputs)


def _listed(texts: Any) -> list[Any]:
    """The members of `texts`: not the letters of a text, and not what has no order."""
    problem = InputError(f"texts={texts!r:.80}: must be a list of texts")
    if isinstance(texts, str | bytes | Mapping | Set):
        raise problem
    try:
        return list(texts)
    except TypeError:
        raise problem from None


def _texts(texts: Any) -> list[str]:
    return [converted(text, str, f"texts[{n}]") for n, text in enumerate(_listed(texts))]


def _line(text: Any) -> str:
    """A text of `predict` as a line of launch/predict.py's input."""
    if not isinstance(text, Mapping):
        form = 'write "A", "A ||| B", or an object such as {"text": "A", "text_b": "B"}'
        if not isinstance(text, str):
            raise InputError(f"texts: {text!r:.80} is none: {form}")
        return text
    if not text:
        raise InputError("texts: {} is an object without fields")
    wrong = (TypeError, ValueError, RecursionError)
    with input_error_at(f"texts: {text!r:.80} cannot be written as JSON", wrong):
        return json.dumps(dict(text))


def _options(**options: Any) -> Options:
    known = [field.name for field in dataclasses.fields(Options)]
    if unknown := sorted(options.keys() - set(known)):
        raise InputError(f"{unknown[0]}: no such option: there are {', '.join(known)}")
    return converted(options, Options)


def _check_params(place: str, params: Any, expected: Any) -> None:
    if isinstance(expected, Mapping):
        _check_names(place, params, expected)
        for name, each in expected.items():
            _check_params(f"{place}[{name!r}]", params[name], each)
    elif getattr(params, "shape", None) != expected.shape:
        raise InputError(f"{place}={params!r:.80}: must be an array of the shape {expected.shape}")


def _check_names(what: str, values: Any, expected: Iterable[str]) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"{what}={values!r:.80}: must be a dict of {', '.join(expected)}")
    if missing := [name for name in expected if name not in values]:
        raise InputError(f"{what}: no {' and no '.join(missing)} in it")


def _check_inputs(inputs: Any, expected: Mapping[str, jax.ShapeDtypeStruct], longest: int) -> None:
    """Raises InputError for arrays that a model does not take; only their shapes are looked at."""
    _check_names("inputs", inputs, expected)
    for name, spec in expected.items():
        dtype, shape = getattr(inputs[name], "dtype", object), getattr(inputs[name], "shape", ())
        if not jnp.issubdtype(dtype, jnp.integer) or len(shape) != spec.ndim:
            raise InputError(
                f"inputs[{name!r}]: must be an array of whole numbers with {spec.ndim} dimensions, "
                "as `encode` makes it"
            )
    shapes = {name: inputs[name].shape for name in expected}
    texts = shapes["input_mask"]
    if differ := [name for name, shape in shapes.items() if shape[: len(texts)] != texts]:
        raise InputError(f"inputs: {differ[0]} is {shapes[differ[0]]}, and input_mask {texts}")
    if texts[-1] > longest:
        raise InputError(f"inputs: {texts[-1]} tokens: the model takes {longest}")


def load(source: str) -> TextModel:
    """Opens a model.

    All that it is given is checked: what is wrong raises `bertjax.base.errors.InputError`, a
    ValueError whose message says what to do.

    Args:
      source: a name on the Hugging Face hub, "hf:google-bert/bert-base-uncased"; a folder that
        transformers wrote, "hf:FOLDER"; a run of pre-training or fine-tuning, "RUN" or "RUN@STEP";
        "tf1:FOLDER", a release of google-research/bert.

    Raises:
      InputError: there is no such model, or it cannot be read completely.
      OSError: a file or folder that the system does not open.
    """
    return TextModel(source)
