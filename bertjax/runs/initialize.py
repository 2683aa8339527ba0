"""Training that starts from pretrained weights."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.base.errors import InputError
from bertjax.base.factors import FACTORS
from bertjax.interop.derived import as_family
from bertjax.interop.pretrained import LowRank, Pretrained
from bertjax.interop.vocabulary_change import with_vocabulary
from bertjax.models.encoders import head_types
from bertjax.models.encoders.computation import determined
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.storage import from_canonical, tables_of_pieces, to_canonical
from bertjax.models.heads.tasks import BILSTM, OUTPUT_LAYERS
from bertjax.runs.read import about_config
from bertjax.runs.recipe import Recipe, phase_keys
from bertjax.text.characters import Characters
from bertjax.text.extension import extends
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Model, Params, merged, parameters_at
from bertjax.training.sharding.placement import Placement
from bertjax.training.subset import stays, trains_some


def with_weights(recipe: Recipe, pretrained: Mapping[str, Pretrained]) -> dict[str, Any]:
    """The config of a recipe, with what pretrained weights decide of it.

    The main part decides the sizes in config.model, and others settings of the objective.
    """
    config_dict, settings = dict(recipe.config_dict), dict[str, Any]()
    if main := pretrained.get(recipe.objective.exported):
        config_dict["model"] = with_sizes_of(main, config_dict["model"])
    for part, each in pretrained.items():
        with about_config(f"init_from.{part}"):
            settings |= recipe.objective.settings_of(part, each.spec)
    if settings:
        objective = config_dict.get("objective", recipe.objective.name)
        config_dict["objective"] = _section(objective) | settings
        for key in phase_keys(config_dict):
            if own := config_dict[key].get("objective"):
                config_dict[key] = {**config_dict[key], "objective": _section(own) | settings}
    return config_dict


def _section(objective: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"name": objective} if isinstance(objective, str) else dict(objective)


def with_sizes_of(pretrained: Pretrained, model: Mapping[str, Any]) -> dict[str, Any]:
    """A config's model section, with the sizes of the pretrained weights instead of its own."""
    if model["encoder"] != pretrained.spec.encoder:
        raise InputError(
            f"{pretrained.origin}: the weights of a {pretrained.spec.encoder}, and "
            f"config.model.encoder={model['encoder']!r}: take a config for "
            f"{pretrained.spec.encoder}, or other weights"
        )
    kept = {key: value for key, value in model.items() if key != "size"}
    return kept | determined(pretrained.spec)


def in_vocabulary(
    pretrained: Pretrained, tokenizer: Tokenizer, *, exchange: bool, frozen: bool
) -> Pretrained:
    """The pretrained weights with the vocabulary of a corpus.

    If that is the weights' own, they stay as they are; if it has more pieces after those, or words
    in [unusedN] places, these get rows (`bertjax.interop.vocabulary_change`).

    Args:
      exchange: whether the corpus may have any other vocabulary.
      frozen: whether the weights are not trained; then they keep their vocabulary.
    """
    own_tokenizer = pretrained.tokenizer
    is_extension = extends(tokenizer, own_tokenizer)
    if is_extension and tokenizer.tokens == own_tokenizer.tokens:
        return pretrained
    if frozen:
        raise InputError(
            f"{pretrained.origin}: weights that are not trained keep their vocabulary, and the "
            "corpus has another one: prepare it with --vocabulary set to that of the weights"
        )
    if not (is_extension or exchange):
        raise InputError(
            f"{pretrained.origin} and the corpus have different vocabularies: prepare the corpus "
            "with --vocabulary set to that of the weights (--extend_vocabulary=N adds pieces to "
            "it), or give the weights the corpus's vocabulary by config.exchange_vocabulary=True"
        )
    return with_vocabulary(pretrained, tokenizer)


def predicting(pretrained: Pretrained, tokenizer: Tokenizer, spec: EncoderSpec) -> Pretrained:
    """Pretrained weights that read characters, to train on text of a vocabulary.

    The model reads all words. What predicts them begins anew, unless it has learned the vocabulary.
    """
    assert isinstance(pretrained.tokenizer, Characters)
    if pretrained.tokenizer.predicted == tokenizer.identity:
        return pretrained
    encoder = pretrained.spec.encoder
    return dataclasses.replace(
        pretrained,
        head_type=head_types.ENCODER,
        spec=dataclasses.replace(pretrained.spec, vocab_size=spec.vocab_size),
        params={encoder: pretrained.params[encoder]},
    )


