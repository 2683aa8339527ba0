"""A small GPT-2, or a model like it, with random numbers in every array, and its vocabulary."""

import re
from pathlib import Path

import numpy as np

from bertjax.interop.names import to_jax
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.published.registry import array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn

TEXTS = [f"The cat number {n * n} sat on mat {n % 7}, isn't it? caf\u00e9 (no)." for n in range(99)]


def gpt2_tokenizer(folder: Path, size: int = 300) -> Tokenizer:
    """Its only special token is <|endoftext|>."""
    path = folder / "bpe.json"
    learn("bpe", TEXTS, path, size=size, cased=True, special_tokens=["<|endoftext|>"])
    return Tokenizer.open(path)


def small_gpt(tokenizer: Tokenizer, name: str = "gpt2", **fields: int) -> Pretrained:
    """A language model of two layers of 24, for 23 tokens."""
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96)
    sizes |= dict(vocab_size=tokenizer.vocabulary_size, max_position_embeddings=23) | fields
    spec = ENCODERS[name].spec(**sizes)
    kind = head_types.CAUSAL_LM
    entries = array_names(HEAD_SPECS[kind].parts(spec), spec, kind, 0)
    rng = np.random.default_rng(5)
    arrays = {}
    for e in entries:
        is_scale = bool(re.search(r"(ln_\w|layer_norm)\.weight", e.hf_name))
        drawn = rng.normal(is_scale, 0.05 if e.hf_name.endswith(".bias") else 0.4, e.shape)
        arrays[e.hf_name] = drawn.astype(np.float32)
    return Pretrained(f"a {name}", kind, spec, to_jax(arrays, entries, "test"), tokenizer)
