"""Bad input to the programs of a run: it gives one clear error, and no incomplete files.

Errors in a corpus's sources or files are tested in test_prepare.py and in tests/data/corpus/.
"""

import errno
import json
import math
import shutil
import subprocess
import sys
from functools import partial
from unittest import mock

import numpy as np
import pytest

from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.data.corpus.manifest import write_manifest
from bertjax.data.corpus.shards import HELDOUT, TRAIN, ShardWriter, store_directory
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.programs import evaluate, fill_mask, pretrain
from bertjax.runs.read import without
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import check_no_corpus, check_same_config, read_config
from bertjax.runs.source import load_run, open_model
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.experiment import Experiment
from bertjax.training.metrics_log import MetricsLog
from tests.helpers.patience import PATIENCE
from tests.helpers.slow_cases import others_slow
from tests.helpers.tiny_run import metrics_of, prepared, start_pretraining, tiny_config


def refuse(config, folder, message, **options):
    """Asserts that the run is refused with `message`, makes no model, and leaves no file."""
    before = sorted(folder.rglob("*"))
    no_model = mock.patch.object(Experiment, "initial_state", None)
    with no_model, pytest.raises(InputError, match=message):
        pretrain.run(config, str(folder / "run"), **options)
    assert sorted(folder.rglob("*")) == before


# ------------------------------------------------------------------------- the corpus


def test_no_corpus(tmp_path):
    refuse(tiny_config(""), tmp_path, r"config\.corpus is empty: set --config\.corpus=DIR")


def test_a_missing_corpus(tmp_path):
    message = f"{tmp_path / 'nowhere'}: no such corpus: name a folder that launch/prepare_corpus"
    refuse(tiny_config(tmp_path / "nowhere"), tmp_path, message)


def test_a_folder_that_is_no_corpus(tmp_path):
    (tmp_path / "empty").mkdir()
    refuse(tiny_config(tmp_path / "empty"), tmp_path, "no vocabulary.json in this folder")


def test_a_corpus_that_is_not_finished(tiny_corpus, tmp_path):
    shutil.copytree(tiny_corpus, tmp_path / "corpus")
    (store_directory(tmp_path / "corpus") / "manifest.json").unlink()
    refuse(tiny_config(tmp_path / "corpus"), tmp_path, "an unfinished token store: run launch/prep")


def test_a_corpus_without_held_out_text(tmp_path):
    text = "\n\n".join(f"one document {n}. Another sentence." for n in range(8))
    corpus = prepared(tmp_path, text, held_out=0.0)
    refuse(tiny_config(corpus), tmp_path, "no document in the split 'heldout'.*--held_out=0.05")


def written(folder, tokenizer, train, held_out):
    """A corpus of documents of ids, written without the checks of launch/prepare_corpus.py."""
    corpus = folder / "corpus"
    with ShardWriter(corpus, 0, vocabulary_size=tokenizer.vocabulary_size, unknown_id=1) as writer:
        for split, documents in ((TRAIN, train), (HELDOUT, held_out)):
            for ids in documents:
                writer.add(split, np.array(ids), np.array([len(ids)]), words=1)
        shard = writer.finish(source=0)
    write_manifest(
        corpus,
        sources=[("text:book.txt", None)],
        tokenizer_identity=tokenizer.identity,
        vocabulary_size=tokenizer.vocabulary_size,
        held_out=0.1,
        shards=[shard],
    )
    tokenizer.save(corpus)
    return corpus


DOCUMENT = [20, 21, 22, 23, 24]


@pytest.mark.parametrize("train, held_out", [(1, 2), (2, 1)])
def test_a_single_document_with_next_sentence(tiny_corpus, tmp_path, train, held_out):
    tokenizer = Tokenizer.open(tiny_corpus)
    corpus = written(tmp_path, tokenizer, [DOCUMENT] * train, [DOCUMENT] * held_out)
    message = (
        "'text:book.txt' has a single document, but next-sentence .* add documents .*masked_lm"
    )
    refuse(tiny_config(corpus), tmp_path, message)


def test_ids_outside_the_vocabulary(tiny_corpus, tmp_path):
    tokenizer = Tokenizer.open(tiny_corpus)
    size = tokenizer.vocabulary_size
    corpus = written(tmp_path, tokenizer, [DOCUMENT, [*DOCUMENT, size]], [DOCUMENT] * 2)
    message = f"token id {size} is outside the vocabulary of {size}. Delete the folder"
    refuse(tiny_config(corpus), tmp_path, message)


