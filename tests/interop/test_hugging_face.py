"""Folders of transformers: read completely or refused."""

import dataclasses
import json
from unittest.mock import MagicMock

import huggingface_hub
import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from flax.traverse_util import flatten_dict
from huggingface_hub.errors import GatedRepoError
from huggingface_hub.utils import filter_repo_objects

from bertjax.base.errors import InputError
from bertjax.interop import hub, json_files, names
from bertjax.interop.hub import model_folder
from bertjax.interop.hugging_face import read_hugging_face, spec_of, write_hugging_face
from bertjax.interop.published.registry import PUBLISHED
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.small_models import CLASSES, SPEC

DECODER = "cls.predictions.decoder"
TABLE = "bert.embeddings.word_embeddings.weight"


@pytest.fixture
def written(make_pretrained, tmp_path):
    """A folder with a model for pre-training, its arrays by name, and a function to change it."""

    class Written:
        folder = tmp_path / "model"
        model = make_pretrained()
        arrays = names.to_hf(model.params, model.entries)

        def save(self, arrays, name="model.safetensors"):
            safetensors.numpy.save_file(arrays, self.folder / name)

        def configure(self, **changes):
            file = self.folder / "config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | changes))

        def read(self):
            return read_hugging_face(self.folder, "hf:model")

    Written.folder.mkdir()
    write_hugging_face(Written.model, Written.folder)
    return Written()


def _assert_equal(params, wanted):
    params, wanted = flatten_dict(params, sep="/"), flatten_dict(wanted, sep="/")
    assert params.keys() == wanted.keys()
    for name, leaf in wanted.items():
        assert params[name].dtype == np.float32
        assert params[name].tobytes() == leaf.tobytes(), name


