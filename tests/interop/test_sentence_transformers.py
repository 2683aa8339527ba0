"""Folders of sentence-transformers: read or refused; it computes the same of those written here."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from bertjax.base.errors import InputError
from bertjax.interop import proof, sentence_transformers, sentence_transformers_check
from bertjax.interop.card import model_card
from bertjax.interop.derived import as_scorer
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.models.encoders import head_types
from bertjax.models.heads.embedding import LATE, SPARSE, Embedding, head_type_of
from bertjax.models.heads.vector_modules import ACTIVATIONS, VectorModule
from bertjax.programs import convert
from tests.helpers.closeness import assert_close
from tests.helpers.small_models import MODERNBERT, SPEC, random_model, with_vectors

TEXTS = [
    "The cat runs.",
    "a dog, the house",
    "Blue!",
    "the cats running of the dogs, a blue house?",
]
PROMPTS = dict(query_prompt="the dog, ", passage_prompt="a cat. ")
VECTORS = {
    "mean": Embedding(),
    "max": Embedding(pooling="max", normalize=False, similarity="dot"),
    "cls": Embedding(pooling="cls", similarity="euclidean", query_length=7, passage_length=9),
    "last": Embedding(pooling="last", **PROMPTS),
    "mean without the prompt": Embedding(count_prompt=False, **PROMPTS),
    "max without the prompt": Embedding(pooling="max", count_prompt=False, **PROMPTS),
    "cls without the prompt": Embedding(pooling="cls", count_prompt=False, **PROMPTS),
    "last without the prompt": Embedding(pooling="last", count_prompt=False, **PROMPTS),
    "shorter": Embedding(normalize=False, query_length=9, passage_length=9, **PROMPTS),
    "sparse": Embedding(kind=SPARSE, **PROMPTS),
    "sparse by its cosine": Embedding(kind=SPARSE, similarity="cosine", query_length=5),
    "late": Embedding(kind=LATE, width=7, query_length=6, passage_length=9, **PROMPTS),
    "late without prompts": Embedding(kind=LATE, width=31),
    "EmbeddingGemma's": Embedding(
        modules=(
            VectorModule(width=31, bias=False),
            VectorModule(width=11, bias=False),
        ),
        **PROMPTS,
    ),
    "LaBSE's": Embedding(pooling="cls", modules=(VectorModule(width=24, activation="tanh"),)),
    "all modules": Embedding(
        modules=(
            VectorModule(kind="normalize"),
            VectorModule(width=9, activation="gelu"),
            VectorModule(kind="layer_norm"),
        ),
        normalize=False,
    ),
}
BOTH = ("mean", "cls without the prompt", "sparse", "late")  # of ModernBERT, too
CASES = [*(("bert", name) for name in VECTORS), *(("modernbert", name) for name in BOTH)]


def small_model(vocabulary, embedding: Embedding, family: str = "bert"):
    """A small random model that makes such vectors; its encoder has no pooler."""
    spec = {"bert": SPEC, "modernbert": MODERNBERT}[family]
    return with_vectors(random_model(vocabulary, head_type_of(embedding), spec), embedding)


def _written(vocabulary, folder: Path, name: str) -> Path:
    write_hugging_face(small_model(vocabulary, VECTORS[name]), folder)
    return folder


def _assert_same_params(one, other) -> None:
    result, reference = (flatten_dict(dict(each.params)) for each in (one, other))
    assert result.keys() == reference.keys()
    assert all(np.array_equal(result[path], reference[path]) for path in result)


def _json(file: Path):
    return json.loads(file.read_text())


def _change(file: Path, **fields) -> None:
    """Changes fields of a JSON file; None removes one."""
    content = (_json(file) if file.exists() else {}) | fields
    file.write_text(json.dumps({key: each for key, each in content.items() if each is not None}))


# ------------------------------------------------------------------------ out and in


@pytest.mark.parametrize("family, name", CASES)
def test_out_and_in(vocabulary, tmp_path, family, name):
    model = small_model(vocabulary, VECTORS[name], family)
    write_hugging_face(model, tmp_path)
    again = read_hugging_face(tmp_path, "hf:again")
    assert (again.embedding, again.head_type) == (model.embedding, model.head_type)
    assert again.left_out == {} and again.missing == () and again.additional == ()
    _assert_same_params(again, model)


def test_a_pooler_is_kept(make_pretrained, tmp_path):
    model = dataclasses.replace(make_pretrained("BertModel"), embedding=Embedding())
    write_hugging_face(model, tmp_path)
    again = read_hugging_face(tmp_path, "hf:again")
    assert again.params.keys() == {"bert", "pooler"} and again.additional == ()
    assert "vectors of texts: dense, mean, of length 1, compared by cosine" in again.summary()


def test_the_files_written(vocabulary, tmp_path):
    for name in ("cls without the prompt", "cls", "sparse", "late"):
        (tmp_path / name).mkdir()
        _written(vocabulary, tmp_path / name, name)
    folder = tmp_path / "cls without the prompt"
    assert _json(folder / "modules.json")[1:] == [
        {"idx": 1, "name": "1", "path": "1_Pooling"}
        | {"type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize"}
        | {"type": "sentence_transformers.models.Normalize"},
    ]
    pooling = _json(folder / "1_Pooling" / "config.json")
    assert [key for key, value in pooling.items() if value is True] == ["pooling_mode_cls_token"]
    assert (pooling["include_prompt"], pooling["word_embedding_dimension"]) == (False, 24)
    no_pooler = {"model_args": {"add_pooling_layer": False}}
    model = {"max_seq_length": 13, "do_lower_case": False, **no_pooler}
    assert _json(folder / "sentence_bert_config.json") == model
    model = {"max_seq_length": 13, "do_lower_case": False}
    assert _json(tmp_path / "sparse" / "sentence_bert_config.json") == model
    assert _json(folder / "config_sentence_transformers.json") == {
        "model_type": "SentenceTransformer",
        "prompts": {"query": "the dog, ", "document": "a cat. "},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    # Only a model with two lengths has fields that older versions of the library refuse.
    assert _json(tmp_path / "cls" / "sentence_bert_config.json") == {
        **{"max_seq_length": 9, "do_lower_case": False, **no_pooler},
        **{"query_length": 7, "document_length": 9},
    }
    assert load_file(tmp_path / "late" / "1_Dense" / "model.safetensors")[
        "linear.weight"
    ].shape == (7, 24)
    assert _json(tmp_path / "sparse" / "config.json")["architectures"] == ["BertForMaskedLM"]


def test_vectors_by_their_angle_are_compared_by_their_cosine(vocabulary, tmp_path):
    model = small_model(vocabulary, Embedding(similarity="angle"))
    write_hugging_face(model, tmp_path)
    assert read_hugging_face(tmp_path, "hf:again").embedding == Embedding()


@pytest.mark.parametrize("kind", [SPARSE, LATE])
def test_a_prompt_that_does_not_count(vocabulary, tmp_path, kind):
    model = small_model(vocabulary, Embedding(kind=kind, count_prompt=False, **PROMPTS))
    with pytest.raises(InputError, match=f"count_prompt=False in a {kind} model"):
        write_hugging_face(model, tmp_path)


def test_a_projection_that_is_missing(vocabulary, tmp_path):
    model = small_model(vocabulary, VECTORS["late"])
    absent = dataclasses.replace(model, params={"bert": model.params["bert"]})
    with pytest.raises(InputError, match="BertModel weights without projection"):
        write_hugging_face(absent, tmp_path)


# ------------------------------------------------------------------------- what others wrote


def test_the_folder_of_version_2(vocabulary, tmp_path):
    """all-MiniLM-L6-v2 has these files."""
    folder = _written(vocabulary, tmp_path, "mean")
    keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    pooling = {f"pooling_mode_{key}": key == "max_tokens" for key in keys}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    shutil.rmtree(folder / "2_Normalize")  # an empty folder does not survive everywhere
    _change(folder / "sentence_bert_config.json", max_seq_length=11)
    (folder / "config_sentence_transformers.json").write_text('{"__version__": {}}')
    wanted = Embedding(pooling="max", query_length=11, passage_length=11)
    assert read_hugging_face(folder, "hf:old").embedding == wanted


@pytest.mark.parametrize(
    "settings, wanted",
    [
        ({"prompts": {"query": "q: ", "passage": "p: "}}, ("q: ", "p: ")),
        ({"prompts": {"query": None, "document": "d: ", "passage": "p: "}}, ("", "d: ")),
        ({"prompts": {"any": "a: ", "query": "q: "}, "default_prompt_name": "any"}, ("q: ", "a: ")),
        ({"prompts": {"any": "a: "}}, ("", "")),
        ({"prompts": {"passage": "p: "}, "default_prompt_name": "passage"}, ("p: ", "p: ")),
    ],
)
def test_prompts(vocabulary, tmp_path, settings, wanted):
    """All are kept, by name, with the default one."""
    folder = _written(vocabulary, tmp_path, "mean")
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    found = read_hugging_face(folder, "hf:model")
    assert (found.embedding.query_prompt, found.embedding.passage_prompt) == wanted
    (tmp_path / "again").mkdir()
    write_hugging_face(found, tmp_path / "again")
    again = _json(tmp_path / "again" / SETTINGS)
    usual = {"default_prompt_name": None}
    assert {name: again[name] for name in ("prompts", *usual)} == usual | settings
    assert read_hugging_face(tmp_path / "again", "hf:again").embedding == found.embedding
    (folder / SETTINGS).write_text('{"prompts": null}')
    assert "prompts" not in read_hugging_face(folder, "hf:model").kept


def test_the_length_may_be_the_tokenizers(vocabulary, tmp_path):
    folder = _written(vocabulary, tmp_path, "mean")
    _change(folder / "sentence_bert_config.json", max_seq_length=None)
    for length, wanted in ((9, 9), (10**30, 0)):
        _change(folder / "tokenizer_config.json", model_max_length=length)
        assert read_hugging_face(folder, "hf:model").embedding.query_length == wanted


def test_a_transformer_alone_makes_no_vectors(vocabulary, tmp_path):
    folder = _written(vocabulary, tmp_path, "mean")
    (folder / "modules.json").write_text(json.dumps(_json(folder / "modules.json")[:1]))
    assert read_hugging_face(folder, "hf:model").embedding is None


def test_the_config_may_name_another_head(vocabulary, tmp_path):
    folder = _written(vocabulary, tmp_path, "mean")
    _change(folder / "config.json", architectures=["BertForMaskedLM"])
    assert read_hugging_face(folder, "hf:model").head_type == head_types.ENCODER


PYLATE = dict(model_type="ColBERT", do_query_expansion=False, skiplist_words=[])
PYLATE |= dict(query_prefix="", document_prefix="", query_length=9, document_length=11)


def _of_pylate(folder: Path, **settings) -> None:
    """Makes the folder one of PyLate: it has no module that normalizes, and more settings."""
    modules = _json(folder / "modules.json")[:2]
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(PYLATE | settings))


def test_pylate(vocabulary, tmp_path):
    folder = _written(vocabulary, tmp_path, "late")
    _of_pylate(folder)
    wanted = Embedding(kind=LATE, width=7, query_length=9, passage_length=11)
    assert read_hugging_face(folder, "hf:model").embedding == wanted


def _module(folder: Path, number: int, name: str, **config) -> None:
    """Puts a module in this place."""
    modules = _json(folder / "modules.json")
    path = f"{number}_{name}"
    modules[number:number] = [{"path": path, "type": f"sentence_transformers.models.{name}"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / path).mkdir(exist_ok=True)
    (folder / path / "config.json").write_text(json.dumps(config))


def _without_normalize(folder: Path) -> None:
    (folder / "modules.json").write_text(json.dumps(_json(folder / "modules.json")[:-1]))


def _reranker_of_modules(folder: Path) -> None:
    """Transformer, Pooling, Dense, LayerNorm, and a Dense with tanh."""
    modules = _json(folder / "modules.json")[:2]
    (folder / "modules.json").write_text(json.dumps(modules))
    gelu = "torch.nn.modules.activation.GELU"
    _module(folder, 2, "Dense", in_features=24, out_features=24, activation_function=gelu)
    _module(folder, 3, "LayerNorm", dimension=24)
    _module(folder, 4, "Dense", **SIZES, module_output_name="scores")
    _cross_encoder(folder)


def _cross_encoder(folder: Path) -> None:
    _change(folder / SETTINGS, model_type="CrossEncoder")


def _own_code(folder: Path) -> None:
    modules = _json(folder / "modules.json")
    modules[0]["type"] = "custom_st.Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))


DENSE_FILE, POOLING_FILE = "1_Dense/config.json", "1_Pooling/config.json"
SPLADE_FILE, SETTINGS = "1_SpladePooling/config.json", "config_sentence_transformers.json"
MODEL, NORMALIZE_FILE = "sentence_bert_config.json", "2_Normalize/config.json"
SIZES = dict(in_features=24, out_features=16)
REFUSED = {
    "a reranker of modules": ("mean", _reranker_of_modules, "tanh at the end of a reranker"),
    "a reranker of a mean": ("mean", lambda f: (_without_normalize(f), _cross_encoder(f)),
        "no Dense module after Pooling"),
    "words of a reranker": ("mean", lambda f: (_module(f, 2, "WordWeights"), _cross_encoder(f)),
        "a module WordWeights in modules.json"),
    "the first numbers of scores": ("mean", lambda f: (_change(f / SETTINGS, truncate_dim=1),
        _cross_encoder(f)), "truncate_dim=1 in config_sentence_transformers.json"),
    "the first numbers of tokens": ("late", lambda f: _change(f / SETTINGS, truncate_dim=5),
        "truncate_dim=5 in config_sentence_transformers.json"),
    "a few of the weights": ("sparse", lambda f: _change(f / SETTINGS, max_active_dims=8),
        "max_active_dims=8 in config_sentence_transformers.json"),
    "of texts": ("mean", lambda f: _module(f, 2, "Dense", use_residual=True, **SIZES),
        "a Dense module 24 -> 16 with tanh and a residual"),
    "an activation": ("mean", lambda f: _module(f, 2, "Dense", activation_function="x.Y", **SIZES),
        "a Dense module 24 -> 16 with y"),
    "scores": ("mean", lambda f: _module(f, 2, "Dense", module_output_name="scores", **SIZES),
        "module_output_name='scores' in a Dense module"),
    "weights of words": ("mean", lambda f: _module(f, 3, "WordWeights"), "a module WordWeights"),
    "words": ("mean", lambda f: _module(f, 1, "WordEmbeddings"), "a module WordEmbeddings"),
    "code of its own": ("mean", _own_code, "a module custom_st.Transformer in modules.json"),
    "two poolings": ("mean", lambda f: _change(f / POOLING_FILE, pooling_mode_max_tokens=True),
        "a Pooling module of max and mean"),
    "two new poolings": ("mean", lambda f: _change(f / POOLING_FILE, pooling_mode=["cls", "mean"]),
        "a Pooling module of cls and mean"),
    "another mean": ("mean", lambda f: _change(f / POOLING_FILE, pooling_mode="weightedmean"),
        "a Pooling module of weightedmean"),
    "tokens normalized": ("mean", lambda f: _change(f / NORMALIZE_FILE, module_input_name="x"),
        "module_input_name='x' in a Normalize module"),
    "another similarity": ("mean", lambda f: _change(f / SETTINGS, similarity_fn_name="manhattan"),
        "similarity_fn_name='manhattan'"),
    "another task": ("mean", lambda f: _change(f / MODEL, transformer_task="fill-mask"),
        "transformer_task='fill-mask' in sentence_bert_config.json"),
    "other tokens": ("mean", lambda f: _change(f / MODEL, tokenizer_args={"truncation_side": 0}),
        "tokenizer_args={'truncation_side': 0}"),
    "no tokens": ("mean", lambda f: _change(f / MODEL, max_seq_length=-1), "at most -1 tokens"),
    "a sum": ("sparse", lambda f: _change(f / SPLADE_FILE, pooling_strategy="sum"),
        "pooling_strategy='sum' in a SpladePooling module"),
    "two logarithms": ("sparse", lambda f: _change(f / SPLADE_FILE, activation_function="log1p"),
        "activation_function='log1p' in a SpladePooling module"),
    "a bias": ("late", lambda f: _change(f / DENSE_FILE, bias=True),
        "24 -> 7 with identity: bertjax does not compute it"),
    "a projection of no tokens": ("late", lambda f: _change(f / DENSE_FILE, module_input_name="x"),
        "module_input_name='x' in a Dense module"),
    "a residual": ("late", lambda f: _change(f / DENSE_FILE, use_residual=True),
        "with identity and a residual, without bias"),
    "no width": ("late", lambda f: _change(f / DENSE_FILE, out_features=None), "24 -> None"),
    "not normalized": ("late", _without_normalize, "no (MultiVectorMask|Normalize) module after"),
    "words skipped": ("late", lambda f: _module(f, 2, "MultiVectorMask", skiplist_words=["."]),
        r"skiplist_words=\['.'\] for tokens that do not count"),
    "query expansion": ("late", lambda f: _change(f / MODEL, query_expansion={"length": 32}),
        "query_expansion={'length': 32}"),
    "PyLate's prefix": ("late", lambda f: _of_pylate(f, query_prefix="[Q] "),
        "query_prefix='.Q. ' before each text"),
    "PyLate's expansion": ("late", lambda f: _of_pylate(f, do_query_expansion=None),
        "do_query_expansion, queries that are filled up"),
    "PyLate's punctuation": ("late", lambda f: _of_pylate(f, skiplist_words=None),
        "PyLate's skiplist_words"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_computed_is_refused(vocabulary, tmp_path, what):
    name, change, message = REFUSED[what]
    folder = _written(vocabulary, tmp_path, name)
    change(folder)
    with pytest.raises(InputError, match=message) as error:
        read_hugging_face(folder, "hf:model")
    assert str(error.value).startswith("hf:model: ")
    assert str(error.value).endswith("without modules.json, the encoder is read alone")
    (folder / "modules.json").unlink()
    assert read_hugging_face(folder, "hf:model").embedding is None


def test_lower_case_over_a_tokenizer_that_keeps_case(vocabulary, tmp_path):
    folder = _written(vocabulary, tmp_path, "mean")
    _change(folder / MODEL, do_lower_case=True)
    assert read_hugging_face(folder, "hf:model").embedding == Embedding()
    _change(folder / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(InputError, match="do_lower_case in sentence_bert_config.json"):
        read_hugging_face(folder, "hf:model")


def test_damaged_folders(vocabulary, tmp_path):
    folder = _written(vocabulary, tmp_path, "late")
    weights = folder / "1_Dense" / "model.safetensors"
    save_file({"linear.weight": np.zeros((24, 7), np.float32)}, weights)
    with pytest.raises(InputError, match=r"linear.weight is \(24, 7\), where \(7, 24\) belongs"):
        read_hugging_face(folder, "hf:model")
    save_file({"linear.weight": np.full((7, 24), np.nan, np.float32)}, weights)
    with pytest.raises(InputError, match="linear.weight has 168 of 168 values that are not finite"):
        read_hugging_face(folder, "hf:model")
    weights.unlink()
    with pytest.raises(InputError, match="1_Dense: no model.safetensors in it: download it"):
        read_hugging_face(folder, "hf:model")
    (folder / DENSE_FILE).unlink()
    with pytest.raises(InputError, match="no config.json of the module Dense: download it"):
        read_hugging_face(folder, "hf:model")
    modules = _json(folder / "modules.json")
    modules[1]["path"] = "../1_Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="names the file '../1_Dense'"):
        read_hugging_face(folder, "hf:model")


# ------------------------------------------------------------- next to sentence-transformers


def _assert_same_vectors(model, folder: Path) -> None:
    for query in (True, False):
        result = proof.vectors(model, TEXTS, query=query)
        kind = model.embedding.kind
        reference = sentence_transformers_check.vectors(folder, kind, TEXTS, query=query)
        for one, other in zip(result, reference, strict=True):
            assert_close(one, other)


@pytest.mark.peers
@pytest.mark.parametrize("family, name", CASES)
def test_it_computes_the_same(vocabulary, tmp_path, family, name):
    """Of our folder, and we of the folder that it saves then, in its own form."""
    import sentence_transformers as st

    model = small_model(vocabulary, VECTORS[name], family)
    (tmp_path / "bertjax").mkdir()
    write_hugging_face(model, tmp_path / "bertjax")
    _assert_same_vectors(model, tmp_path / "bertjax")
    peer = getattr(st, sentence_transformers_check.CLASSES[model.embedding.kind])(
        str(tmp_path / "bertjax"), device="cpu"
    )
    peer.save_pretrained(str(tmp_path / "peer"), create_model_card=False)
    again = read_hugging_face(tmp_path / "peer", "hf:peer")
    assert again.embedding == model.embedding
    _assert_same_params(again, model)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["mean", "all modules"])
def test_it_cuts_the_same(vocabulary, tmp_path, name):
    """Cut vectors have length 1, also where the library normalizes before the cut or not at all."""
    import sentence_transformers as st

    model = small_model(vocabulary, VECTORS[name])
    (tmp_path / "bertjax").mkdir()
    write_hugging_face(model, tmp_path / "bertjax")
    peer = st.SentenceTransformer(str(tmp_path / "bertjax"), device="cpu", truncate_dim=7)
    peer.save_pretrained(str(tmp_path / "peer"), create_model_card=False)
    cut = read_hugging_face(tmp_path / "peer", "hf:peer")
    assert (cut.embedding, cut.dimensions) == (model.embedding, 7)
    assert cut.summary().endswith(", cut to 7 numbers of length 1")
    assert cut.identity == dataclasses.replace(model, dimensions=7).identity != model.identity
    result = np.stack(proof.vectors(cut, TEXTS, query=False))
    assert_close(result, peer.encode_document(TEXTS, normalize_embeddings=True))
    shorter = peer.encode_document(TEXTS)
    assert_close(result, shorter / np.linalg.norm(shorter, axis=1, keepdims=True))
    convert.run(f"hf:{tmp_path / 'peer'}", f"hf:{tmp_path / 'again'}")
    assert _json(tmp_path / "again" / SETTINGS)["truncate_dim"] == 7
    again = st.SentenceTransformer(str(tmp_path / "again"), device="cpu")
    np.testing.assert_array_equal(again.encode_document(TEXTS), shorter)


def test_cuts_that_are_none(vocabulary, tmp_path):
    folder = _written(vocabulary, tmp_path, "all modules")
    for width, wanted in ((8, 8), (9, 0), (24, 0)):
        _change(folder / SETTINGS, truncate_dim=width)
        assert read_hugging_face(folder, "hf:model").dimensions == wanted
    _change(folder / SETTINGS, truncate_dim=0)
    with pytest.raises(InputError, match="truncate_dim=0: must be at least 1"):
        read_hugging_face(folder, "hf:model")


@pytest.mark.peers
def test_activation_functions_are_those_of_pytorch():
    import torch

    x = np.linspace(-25, 25, 501, dtype=np.float32)
    for name, own in sentence_transformers.ACTIVATIONS.items():
        module = "linear" if name == "Identity" else "activation"
        expected = getattr(getattr(torch.nn.modules, module), name)()(torch.from_numpy(x))
        assert_close(np.asarray(ACTIVATIONS[own](x)), expected.numpy())
    assert set(sentence_transformers.ACTIVATIONS.values()) == set(ACTIVATIONS)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["cls without the prompt", "sparse", "late without prompts"])
def test_the_form_is_its_own(vocabulary, tmp_path, name):
    """What it saves of our folder has the settings of the same model that it has built itself."""
    import sentence_transformers as st
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from torch.nn import Identity

    (tmp_path / "bertjax").mkdir()
    folder = _written(vocabulary, tmp_path / "bertjax", name)
    of_tokens, prompts = "token_embeddings", dict(query="the dog, ", document="a cat. ")
    if name == "sparse":
        peer = st.SparseEncoder(_bare(folder, tmp_path), prompts=prompts)
        peer.similarity_fn_name = "dot"
    elif name == "late without prompts":
        dense = Dense(24, 31, False, Identity(), module_input_name=of_tokens)
        modules = [Transformer(_bare(folder, tmp_path)), dense, Normalize(of_tokens)]
        peer = st.MultiVectorEncoder(modules=modules, similarity_fn_name="maxsim")
    else:
        pooling = Pooling(24, "cls", include_prompt=False)
        modules = [Transformer(_bare(folder, tmp_path)), pooling, Normalize()]
        peer = st.SentenceTransformer(modules=modules, prompts=prompts)
    peer.save_pretrained(str(tmp_path / "peer"), create_model_card=False)
    type(peer)(str(folder)).save_pretrained(str(tmp_path / "again"), create_model_card=False)
    files = {path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*.json")}
    assert files == {
        path.relative_to(tmp_path / "peer") for path in (tmp_path / "peer").rglob("*.json")
    }
    for file in files - {Path("tokenizer.json"), Path("tokenizer_config.json")}:
        result, reference = (_json(tmp_path / saved / file) for saved in ("again", "peer"))
        if (name, file.name) == ("sparse", "modules.json"):  # the class that version 5 has, too
            assert result[0].pop("type").endswith(".MLMTransformer")
            assert reference[0].pop("type").endswith(".Transformer")
        assert result == reference, file


def _bare(folder: Path, tmp_path: Path) -> str:
    """A copy of a folder as transformers alone writes it."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in folder.glob("*"):
        if file.is_file() and file.name not in ("modules.json", SETTINGS, MODEL):
            shutil.copy(file, bare)
    return str(bare)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["mean", "sparse", "late"])