def test_a_store_of_another_tokenizer(tiny_corpus, tmp_path):
    text = (tiny_corpus.parent / "text.txt").read_text().replace("quack", "bark")
    other = prepared(tmp_path, text)
    config = tiny_config(f"{tiny_corpus}@0.5,{other}@0.5")
    refuse(config, tmp_path, f"{other}: built with another tokenizer")
    # The vocabulary was replaced after the store was built.
    for name in ("vocab.txt", "vocabulary.json"):
        shutil.copy(tiny_corpus / name, other / name)
    refuse(tiny_config(other), tmp_path, f"{other}: built with another tokenizer")


def test_a_truncated_store(tiny_corpus, tmp_path):
    shutil.copytree(tiny_corpus, tmp_path / "corpus")
    file = store_directory(tmp_path / "corpus") / "train-00000.tokens.bin"
    file.write_bytes(file.read_bytes()[:-2])
    refuse(tiny_config(tmp_path / "corpus"), tmp_path, f"{file}: .* bytes where the manifest says")


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_flipped_byte(tiny_corpus, tmp_path, split):
    shutil.copytree(tiny_corpus, tmp_path / "corpus")
    file = store_directory(tmp_path / "corpus") / f"{split}-00000.tokens.bin"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    config = tiny_config(tmp_path / "corpus")
    refuse(config, tmp_path, f"{file}: damaged .*checksum.*prepare the corpus again", verify=True)


def test_a_model_with_too_small_a_vocabulary(tiny_corpus, tmp_path):
    refuse(
        tiny_config(tiny_corpus, model={"vocab_size": 50}),
        tmp_path,
        r"config\.model\.vocab_size=50 is less than the \d+ pieces",
    )


# ------------------------------------------------------------------------- the config


@pytest.mark.devices(8)
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"phase_1": {"batch_size": 12}}, "12 sequences does not divide over 8 devices"),
        ({"phase_1": {"accumulate": 4}}, "4 sequences does not divide over 8 devices"),
        ({"eval_batch_size": 9}, "9 sequences does not divide over 8 devices.*eval_batch_size"),
        ({"mesh": {"data": 3}}, "mesh data=3, model=1 does not fit 8 devices"),
        ({"phase_1": {"length": 4}}, "leaves room for 1 tokens"),
        ({"layout": "tensor", "mesh": {"model": 8}}, "does not divide over the 8 devices"),
    ],
)
def test_a_config_that_cannot_work(tiny_corpus, tmp_path, changes, message):
    refuse(tiny_config(tiny_corpus, **changes), tmp_path, message)


def test_no_workdir(tiny_corpus):
    with pytest.raises(InputError, match="--workdir is empty"):
        pretrain.run(tiny_config(tiny_corpus), "")


# --------------------------------------------------------------------- the run's folder


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"seed": 7}, "seed was 0, is 7"),
        ({"optimizer": {"learning_rate": 1.0}}, r"optimizer\.learning_rate was 0\.01, is 1\.0"),
        ({"total_steps": 400}, "total_steps was 160, is 400"),
    ],
)
def test_a_folder_of_another_run(tiny_run, tmp_path, changes, message):
    shutil.copytree(tiny_run, tmp_path / "run")
    config = read_config(tiny_run)
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    refuse(config, tmp_path, f"holds a run with another config: {message}.*another --workdir")


@pytest.mark.parametrize("lost", ["config.json", ""])
def test_the_checkpoints_know_their_config(tiny_run, tmp_path, lost):
    """config.json is deleted, or replaced by that of another run."""
    shutil.copytree(tiny_run, tmp_path / "run", ignore=shutil.ignore_patterns(lost or "nothing"))
    config = read_config(tiny_run) | {"seed": 7}
    if not lost:
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    refuse(config, tmp_path, "holds a run with another config: seed was 0, is 7")


def test_a_run_of_a_version_with_fewer_keys(tiny_run, tmp_path):
    """It goes on, unless a key that it does not know changes the run."""
    shutil.copytree(tiny_run, tmp_path / "run")
    config = read_config(tiny_run)
    older = without(config, ["language_alpha", "masking.cosine"])
    assert "cosine" not in older["masking"] and older["masking"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(older))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    same = partial(check_same_config, tmp_path / "run", free=(), read=Recipe.from_config)
    same(config)
    with pytest.raises(InputError, match="another config: language_alpha was None, is 0.7: choose"):
        same(config | {"language_alpha": 0.7})
    with pytest.raises(InputError, match="another config: language_alpha was None, is 1.0: choose"):
        check_same_config(tmp_path / "run", config, free=())