def test_without_the_prefix_and_with_old_names(written):
    """The form in which BertModel was saved before 2019; the missing heads are reported."""
    old = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in written.arrays.items()
    }
    old["embeddings.position_ids"] = np.arange(13)[None]
    written.save(old)
    model = written.read()
    _assert_equal(model.params, written.model.params)
    assert model.left_out == {"embeddings.position_ids": "a constant"}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_narrow_floats_are_widened_exactly(written, dtype):
    narrow = {name: array.astype(dtype) for name, array in written.arrays.items()}
    header, data = {}, b""  # the file's format, by hand
    for name, array in narrow.items():
        place = [len(data), len(data) + array.nbytes]
        kind = {"float16": "F16", "bfloat16": "BF16"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": place}
        data += array.tobytes()
    head = json.dumps(header).encode()
    file = written.folder / "model.safetensors"
    file.write_bytes(len(head).to_bytes(8, "little") + head + data)
    model = written.read()
    again = names.to_hf(model.params, model.entries)
    for name, array in narrow.items():
        np.testing.assert_array_equal(again[name], array.astype(np.float32))


def test_shards(written):
    (written.folder / "model.safetensors").unlink()
    one, two = dict(list(written.arrays.items())[::2]), dict(list(written.arrays.items())[1::2])
    files = {"model-00001-of-00002.safetensors": one, "model-00002-of-00002.safetensors": two}
    for name, arrays in files.items():
        written.save(arrays, name)
    index = {name: file for file, arrays in files.items() for name in arrays}
    (written.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    _assert_equal(written.read().params, written.model.params)
    (written.folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match="names model-00002-of-00002.safetensors"):
        written.read()


def test_an_index_that_leads_out_of_its_folder(written):
    (written.folder / "model.safetensors").unlink()
    written.save(written.arrays, "../outside.safetensors")
    index = dict.fromkeys(written.arrays, "../outside.safetensors")
    (written.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(InputError, match="index.json: names the file '../outside.safetensors'"):
        written.read()


def test_a_tied_decoder_is_left_out_and_another_refused(written):
    weight, bias = written.arrays[TABLE], written.arrays["cls.predictions.bias"]
    written.save(written.arrays | {f"{DECODER}.weight": weight, f"{DECODER}.bias": bias})
    model = written.read()
    _assert_equal(model.params, written.model.params)
    assert set(model.left_out) == {f"{DECODER}.weight", f"{DECODER}.bias"}

    written.save(written.arrays | {f"{DECODER}.weight": weight + 1})
    with pytest.raises(InputError, match=f"{DECODER}.weight differs from {TABLE}: only a model"):
        written.read()
    written.save(written.arrays | {f"{DECODER}.bias": bias + 1})
    with pytest.raises(InputError, match=f"{DECODER}.bias differs from cls.predictions.bias: only"):
        written.read()


def test_a_bias_only_at_the_decoder(written):
    arrays = dict(written.arrays)
    arrays[f"{DECODER}.bias"] = arrays.pop("cls.predictions.bias")
    written.save(arrays)
    _assert_equal(written.read().params, written.model.params)


def test_a_missing_pooler_is_said(written):
    arrays = {k: v for k, v in written.arrays.items() if "pooler" not in k and "cls" not in k}
    written.save(arrays)
    written.configure(architectures=["BertModel"])
    model = written.read()
    assert model.missing == ("pooler",)
    assert "missing: pooler" in model.summary()
    with pytest.raises(InputError, match="BertModel weights without pooler"):
        model.model()
    with pytest.raises(InputError, match="without masked_lm, which BertForMaskedLM has"):
        model.model(head_types.MASKED_LM)


def test_an_array_of_another_head_is_left_out_and_named(written):
    written.save(written.arrays | {"my_head.weight": np.zeros(3, np.float32)})
    model = written.read()
    assert model.left_out == {"my_head.weight": "not a part of BertForPreTraining"}
    assert "left out: my_head.weight" in model.summary()


def test_an_array_that_changes_the_encoder_is_refused(written):
    name = "bert.encoder.layer.1.attention.self.distance_embedding.weight"
    written.save(written.arrays | {name: np.zeros(3, np.float32)})
    with pytest.raises(InputError, match=f"{name} has no place in a BertModel of 2 layers"):
        written.read()


def test_no_encoder_at_all(written):
    """The names of the model's arrays have an unknown prefix."""
    written.save({f"model.{name}": array for name, array in written.arrays.items()})
    with pytest.raises(InputError, match="no array of an encoder .* begin with 'model.bert"):
        written.read()


def test_parts_besides_the_architecture_are_kept_but_not_written(written, tmp_path):
    """An example is the pooler in the weights of a masked-LM."""
    written.configure(architectures=["BertForMaskedLM"])
    model = written.read()
    assert model.additional == ("pooler", "next_sentence_head")
    assert "besides: pooler" in model.summary()
    (tmp_path / "again").mkdir()
    write_hugging_face(model, tmp_path / "again")
    again = read_hugging_face(tmp_path / "again", "hf:again")
    assert set(again.params) == {"bert", "masked_lm"}
    _assert_equal(again.params["bert"], written.model.params["bert"])


def test_one_layer_too_many(written):
    written.configure(num_hidden_layers=1)
    with pytest.raises(
        InputError, match=r"bert.encoder.layer.1.\S+ has no place in a BertModel of 1"
    ):
        written.read()


def test_two_spellings_of_one_array(written):
    extra = {TABLE.removeprefix("bert."): written.arrays[TABLE]}
    written.save(written.arrays | extra)
    with pytest.raises(InputError, match=f"two arrays for {TABLE}"):
        written.read()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_type": "llama"}, "model_type='llama'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
        ({"hidden_act": "relu"}, "hidden_act='relu'"),
        ({"num_attention_heads": 5}, "hidden_size=24 does not divide"),
        ({"hidden_size": "wide"}, "config.json"),
        ({"architectures": ["BertForWonders"]}, "architectures='BertForWonders'.*BertModel"),
        ({"vocab_size": 19}, "has the shape .* should have|only 19"),
    ],
)
def test_configurations_that_do_not_fit(written, changes, message):
    written.configure(**changes)
    with pytest.raises(InputError, match=message):
        written.read()


@pytest.mark.parametrize("head_spec", ["BertForSequenceClassification", "BertForMultipleChoice"])
def test_a_class_of_a_text_read_left_to_right(make_pretrained, tmp_path, head_spec):
    """transformers predicts it from [CLS], as no model does here."""
    model = make_pretrained(head_spec)
    result = dataclasses.replace(model, spec=dataclasses.replace(model.spec, causal=True))
    with pytest.raises(InputError, match="transformers has no such model .*predict.py open"):
        write_hugging_face(result, tmp_path)
    assert list(tmp_path.iterdir()) == []
    write_hugging_face(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"is_decoder": True}))
    with pytest.raises(InputError, match=rf"theirs: {head_spec} that reads left to right \(is_"):
        read_hugging_face(tmp_path, "theirs")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 128.0}, "hidden_size=128.0: expected `int"),
        ({"hidden_size": "128"}, "hidden_size='128': expected `int"),
        ({"vocab_size": True}, "vocab_size=True: expected `int"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps=nan: must be at least 0"),
        ({"hidden_dropout_prob": "0.1"}, "hidden_dropout_prob='0.1': expected `float"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=10{9}: must be at most 1,000"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings=10{12}: must be at most"),
        ({"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\]: expected `str"),
        ({"architectures": "BertModel"}, "architectures='BertModel': expected `array"),
        ({"architectures": [["BertModel"]]}, r"architectures\[0\]=\['BertModel'\]: expected `str`"),
        ({"id2label": ["no", "yes"]}, r"id2label=\['no', 'yes'\]: expected `object"),
        ({"id2label": {"0": None}}, r"id2label\['0'\]=None: expected `(str \| int|int \| str)`"),
        ({"is_decoder": "yes"}, "is_decoder='yes': expected `bool"),
        ({"problem_type": {}}, "problem_type={}: expected `str"),
        ({"bertjax_task": []}, r"bertjax_task=\[\]: expected `object"),
        ({"bertjax_task": {"max_length": "7"}}, "bertjax_task.max_length='7': expected `int"),
    ],
)
def test_fields_of_another_type(written, changes, message):
    """Google's bert_config.json is read by the same table."""
    written.configure(**changes)
    with pytest.raises(
        InputError, match=rf"config\.json: damaged \({message}.*: correct it, or download"
    ):
        written.read()


