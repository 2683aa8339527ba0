"""The names of bilm-tf and AllenNLP: options.json, and the arrays of the file of weights."""

from collections.abc import Mapping
from typing import Any, NotRequired

from bertjax.base.fields import NUM_CHARACTERS, WORD_LENGTH
from bertjax.base.validation import record
from bertjax.interop.config_rows import ConfigRows, check_only, check_wanted
from bertjax.interop.names import Names, after_ones
from bertjax.models.encoders.elmo.spec import ElmoSpec

OPTIONS = record(
    lstm=record(
        dim=int,
        projection_dim=int,
        n_layers=int,
        use_skip_connections=NotRequired[bool],
        cell_clip=NotRequired[float | None],
        proj_clip=NotRequired[float | None],
    ),
    char_cnn=record(
        filters=list[tuple[int, int]],
        n_highway=NotRequired[int],
        embedding=record(dim=int),
        n_characters=int,
        max_characters_per_token=int,
        activation=str,
    ),
    n_tokens_vocab=NotRequired[int],
    dropout=NotRequired[float],
)


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options -> the fields of the spec; ValueError: no such model is computed here."""
    lstm, words = options["lstm"], options["char_cnn"]
    check_wanted(words, {"max_characters_per_token": WORD_LENGTH})
    # Training has no padding of texts, and counts one less.
    count = words["n_characters"]
    fits = count in (NUM_CHARACTERS - 1, NUM_CHARACTERS)
    check_only(fits, "n_characters", count, f"{NUM_CHARACTERS}")
    fields = {"vocab_size": "n_tokens_vocab", "hidden_dropout_prob": "dropout"}
    return {path: options[hf_name] for path, hf_name in fields.items() if hf_name in options} | {
        "hidden_size": 2 * lstm["projection_dim"],
        "num_hidden_layers": lstm["n_layers"],
        "cell_size": lstm["dim"],
        "character_size": words["embedding"]["dim"],
        "filters": tuple((width, count) for width, count in words["filters"]),
        "num_highways": words.get("n_highway", 0),
        "cell_clip": lstm.get("cell_clip") or 0.0,
        "projection_clip": lstm.get("proj_clip") or 0.0,
        "skip_connections": lstm.get("use_skip_connections", False),
        "hidden_act": words["activation"],
    }


def write_options(spec: ElmoSpec) -> dict[str, Any]:
    """Spec -> options."""
    return {
        "lstm": {
            "dim": spec.cell_size,
            "projection_dim": spec.projection_size,
            "n_layers": spec.num_hidden_layers,
            "use_skip_connections": spec.skip_connections,
            "cell_clip": spec.cell_clip or None,
            "proj_clip": spec.projection_clip or None,
        },
        "char_cnn": {
            "filters": [list(pair) for pair in spec.filters],
            "n_highway": spec.num_highways,
            "embedding": {"dim": spec.character_size},
            "n_characters": NUM_CHARACTERS,
            "max_characters_per_token": WORD_LENGTH,
            "activation": spec.hidden_act,
        },
        "n_tokens_vocab": spec.vocab_size,
        "dropout": spec.hidden_dropout_prob,
    }


_CELL = "RNN/MultiRNNCell/Cell{i}/LSTMCell"
ELMO = Names(
    classes={},
    encoder=(
        ("embeddings/convolutions/characters", "char_embed"),
        ("embeddings/convolutions/kernel_{i}", "CNN/W_cnn_{i}", after_ones(1)),
        ("embeddings/convolutions/bias_{i}", "CNN/b_cnn_{i}"),
        ("embeddings/highway_{i}/gate/kernel", "CNN_high_{i}/W_carry"),
        ("embeddings/highway_{i}/gate/bias", "CNN_high_{i}/b_carry"),
        ("embeddings/highway_{i}/transform/kernel", "CNN_high_{i}/W_transform"),
        ("embeddings/highway_{i}/transform/bias", "CNN_high_{i}/b_transform"),
        ("embeddings/projection/kernel", "CNN_proj/W_proj"),
        ("embeddings/projection/bias", "CNN_proj/b_proj"),
        ("encoder/layer_{i}/forward/kernel", f"RNN_0/{_CELL}/W_0"),
        ("encoder/layer_{i}/forward/bias", f"RNN_0/{_CELL}/B"),
        ("encoder/layer_{i}/forward/projection", f"RNN_0/{_CELL}/W_P_0"),
        ("encoder/layer_{i}/backward/kernel", f"RNN_1/{_CELL}/W_0"),
        ("encoder/layer_{i}/backward/bias", f"RNN_1/{_CELL}/B"),
        ("encoder/layer_{i}/backward/projection", f"RNN_1/{_CELL}/W_P_0"),
    ),
    config=ConfigRows(title="ELMo", instead="give elmo:FOLDER"),
)
