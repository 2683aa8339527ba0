"""Column files of tagged words."""

import lzma

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.conll import Conll
from bertjax.tasks.tagging import NO_DOCUMENT

TRAIN = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

" " O O
東京 NNP B-NP B-LOC
"""
# IOB1, Windows line ends, tabs, several empty lines, nothing at the end
DEV = (
    "before\tNN\tO\tO\r\n\r\n-DOCSTART- -X- -X- O\r\n\r\n\r\nEU\tNNP\tI-NP\tI-ORG\r\n"
    "Bonn\tNNP\tI-NP\tI-LOC\r\nUlm\tNNP\tI-NP\tB-LOC\r\n\r\n-DOCSTART- -X- -X- O\r\n\r\n"
    "\u00a0Peter\tNNP\tI-NP\tI-PER"
)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "eng.train", TRAIN)
    write(tmp_path / "eng.testa", DEV)
    return tmp_path


def write(path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))


def certain(task, sentences) -> list[np.ndarray]:
    """Predictions with the probability 1 for each of the given tags."""
    classes = task.family.classes
    return [np.eye(len(classes))[[classes.index(tag) for tag in tags]] for tags in sentences]


def test_official_files(folder):
    task = Conll(str(folder))
    assert (task.dev_splits, task.test_splits, task.metric) == (("dev",), (), "f1")
    types = ("LOC", "MISC", "ORG", "PER")
    assert task.family.classes == ("O", *(f"{p}-{entity}" for p in "BI" for entity in types))

    sentences = task.read("train")
    assert [sentence.words for sentence in sentences] == [
        ("EU", "rejects", "German"),
        ("Peter", "Blackburn"),
        ('"', "東京"),
    ]
    assert sentences[0].tags == ("B-ORG", "O", "B-MISC")
    assert [sentence.document for sentence in sentences] == [1, 1, 2]
    assert sentences[1].where == f"{folder / 'eng.train'} line 7"


def test_iob1_is_read_as_iob2(folder):
    sentences = Conll(str(folder)).read("dev")
    assert [sentence.tags for sentence in sentences] == [
        ("O",),
        ("B-ORG", "B-LOC", "B-LOC"),
        ("B-PER",),
    ]
    assert [sentence.document for sentence in sentences] == [NO_DOCUMENT, 1, 2]
    assert sentences[2].words == ("\u00a0Peter",)


def test_a_test_file_with_tags_is_scored_and_one_without_is_not(folder):
    write(folder / "eng.testb", TRAIN)
    task = Conll(str(folder))
    assert (task.dev_splits, task.test_splits) == (("dev", "test"), ())
    # The words alone, or with the columns before the tags.
    for untagged in ("EU\nrejects\n\nBonn\n", "EU NNP I-NP\n. . O\n\nBonn NNP I-NP\n"):
        write(folder / "eng.testb", f"-DOCSTART-\n\n{untagged}")
        task = Conll(str(folder))
        assert (task.dev_splits, task.test_splits) == (("dev",), ("test",))
        assert [sentence.tags for sentence in task.read("test")] == [None, None]


def test_the_test_file_may_be_of_another_language(folder, tmp_path_factory):
    """It lies in another folder; its scores are next to those of dev, which choose the trial."""
    other = tmp_path_factory.mktemp("other")
    write(other / "test.txt", "Bonn NNP O B-LOC\ngana VB O O\n")
    task = Conll(str(folder), test=f"../{other.name}/test.txt")
    assert (task.dev_splits, task.test_splits) == (("dev", "test"), ())
    (sentence,) = task.read("test")
    assert (sentence.words, sentence.tags) == (("Bonn", "gana"), ("B-LOC", "O"))
    score = task.score([sentence], certain(task, [("O", "O")]), {})
    assert (score["f1"], score["recall"]) == (0, 0)
    write(other / "test.txt", "jiya NNP O B-DATE\n")
    with pytest.raises(InputError, match="test.txt line 1: the tag 'B-DATE' is not in the train"):
        _ = Conll(str(folder), test=f"../{other.name}/test.txt").dev_splits


def test_real_files_of_two_languages(shared_data):
    """MasakhaNER 2.0 (arXiv 2210.12391): trained in Swahili, scored in Hausa, too."""
    task = Conll(str(shared_data / "masakhaner2" / "swa"), test="../hau/test.txt")
    assert task.dev_splits == ("dev", "test")
    assert [len(task.read(split)) for split in ("train", "dev", "test")] == [6593, 942, 1633]


def test_a_byte_order_mark_within_a_file_is_a_word(folder):
    write(folder / "eng.testa", "\ufeffa NN O O\n\ufeff NN O O\n")
    (sentence,) = Conll(str(folder)).read("dev")
    assert sentence.words == ("a", "\ufeff")


def test_ones_own_columns(tmp_path):
    with lzma.open(tmp_path / "mine.xz", "wt", encoding="utf-8") as file:
        file.write("\ufeff1\tDT\tThe\n2\tNN\tcat\n\n1\tVB\tGo\n")
    write(tmp_path / "other", "1\tNN\tDogs\n")
    task = Conll(
        str(tmp_path), train="mine", dev="other", word_column=2, tag_column=1, entities=False
    )
    assert task.family.classes == ("DT", "NN", "VB")
    assert [sentence.words for sentence in task.read("train")] == [("The", "cat"), ("Go",)]
    dev = task.read("dev")
    assert dev[0].tags == ("NN",)
    assert task.metric == "accuracy"
    assert task.score(dev, certain(task, [("NN",)]), {}) == {"accuracy": 100.0}
    assert task.score(dev, certain(task, [("VB",)]), {}) == {"accuracy": 0.0}


def test_negative_columns_count_from_the_last_of_the_training_file(tmp_path):
    write(tmp_path / "train.txt", "DT The O\nNN Rome B-LOC\n")
    write(tmp_path / "dev.txt", "NN Bonn B-LOC\n")
    write(tmp_path / "test.txt", "NN Dogs\n")
    task = Conll(str(tmp_path), word_column=-2)
    assert (task.dev_splits, task.test_splits) == (("dev",), ("test",))
    assert [task.read(split)[0].words for split in ("dev", "test")] == [("Bonn",), ("Dogs",)]


def test_any_scheme_of_ones_own(tmp_path):
    write(tmp_path / "train.txt", "Emil U-PER\n\nBad B-LOC\nEms L-LOC\n")
    write(tmp_path / "dev.txt", "Bad I-LOC\nEms E-LOC\nEmil S-PER\n")
    task = Conll(str(tmp_path))
    assert task.family.classes == ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
    assert [sentence.tags for sentence in task.read("train")] == [("B-PER",), ("B-LOC", "I-LOC")]
    assert task.read("dev")[0].tags == ("B-LOC", "I-LOC", "B-PER")


@pytest.mark.parametrize(
    ("split", "text", "fields", "message"),
    [
        (
            "dev",
            "a NN O O\nb O\n",
            {},
            "eng.testa line 2: 2 columns, but the line above has 4: 'b O'",
        ),
        (
            "dev",
            "a N N O\n\nb N\t\tN O\n\nc O x\n",
            {},
            "testa line 5: 3 columns, but the line above has 4",
        ),
        ("dev", "a N N O\nb N N B-GPE\n", {}, "line 2: the tag 'B-GPE' is not in the training"),
        ("dev", "a N N O\n\nb N N BORG\n", {}, "line 3: 'BORG' is not an entity tag"),
        ("dev", "a\nb\n", {}, "eng.testa line 1: no tags: 1 columns"),
        # The third column is the last one, but no tag: the training file has four columns.
        ("dev", "a NN I-NP\n", {}, r"line 1: no tags: 3 columns \(4 in the training file\)"),
        ("test", "a NN I-NP O O\n", {}, r"line 1: no tags: 5 columns \(4 in the training file\)"),
        ("dev", "a O\n", {"tag_column": 3}, "eng.testa line 1: no tags: 2 columns"),
        ("train", "a NN O\n", {"word_column": 4}, "line 1: 3 columns, but word_column=4"),
        ("train", "a O\n", {"word_column": 1}, "line 1: no tags: 2 columns, with word_column=1"),
        ("dev", "\n-DOCSTART- -X- O O\n\n", {}, "eng.testa: no sentence in it"),
        ("dev", "", {}, "eng.testa: "),
        ("dev", "caf\udce9 O\n", {}, "eng.testa line 1: not UTF-8"),
    ],
)
def test_bad_files(folder, split, text, fields, message):
    name = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}[split]
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message):
        Conll(str(folder), **fields).read(split)


def test_a_training_file_of_one_tag(tmp_path):
    write(tmp_path / "eng.train", "a O\nb O\n")
    for entities in (True, False):
        with pytest.raises(InputError, match="every word of the training file has the tag 'O'"):
            _ = Conll(str(tmp_path), entities=entities).family


def test_absent_files(tmp_path):
    with pytest.raises(InputError, match="eng.train"):
        Conll(str(tmp_path)).read("train")
    write(tmp_path / "eng.train", TRAIN)
    with pytest.raises(InputError, match="mine.txt"):
        Conll(str(tmp_path), dev="mine.txt").read("dev")


def test_predictions_in_the_form_of_conlleval(folder):
    task = Conll(str(folder))
    dev = task.read("dev")
    predictions = certain(task, [("B-PER",), ("B-ORG", "O", "B-LOC"), ("B-PER",)])
    task.write(folder, "dev", dev, predictions, {})
    text = (folder / "ner-dev.txt").read_text(encoding="utf-8")
    assert text == (
        "before O B-PER\n\n-DOCSTART- O O\n\nEU B-ORG B-ORG\nBonn B-LOC O\nUlm B-LOC B-LOC\n\n"
        "-DOCSTART- O O\n\n\u00a0Peter B-PER B-PER\n\n"
    )
    # The written file can be read here, and gives the same score.
    scored = Conll(str(folder), train="ner-dev.txt", tag_column=1).read("train")
    assert task.score(scored, predictions, {}) == task.score(dev, predictions, {})
    assert task.score(dev, predictions, {})["f1"] == 75.0  # 3 right of 4 and 4


def test_predictions_without_tags(folder):
    write(folder / "eng.testb", "EU\nrejects\n\nBonn\n")
    task = Conll(str(folder))
    predictions = certain(task, [("B-ORG", "O"), ("B-LOC",)])
    task.write(folder, "test", task.read("test"), predictions, {})
    text = (folder / "ner-test.txt").read_text(encoding="utf-8")
    assert text == "EU B-ORG\nrejects O\n\nBonn B-LOC\n\n"


def test_tfds(tmp_path, monkeypatch):
    """TFDS gives no documents, and the names of the tags."""
    tfds = pytest.importorskip("tensorflow_datasets")
    names = ["O", "B-PER", "I-PER", "B-LOC"]
    sentences = {
        "train": [("Al", 1), ("Bo", 2), ("é", 0)],
        "dev": [("Bo", 1)],
        "test": [("x", 0)],
        "hidden": [("x", -1)],
        "other": [("x", 3)],
    }

    class TinyConll(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "tiny_conll"

        def _info(self):
            tags = tfds.features.ClassLabel(names=names)
            features = {"tokens": tfds.features.Text(), "ner": tags}
            features = {name: tfds.features.Sequence(each) for name, each in features.items()}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in sentences}

        def _generate_examples(self, split):
            words, tags = zip(*sentences[split], strict=True)
            yield 0, {"tokens": list(words), "ner": list(tags)}

    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    task = Conll("tfds:tiny_conll", document_context=False)
    assert task.family.classes == ("O", "B-PER", "I-PER")
    (sentence,) = task.read("train")
    assert (sentence.words, sentence.tags) == (("Al", "Bo", "é"), ("B-PER", "I-PER", "O"))
    assert (task.dev_splits, task.test_splits) == (("dev", "test"), ())
    assert task.read("test")[0].where == "tfds:tiny_conll/test example 0"
    hidden = Conll("tfds:tiny_conll", test="hidden", document_context=False)
    assert (hidden.dev_splits, hidden.test_splits) == (("dev",), ("test",))
    assert hidden.read("test")[0].tags is None
    with pytest.raises(InputError, match="tiny_conll/nowhere: no such split"):
        _ = Conll("tfds:tiny_conll", test="nowhere", document_context=False).dev_splits
    with pytest.raises(InputError, match="other example 0: the tag 'B-LOC' is not in the training"):
        Conll("tfds:tiny_conll", dev="other", document_context=False).read("dev")
    with pytest.raises(InputError, match="document_context=False, or use the official files"):
        Conll("tfds:tiny_conll").read("train")
    with pytest.raises(InputError, match="tfds:no_such_set: "):
        Conll("tfds:no_such_set", document_context=False).read("train")


def test_the_real_files(shared_data, tmp_path):
    """The counts are the official ones (Tjong Kim Sang and De Meulder, 2003, Tables 2 and 3)."""
    task = Conll(str(shared_data / "conll2003"))
    train, dev = task.read("train"), task.read("dev")
    assert (len(train), sum(len(sentence.words) for sentence in train)) == (14041, 203621)
    assert (len(dev), sum(len(sentence.words) for sentence in dev)) == (3250, 51362)
    assert (train[-1].document, dev[-1].document) == (946, 216)
    starts = [tag for sentence in dev for tag in sentence.tags if tag.startswith("B-")]
    counts = {entity: starts.count(f"B-{entity}") for entity in ("LOC", "MISC", "ORG", "PER")}
    assert counts == {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}

    gold = [sentence.tags for sentence in dev]
    scores = task.score(dev, certain(task, gold), {})
    assert set(scores.values()) == {100.0}
    task.write(tmp_path, "dev", dev, certain(task, gold), {})
    again = Conll(str(tmp_path), train="ner-dev.txt", tag_column=1).read("train")
    assert [sentence.words for sentence in again] == [sentence.words for sentence in dev]
    assert [sentence.tags for sentence in again] == gold
    assert [sentence.document for sentence in again] == [sentence.document for sentence in dev]
