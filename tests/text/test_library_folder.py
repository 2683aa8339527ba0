"""Folders of RoBERTa, GPT-2, XLM-R, DeBERTa-v2 and others: equal to transformers, or refused."""

import base64
import io
import json
import lzma
import shutil
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from bertjax.base.errors import InputError
from bertjax.interop.tokenizer_files import differences, read_tokenizer, write_tokenizer
from bertjax.text.special_tokens import GPT, GPT2, ROBERTA, SPECIAL_TOKENS
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from tests.text.eurobert_vocabulary import EUROBERT_CONFIG, in_the_form_of_eurobert
from tests.text.gemma_vocabulary import GEMMA_CONFIG, learn_gemma
from tests.text.gpt_vocabulary import learn_gpt
from tests.text.hard_texts import HARD_TEXTS
from tests.text.small_vocabularies import SENTENCES, wordpiece

MARKED = ["<mask>", "the <mask>s  <mask>", "<s>cat</s> <pad><unk>", "a <|endoftext|> b<s>NOTUSED"]
TEXTS = [*(text for text in HARD_TEXTS if len(text) < 200), *SENTENCES[:9], *MARKED, ""]
CLASSES = {
    "roberta": "RobertaTokenizer",
    "roberta with prefix": "RobertaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt": "OpenAIGPTTokenizer",
    "xlmr": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta": "DebertaV2Tokenizer",
    "deberta uncased": "DebertaV2Tokenizer",
}
ROBERTAS = Template((0,), (2, 2), (2,), second_type=0)


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """vocab.json and merges.txt of the forms of RoBERTa, GPT-2 and GPT; a model of fairseq's."""
    from sentencepiece import SentencePieceTrainer

    folder = tmp_path_factory.mktemp("sources")
    learn("bpe", SENTENCES, folder / "bpe.json", size=300, cased=True)
    model = json.loads((folder / "bpe.json").read_bytes())["model"]
    pieces = [piece for piece in model["vocab"] if piece not in SPECIAL_TOKENS]
    for name, vocabulary in {
        "roberta": ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"],
        "gpt2": [*pieces, "<|endoftext|>"],
    }.items():
        (folder / name).mkdir()
        ids = {piece: number for number, piece in enumerate(vocabulary)}
        (folder / name / "vocab.json").write_text(json.dumps(ids))
        merges = "\n".join(["#version: 0.2", *map(" ".join, model["merges"])])
        (folder / name / "merges.txt").write_text(merges + "\n")
    learn_gpt(SENTENCES, folder / "gpt", size=200)
    data = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=data, vocab_size=90, minloglevel=2
    )
    for name in ("xlmr", "camembert"):
        (folder / name).mkdir()
        (folder / name / "sentencepiece.bpe.model").write_bytes(data.getvalue())
    (folder / "deberta").mkdir()
    (folder / "deberta" / "spm.model").write_bytes(learn_deberta(SENTENCES, 350))
    return folder


def learn_deberta(sentences: list[str], size: int) -> bytes:
    """A model in the form of DeBERTa's; its [MASK] is added to it."""
    from sentencepiece import SentencePieceTrainer

    data, special = io.BytesIO(), {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=data,
        vocab_size=size,
        byte_fallback=True,
        minloglevel=2,
        **{f"{name}_id": number for number, name in enumerate(special)},
        **{f"{name}_piece": piece for name, piece in special.items()},
    )
    return data.getvalue()