@pytest.mark.parametrize("labels", [{"1": "no", "2": "yes"}, {"no": "0"}, {"0": "a", "00": "b"}])
def test_classes_with_other_numbers(written, labels):
    written.configure(id2label=labels)
    with pytest.raises(InputError, match="hf:model: id2label in config.json has .*from 0 to"):
        written.read()


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("config.json", "[" * 100_000, r"damaged \("),
        ("config.json", '"text"', "damaged .'text': expected `object`"),
        ("config.json", b"\xff", r"damaged \("),
        (
            "model.safetensors.index.json",
            '{"weight_map": ["a"]}',
            r"weight_map=\['a'\]: expected `object",
        ),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": 1}}',
            r"weight_map\['a'\]=1: expected `str`",
        ),
        ("modules.json", "garbage", r"damaged \("),
        ("modules.json", '{"a": 1}', "{'a': 1}: expected `array`"),
        ("modules.json", "[3]", r"\[0\]=3: expected `object`"),
        ("modules.json", '[{"path": ""}]', r"\[0\]={'path': ''}: .* field `type`"),
        ("modules.json", '[{"path": 1, "type": "a"}]', r"\[0\].path=1: expected `str`"),
    ],
)
def test_files_that_are_not_what_they_should_be(written, name, content, message):
    if "index" in name:
        (written.folder / "model.safetensors").unlink()
    data = content if isinstance(content, bytes) else content.encode()
    (written.folder / name).write_bytes(data)
    with pytest.raises(
        InputError, match=rf"/{name}: .*{message}.*: correct it, or download it again$"
    ):
        written.read()


def test_null_is_as_absent(written):
    written.configure(architectures=None, id2label=None, problem_type=None, bertjax_task=None)
    assert written.read().class_name == "BertModel"


# Of the families, the fields of config.json in which null means something in transformers.
NULLS = {("gpt2", "n_inner"), ("openai-gpt", "n_inner"), ("xlm", "summary_activation")}
NULLS |= {("eurobert", "num_key_value_heads"), ("eurobert", "clf_pooling")}
NULLS |= {("eurobert", "rope_parameters"), ("eurobert", "head_dim"), ("neobert", "dim_head")}
NULLS |= {("modernbert", name) for name in ("local_rope_theta", "layer_types", "rope_parameters")}


# Without these, transformers has other attention.
DEBERTAS = dict(relative_attention=True, position_biased_input=False, share_att_key=True)
DEBERTAS |= dict(norm_rel_ebd="layer_norm", position_buckets=256, pos_att_type="p2c|c2p")


