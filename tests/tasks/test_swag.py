"""SWAG and multiple choice: official CSV, four sequences an example, predictions."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.tasks.choice import Choice, MultipleChoice
from bertjax.tasks.swag import Swag
from bertjax.tasks.task import TRAIN
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import assert_close

_TEST = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
ROWS = [
    f"{_TEST},label",
    '0,anetv_x,3416,"A, b. C",A "b" c,C,gold,"e, ""quoted"" end",f,"two\nlines",d,2',
    "1,lsmdc1,7,A,a b c d,,gold0-orig,é,b,c,d,0",
]


@pytest.fixture
def folder(tmp_path):
    for name in ("train.csv", "val.csv"):
        (tmp_path / name).write_text("\r\n".join(ROWS) + "\r\n", encoding="utf-8", newline="")
    return tmp_path


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A tokenizer with a token for each of the words a to f."""
    return Tokenizer("wordpiece", "\n".join([*SPECIAL_TOKENS, *"abcdef"]).encode(), "here")


def test_official_csv(folder):
    task = Swag(str(folder))
    assert (task.dev_splits, task.test_splits) == (("dev",), ())
    first, second = task.read(TRAIN)
    assert first[:5] == ("0", 'A "b" c', "C", ('e, "quoted" end', "f", "two\nlines", "d"), 2)
    assert second[:5] == ("1", "a b c d", "", ("é", "b", "c", "d"), 0)
    assert task.read("dev")[1].where.endswith("val.csv line 4")
    (folder / "test.csv").write_text(f"{_TEST}\n0,v,1,s,A,B,gold,a,b,c,d\n")
    task = Swag(str(folder))
    assert task.test_splits == ("test",)
    assert task.read("test")[0][:5] == ("0", "A", "B", ("a", "b", "c", "d"), None)


def test_four_sequences_an_example(tokenizer):
    family = MultipleChoice()
    examples = [
        Choice("0", "a b", "c", ("d", "e f", "a", "b"), 1, ""),
        Choice("1", "a b c d e f", "", ("a", "b", "c d", "e"), 3, ""),
    ]
    encoded = family.encode(examples, tokenizer, 8, labelled=True)
    rows = np.split(encoded.ids, encoded.starts[1:-1])
    assert [" ".join(tokenizer.tokens[i] for i in row) for row in rows] == [
        *("[CLS] a b [SEP] c d [SEP]", "[CLS] a b [SEP] c e f [SEP]"),
        *("[CLS] a b [SEP] c a [SEP]", "[CLS] a b [SEP] c b [SEP]"),
        *("[CLS] a b c d [SEP] a [SEP]", "[CLS] a b c d [SEP] b [SEP]"),
        *("[CLS] a b c [SEP] c d [SEP]", "[CLS] a b c d [SEP] e [SEP]"),
    ]
    assert (len(encoded), encoded.choices, encoded.lengths.tolist()) == (2, 4, [8, 8])
    assert encoded.labels["label_ids"].tolist() == [1, 3]
    batch = encoded.batch(
        TASK_LOSSES["multiple_choice"].fields, np.array([1]), 2, 8, tokenizer.pad_id
    )
    assert batch["input_ids"].shape == (2, 4, 8) and batch["label_ids"].tolist() == [3, 0]


def test_predictions_scores_and_files(folder, tmp_path):
    task = Swag(str(folder))
    examples = task.read("dev")
    scalars = [np.float32(score) for score in (0, 0, np.log(2), 0, 0, 9, 0, 0)]
    predictions = task.family.decode(examples, None, {"logits": scalars})
    assert_close(predictions[0], [0.2, 0.2, 0.4, 0.2])
    assert task.score(examples, predictions, {}) == {"accuracy": 50.0}
    task.write(tmp_path, "dev", examples, predictions, {})
    assert (tmp_path / "swag-dev.csv").read_bytes() == b",pred\n0,2\n1,1\n"
    assert task.family.degenerate(predictions, {}) == ""
    assert task.family.degenerate(predictions[:1] * 3, {}) == "all are choice 2"


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda text: text.replace(",d,2", ",d,4"),
            "train.csv line 3: 'label' is '4', not one of 0 to 3",
        ),
        (lambda text: text.replace(",d,2", ",d,"), "'label' is '', not a number"),
        (lambda text: text.replace(",d,2", ",2"), "line 3: 11 columns, but the first line has 12"),
        (lambda text: text.replace(",f,", ", ,"), "'ending1' is empty"),
        (lambda text: text.replace("sent2", "sent"), "no column 'sent2'; it has ''"),
        (lambda text: text.replace('end",f', 'end" x,f'), "not CSV"),
        (lambda text: text.split("\n")[0], "train.csv: no example in it"),
    ],
)
def test_bad_rows(folder, change, message):
    text = "\n".join(ROWS) + "\n"
    (folder / "train.csv").write_text(change(text), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        Swag(str(folder)).read(TRAIN)


def test_new_text():
    family = MultipleChoice()
    line = '{"context": "A.", "prompt": "He", "choices": ["a", "b", "c", "d"]}'
    example = family.parse(line, "line 1")
    assert example == Choice("line 1", "A.", "He", ("a", "b", "c", "d"), None, "line 1")
    shown = family.show(example, np.array([0.1, 0.2, 0.6, 0.1]), {})
    assert (shown["choice"], shown["text"]) == (2, "c")
    assert family.parse('{"context": "A.", "choices": ["a", "b", "c", "d"]}', "").prompt == ""
    for bad in ('{"context": "A.", "choices": ["a"]}', "A.", "[]", '{"choices": []}'):
        with pytest.raises(InputError, match='line 1: .*write {"context"'):
            family.parse(bad, "line 1")
    with pytest.raises(InputError, match="no label"):
        family.label_ids([example])


def test_tfds(tmp_path, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    texts = ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3")

    class TinySwag(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "tiny_swag"

        def _info(self):
            features = {name: tfds.features.Text() for name in texts}
            features |= {"label": np.int64, "idx": np.int32}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(), "validation": self._generate_examples()}

        def _generate_examples(self):
            for n in range(4):
                yield n, {name: f"{name} é{n}" for name in texts} | {"label": n, "idx": 7 - n}

    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    task = Swag("tfds:tiny_swag")
    examples = task.read("dev")  # in the order of idx, not that on disk
    assert [example.id for example in examples] == ["0", "1", "2", "3"]
    assert [example.label for example in examples] == [3, 2, 1, 0]
    endings = tuple(f"ending{n} é3" for n in range(4))
    assert examples[0][1:5] == ("sent1 é3", "sent2 é3", endings, 3)
    assert task.test_splits == ()