def test_the_lines_of_the_card_work(vocabulary, tmp_path, name, capsys):
    folder = _written(vocabulary, tmp_path, name)
    card = model_card(small_model(vocabulary, VECTORS[name]), str(folder), {}, {})
    exec(card.split("```python\n")[1].split("\n```")[0], {})
    assert "tensor([[" in capsys.readouterr().out


def test_the_card(vocabulary):
    card = model_card(small_model(vocabulary, VECTORS["sparse"]), "words", {}, {})
    assert card.startswith(
        "---\nlibrary_name: sentence-transformers\npipeline_tag: feature-extraction\ntags:\n"
        "- sentence-transformers\n- sparse-encoder\n- sparse\n- splade\n- bert\n- bertjax\n---"
    )
    assert 'SparseEncoder("words")' in card
    assert "vectors of texts are sparse, compared by dot, queries after 'the dog, '" in card
    card = model_card(small_model(vocabulary, VECTORS["mean"]), "texts", {}, {})
    assert "pipeline_tag: sentence-similarity\n" in card
    card = model_card(_scorer(vocabulary, SCORINGS["ModernBERT's"]), "pairs", {}, {})
    assert card.startswith("---\nlibrary_name: sentence-transformers\npipeline_tag: text-ranking\n")
    assert 'CrossEncoder("pairs")' in card