@pytest.fixture
def folder(sources, tmp_path, request) -> Path:
    """A folder with the files from before tokenizer.json, and the name of the class."""
    kind = getattr(request, "param", "roberta")
    shutil.copytree(sources / kind.split()[0], tmp_path / "folder")
    config = {"tokenizer_class": CLASSES[kind]}
    if "prefix" in kind:
        config["add_prefix_space"] = True
    if "uncased" in kind:
        config["do_lower_case"] = True
    (tmp_path / "folder" / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path / "folder"


def change(path: Path, **values) -> None:
    """Sets fields of a JSON file."""
    content = json.loads(path.read_bytes()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


def reference_of(folder: Path):
    """The tokenizer of transformers, whose own reader of a .model may lack its protocol buffers."""
    import transformers
    from sentencepiece import SentencePieceProcessor
    from transformers.convert_slow_tokenizer import CamembertConverter, XLMRobertaConverter

    model_file = next(folder.glob("*.model"), None)
    if not model_file:
        return transformers.AutoTokenizer.from_pretrained(folder)
    model = SentencePieceProcessor(model_file=str(model_file))
    size = model.get_piece_size()
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(size)]
    config = json.loads((folder / "tokenizer_config.json").read_bytes())
    name = config.pop("tokenizer_class")
    if name == CLASSES["deberta"]:
        return transformers.DebertaV2Tokenizer(vocab=pieces, unk_id=model.unk_id(), **config)
    convert = {"XLMRobertaTokenizer": XLMRobertaConverter, "CamembertTokenizer": CamembertConverter}
    fields = convert[name].convert_from_spm(vocab=pieces)
    fields["additional_special_tokens"] = ["<s>", "</s>"]  # the model's control symbols
    result = json.loads(read_tokenizer(folder).vocabulary)["normalizer"]["precompiled_charsmap"]
    return getattr(transformers, name)(**fields, _spm_precompiled_charsmap=base64.b64decode(result))


def assert_equal(result: Tokenizer, reference, texts: list[str]) -> None:
    """Asserts equal ids and token types of single texts, and of pairs of neighbours."""
    pairs = [*pairwise(texts)]
    encoded = result.encode(texts, special=True)
    for inputs, sequences in (
        ((texts,), map(result.template.sequence, encoded)),
        (
            (*map(list, zip(*pairs, strict=True)),),
            map(result.template.sequence, encoded, encoded[1:]),
        ),
    ):
        found = reference(*inputs, return_token_type_ids=True, verbose=False)
        names = "input_ids", "token_type_ids"
        rows = zip(*(found[name] for name in names), sequences, strict=True)
        for number, (ids, types, sequence) in enumerate(rows):
            assert (ids, types) == sequence, [each[number] for each in inputs]


# ------------------------------------------------------------------------------- transformers


@pytest.mark.peers
@pytest.mark.parametrize("folder", CLASSES, indirect=True)
def test_equal_to_transformers(folder, tmp_path):
    """Read from the older files; from what transformers writes; and as written here."""
    from transformers import AutoTokenizer

    result, reference = read_tokenizer(folder), reference_of(folder)
    assert_equal(result, reference, TEXTS)
    assert len(reference) == result.vocabulary_size
    marks = *MARKED, *result.names.values()
    unmarked = [text for text in TEXTS if not any(mark in text for mark in marks)]
    assert result.encode(unmarked) == reference(unmarked, add_special_tokens=False)["input_ids"]

    reference.save_pretrained(tmp_path / "peer")
    again = read_tokenizer(tmp_path / "peer")
    assert (again.identity, again.template) == (result.identity, result.template)
    assert again.encode(TEXTS, special=True) == result.encode(TEXTS, special=True)

    (tmp_path / "bertjax").mkdir()
    write_tokenizer(result, tmp_path / "bertjax", 64)
    again = read_tokenizer(tmp_path / "bertjax")
    assert (again.identity, again.template) == (result.identity, result.template)
    assert differences(result, tmp_path / "bertjax", TEXTS) == []
    for with_config in (False, True):
        if with_config:
            (tmp_path / "bertjax" / "config.json").write_text('{"model_type": "roberta"}')
        written = AutoTokenizer.from_pretrained(tmp_path / "bertjax")
        assert_equal(result, written, TEXTS)
        assert len(written) == result.vocabulary_size
        for role, number in result.roles.items():
            assert getattr(written, f"{role}_token_id") == number
        assert written.model_max_length == 64


@pytest.mark.peers
def test_wordpiece_and_modernbert_pairs(tmp_path):
    from transformers import AutoTokenizer

    pieces = [*SPECIAL_TOKENS, *"the cat ##s caf\u00e9 cafe a ##\u4e2d \u4e2d , [ ] mask".split()]
    learn("bpe", SENTENCES, tmp_path / "bpe.json", size=300, cased=True)
    for result in (wordpiece(pieces, cased=False), Tokenizer.open(tmp_path / "bpe.json")):
        write_tokenizer(result, tmp_path, 512)
        assert_equal(result, AutoTokenizer.from_pretrained(tmp_path), TEXTS)


@pytest.mark.peers
def test_settings_of_a_token(folder):
    """<mask> takes the space before it, if one of the files says so."""

    def pieces(tokenizer: Tokenizer) -> list[str]:
        return [tokenizer.tokens[i] for i in tokenizer.encode(["a <mask>"], special=True)[0]]

    assert pieces(read_tokenizer(folder)) == ["a", "\u0120", "<mask>"]
    token = {"content": "<mask>", "lstrip": True, "special": True}
    change(folder / "special_tokens_map.json", mask_token=token)
    result = read_tokenizer(folder)
    assert pieces(result) == ["a", "<mask>"]
    assert_equal(result, reference_of(folder), MARKED)
    (folder / "special_tokens_map.json").unlink()
    number = result.mask_id
    change(folder / "tokenizer_config.json", added_tokens_decoder={str(number): token})
    result = read_tokenizer(folder)
    assert pieces(result) == ["a", "<mask>"]
    assert_equal(result, reference_of(folder), MARKED)


def lines_of(data: Path, path: str, most: int) -> Iterator[str]:
    """The first lines of a compressed file."""
    with lzma.open(data / path, "rt", encoding="utf-8") as file:
        yield from islice(filter(str.strip, file), most)


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["roberta", "gpt2", "gpt", "xlmr", "deberta", "eurobert", "gemma"])
def test_100_000_lines(shared_data, tmp_path, kind):
    """GPT-2's pieces, also in RoBERTa's order; and a model of fairseq's with its characters.

    The other vocabularies are learned.
    """
    tokenizers = shared_data / "tokenizers"
    config = {"eurobert": EUROBERT_CONFIG, "gemma": GEMMA_CONFIG}
    config = config.get(kind) or {"tokenizer_class": CLASSES[kind]}
    change(tmp_path / "tokenizer_config.json", **config)
    texts = list(lines_of(shared_data, "corpus/enwiki/enwiki-01.txt.xz", 5000))
    if kind == "roberta":
        pieces = json.loads((tokenizers / "gpt2" / "encoder.json").read_bytes())
        pieces.pop("<|endoftext|>")
        names = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
        ids = {name: number for number, name in enumerate(names)}
        (tmp_path / "vocab.json").write_text(json.dumps(ids))
        shutil.copy(tokenizers / "gpt2" / "vocab.bpe", tmp_path / "merges.txt")
    elif kind == "gpt2":
        shutil.copy(tokenizers / "gpt2" / "encoder.json", tmp_path / "vocab.json")
        shutil.copy(tokenizers / "gpt2" / "vocab.bpe", tmp_path / "merges.txt")
        assert read_tokenizer(tmp_path).encode(["Hello world"]) == [[15496, 995]]
    elif kind == "gpt":
        learn_gpt(texts, tmp_path)
    elif kind == "deberta":
        (tmp_path / "spm.model").write_bytes(learn_deberta(texts, 4000))
    elif kind == "eurobert":
        learn("bpe", texts, tmp_path / "tokenizer.json", size=4000, cased=True)
        content = in_the_form_of_eurobert(json.loads((tmp_path / "tokenizer.json").read_bytes()))
        del content["model"]["merges"][-500:]  # such a piece stands only for a whole word
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    elif kind == "gemma":
        (tmp_path / "tokenizer.json").write_text(json.dumps(learn_gemma(texts, 4000)))
    else:
        source = tokenizers / "fairseq_unigram"
        shutil.copy(source / "sentencepiece.bpe.model", tmp_path)
        published = json.loads((source / "tokenizer.json").read_bytes())["normalizer"]
        assert json.loads(read_tokenizer(tmp_path).vocabulary)["normalizer"] == published
    result, reference = read_tokenizer(tmp_path), reference_of(tmp_path)
    assert_equal(result, reference, TEXTS)
    count = 0
    for path, most in (
        ("multilingual/parallel/multi30k.train.de.xz", 10_000),
        ("multilingual/parallel/multi30k.train.cs.xz", 10_000),
        ("multilingual/text/swahili.txt.xz", 5_000),
        ("corpus/enwiki/enwiki-00.txt.xz", 75_000),
    ):
        lines = lines_of(shared_data, path, most)
        while some := list(islice(lines, 5000)):
            expected = reference.backend_tokenizer.encode_batch_fast(some)
            for line, ids, encoding in zip(some, result.encode(some), expected, strict=True):
                assert result.template.sequence(ids).ids == encoding.ids, line
            count += len(some)
    assert count == 100_000


