"""The names of bilm-tf and AllenNLP: options.json, and the arrays of the file of weights."""

from collections.abc import Iterator, Mapping
from typing import Any, NotRequired

from bertjax.base.fields import NUM_CHARACTERS, WORD_LENGTH
from bertjax.base.validation import record
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.models.encoders.names import Entry, check_wanted

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
    """Checked options -> the fields of the spec.

    Raises:
      ValueError: they are those of a model that is not computed here.
    """
    lstm, words = options["lstm"], options["char_cnn"]
    check_wanted(words, {"max_characters_per_token": WORD_LENGTH})
    # Training has no padding of texts, and counts one less.
    if words["n_characters"] not in (NUM_CHARACTERS - 1, NUM_CHARACTERS):
        raise ValueError(f"n_characters={words['n_characters']}: must be {NUM_CHARACTERS}")
    fields = {"vocab_size": "n_tokens_vocab", "hidden_dropout_prob": "dropout"}
    return {ours: options[theirs] for ours, theirs in fields.items() if theirs in options} | {
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


def _arrays(spec: ElmoSpec) -> Iterator[Entry]:
    def same(theirs: str, ours: str, *shape: int) -> Entry:
        return Entry(theirs, shape, f"elmo/{ours}", shape)

    letters, out, cells = spec.character_size, spec.projection_size, spec.cell_size
    yield same("char_embed", "embeddings/convolutions/characters", NUM_CHARACTERS - 1, letters)
    for number, (width, count) in enumerate(spec.filters):
        ours, inner = f"elmo/embeddings/convolutions/kernel_{number}", (width, letters, count)
        yield Entry(f"CNN/W_cnn_{number}", (1, *inner), ours, inner)
        yield same(f"CNN/b_cnn_{number}", f"embeddings/convolutions/bias_{number}", count)
    size = spec.num_filters
    for number in range(spec.num_highways):
        for theirs, name in (("carry", "gate"), ("transform", "transform")):
            ours = f"embeddings/highway_{number}/{name}"
            yield same(f"CNN_high_{number}/W_{theirs}", f"{ours}/kernel", size, size)
            yield same(f"CNN_high_{number}/b_{theirs}", f"{ours}/bias", size)
    if size != out:
        yield same("CNN_proj/W_proj", "embeddings/projection/kernel", size, out)
        yield same("CNN_proj/b_proj", "embeddings/projection/bias", out)
    for number in range(spec.num_hidden_layers):
        for way, direction in enumerate(("forward", "backward")):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
            ours = f"encoder/layer_{number}/{direction}"
            yield same(f"{cell}/W_0", f"{ours}/kernel", 2 * out, 4 * cells)
            yield same(f"{cell}/B", f"{ours}/bias", 4 * cells)
            if spec.projects:
                yield same(f"{cell}/W_P_0", f"{ours}/projection", cells, out)


def _entries(spec: ElmoSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    del kind, num_classes
    return {"elmo": list(_arrays(spec))}


def _not_there(_: Any) -> dict[str, Any]:
    raise ValueError("transformers has no ELMo: give elmo:FOLDER")


HUGGING_FACE = HuggingFace(
    classes={},
    fields={},
    read_config=_not_there,
    write_config=_not_there,
    entries=_entries,
    prefixes={},
    one_spelling=lambda name: name,
    bare="",
    buffers=(),
    copies={},
)
