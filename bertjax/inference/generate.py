"""Continues texts by a model that reads left to right, token by token."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.limits import Count, CountOrNone, PositiveShare, Weight, check
from bertjax.base.validation import check_numbers
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.training.model import Params


def complete(
    pretrained: Pretrained,
    texts: Sequence[str],
    tokens: int = 40,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[list[int]]:
    """The ids of texts and of their continuations, without special tokens around them.

    A text ends where the model puts the end-of-text token, or takes no more tokens.

    Args:
      pretrained: a model that reads left to right.
      texts: in them, special tokens mean themselves. An empty text begins after the end of another.
      tokens: the most new tokens.
      temperature: what divides the logits before a token is drawn; 0: the most probable is taken.
      top_p: a token is drawn from the most probable ones that have at least this probability
        together (nucleus sampling, arXiv 1904.09751).

    Raises:
      InputError: a number does not fit; a model that cannot do it; a text with too many tokens.
    """
    check("--tokens", tokens, Count)
    check("--temperature", temperature, Weight)
    check_numbers("--temperature", temperature)
    check("--top_p", top_p, PositiveShare)
    check("--seed", seed, CountOrNone)
    check_numbers("--seed", seed)
    spec, tokenizer = pretrained.spec, pretrained.tokenizer
    if not (spec.causal and pretrained.family.empty_cache):
        raise InputError(
            f"{pretrained.origin}: a {pretrained.class_name}, which does not write texts token by "
            "token: take a model that was trained with config.objective='left_to_right' or "
            "'hybrid', such as one of config.model.encoder='gpt2', or a published GPT-2"
        )
    before, length = list(tokenizer.template.before), spec.max_position_embeddings
    encoded = tokenizer.encode(texts, special=True)
    rows = [before + ids or [tokenizer.end_id] for ids in encoded]
    for text, ids in zip(texts, rows, strict=True):
        pretrained.check_length(f"--text={text!r:.80}: with a new token", len(ids) + 1)
    started = np.array([len(ids) for ids in rows], np.int32)
    prompts = np.full((len(rows), length), tokenizer.pad_id, np.int32)
    for row, ids in zip(prompts, rows, strict=True):
        row[: len(ids)] = ids
    written, ends = _write(
        pretrained.model(head_types.CAUSAL_LM),
        tokenizer.vocabulary_size,
        temperature == 0,
        pretrained.params,
        prompts,
        started,
        np.minimum(started + min(tokens, length), length),
        tokenizer.roles.get("eos", tokenizer.roles.get("sep", -1)),
        jnp.float32(temperature),
        jnp.float32(top_p),
        jax.random.key(seed),
    )
    starts = started - [len(ids) for ids in encoded]  # after the special tokens
    return [
        row[start:end].tolist()
        for row, start, end in zip(np.asarray(written), starts, np.asarray(ends), strict=True)
    ]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _write(
    model: PreTrainingModel,
    vocabulary_size: int,
    greedy: bool,
    params: Params,
    prompts: jax.Array,  # int [B, T], the beginnings of the texts, and padding
    started: jax.Array,  # int [B], their lengths, at least 1
    limits: jax.Array,  # int [B], the most tokens of each text
    end_id: jax.Array,
    temperature: jax.Array,
    top_p: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Reads the given tokens and goes on: int [B, T], and lengths [B] without the end token."""

    def predicted(place: jax.Array, ids: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
        """The token after a place, int [B], and the cache."""
        inputs = {
            name: jnp.zeros((len(ids), 1), jnp.int32) for name in text_inputs(model.spec, B=1, S=1)
        }
        inputs["input_ids"] = jax.lax.dynamic_slice_in_dim(ids, place, 1, axis=1)
        inputs["input_mask"] = jnp.broadcast_to(jnp.arange(ids.shape[1]) <= place, ids.shape)
        outputs, changed = model.apply(
            {"params": params, "cache": cache}, inputs, deterministic=True, mutable=["cache"]
        )
        logits = outputs["masked_lm"][:, 0, :vocabulary_size]
        if greedy:
            return logits.argmax(-1), changed["cache"]
        likely = nucleus(logits / temperature, top_p)
        return jax.random.categorical(jax.random.fold_in(key, place), likely), changed["cache"]

    def goes_on(state: tuple) -> jax.Array:
        place, _, ends, done, _ = state
        return (place + 1 < limits.max()) & ~done.all()

    # All rows are at the same place, so that one program serves texts of all lengths.
    def step(state: tuple) -> tuple:
        place, ids, ends, done, cache = state
        token, cache = predicted(place, ids, cache)
        place = place + 1
        is_given = place < started
        writes = ~is_given & ~done
        done = done | (writes & ((token == end_id) | (place + 1 >= limits)))
        ends = jnp.where(writes & (token != end_id), place + 1, ends)
        ids = ids.at[:, place].set(jnp.where(writes, token, ids[:, place]))
        return place, ids, ends, done, cache

    empty_cache = family_of(model.spec).empty_cache
    assert empty_cache
    cache = empty_cache(model.spec, *prompts.shape)
    state = jnp.int32(0), prompts, started, started >= limits, cache
    _, ids, ends, _, _ = jax.lax.while_loop(goes_on, step, state)
    return ids, ends


def nucleus(logits: jax.Array, top_p: jax.Array) -> jax.Array:
    """The logits [B, V], lowest but for the fewest tokens that have at least `top_p` together."""
    falling = jnp.sort(logits, axis=-1)[:, ::-1]
    probabilities = jax.nn.softmax(falling, axis=-1)
    kept = jnp.cumsum(probabilities, axis=-1) - probabilities < top_p
    least = jnp.where(kept, falling, jnp.inf).min(-1, keepdims=True)
    return jnp.where(logits >= least, logits, jnp.finfo(logits.dtype).min)
