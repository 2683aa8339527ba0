"""XLNet's tokenizer: read as transformers has it, and written with padding before the text."""

import io

import numpy as np
import pytest

from bertjax.interop.tokenizer_files import read_tokenizer, write_tokenizer
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn

SENTENCES = [f"The cat number {n} sat on mat {n % 7}, not on {n * n}." for n in range(400)]
TEXTS = ["The cat sat.", "on mat 3, not", "", "  a  na\u00efve ``cat''  ", "\u4e2d the <mask> 7."]
NAMES = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]


@pytest.mark.peers
def test_equal_to_that_of_transformers(tmp_path):
    """A model with XLNet's own first pieces; as transformers writes it, and as written here."""
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
    from transformers import AutoTokenizer, XLNetTokenizer

    data = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=data,
        vocab_size=110,
        control_symbols=NAMES[3:],
        minloglevel=2,
    )
    model = SentencePieceProcessor(model_proto=data.getvalue())
    size = model.get_piece_size()
    assert [model.id_to_piece(number) for number in range(9)] == NAMES
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(size)]
    reference = XLNetTokenizer(vocab=pieces)
    reference.save_pretrained(tmp_path / "peer")
    result = read_tokenizer(tmp_path / "peer")
    assert result.template == Template((), (4,), (4, 3), last_type=2)
    assert (result.cls_id, result.sep_id, result.pad_id, result.mask_id) == (3, 4, 5, 6)
    (tmp_path / "bertjax").mkdir()
    write_tokenizer(result, tmp_path / "bertjax", 64, pads_left=True)
    again = AutoTokenizer.from_pretrained(tmp_path / "bertjax")
    assert (again.padding_side, reference.padding_side) == ("left", "left")
    encoded = result.encode(TEXTS, special=True)
    for a, b in zip(range(5), (None, 0, 1, 4, None), strict=True):
        sequence = result.template.sequence(encoded[a], None if b is None else encoded[b])
        for each in (reference, again):
            found = each(*(TEXTS[n] for n in (a, b) if n is not None), return_token_type_ids=True)
            assert (found["input_ids"], found["token_type_ids"]) == sequence
    found = again(TEXTS, padding=True)
    lengths = np.sum(found["attention_mask"], 1)
    assert (np.array(found["input_ids"])[:, -2:] == [4, 3]).all()
    assert [row[0] == 5 for row in found["input_ids"]] == list(lengths < max(lengths))


def test_a_sentencepiece_keeps_its_template(tmp_path):
    """A corpus's vocabulary with the special tokens after the text, there and back."""
    path = tmp_path / "own.model"
    learn("sentencepiece", SENTENCES, path, size=120, cased=True)
    roles = Tokenizer.open(path).roles
    template = Template.xlnet(roles)
    tokenizer = Tokenizer("sentencepiece", path.read_bytes(), "here", template=template)
    cls, sep = roles["cls"], roles["sep"]
    assert template.sequence([9], [8]) == ([9, sep, 8, sep, cls], [0, 0, 1, 1, 2])
    (tmp_path / "written").mkdir()
    write_tokenizer(tokenizer, tmp_path / "written", 64)
    again = read_tokenizer(tmp_path / "written")
    assert (again.template, again.identity) == (template, tokenizer.identity)
    assert again.identity != Tokenizer.open(path).identity
