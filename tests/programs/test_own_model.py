"""A published model made one's own: its pre-training goes on, and the figures before and after."""

import json
import shutil

import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.store import open_tokenizer
from bertjax.data.examples.masking import MaskingRule
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.interop.vocabulary_change import with_vocabulary
from bertjax.models.encoders import head_types
from bertjax.programs import convert, masked_text, prepare, pretrain
from bertjax.runs import same_text
from bertjax.runs.source import open_model
from bertjax.text.template import Template
from bertjax.training.evaluation import Evaluator
from configs import pretrain_continue
from tests.helpers.tiny_run import ONE_LENGTH, rows_of, tiny_config, write_text
from tests.text.gemma_vocabulary import GEMMA_CONFIG, learn_gemma


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    """`tiny_run` as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{folder}")
    return folder


@pytest.fixture(scope="module")
def corpora(exported, tmp_path_factory):
    """Another text, its vocabulary extended; and the old text in that vocabulary."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, seed, word in (("new", 5, "growlings"), ("old", 6, "growl")):
        path = folder / f"{name}.txt"
        write_text(path, documents=80, seed=seed)
        path.write_text(path.read_text().replace("growl", word))
    options = dict(held_out=0.2, workers=1)
    source = [f"text:{folder}/new.txt"]
    vocabulary = f"hf:{exported}"
    prepare.run(source, folder / "plain", vocabulary=vocabulary, **options)
    prepare.run(source, folder / "new", vocabulary=vocabulary, extend_vocabulary=9, **options)
    prepare.run([f"text:{folder}/old.txt"], folder / "old", vocabulary=folder / "new", **options)
    return folder


@pytest.mark.slow
def test_figures_of_several_corpora(
    tiny_run, exported, tiny_corpus, corpora, tmp_path, capsys, monkeypatch
):
    with pytest.raises(InputError, match="reads at most 64 tokens, and the spans have 128"):
        masked_text.run(f"hf:{exported}", str(corpora / "plain"))
    monkeypatch.setattr(same_text, "LENGTH", 33)
    monkeypatch.setattr(same_text, "BATCHES", 6)
    seen, rules = [], []
    evaluate, corrupt = Evaluator.evaluate, same_text.HiddenTokens

    def evaluated(*arguments):
        metrics = evaluate(*arguments)
        seen.append(metrics["mlm_loss"])
        return metrics

    monkeypatch.setattr(Evaluator, "evaluate", evaluated)
    monkeypatch.setattr(same_text, "HiddenTokens", lambda r: rules.append(r) or corrupt(r))
    run = shutil.copytree(tiny_run, tmp_path / "run")
    both = f"{tiny_corpus},{corpora / 'plain'}"
    found = masked_text.run(str(run), both)
    old, new = found[str(tiny_corpus)], found[str(corpora / "plain")]
    said = capsys.readouterr().out
    assert f"of {tiny_corpus}: masked-LM loss {old['mlm_loss']:.4f}, accuracy" in said
    assert f"pieces a word, loss of a whole word {new['word_loss']:.4f}\n" in said
    written = json.loads((run / "masked_text.json").read_text())
    assert written == {
        "step": 160,
        "corpus": str(tiny_corpus),
        **old,
        "others": {str(corpora / "plain"): new},
    }
    report = json.loads((corpora / "plain" / "report.json").read_text())
    assert new["tokens_per_word"] == pytest.approx(report["heldout"]["tokens_per_word"])
    assert new["tokens_per_word"] > old["tokens_per_word"] > 1  # "growlings" is no piece
    # The loss of a word is that of its pieces, which are masked together.
    pieces, whole = seen[-2:]
    assert new["mlm_loss"] == pieces and pieces != pytest.approx(whole, rel=0.01)
    assert new["word_loss"] == pytest.approx(whole * new["tokens_per_word"])
    assert rules[-2:] == [MaskingRule(), MaskingRule(whole_words=True)]
    # The exported model has the same figures, and writes none.
    again = masked_text.run(f"hf:{exported}", str(corpora / "plain"))
    assert again[str(corpora / "plain")] == pytest.approx(new, rel=1e-4)
    with pytest.raises(InputError, match="no run, which has a corpus of its own: give --corpus"):
        masked_text.run(f"hf:{exported}", None)
    with pytest.raises(InputError, match="built with another tokenizer"):
        masked_text.run(str(run), str(corpora / "new"))


