"""Special tokens by role, and how they make a sequence of one or two texts."""

import dataclasses
import json

import numpy as np
import pytest

from bertjax.base.validation import converted
from bertjax.text.special_tokens import BERT, GPT2, ROBERTA, ROLES, XLNET, names_by_role
from bertjax.text.template import Template

CLS, SEP = 2, 3
BERTS = Template((CLS,), (SEP,), (SEP,))
ROBERTAS = Template((0,), (SEP, SEP), (SEP,), second_type=0)
XLNETS = Template((), (SEP,), (SEP, CLS), last_type=2)
EUROBERTS = Template((CLS,), (CLS,), between_type=1)
TEMPLATES = {
    **{"bert": BERTS, "roberta": ROBERTAS, "xlnet": XLNETS},
    **{"eurobert": EUROBERTS, "none": Template()},
}


def test_the_papers_sequences():
    assert BERTS.sequence([7, 8]) == ([2, 7, 8, 3], [0, 0, 0, 0])
    assert BERTS.sequence([7, 8], [9]) == ([2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1])
    assert ROBERTAS.sequence([7]) == ([0, 7, 3], [0] * 3)
    assert ROBERTAS.sequence([7], [8, 9]) == ([0, 7, 3, 3, 8, 9, 3], [0] * 7)
    assert XLNETS.sequence([7]) == ([7, 3, 2], [0, 0, 2])
    assert XLNETS.sequence([7], [8, 9]) == ([7, 3, 8, 9, 3, 2], [0, 0, 1, 1, 1, 2])
    assert EUROBERTS.sequence([7]) == ([2, 7], [0, 0])
    assert EUROBERTS.sequence([7], [8, 9]) == ([2, 7, 2, 8, 9], [0, 0, 1, 1, 1])
    assert Template().sequence([7], [8, 9]) == ([7, 8, 9], [0, 1, 1])
    # An empty second text is a text, too.
    assert BERTS.sequence([7], []) == ([2, 7, 3, 3], [0, 0, 0, 1])


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_places(template):
    for a, b in (([], None), ([7, 8, 9], None), ([7], [8, 9]), ([], [8])):
        ids, types = template.sequence(a, b)
        assert len(ids) == len(types)
        assert len(ids) == len(a) + len(b or ()) + template.specials(pair=b is not None)
        first, second = template.begins(len(a))
        assert ids[first : first + len(a)] == a
        if b is not None:
            assert ids[second : second + len(b)] == b


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
@pytest.mark.parametrize("pair", [False, True])
def test_many_sequences_at_once(template, pair):
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 9, (2, 31))
    wide = 8 + 8 + template.specials(pair=True) + 3
    ids = np.full((31, wide), 99, np.int32)
    begin = np.arange(31) * wide
    places = template.write(ids.reshape(-1), begin, a, b if pair else None)
    types = template.token_types(wide, places.b - begin, places.end - begin)
    assert types.dtype == np.int32
    for row in range(31):
        for start, count, text in ((places.a, a, 7), (places.b, b * pair, 8)):
            ids.reshape(-1)[start[row] : start[row] + count[row]] = text
        texts = [[7] * a[row], [8] * b[row]][: 1 + pair]
        expected, expected_types = template.sequence(*texts)
        length = len(expected)
        assert places.end[row] - begin[row] == length
        assert ids[row].tolist() == expected + [99] * (wide - length)
        assert types[row].tolist() == expected_types + [0] * (wide - length)


def test_usual_templates():
    roles = {"pad": 0, "unk": 1, "cls": CLS, "sep": SEP, "mask": 4}
    assert Template.usual(roles) == BERTS
    assert Template.usual(roles | {"cls": 0, "bos": 0, "eos": SEP}) == ROBERTAS
    assert Template.usual({"unk": 5, "bos": 5, "eos": 5}) == Template()


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_there_and_back_as_json(template):
    assert converted(json.loads(json.dumps(dataclasses.asdict(template))), Template) == template


@pytest.mark.parametrize("usual", [BERT, ROBERTA, XLNET, GPT2])
def test_names_that_no_file_says_are_the_usual_ones(usual):
    special = {*usual.values(), "<extra>"}
    assert names_by_role(special, {}) == usual
    assert list(names_by_role(special, {})) == [role for role in ROLES if role in usual]
    some = dict(list(usual.items())[1:2])
    assert names_by_role(special, some) == usual


def test_of_several_usual_vocabularies_the_first_counts():
    usual = [BERT, XLNET, ROBERTA, GPT2]
    for number, first in enumerate(usual):
        special = {name for each in usual[number:] for name in each.values()}
        assert names_by_role(special, {}) == first


def test_a_renamed_token():
    special = {*ROBERTA.values(), "<blank>"} - {"<mask>"}
    named = {"mask": "<blank>", "cls": "<s>"}
    assert names_by_role(special, named) == ROBERTA | {"mask": "<blank>"}
    # XLNet's files have RoBERTa's names among theirs.
    assert names_by_role({*XLNET.values()}, {"mask": "<mask>"}) == XLNET


def test_names_without_a_usual_vocabulary():
    assert names_by_role({"<a>", "<b>"}, {"eos": "<b>", "cls": "<a>"}) == {
        "cls": "<a>",
        "eos": "<b>",
    }
    assert names_by_role({"[PAD]"}, {}) == BERT  # which are refused as missing
