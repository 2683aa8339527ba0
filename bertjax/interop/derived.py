"""Another model, made of one: some of its layers, a relative's arrays, or scores of pairs."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.base.errors import InputError
from bertjax.interop.names import arrays_of
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.heads.embedding import MODULES, Embedding
from bertjax.models.heads.vector_modules import VectorModule, name_of


def with_layers(pretrained: Pretrained, layers: Sequence[int]) -> Pretrained:
    """The model with some of its layers, by number from 0, in this order (DistilBERT, section 3).

    A layer must be of the same kind as its new place, and have the same parameters.
    """
    name, count = pretrained.family.name, pretrained.spec.num_hidden_layers
    stack = pretrained.params[name]["encoder"]
    chosen = {key: value for key, value in stack.items() if not re.fullmatch(r"layer_\d+", key)}
    for place, layer in enumerate(layers):
        if layer >= count:
            raise InputError(f"{pretrained.origin}: no layer {layer}: there are 0 to {count - 1}")
        layer_type, place_type = map(pretrained.spec.layer_type, (layer, place))
        if layer_type != place_type:
            raise InputError(
                f"{pretrained.origin}: layer {layer} is {layer_type}, and place {place} is for a "
                f"{place_type} one: take a {place_type} layer there"
            )
        chosen[f"layer_{place}"] = stack[f"layer_{layer}"]
        before = stack[f"layer_{min(place, count - 1)}"]
        if flatten_dict(before).keys() != flatten_dict(chosen[f"layer_{place}"]).keys():
            raise InputError(
                f"{pretrained.origin}: layer {layer} has other parameters than layer {place}, "
                "whose place it would take: begin with layer 0"
            )
    return dataclasses.replace(
        pretrained,
        origin=f"layers {', '.join(map(str, layers))} of {pretrained.origin}",
        spec=dataclasses.replace(pretrained.spec, num_hidden_layers=len(layers)),
        params={**pretrained.params, name: {**pretrained.params[name], "encoder": chosen}},
    )


def as_family(pretrained: Pretrained, name: str) -> Pretrained:
    """The weights as those of another family, such as a DistilBERT's of a BERT.

    That is a model of the family `name`, if all its parameters are among the given ones, under the
    same names and of the same shapes; otherwise `pretrained`. InputError: the family has another
    epsilon, so it would compute something else.
    """
    if name == pretrained.family.name:
        return pretrained
    family = ENCODERS[name]
    fields = [field.name for field in dataclasses.fields(family.spec)]
    spec = family.spec(
        **{key: value for key, value in vars(pretrained.spec).items() if key in fields}
    )
    head_type = head_types.MASKED_LM if "masked_lm" in pretrained.params else head_types.ENCODER
    expected = arrays_of(spec, head_type, 0)
    arrays = {
        re.sub(f"^{pretrained.family.name}/", f"{name}/", path): array
        for path, array in flatten_dict(dict(pretrained.params), sep="/").items()
    }
    shapes = {path: array.shape for path, array in arrays.items()}
    if any(shapes.get(path) != shape for path, (shape, _) in expected.items()):
        return pretrained
    epsilon, fixed = (getattr(each, "layer_norm_eps", None) for each in (pretrained.spec, spec))
    if epsilon != fixed:
        raise InputError(
            f"{pretrained.origin}: layer_norm_eps={epsilon}: a {name} has {fixed}: set "
            f"config.model.encoder={pretrained.family.name!r}"
        )
    return dataclasses.replace(
        pretrained,
        head_type=head_type,
        spec=spec,
        params=unflatten_dict({path: arrays[path] for path in expected}, sep="/"),
        classes=(),
        left_out={
            **pretrained.left_out,
            **{path: f"not a part of a {name}" for path in arrays if path not in expected},
        },
    )


def as_scorer(pretrained: Pretrained) -> Pretrained:
    """A model whose vectors are scores of pairs, as a classifier that has the last product."""
    assert pretrained.embedding
    *modules, last = pretrained.embedding.modules
    tree = dict(pretrained.params[MODULES])
    output = {"bias": np.zeros(last.width, np.float32)} | tree.pop(name_of(len(modules)))
    pooler = {"pooler": {MODULES: tree}} if tree else {}
    params = {pretrained.spec.encoder: pretrained.params[pretrained.spec.encoder], **pooler}
    return dataclasses.replace(
        pretrained,
        head_type=head_types.SEQUENCE_CLASSIFICATION,
        classes=tuple(f"LABEL_{number}" for number in range(last.width)),
        params=params | {"classifier": output},
        embedding=None,
        scoring=Embedding(
            pooling=pretrained.embedding.pooling, modules=tuple(modules), normalize=False
        ),
    )


def as_vectors(pretrained: Pretrained) -> Pretrained:
    """The inverse of `as_scorer`."""
    scoring, params = pretrained.scoring, pretrained.params
    assert scoring
    length = pretrained.task.get("max_length", 0)
    tree = params.get("pooler", {}).get(MODULES, {})
    tree = {**tree, name_of(len(scoring.modules)): params["classifier"]}
    return dataclasses.replace(
        pretrained,
        head_type=head_types.ENCODER,
        classes=(),
        params={pretrained.spec.encoder: params[pretrained.spec.encoder], MODULES: tree},
        embedding=dataclasses.replace(
            scoring,
            modules=(*scoring.modules, VectorModule(width=len(pretrained.classes))),
            query_length=length,
            passage_length=length,
        ),
        scoring=None,
    )