def open_sources(
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    open_model: Callable[[str], Pretrained],
    *,
    started: bool,
) -> dict[str, Pretrained]:
    """The weights that `config.init_from` names, by part of the model.

    Those of the main part are made weights of the config's family, if they have all it needs.

    Args:
      tokenizer: the corpus's, which they get (`in_vocabulary`); None: they keep their own.
      open_model: that of `bertjax.runs.source`, which itself may open a run with sources.
      started: whether the run goes on, and so needs only weights that are not trained.
    """
    parts = recipe.objective.model(recipe.spec(vocab_size=1)).parts
    subset = recipe.adapter, recipe.frozen
    names = ", ".join(filter(None, parts)) or "one without a name: give its weights as a text"
    pretrained = {}
    for part, source in recipe.sources.items():
        if part not in parts:
            raise InputError(f"config.init_from.{part}: the model has no such part, but {names}")
        for path, owner in parts[part].shared.items():
            if owner not in recipe.sources:
                raise InputError(
                    f"config.init_from.{part}: its {path} are those of {owner}, which would begin "
                    f"anew: give the weights of {owner}, too"
                )
        if not started or parts[part].frozen or trains_some(*subset):
            pretrained[part] = open_model(source)
            if not ENCODERS[recipe.model["encoder"]].reads_characters:
                pretrained[part].check_reads_pieces()
        if part in pretrained and part == recipe.objective.exported:
            pretrained[part] = as_family(pretrained[part], recipe.model["encoder"])
        if part in pretrained and tokenizer and pretrained[part].family.reads_characters:
            pretrained[part] = predicting(pretrained[part], tokenizer, recipe.spec_for(tokenizer))
        elif part in pretrained and tokenizer:
            table, *_ = tables_of_pieces(pretrained[part].spec)
            pretrained[part] = in_vocabulary(
                pretrained[part],
                tokenizer,
                exchange=recipe.exchange_vocabulary,
                frozen=bool(parts[part].frozen) or stays(table, *subset),
            )
    return pretrained


def learned_branches(pretrained: Mapping[str, Pretrained]) -> dict[str, list[str]]:
    """The branches of pretrained weights, by part of the model, without the output layers."""
    new_branches = BILSTM, *OUTPUT_LAYERS
    return {
        part: [b for b in each.params if b not in new_branches] for part, each in pretrained.items()
    }


def low_rank(
    model: Model, params: Params, source: Pretrained, base: Pretrained, part: str = ""
) -> LowRank | None:
    """What an adapter has learned in a part of a model that started from `source`, or None.

    `base` are these weights as they are opened, with all parts; `params` are those of the model.
    """
    if not (adapters := model.parts[part].adapters):
        return None
    merged_params = merged(model.params_of(params, part), model.factors_of(params, part))
    config_dict = flatten_dict(to_canonical(merged_params, model.parts[part].module.spec))
    factors = {path: leaf for path, leaf in config_dict.items() if path[-1] in FACTORS}
    (branches,) = learned_branches({part: source}).values()
    new_branches = tuple(dict.fromkeys(path[0] for path in config_dict if path[0] not in branches))
    _, rank, scale = adapters[0]
    return LowRank(base.origin, base.identity, rank, scale, unflatten_dict(factors), new_branches)


def frozen_params(
    model: Model, placement: Placement, pretrained: Mapping[str, Pretrained], seed: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """The parameters that are not trained, on the devices, and their identities by part.

    A part without weights to start from has the random parameters of the seed. Raises InputError if
    the weights of a part lack some of it, which would never be learned.
    """
    init = partial(model.init, frozen=True)
    shardings = placement.shardings(jax.eval_shape(init, jax.random.key(0)))
    parts = {"": shardings} if "" in model.parts and shardings else shardings
    for part in parts.keys() & pretrained.keys():
        if lacking := [name for name in parts[part] if name not in pretrained[part].params]:
            absent = f"{pretrained[part].origin} has no {' and no '.join(lacking)}"
            if model.parts[part].frozen is True:
                raise InputError(
                    f"config.init_from.{part}: {absent}, which a {part} must have learned: take "
                    "other weights"
                )
            raise InputError(
                f"config.frozen: {absent}, which begins anew and would never be learned: leave it "
                "out of the patterns, or take other weights"
            )
    initial = jax.jit(lambda key: nn.unbox(init(key)), out_shardings=shardings)
    params, identities = initial(jax.random.key(seed)), {}
    for part in parts:
        name = f"frozen {part}".rstrip()
        identities[name] = f"seed {seed}"
        if part in pretrained:
            identities[name] = pretrained[part].identity
            params = load_into(params, pretrained[part], model, part)
    return params, identities


def load_into(
    params: dict[str, Any], pretrained: Pretrained, model: Model, part: str = ""
) -> dict[str, Any]:
    """Replaces branches of parameters on the devices by those of pretrained weights for a part.

    Args:
      params: the parameters of all parts of the model; they have the shardings of the result.
        Those of a part to which this one adds its own must be loaded already.
    """
    stored = flatten_dict(from_canonical(dict(pretrained.params), model.parts[part].module.spec))
    branches = {path[0] for path in stored}

    def put(path: tuple[str, ...], old: jax.Array) -> jax.Array:
        if path[0] not in branches or path[-1] in FACTORS:  # an adapter begins anew
            return old
        new = stored[path]
        if old.shape != new.shape:
            raise InputError(
                f"{pretrained.origin}: an array of shape {new.shape} where the model has "
                f"{old.shape}"
            )
        return jax.make_array_from_callback(old.shape, old.sharding, lambda index: new[index])

    initial = flatten_dict(params[part] if part else params)
    flat = {path: put(path, leaf) for path, leaf in initial.items()}
    for path, owner in model.parts[part].added.items():
        for keys, base in parameters_at(path, params[owner]).items():
            minus = jax.jit(jnp.subtract, out_shardings=flat[keys].sharding)
            flat[keys] = minus(flat[keys], base)
    loaded = unflatten_dict(flat)
    return {**params, part: loaded} if part else loaded
