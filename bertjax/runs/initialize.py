"""Training that starts from given weights."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from bertjax.base.errors import InputError
from bertjax.encoders.computation import Computation
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.storage import from_plain
from bertjax.interop.pretrained import Pretrained
from bertjax.text.domain_words import unused_ids
from bertjax.text.tokenizer import BPE, Tokenizer

# Fields of a spec that are how a model is trained, and which weights do not decide.
_HOW = (
    *(field.name for field in dataclasses.fields(Computation)),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "causal"),
)


def with_sizes_of(given: Pretrained, model: Mapping[str, Any]) -> dict[str, Any]:
    """A config's model section, with the sizes of the given weights instead of its own.

    Raises:
      InputError: the weights are of another family of encoders than the config's.
    """
    wanted = model.get("encoder", "bert")  # configs from before there were others
    if wanted != given.spec.encoder:
        raise InputError(
            f"{given.origin}: the weights of a {given.spec.encoder}, and config.model.encoder="
            f"{wanted!r}: take a config for {given.spec.encoder}, or other weights"
        )
    kept = {key: value for key, value in model.items() if key != "size"}
    sizes = {key: value for key, value in vars(given.spec).items() if key not in _HOW}
    return kept | sizes | {"encoder": given.spec.encoder}


def check_tokenizer(given: Pretrained, tokenizer: Tokenizer, corpus: str) -> None:
    """Checks that the weights and a corpus mean the same by an id.

    Where the weights have an [unusedN] piece, the corpus may have a word of its own.

    Raises:
      InputError: they do not.
    """
    unused = set(unused_ids(given.tokenizer))
    if _meaning(given.tokenizer, unused) != _meaning(tokenizer, unused):
        raise InputError(
            f"{given.origin} and {corpus} have different vocabularies: prepare the corpus with "
            "--vocabulary set to that of the weights"
        )


def _meaning(tokenizer: Tokenizer, unused: set[int]) -> tuple:
    """The settings and pieces that decide the ids of a text, whatever the form of the file."""
    normalization = tokenizer.cased, tokenizer.strip_accents, tokenizer.tokenize_chinese_chars
    used = [None if i in unused else piece for i, piece in enumerate(tokenizer.tokens)]
    # The ids of a byte-level BPE depend on its merges, too.
    rest = tokenizer.identity if tokenizer.kind == BPE else ""
    return tokenizer.kind, *normalization, used, rest


def load_into(params: dict[str, Any], given: Pretrained, spec: EncoderSpec) -> dict[str, Any]:
    """Fresh parameters, with the parts that are given in their place on the devices.

    Args:
      params: of a model with `spec`, each leaf a `jax.Array` where it shall lie.

    Returns:
      `params` with those parts replaced; each process puts what its devices hold.
    """
    stored = from_plain(dict(given.params), spec)

    def put(old: jax.Array, new) -> jax.Array:
        if old.shape != new.shape:
            raise InputError(
                f"{given.origin}: an array of shape {new.shape} where the model has {old.shape}"
            )
        return jax.make_array_from_callback(old.shape, old.sharding, lambda index: new[index])

    return {
        part: jax.tree.map(put, fresh, stored[part]) if part in stored else fresh
        for part, fresh in params.items()
    }