# ------------------------------------------------------------------------- roles and templates


@pytest.mark.parametrize(
    ("folder", "first", "last"),
    [
        ("roberta", "<s> <pad> </s> <unk> !", "<mask>"),
        ("xlmr", "<s> <pad> </s> <unk>", "<mask>"),
        ("camembert", "<s>NOTUSED <pad> </s>NOTUSED <unk> <unk>NOTUSED <s> </s>", "<mask>"),
        ("gpt2", '! "', "<|endoftext|>"),
        ("gpt", "<unk>", "cat</w>"),
    ],
    indirect=["folder"],
)
def test_ids_of_special_tokens(folder, first, last):
    tokenizer = read_tokenizer(folder)
    first = first.split()
    assert tokenizer.tokens[: len(first)] == first and last in tokenizer.tokens[-150:]
    names = {role: tokenizer.tokens[number] for role, number in tokenizer.roles.items()}
    if last == "<mask>":
        assert names == ROBERTA
        cls, sep = tokenizer.cls_id, tokenizer.sep_id
        assert tokenizer.template == Template((cls,), (sep, sep), (sep,), second_type=0)
    else:
        assert names == (GPT2 if last in GPT2.values() else GPT)
        assert tokenizer.template == Template()


@pytest.mark.parametrize("folder", ["roberta", "gpt2", "gpt", "xlmr"], indirect=True)
def test_names_are_found_without_a_class(folder):
    expected = read_tokenizer(folder)
    (folder / "tokenizer_config.json").unlink()
    assert read_tokenizer(folder).identity == expected.identity