@pytest.mark.slow
def test_models_with_other_vocabularies_are_compared(
    tiny_run, exported, tiny_corpus, corpora, tmp_path, capsys, monkeypatch
):
    """Each on the corpora that it can read."""
    monkeypatch.setattr(same_text, "LENGTH", 33)
    monkeypatch.setattr(same_text, "BATCHES", 1)
    figures = dict(mlm_loss=1.0, mlm_accuracy=0.5, mlm_accuracy_stderr=0.1)
    monkeypatch.setattr(Evaluator, "evaluate", lambda *_: figures)
    before, after = f"hf:{exported}", f"hf:{tmp_path / 'after'}"
    longer = with_vocabulary(open_model(before), open_tokenizer(str(corpora / "new")))
    (tmp_path / "after").mkdir()
    write_hugging_face(longer, tmp_path / "after")
    plain, new, old = (str(corpora / name) for name in ("plain", "new", "old"))
    found = masked_text.compare([before, after], [new, plain, old])
    assert {model: list(each) for model, each in found.items()} == {
        before: [plain],
        after: [new, old],
    }
    assert found[after][new]["tokens_per_word"] < found[before][plain]["tokens_per_word"]
    assert capsys.readouterr().out.index(f"{before}:\n") == 0
    with pytest.raises(InputError, match="several models: give --corpus, one for each vocabulary"):
        masked_text.compare([before, after], [""])
    with pytest.raises(InputError, match=f"{after}: none of --corpus={plain} has its vocabulary"):
        masked_text.compare([before, after], [plain])
    with pytest.raises(InputError, match=f"{new}: none of --model={before} has its vocabulary"):
        masked_text.compare([before], [plain, new])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_pre_training_goes_on(family, tiny_corpus, exported, corpora, tmp_path, monkeypatch):
    """Left to right first, then masked, on two corpora by share, with a longer vocabulary."""
    source = exported
    if family == "modernbert":
        model = dict(encoder=family, size="tiny", hidden_size=32, intermediate_size=48)
        model |= dict(max_position_embeddings=64, num_attention_heads=2, initializer_range=0.15)
        config = tiny_config(
            tiny_corpus, objective="masked_lm", short_probability=0.0, total_steps=40
        ) | {"model": model}
        assert pretrain.run(config, str(tmp_path / "first")) == 0
        source = tmp_path / "hf"
        convert.run(str(tmp_path / "first"), f"{convert.HUGGING_FACE}{source}")
    config = pretrain_continue.get_config(family).to_dict()
    for phase in ("phase_1", "phase_2"):
        config[phase] |= dict(length=32, batch_size=8, accumulate=1)
    config["model"] |= dict(compute_dtype="float32", vocab_multiple=1, hidden_dropout_prob=0.0)
    config["optimizer"] |= dict(warmup_steps=2, learning_rate=3e-3)
    config["intervals"] = dict(log=5, evaluate=20, checkpoint=20, eval_batches=4)
    config |= dict(
        corpus=f"{corpora / 'new'}@0.7,{corpora / 'old'}@0.3",
        init_from=f"hf:{source}",
        total_steps=100,
        eval_batch_size=8,
        keep_checkpoint_every=20,
    )
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    assert open_model(f"{tmp_path / 'run'}@20").head_type == head_types.CAUSAL_LM
    own, pretrained = open_model(str(tmp_path / "run")), open_model(f"hf:{source}")
    assert own.head_type == head_types.MASKED_LM and not own.spec.causal
    assert own.spec.vocab_size == own.tokenizer.vocabulary_size > pretrained.spec.vocab_size
    monkeypatch.setattr(same_text, "LENGTH", 32)
    losses = [row["mlm_loss"] for row in rows_of(tmp_path / "run", "heldout")]
    assert losses[-1] < losses[1] - 0.1  # the first is left to right
    before = same_text.evaluate(pretrained, str(corpora / "plain"))
    after = same_text.evaluate(own, str(corpora / "new"))
    assert after["tokens_per_word"] < before["tokens_per_word"]
    assert after["word_loss"] < before["word_loss"]


@pytest.mark.slow
@pytest.mark.peers
def test_mmbert_goes_on(tmp_path):
    """A folder of transformers' ModernBERT with Gemma's tokenizer: read, trained, and written."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    source, text = tmp_path / "hf", tmp_path / "text.txt"
    write_text(text)
    settings = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    settings |= dict(num_attention_heads=2, max_position_embeddings=64, initializer_range=0.15)
    ids = dict(bos_token_id=2, cls_token_id=1, eos_token_id=1, sep_token_id=1, pad_token_id=0)
    config = ModernBertConfig(vocab_size=320, **settings, **ids)
    ModernBertForMaskedLM(config).save_pretrained(source)
    content = learn_gemma(text.read_text().splitlines(), 320)
    (source / "tokenizer.json").write_text(json.dumps(content))
    (source / "tokenizer_config.json").write_text(json.dumps(GEMMA_CONFIG))
    prepare.run([f"text:{text}"], tmp_path / "corpus", vocabulary=f"hf:{source}", held_out=0.1)
    config = tiny_config(tmp_path / "corpus", objective="masked_lm", **ONE_LENGTH)
    config |= dict(init_from=f"hf:{source}", short_probability=0.0)
    config["model"] = pretrain_continue.get_config("modernbert").to_dict()["model"]
    config["model"] |= dict(compute_dtype="float32", vocab_multiple=1)
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    losses = [row["mlm_loss"] for row in rows_of(tmp_path / "run", "heldout")]
    assert losses[-1] < losses[0] - 0.1
    convert.run(str(tmp_path / "run"), f"hf:{tmp_path / 'own'}")
    written = [
        json.loads((each / "config.json").read_text()) for each in (source, tmp_path / "own")
    ]
    assert {each["model_type"] for each in written} == {"modernbert"}
    assert open_model(f"hf:{tmp_path / 'own'}").tokenizer.template == Template(
        *((2,), (1,), (1,)), second_type=0
    )