@pytest.mark.parametrize("name", [name for name in PUBLISHED if PUBLISHED[name].classes])
def test_null_in_the_fields_of_a_family(name, tmp_path):
    """It has its meaning in transformers where there is one, and is refused elsewhere."""
    family, file = ENCODERS[name], tmp_path / "config.json"
    always = {"eurobert": {"rope_theta": 250_000.0}, "deberta-v2": DEBERTAS}.get(name, {})
    usual = spec_of(always, family, "hf:model")
    for field in PUBLISHED[name].config.types(family.spec):
        file.write_text(json.dumps({"model_type": name, **always, field: None}))
        positions = field == "pad_token_id" and "pad_token_id" in usual.fields
        if (name, field) in NULLS or field.endswith("_token_id") and not positions:
            found = spec_of(json_files.read_config(file, family), family, "hf:model")
            same = dict(local_rope_theta=160_000.0) if field == "local_rope_theta" else {}
            assert found == dataclasses.replace(usual, **same)
        else:
            with pytest.raises(InputError, match=rf"config.json: damaged \({field}=None: expected"):
                json_files.read_config(file, family)


@pytest.mark.parametrize("value, shown", [(np.nan, "nan"), (-np.inf, "-inf")])
def test_weights_that_are_no_numbers(written, value, shown):
    table = written.arrays[TABLE].copy()
    table[3, 5] = table[4, 0] = value
    written.save(written.arrays | {TABLE: table})
    message = (
        rf"{TABLE} has 2 of 480 values that are not finite \(the first, at \[3, 5\], is {shown}\)"
    )
    with pytest.raises(InputError, match=f"hf:model: {message}: .* take other weights"):
        written.read()
    # An array that is not part of the model is left out unchecked.
    written.save(written.arrays | {"my_head.weight": np.full(3, value, np.float32)})
    assert "my_head.weight" in written.read().left_out


def test_files_that_are_missing_or_damaged(written):
    weights = written.folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="model.safetensors: damaged"):
        written.read()
    weights.unlink()
    with pytest.raises(InputError, match="hf:model: no model.safetensors in it"):
        written.read()
    config = written.folder / "config.json"
    config.write_text("{")
    with pytest.raises(InputError, match="config.json: damaged"):
        written.read()
    config.unlink()
    with pytest.raises(InputError, match="hf:model: no config.json in it"):
        written.read()


def test_a_pickle_is_never_opened(written):
    """Unpickling this file would make a folder."""
    (written.folder / "model.safetensors").unlink()
    trap = written.folder / "trapped"
    command = f"cos\nmkdir\n(S'{trap}'\ntR.".encode()
    (written.folder / "pytorch_model.bin").write_bytes(command)
    with pytest.raises(InputError, match="a pickle.*save_pretrained"):
        written.read()
    assert not trap.exists()


def test_weights_that_are_not_floats(written):
    integers = np.zeros(written.arrays[TABLE].shape, np.int8)
    written.save(written.arrays | {TABLE: integers})
    with pytest.raises(InputError, match=f"{TABLE} is of type I8"):
        written.read()