@pytest.mark.parametrize("folder", ["camembert"], indirect=True)
def test_camembert_is_known_by_its_model(folder):
    expected = read_tokenizer(folder)
    (folder / "tokenizer_config.json").unlink()
    assert read_tokenizer(folder).tokens[4] != "<unk>NOTUSED"
    (folder / "config.json").write_text('{"model_type": "camembert"}')
    assert read_tokenizer(folder).identity == expected.identity


@pytest.mark.parametrize("folder", ["camembert"], indirect=True)
def test_the_mask_of_camembert_takes_the_space_before_it(folder):
    """Its class says so, also where no file does; but a file may say otherwise."""

    def takes() -> bool:
        tokens = json.loads(read_tokenizer(folder).vocabulary)["added_tokens"]
        (mask,) = [token for token in tokens if token["content"] == "<mask>"]
        return mask["lstrip"]

    assert takes()
    change(folder / "special_tokens_map.json", mask_token={"content": "<mask>", "lstrip": False})
    assert not takes()


def test_a_vocabulary_of_a_run(folder, tmp_path):
    """Its roles and template go through the folders of this package."""
    tokenizer = read_tokenizer(folder)
    tokenizer.save(tmp_path)
    again = Tokenizer.open(tmp_path)
    assert (again.identity, again.roles) == (tokenizer.identity, tokenizer.roles)
    assert again.template == ROBERTAS
    write_tokenizer(tokenizer, folder, 512)
    assert Tokenizer.open(folder / "tokenizer.json").identity == tokenizer.identity