@pytest.mark.parametrize("left", ["metrics.jsonl", "trials", "activations"])
def test_what_a_run_left_without_a_config(tmp_path, left):
    check_same_config(tmp_path / "nowhere", {"seed": 7}, free=())
    check_same_config(tmp_path, {"seed": 7}, free=())
    (tmp_path / left).mkdir()
    with pytest.raises(InputError, match=rf"holds what a run left \({left}\), and not its config"):
        check_same_config(tmp_path, {"seed": 7}, free=())


def test_a_corpus_is_no_place_for_a_run(tmp_path):
    check_same_config(tmp_path, {"seed": 7}, free=())
    for name in ("plan.json", "store"):  # also of an unfinished one
        (tmp_path / name).mkdir()
        for check in (
            check_no_corpus,
            partial(check_same_config, config_dict={"seed": 7}, free=()),
        ):
            with pytest.raises(InputError, match=r"holds a corpus.* choose another --workdir"):
                check(tmp_path)
        (tmp_path / name).rmdir()


def test_a_run_of_another_corpus(tiny_run, tiny_corpus, tmp_path):
    text = (tiny_corpus.parent / "text.txt").read_text()
    corpus = prepared(tmp_path, text[: len(text) // 2], vocabulary=tiny_corpus / "vocab.txt")
    shutil.copytree(tiny_run, tmp_path / "run")
    config = read_config(tiny_run) | {"corpus": str(corpus)}
    lines = metrics_of(tmp_path / "run")
    with pytest.raises(InputError, match="started on other data than the config names now"):
        pretrain.run(config, str(tmp_path / "run"))
    assert metrics_of(tmp_path / "run") == lines
    assert json.loads((tmp_path / "run" / "config.json").read_text())["corpus"] == str(tiny_corpus)


@pytest.mark.parametrize("damage", [b'{"seed": ', b"null", b"[]", b'{"a": "\xff"}', b"[" * 10**5])
def test_a_damaged_config_file(tiny_run, tmp_path, damage):
    config = read_config(tiny_run)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_bytes(damage)
    refuse(config, tmp_path, r"config\.json: damaged \(.*\): restore it from a copy")
    with pytest.raises(InputError, match=r"config\.json: damaged \("):
        fill_mask.run(str(tmp_path / "run"), ["[MASK]"], 1)


def test_no_whole_checkpoint(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        shutil.rmtree(checkpoint / "optimizer")
    config = read_config(tiny_run)
    lines = metrics_of(tmp_path / "run")
    with pytest.raises(InputError, match=r"all checkpoints \[150, 160\] are damaged"):
        pretrain.run(config, str(tmp_path / "run"))
    assert metrics_of(tmp_path / "run") == lines


READERS = {"load_run": load_run, "open_model": lambda run: open_model(str(run))}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
class TestReadingARun:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"num_hidden_layers": 10**9},
                r"config\.model\.num_hidden_layers=10{9}: must be at most",
            ),
            ({"layer_norm_eps": math.nan}, r"config\.model\.layer_norm_eps=nan: must be in"),
        ],
    )
    def test_numbers_that_cannot_be_meant(self, read, tiny_run, tmp_path, changes, message):
        config = read_config(tiny_run)
        (tmp_path / "config.json").write_text(
            json.dumps(config | {"model": config["model"] | changes})
        )
        with pytest.raises(InputError, match=message):
            read(tmp_path)

    def test_no_such_folder(self, read, tmp_path):
        with pytest.raises(InputError, match="nowhere: not a run: it has no config.json"):
            read(tmp_path / "nowhere")
        assert not list(tmp_path.iterdir())

    def test_a_model_without_its_hf(self, read, make_pretrained, tmp_path):
        (tmp_path / "model").mkdir()
        write_hugging_face(make_pretrained(), tmp_path / "model")
        with pytest.raises(InputError, match=f"not a run, .* name it hf:{tmp_path / 'model'}$"):
            read(tmp_path / "model")

    def test_no_checkpoint_yet(self, read, tiny_run, tmp_path):
        ignored = shutil.ignore_patterns("checkpoints")
        shutil.copytree(tiny_run, tmp_path / "run", ignore=ignored)
        with pytest.raises(InputError, match="no checkpoint yet"):
            read(tmp_path / "run")

    def test_a_damaged_checkpoint_is_passed_over(self, read, tiny_run, tmp_path, caplog):
        lost = shutil.ignore_patterns("config.json")  # the checkpoints have it
        shutil.copytree(tiny_run, tmp_path / "run", ignore=lost)
        shutil.rmtree(tmp_path / "run" / "checkpoints" / "160" / "params")
        read(tmp_path / "run")
        assert "160 is damaged" in caplog.text

    def test_an_unknown_key_of_a_newer_config(self, read, tiny_run, tmp_path):
        shutil.copytree(tiny_run, tmp_path / "run")
        config = read_config(tiny_run)
        (tmp_path / "run" / "config.json").write_text(json.dumps(config | {"magic": 1}))
        with pytest.raises(InputError, match="config.magic: unknown key"):
            read(tmp_path / "run")