# ------------------------------------------------------------------------------ rerankers


@pytest.fixture
def reranker(make_pretrained, tmp_path):
    """A model with one output for a pair, and its folder."""
    model = make_pretrained("BertForSequenceClassification", classes=("LABEL_0",))
    (tmp_path / "reranker").mkdir()
    write_hugging_face(model, tmp_path / "reranker")
    return model, tmp_path / "reranker"


def _logits(model, pairs: list[tuple[str, str]]) -> list[float]:
    """The output for each pair."""
    found = []
    for pair in pairs:
        ids, types = model.tokenizer.template.sequence(*model.tokenizer.encode(pair))
        inputs = {"input_ids": ids, "input_mask": [1] * len(ids), "token_type_ids": types}
        inputs = {name: np.array([row], np.int32) for name, row in inputs.items()}
        found.append(proof.outputs(model.model(), model.params, inputs)["logits"][0, 0])
    return found


SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    "config, settings, activation",
    [
        ({}, {}, None),  # bge's: one output, and no word about it
        ({"problem_type": "regression"}, {}, None),
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4"}}, {}, IDENTITY),
        ({"sbert_ce_default_activation_function": IDENTITY}, {}, IDENTITY),
        ({}, {"activation_fn": SIGMOID}, SIGMOID),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, {"activation_fn": IDENTITY},
            IDENTITY),
    ],
)  # fmt: skip
def test_the_activation_of_a_reranker_is_kept(reranker, tmp_path, config, settings, activation):
    _, folder = reranker
    _change(folder / "config.json", **config)
    if settings:
        modules = [{"path": "", "type": "sentence_transformers.base.modules.Transformer"}]
        (folder / "modules.json").write_text(json.dumps(modules))
        _change(folder / SETTINGS, model_type="CrossEncoder", prompts={"any": "a: "}, **settings)
    found = read_hugging_face(folder, "hf:reranker")
    assert (found.problem_type, found.classes) == ("regression", ("LABEL_0",))
    (tmp_path / "again").mkdir()
    write_hugging_face(found, tmp_path / "again")
    again = _json(tmp_path / "again" / "config.json")
    assert again.get("problem_type") == config.get("problem_type")
    assert again.get("sentence_transformers", {}).get("activation_fn") == activation