def test_classes_are_named(make_pretrained, tmp_path):
    write_hugging_face(make_pretrained("BertForSequenceClassification"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
    assert config["label2id"] == {"no": 0, "maybe": 1, "yes": 2}
    assert read_hugging_face(tmp_path, "").classes == CLASSES


def test_more_than_ten_classes(make_pretrained, tmp_path):
    """Classes are in the order of their numbers, although JSON writes them as texts ("10", "9")."""
    classes = tuple(f"class {11 - number}" for number in range(12))
    pretrained = make_pretrained("BertForSequenceClassification", classes=classes)
    write_hugging_face(pretrained, tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["id2label"] = dict(sorted(config["id2label"].items()))  # a few tools sort keys
    file.write_text(json.dumps(config))
    assert read_hugging_face(tmp_path, "").classes == classes


def test_the_identity_is_of_all_that_determines_the_function(make_pretrained):
    one = make_pretrained()
    embedding = one.params["bert"]["embeddings"]["position"]
    moved = jax.tree.map(lambda leaf: leaf + 1 if leaf is embedding else leaf, one.params)
    cased = Tokenizer(
        "wordpiece", one.tokenizer.vocabulary, "another", cased=not one.tokenizer.cased
    )
    others = [
        dataclasses.replace(one, spec=dataclasses.replace(SPEC, layer_norm_eps=1e-9)),
        dataclasses.replace(one, tokenizer=cased),
        dataclasses.replace(one, params=moved),
    ]
    assert make_pretrained().identity == one.identity
    assert len({one.identity, *(other.identity for other in others)}) == 4


def test_a_classifier_of_other_classes(make_pretrained, tmp_path):
    write_hugging_face(make_pretrained("BertForSequenceClassification"), tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text()) | {"id2label": {"0": "no", "1": "yes"}}
    file.write_text(json.dumps(config))
    with pytest.raises(InputError, match="classifier has 3 rows, and config.json names 2 classes"):
        read_hugging_face(tmp_path, "hf:model")
    file.write_text(json.dumps(config | {"id2label": {"0": "no", "2": "yes", "1": 7}}))
    assert read_hugging_face(tmp_path, "hf:model").classes == ("no", "7", "yes")


def test_a_vocabulary_of_another_size(vocabulary, make_pretrained, tmp_path):
    """A few extra rows are common, but not as many as here."""
    for spare in (127, 128):
        spec = dataclasses.replace(SPEC, vocab_size=SPEC.vocab_size + spare)
        folder = tmp_path / str(spare)
        folder.mkdir()
        write_hugging_face(make_pretrained(spec=spec), folder)
        if spare == 127:
            assert read_hugging_face(folder, "hf:model").spec == spec
        else:
            with pytest.raises(InputError, match="the vocabulary has .* pieces, the model"):
                read_hugging_face(folder, "hf:model")


# ------------------------------------------------------------------------------ the hub


@pytest.mark.parametrize("resized", [False, True])
def test_tokens_that_its_owner_added(make_pretrained, tmp_path, resized):
    """Without rows of their own, if the embeddings were not resized, they get the mean."""
    size = SPEC.vocab_size
    added = json.dumps({"<e1>": size, "new word": size + 1})
    model = make_pretrained("BertForMaskedLM", dataclasses.replace(SPEC, vocab_size=size + 2))
    if not resized:
        model = make_pretrained("BertForMaskedLM")
    write_hugging_face(model, tmp_path)
    (tmp_path / "added_tokens.json").write_text(added)
    (tmp_path / "tokenizer.json").unlink()
    found = read_hugging_face(tmp_path, "hf:model")
    assert found.spec.vocab_size == found.tokenizer.vocabulary_size == size + 2
    said = "vocabulary: 2 added tokens have no rows in the weights ('<e1>', 'new word'): they get"
    assert (said in found.summary()) == (not resized)
    for name in ("embeddings/token", "masked_lm/bias"):
        table, given = (
            flatten_dict(each.params, sep="/")[name if "mask" in name else f"bert/{name}"]
            for each in (found, model)
        )
        np.testing.assert_array_equal(table[: len(given)], given)
        if not resized:
            mean = given[found.tokenizer.ordinary[:size]].mean(axis=0)
            np.testing.assert_array_equal(table[size:], [mean, mean])
    (tmp_path / "again").mkdir()
    write_hugging_face(found, tmp_path / "again")
    again = read_hugging_face(tmp_path / "again", "hf:again")
    _assert_equal(again.params, found.params)
    assert again.rows == "" and again.tokenizer.identity == found.tokenizer.identity


def test_the_files_that_are_downloaded():
    """Also those of sentence-transformers in their folders, and no pickles."""
    wanted = ["config.json", "modules.json", "1_Pooling/config.json", "1_Dense/model.safetensors"]
    files = [*wanted, "pytorch_model.bin", "1_Dense/pytorch_model.bin", "README.md"]
    assert list(filter_repo_objects(files, allow_patterns=list(hub._FILES))) == wanted


def test_a_name_that_cannot_be_downloaded(tmp_path, monkeypatch):
    """The suite runs with the hub's own offline mode."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="download config.json, model.safetensors.*hf:FOLDER"):
        model_folder("someone/a-model-that-is-not-here")
    with pytest.raises(InputError, match="no such folder, and not the name of a model"):
        model_folder("a/b/c")
    refused = GatedRepoError("no", response=MagicMock())
    monkeypatch.setattr(huggingface_hub, "snapshot_download", MagicMock(side_effect=refused))
    with pytest.raises(InputError, match="^hf:a/b: gated: .* https://huggingface.co/a/b, and set"):
        model_folder("a/b")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="hf:file: a file: name the folder that it is in"):
        model_folder("file")
    (tmp_path / "someone").mkdir()
    assert model_folder("someone") == model_folder("./someone")