def test_a_published_file_is_taken_as_it_is(shared_data, tmp_path):
    """A multilingual BART, whose sequences end with a language."""
    path = shared_data / "tokenizers" / "fairseq_unigram" / "tokenizer.json"
    shutil.copy(path, tmp_path)
    tokenizer, library = read_tokenizer(tmp_path), Library.from_file(str(path))
    assert tokenizer.kind == "unigram" and tokenizer.vocabulary_size == 31_999
    assert tokenizer.template == Template((), (), (2, 31_997), second_type=0)
    assert tokenizer.roles["mask"] == 31_998
    for texts in (TEXTS, SENTENCES):
        expected = [(each.ids, each.type_ids) for each in library.encode_batch(texts)]
        encoded = tokenizer.encode(texts, special=True)
        assert [*map(tokenizer.template.sequence, encoded)] == expected
    (tmp_path / "out").mkdir()
    write_tokenizer(tokenizer, tmp_path / "out", 512)
    assert read_tokenizer(tmp_path / "out").identity == tokenizer.identity
    pair = Library.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("a", "b c")
    assert pair.ids == library.encode("a", "b c").ids


# ------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("folder", "file", "values", "message"),
    [
        ("roberta", "tokenizer_config.json", {"tokenizer_class": "BartTokenizer"}, "reads PreTr"),
        ("xlmr", "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"}, "XLMRobertaTok"),
        ("xlmr", "tokenizer_config.json", {"add_prefix_space": False}, "is false: bertjax reads"),
        ("roberta", "tokenizer_config.json", {"mask_token": "<x>"}, "<x> not among its special"),
        ("roberta", "special_tokens_map.json", {"cls_token": 3}, "cls_token=3: expected `str"),
        ("roberta", "added_tokens.json", {"<new>": 300}, r"1 tokens that the vocabulary does not"),
        ("roberta", "vocab.json", {"cat": "3"}, r"vocab.json: .*\['cat'\]='3': expected `int`"),
        ("roberta", "vocab.json", {"cat": 999}, "'cat' has id 999, and is number"),
        ("xlmr", "tokenizer_config.json", {"bos_token": "[CLS]"}, "where a model of fairseq has"),
        ("deberta", "tokenizer_config.json", {"split_by_punct": True}, "split_by_punct is true: "),
        ("deberta", "tokenizer_config.json", {"add_prefix_space": False}, "is false: bertjax"),
    ],
    indirect=["folder"],
    ids=str,
)
def test_refused_values(folder, file, values, message):
    change(folder / file, **values)
    with pytest.raises(InputError, match=message) as raised:
        read_tokenizer(folder)
    assert str(folder) in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("folder", "file", "data", "message"),
    [
        ("roberta", "merges.txt", None, "no merges.txt in it: download it, too"),
        ("roberta", "merges.txt", b"\xff", "merges.txt: not UTF-8: .*: download it again"),
        ("roberta", "merges.txt", b"a b c\n", r"model.merges\[0\] is 'a b c', must be two pieces"),
        ("roberta", "vocab.json", b"[]", r"vocab.json: damaged .\[\]: expected `object`"),
        ("roberta", "vocab.json", b"{}", "cannot read it: Token `.` out of vocabulary"),
        ("xlmr", "sentencepiece.bpe.model", b"\xff" * 9, "bpe.model: not a SentencePiece model"),
        ("xlmr", "sentencepiece.bpe.model", b"", "bpe.model: not a SentencePiece model"),
    ],
    indirect=["folder"],
    ids=str,
)
def test_damaged_files(folder, file, data, message):
    if data is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_tokenizer(folder)