# ------------------------------------------------------------------------ while it runs


def test_a_loss_that_is_not_finite(tiny_corpus, tmp_path):
    """The run stops with a message about step and batch, before it saves a checkpoint."""
    config = tiny_config(
        tiny_corpus, optimizer={"learning_rate": 1e30}, intervals={"checkpoint": 1}
    )
    told = (
        r"step \d+: the loss is .*batch is number \d+ of phase 1, seed 0\. Lower the learning rate"
    )
    with pytest.raises(NonFiniteLoss, match=told):
        pretrain.run(config, str(tmp_path / "run"))
    for row in metrics_of(tmp_path / "run"):
        assert all(value == value for value in row.values())


@pytest.mark.slow
def test_a_full_disk_at_the_metrics(tiny_corpus, tmp_path, monkeypatch):
    """The error is raised; with free space, the run continues to the same end."""
    config = tiny_config(tiny_corpus)
    real = MetricsLog.write

    def write(metrics_log, step, split, metrics):
        if step == 8:
            raise OSError(errno.ENOSPC, "No space left on device", "metrics.jsonl")
        real(metrics_log, step, split, metrics)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "write", write)
        with pytest.raises(OSError, match="No space left"):
            pretrain.run(config, str(tmp_path / "run"))
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    assert metrics_of(tmp_path / "run")[-1]["step"] == 12


@pytest.mark.slow
def test_a_disk_that_does_not_take_the_checkpoint(tiny_corpus, tmp_path):
    """Files over 20 kB fail, as on a full disk; the run makes no checkpoint, and can be resumed."""
    config = tiny_config(tiny_corpus)
    process = start_pretraining(tmp_path, config, tmp_path / "run", largest_file=20)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    *_, last = errors.splitlines()
    assert last.startswith(f"error: File too large ({tmp_path / 'run' / 'checkpoints'}): ")
    assert "Traceback" not in errors
    left = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir() if p.name.isdigit()]
    assert left == []
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    assert metrics_of(tmp_path / "run")[-1]["step"] == 12


def test_an_evaluation_without_end(tiny_run):
    with pytest.raises(InputError, match="--batches=10{20}: must be at most 1,000,000"):
        evaluate.run(str(tiny_run), None, 10**20)


@pytest.mark.parametrize("sign", "@#")
def test_a_number_of_thousands_of_digits_is_part_of_a_name(tmp_path, sign):
    with pytest.raises((InputError, OSError), match="9999"):
        open_model(f"{tmp_path}{sign}{'9' * 5000}")


_IGNORED = (
    "predict",
    ["--documents=articles.txt", "--model=elmo:x"],
    "error: --documents would be ignored, because elmo:x makes no vectors of texts",
)
_READERS = [
    ("fill_mask", ["--text=no blank"], "error: no [MASK] in 'no blank': put it"),
    (
        "evaluate",
        ["--on=similarity:sts.csv", "--same_text"],
        "error: --same_text would be ignored, because --on is given: leave it out",
    ),
    _IGNORED,
]


@pytest.mark.parametrize(("program", "flags", "message"), others_slow(_READERS, _IGNORED))
def test_the_readers_programs_print_one_line(tmp_path, repository, program, flags, message):
    run = tmp_path / "run"
    command = [sys.executable, repository / "launch" / f"{program}.py", f"--model={run}", *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(message.format(run=run))
    assert "Traceback" not in result.stderr