def test_the_length_of_a_reranker_is_kept(reranker, tmp_path):
    """Texts are cut to it by CrossEncoder, and by launch/predict.py."""
    model, folder = reranker
    assert read_hugging_face(folder, "hf:reranker").task == {}
    _change(folder / "tokenizer_config.json", model_max_length=7)
    found = read_hugging_face(folder, "hf:reranker")
    assert found.task == {"max_length": 7}
    trained = dataclasses.replace(model, task={"problem_type": "regression", "max_length": 9})
    for number, (each, length) in enumerate(((found, 7), (trained, 9))):
        (tmp_path / f"{number}").mkdir()
        write_hugging_face(each, tmp_path / f"{number}")
        assert _json(tmp_path / f"{number}" / "tokenizer_config.json")["model_max_length"] == length
        assert read_hugging_face(tmp_path / f"{number}", "hf:again").task == each.task


def test_what_a_reranker_does_not_compute(reranker):
    _, folder = reranker
    modules = [{"path": "", "type": "sentence_transformers.base.modules.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    _change(folder / SETTINGS, model_type="CrossEncoder", prompts={"any": "a: "})
    _change(folder / MODEL, transformer_task="text-generation")
    with pytest.raises(InputError, match="transformer_task='text-generation' in sentence_bert_con"):
        read_hugging_face(folder, "hf:reranker")
    _change(folder / MODEL, transformer_task="sequence-classification")
    _change(folder / SETTINGS, default_prompt_name="any")
    with pytest.raises(InputError, match="the prompt 'a: ' before the texts of a reranker"):
        read_hugging_face(folder, "hf:reranker")


SCORINGS = {
    "product alone": Embedding(pooling="max", normalize=False),
    "ModernBERT's": Embedding(
        pooling="cls",
        modules=(VectorModule(width=24, activation="gelu"), VectorModule(kind="layer_norm")),
        normalize=False,
    ),
}


def _scorer(vocabulary, scoring: Embedding, family: str = "bert", classes: int = 1):
    """A model that scores pairs by modules, in the form of a classifier."""
    modules = (*scoring.modules, VectorModule(width=classes))
    vectors = dataclasses.replace(scoring, modules=modules)
    return as_scorer(small_model(vocabulary, vectors, family))


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("name", SCORINGS)
def test_a_reranker_of_modules_out_and_in(vocabulary, tmp_path, name, classes):
    model = _scorer(vocabulary, SCORINGS[name], classes=classes)
    model = dataclasses.replace(model, task={"max_length": 9})
    write_hugging_face(model, tmp_path)
    assert _json(tmp_path / "config.json")["architectures"] == ["BertModel"]
    last = _json(tmp_path / "modules.json")[-1]["path"]
    assert _json(tmp_path / last / "config.json")["module_output_name"] == "scores"
    again = read_hugging_face(tmp_path, "hf:again")
    assert (again.scoring, again.embedding) == (SCORINGS[name], None)
    assert again.head_type == head_types.SEQUENCE_CLASSIFICATION
    assert (again.task, again.missing, again.additional) == ({"max_length": 9}, (), ())
    assert len(again.classes) == classes and again.identity == model.identity
    _assert_same_params(again, model)


@pytest.mark.peers
@pytest.mark.parametrize("family, name", [*zip(("bert", "modernbert"), SCORINGS, strict=True)])
def test_a_reranker_of_modules_computes_the_same(vocabulary, tmp_path, family, name):
    """Of our folder, and we of one that it has built and saved itself."""
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    model = _scorer(vocabulary, SCORINGS[name], family)
    pairs = [("the cat", "a dog runs."), ("Blue house?", "house"), ("a", "the cats running")]
    (tmp_path / "ours").mkdir()
    write_hugging_face(model, tmp_path / "ours")
    peer = CrossEncoder(str(tmp_path / "ours"), device="cpu")
    logits = np.array(_logits(model, pairs))
    assert_close(peer.predict(pairs, activation_fn=Identity()), logits)
    assert_close(peer.predict(pairs), 1 / (1 + np.exp(-logits)))
    peer.save_pretrained(str(tmp_path / "peer"), create_model_card=False)
    again = read_hugging_face(tmp_path / "peer", "hf:peer")
    assert again.scoring == SCORINGS[name] and again.kept["activation_fn"] == SIGMOID
    _assert_same_params(again, model)


@pytest.mark.peers
def test_it_computes_the_same_of_what_is_converted(vocabulary, reranker, tmp_path):
    """A reranker without a word about its output, and prompts under names of their own."""
    from sentence_transformers import CrossEncoder, SentenceTransformer

    _, folder = reranker
    _change(folder / "tokenizer_config.json", model_max_length=9)
    pairs = [("the cat", "a dog runs."), ("Blue house?", "house"), ("the cat " * 4, "the dog " * 4)]
    convert.run(f"hf:{folder}", f"hf:{tmp_path / 'again'}")
    result, reference = (
        CrossEncoder(str(each), device="cpu").predict(pairs)
        for each in (tmp_path / "again", folder)
    )
    np.testing.assert_array_equal(result, reference)
    (tmp_path / "given").mkdir()
    folder = _written(vocabulary, tmp_path / "given", "mean")
    prompts = {"any": "the dog, ", "passage": "a cat. "}
    _change(folder / SETTINGS, prompts=prompts, default_prompt_name="any")
    convert.run(f"hf:{folder}", f"hf:{tmp_path / 'texts'}")
    models = [SentenceTransformer(str(each), device="cpu") for each in (folder, tmp_path / "texts")]
    for name in (None, "any", "passage", "query", "document"):
        one, other = (model.encode(TEXTS, prompt_name=name) for model in models)
        np.testing.assert_array_equal(one, other)
    one, other = (model.encode_document(TEXTS) for model in models)
    np.testing.assert_array_equal(one, other)
    assert np.abs(models[0].encode(TEXTS) - one).max() > 0.01  # a prompt changes them


@pytest.mark.peers
def test_cross_encoder(reranker, tmp_path):
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    model, folder = reranker
    pairs = [("the cat", "a dog runs."), ("Blue house?", "house"), ("a", "the cats running")]
    logits = np.array(_logits(model, pairs))
    peer = CrossEncoder(str(folder), device="cpu")
    likely = peer.predict(pairs)
    assert_close(likely, 1 / (1 + np.exp(-logits)))
    assert_close(peer.predict(pairs, activation_fn=Identity()), logits)
    # A regression predicts the number itself, as launch/predict.py does.
    (tmp_path / "regression").mkdir()
    number = dataclasses.replace(model, task={"problem_type": "regression"})
    write_hugging_face(number, tmp_path / "regression")
    found = CrossEncoder(str(tmp_path / "regression"), device="cpu").predict(pairs)
    assert_close(found, logits)
    # Its own folder has modules.json, too.
    peer.save_pretrained(str(tmp_path / "peer"), create_model_card=False)
    again = read_hugging_face(tmp_path / "peer", "hf:peer")
    assert again.embedding is None and again.head_type == head_types.SEQUENCE_CLASSIFICATION
    np.testing.assert_array_equal(_logits(again, pairs), logits)