@pytest.mark.parametrize("folder", ["xlmr"], indirect=True)
def test_a_model_with_a_setting_that_has_no_equal(folder):
    from sentencepiece import SentencePieceTrainer

    path = folder / "sentencepiece.bpe.model"
    for setting, reason in (
        ({"add_dummy_prefix": False}, "it does not mark the first word"),
        ({"model_type": "bpe"}, "a BPE, where XLM-R and CamemBERT have a unigram model"),
        ({"unk_id": 2, "bos_id": 0, "eos_id": 1}, "its first pieces are '<s>', '</s>', '<unk>'"),
    ):
        data = io.BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(SENTENCES),
            model_writer=data,
            vocab_size=90,
            minloglevel=2,
            **setting,
        )
        path.write_bytes(data.getvalue())
        with pytest.raises(InputError, match=reason) as raised:
            read_tokenizer(folder)
        assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("folder", ["deberta"], indirect=True)
def test_a_model_that_is_not_debertas(folder, tmp_path):
    """Or steps of its tokenizer.json that its class in transformers does not take."""
    from sentencepiece import SentencePieceTrainer

    write_tokenizer(read_tokenizer(folder), tmp_path, 512)
    change(tmp_path / "tokenizer_config.json", tokenizer_class=CLASSES["deberta"])
    identity = read_tokenizer(tmp_path).identity
    assert identity == read_tokenizer(folder).identity
    change(tmp_path / "tokenizer.json", normalizer={"type": "NFKC"})
    with pytest.raises(InputError, match=r"tokenizer\.json: it has another normalizer than"):
        read_tokenizer(tmp_path)
    for setting, reason in (
        ({"model_type": "bpe"}, "a BPE, where DeBERTa-v2 has a unigram model"),
        ({"user_defined_symbols": ["<x>"]}, "a model with symbols of its user's, where"),
    ):
        data = io.BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(SENTENCES),
            model_writer=data,
            vocab_size=90,
            minloglevel=2,
            **setting,
        )
        (folder / "spm.model").write_bytes(data.getvalue())
        with pytest.raises(InputError, match=f"spm.model: {reason}"):
            read_tokenizer(folder)


def test_files_that_disagree(folder, tmp_path):
    """A class of transformers builds a tokenizer of its own, whatever tokenizer.json says."""
    write_tokenizer(read_tokenizer(folder), tmp_path, 512)
    config, library = (tmp_path / f"tokenizer{end}.json" for end in ("_config", ""))
    change(config, tokenizer_class="RobertaTokenizer")
    identity = read_tokenizer(tmp_path).identity
    change(library, normalizer={"type": "NFC"})
    with pytest.raises(InputError, match=r"tokenizer\.json: it has another normalizer than"):
        read_tokenizer(tmp_path)
    change(library, normalizer=None, post_processor={**BERTS_PROCESSING})
    with pytest.raises(InputError, match=r"tokenizer\.json: it has another post_processor than"):
        read_tokenizer(tmp_path)
    change(config, tokenizer_class="PreTrainedTokenizerFast")
    assert read_tokenizer(tmp_path).template == Template((0,), (2,), (2,))
    change(library, post_processor=None)
    assert read_tokenizer(tmp_path).identity == identity
    change(config, add_prefix_space=True)
    with pytest.raises(InputError, match=r"_config\.json: add_prefix_space is true: bertjax"):
        read_tokenizer(tmp_path)
    change(config, add_prefix_space=None, pad_token="<mask>")
    with pytest.raises(InputError, match=r"_config\.json: pad_token is '<mask>', where special"):
        read_tokenizer(tmp_path)


BERTS_PROCESSING = {"type": "BertProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]}
