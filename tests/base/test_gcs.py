"""Runs and corpora in buckets, with a local emulator of Cloud Storage."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bertjax.base import cloud_storage as buckets
from bertjax.base.cloud_storage import checked_path, in_bucket, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, exclusive, write_json
from bertjax.data.corpus.manifest import read_manifest
from bertjax.data.corpus.shards import HELDOUT
from bertjax.data.corpus.store import TokenStore
from bertjax.inference.features.compute import Options
from bertjax.programs import (
    convert,
    evaluate,
    extract_features,
    fill_mask,
    predict,
    prepare,
    pretrain,
)
from bertjax.runs.run_folder import read_config
from bertjax.runs.source import load_run
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.metrics_log import MetricsLog, read_metrics
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from tests.helpers.patience import PATIENCE
from tests.helpers.tiny_run import metrics_of, start_pretraining, tiny_config

pytestmark = pytest.mark.needs("gcsfs", "gcp_storage_emulator")


@pytest.fixture(scope="module")
def cloud():
    """One cloud for all tests, because the client libraries keep the first address."""
    from tests.base.cloud_storage import serving

    with serving() as (cloud, environment), pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        yield cloud


@pytest.fixture
def bucket(cloud, request):
    """A bucket for one test."""
    name = f"bucket-{len(cloud.storage.buckets)}"
    cloud.make(name)
    yield name
    cloud.refused.clear()


@pytest.fixture
def started():
    """A list for the processes that a test starts; they are killed when the test ends."""
    processes: list[subprocess.Popen] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERTJAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# --------------------------------------------------------------------------------- files


def test_names_become_paths(tmp_path, cloud):
    assert type(path_of(tmp_path)) is type(tmp_path) and path_of(str(tmp_path)) == tmp_path
    address = path_of("gs://bucket/run")
    assert os.fspath(address / "a" / "b") == "gs://bucket/run/a/b"
    assert path_of(address) == address and in_bucket(address) and not in_bucket(tmp_path)


def test_what_is_written_is_an_object(cloud, bucket):
    folder = f"gs://{bucket}/some/where"
    write_json(f"{folder}/a.json", {"naïve": 1})
    with atomic_write(f"{folder}/b.bin") as file:
        file.write(b"\0\1")
    assert cloud.names(bucket) == {"some/where/a.json", "some/where/b.bin"}
    assert cloud.read(bucket, "some/where/a.json") == '{\n  "naïve": 1\n}\n'.encode()
    assert cloud.read(bucket, "some/where/b.bin") == b"\0\1"


def test_a_failed_write_keeps_the_older_file(cloud, bucket):
    path = f"gs://{bucket}/a.txt"
    with atomic_write(path, "w") as file:
        file.write("old")
    with pytest.raises(KeyError), atomic_write(path, "w") as file:
        file.write("new")
        raise KeyError
    assert cloud.read(bucket, "a.txt") == b"old" and cloud.names(bucket) == {"a.txt"}


def test_answers_go_to_a_bucket(cloud, bucket, fine_tuned, tmp_path):
    (tmp_path / "in.txt").write_text("baa baa\nmoo\n")
    _, run = fine_tuned("CoLA")
    for output in (str(tmp_path / "out"), f"gs://{bucket}/some/where/out"):
        predict.run(str(run), str(tmp_path / "in.txt"), output)
    assert cloud.names(bucket) == {"some/where/out"}
    assert cloud.read(bucket, "some/where/out") == (tmp_path / "out").read_bytes()
    with pytest.raises(InputError, match="where/out: is there already: choose another"):
        predict.run("no model", "-", f"gs://{bucket}/some/where/out")
    cloud.refused["POST"] = 403
    with pytest.raises(InputError, match=f"^gs://{bucket}/some: not permitted to write there"):
        predict.run("no model", "-", f"gs://{bucket}/some/out")


# -------------------------------------------------------------------- what can be wrong


@pytest.mark.parametrize("write", [False, True])
def test_a_bucket_that_can_be_reached(cloud, bucket, write):
    assert os.fspath(checked_path(f"gs://{bucket}/run", write=write)) == f"gs://{bucket}/run"
    assert cloud.names(bucket) == set()


@pytest.mark.parametrize(
    ("refused", "write", "message"),
    [
        ({"GET": 403}, False, "not permitted to read there: .*objectViewer.*the test says no"),
        ({"POST": 403}, True, "not permitted to write there: .*objectUser.*the test says no"),
        ({"BUCKET": 403}, True, "not permitted to write there: .*legacyBucketReader.*test says"),
        ({"GET": 401}, False, "no credentials, or old ones: gcloud auth application-default"),
    ],
)
def test_a_closed_bucket(cloud, bucket, refused, write, message):
    cloud.refused.update(refused)
    with pytest.raises(InputError, match=f"^gs://{bucket}/run: {message}"):
        checked_path(f"gs://{bucket}/run", write=write)


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "not permitted to write there: .*ROLE.*no"), (401, "no credentials, or old ones: .*no")],
)
def test_a_bucket_that_closes_in_mid_run(cloud, bucket, status, message, monkeypatch):
    """Each writer reports it, from the exceptions of its own library."""
    monkeypatch.setattr("gcsfs.retry.is_retriable", lambda error: False)
    run = path_of(f"gs://{bucket}/run")
    run_is_closed = pytest.raises(InputError, match=f"^gs://{bucket}/run/?.*: {message}")
    where = NamedSharding(make_mesh(MeshSpec()), PartitionSpec())
    ones = {"params": {"a": jax.device_put(np.ones(3, np.float32), where)}}
    metrics_log, checkpoints = MetricsLog(run, 0), Checkpoints(run / "checkpoints", keep=2)
    checkpoints.save(1, ones, {"step": 1})
    checkpoints.wait()
    with exclusive(run):
        cloud.refused.update(POST=status, PUT=status, DELETE=status)
        with run_is_closed:
            write_json(run / "a.json", {})
        with run_is_closed:
            metrics_log.write(1, "heldout", {"loss": 1.0})
        with run_is_closed:
            checkpoints.save(2, ones, {"step": 2})
            checkpoints.wait()
    with run_is_closed:
        checkpoints.close()
    cloud.refused["GET"] = status
    with run_is_closed:
        checkpoints.restore(ones)


def test_a_connection_that_is_lost_in_mid_run(cloud, bucket, monkeypatch):
    monkeypatch.setattr("gcsfs.retry.is_retriable", lambda error: False)
    run = path_of(f"gs://{bucket}/run")
    metrics_log = MetricsLog(run, 0)
    cloud.refused.update(POST=0, PUT=0)
    lost = pytest.raises(InputError, match=f"^gs://{bucket}/run/.*: cannot be reached: check the")
    with lost:
        write_json(run / "a.json", {})
    with lost:
        metrics_log.write(1, "heldout", {"loss": 1.0})


def test_a_connection_that_tensorstore_lost(cloud, tmp_path):
    """TensorStore tries again for a quarter of an hour, so its error is raised here."""
    message = 'UNAVAILABLE: Error writing "gs://b/run/d": CURL error Could not connect to server'
    with pytest.raises(InputError, match="^gs://b/run: cannot be reached: .*CURL error"):
        with buckets.bucket_errors(path_of("gs://b/run")):
            raise ValueError(message)
    with pytest.raises(ValueError, match="UNAVAILABLE"), buckets.bucket_errors(tmp_path):
        raise ValueError(message)


def test_no_such_bucket(cloud):
    hint = "no such bucket: gcloud storage buckets create gs://nobodys"
    with pytest.raises(InputError, match=f"^gs://nobodys/run: {hint}"):
        checked_path("gs://nobodys/run")


@pytest.mark.parametrize("name", ["s3://bucket/run", "gs://", "gs:///run", "https://example.org"])
def test_no_address_of_a_bucket(name):
    with pytest.raises(InputError, match=r"a bucket as gs://BUCKET/FOLDER|no name"):
        checked_path(name)


def test_no_credentials_at_all(cloud, tmp_path):
    """It runs in a separate process without the emulator, where Google's library needs them."""
    process = _python(
        "from bertjax.base.cloud_storage import checked_path; checked_path('gs://bucket/run')",
        STORAGE_EMULATOR_HOST="",
        NO_GCE_CHECK="true",
        HOME=str(tmp_path),
        CLOUDSDK_CONFIG=str(tmp_path),
    )
    assert "InputError: gs://bucket/run: no credentials" in process.stderr
    assert "gcloud auth application-default login" in process.stderr


def test_without_the_extra(cloud):
    """The package can be imported without gcsfs, and requests it if a bucket is named."""
    process = _python(
        "import importlib.util, sys\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'gcsfs' else real(name, *a)\n"
        "sys.modules['gcsfs'] = sys.modules['google.cloud.storage'] = None\n"
        "from bertjax.programs import pretrain, evaluate\n"
        "from bertjax.base.cloud_storage import checked_path\n"
        "checked_path('gs://bucket/run')\n"
    )
    expected = (
        "InputError: gs://bucket/run: buckets need gcsfs: pip install -e '.[gcs]' in the checkout"
    )
    assert process.stderr.splitlines()[-1].endswith(expected)


def _python(program: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    "program",
    [
        lambda address, corpus: prepare.run(["installed-docs"], address, learn_vocabulary=300),
        lambda address, corpus: convert.run(str(corpus), f"hf:{address}"),
        lambda address, corpus: extract_features.run("hf:x", "-", f"{address}.npz", Options("cls")),
    ],
)
def test_what_is_written_on_this_machine_only(tiny_corpus, program):
    with pytest.raises(InputError, match=r"^gs://bucket/x\S*: not a folder; .*gcloud storage cp"):
        program("gs://bucket/x", tiny_corpus)


# -------------------------------------------------------------------------------- leases


@pytest.fixture
def quick_leases(monkeypatch):
    monkeypatch.setattr(buckets, "_RENEW_SECONDS", 0.05)
    monkeypatch.setattr(buckets, "_DEAD_SECONDS", 1.0)


def test_one_job_at_a_time(cloud, bucket, quick_leases, capsys):
    folder = f"gs://{bucket}/run"
    with exclusive(folder):
        assert cloud.names(bucket) == {"run/.lease"}
        with pytest.raises(InputError, match="run: in use by another job, on .*process"):
            with exclusive(folder):
                pass
        assert cloud.names(bucket) == {"run/.lease"}
    assert cloud.names(bucket) == set()
    with pytest.raises(KeyError), exclusive(folder):
        raise KeyError
    assert cloud.names(bucket) == set()
    assert "checking for 1 s whether it is alive" in capsys.readouterr().out


def test_a_killed_job_loses_its_folder(cloud, bucket, quick_leases):
    folder = f"gs://{bucket}/run"
    process = _python(
        "import os\n"
        "from bertjax.base.files import exclusive\n"
        f"with exclusive({folder!r}):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert cloud.names(bucket) == {"run/.lease"}
    with exclusive(folder):
        assert cloud.names(bucket) == {"run/.lease"}
    assert cloud.names(bucket) == set()


def test_a_job_that_ends_meanwhile_leaves_its_folder_at_once(cloud, bucket, quick_leases):
    folder, leave = f"gs://{bucket}/run", threading.Event()
    taken = threading.Event()

    def job():
        with exclusive(folder):
            taken.set()
            leave.wait(30)

    other = threading.Thread(target=job)
    other.start()
    assert taken.wait(30)
    threading.Timer(0.3, leave.set).start()
    with exclusive(folder):
        assert cloud.names(bucket) == {"run/.lease"}
    other.join()


def test_a_job_whose_folder_was_taken_over_stops(cloud, bucket, quick_leases, caplog):
    came = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: came.set())
    try:
        with exclusive(f"gs://{bucket}/run"):
            other = buckets._Lease(path_of(f"gs://{bucket}/run"))
            while not other._generation:  # between two of its renewals
                with_generation, _ = other._current_owner()
                try:
                    other._write(over=with_generation)
                except Exception as error:
                    assert "412" in str(error)
            assert came.wait(30)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "another job has it now" in caplog.text
    assert cloud.names(bucket) == {"run/.lease"}  # the lease of the other job


# ------------------------------------------------------------------------------- metrics log


def test_the_journal(cloud, bucket, tmp_path, monkeypatch):
    """The bucket has the same files as a local folder, at the documented moments."""
    here, there = tmp_path / "run", path_of(f"gs://{bucket}/run")
    here.mkdir()
    metrics_logs = MetricsLog(here, 0), MetricsLog(there, 0)
    for step in (2, 4):
        for metrics_log in metrics_logs:
            metrics_log.write(step, "train", {"loss": 5.0 / step})
    assert read_metrics(there) == []
    metrics_logs[1].publish()
    assert read_metrics(there) == read_metrics(here) and len(read_metrics(here)) == 2
    for metrics_log in metrics_logs:
        metrics_log.write(4, "heldout", {"loss": 1.0})
    assert read_metrics(there) == read_metrics(here) and len(read_metrics(here)) == 3
    monkeypatch.setattr("bertjax.training.metrics_log._SECONDS_BETWEEN_COPIES", 0)
    for metrics_log in metrics_logs:
        metrics_log.write(6, "train", {"loss": 0.5})
    assert read_metrics(there) == read_metrics(here) and len(read_metrics(here)) == 4
    for metrics_log in metrics_logs:
        metrics_log.close()
    for name in ("metrics.jsonl", "loss.png"):
        assert cloud.read(bucket, f"run/{name}") == (here / name).read_bytes()
    (events,) = cloud.names(bucket, "run/tensorboard")
    (local,) = (here / "tensorboard").iterdir()
    assert len(cloud.read(bucket, f"run/tensorboard/{events}")) == local.stat().st_size


# -------------------------------------------------------------------------------- corpus


@pytest.fixture
def corpus(cloud, bucket, tiny_corpus):
    address = f"gs://{bucket}/corpora/tiny"
    cloud.upload(tiny_corpus, address)
    return address


def test_a_corpus_is_copied_once(cloud, corpus, tiny_corpus, cache, capsys):
    local, there = TokenStore.open(tiny_corpus), TokenStore.open(corpus)
    assert (there.identity, there.token_count) == (local.identity, local.token_count)
    starts, lengths = local.document_starts[:-1], np.diff(local.document_starts)
    np.testing.assert_array_equal(
        there.read_spans(starts, lengths), local.read_spans(starts, lengths)
    )
    (copy,) = cache.iterdir()
    assert copy.name == read_manifest(tiny_corpus)["identity"]
    for path in copy.glob("[!.]*"):
        assert path.read_bytes() == (tiny_corpus / "store" / path.name).read_bytes()
    assert f"Copying {corpus}/store" in capsys.readouterr().err
    del cloud.requests[:]
    assert TokenStore.open(f"{corpus}@0.5", HELDOUT, verify=True).token_count
    assert not [path for _, path in cloud.requests if ".bin" in path]


def test_processes_of_one_host_copy_it_once(cloud, corpus, cache, started):
    program = (
        f"from bertjax.data.corpus import store; store.TokenStore.open({corpus!r}, verify=True)"
    )
    del cloud.requests[:]
    for _ in range(3):
        started.append(subprocess.Popen([sys.executable, "-c", program]))
    assert [process.wait(PATIENCE) for process in started] == [0, 0, 0]
    read = [
        path for method, path in cloud.requests if ".tokens.bin" in path and "alt=media" in path
    ]
    assert len(read) == len(set(read)) > 0


def test_an_interrupted_copy_goes_on(cloud, corpus, cache, monkeypatch):
    from bertjax.data.corpus import staging

    real, done = staging._copy_file, []

    def copy_file(source, target, expected):
        if len(done) == 2:
            raise KeyboardInterrupt
        real(source, target, expected)
        done.append(source.name)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(staging, "_AT_ONCE", 1)
        patched.setattr(staging, "_copy_file", copy_file)
        TokenStore.open(corpus)
    (copy,) = cache.iterdir()
    assert {path.name for path in copy.iterdir()} == {".lock", *done}
    del cloud.requests[:]
    TokenStore.open(corpus, verify=True)
    assert not [path for _, path in cloud.requests if any(name in path for name in done)]


def _tokens_file(tiny_corpus):
    return next(path.name for path in (tiny_corpus / "store").glob("train-*.tokens.bin"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: None, "tokens.bin: missing: copy the corpus"),
        (lambda data: data[:-2], r"tokens.bin: damaged \([\d,]+ bytes"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "tokens.bin: damaged .*checksum"),
    ],
)
def test_a_damaged_corpus_is_never_used(cloud, bucket, corpus, tiny_corpus, cache, change, message):
    name = f"corpora/tiny/store/{_tokens_file(tiny_corpus)}"
    changed = change(cloud.read(bucket, name))
    if changed is None:
        path_of(f"gs://{bucket}/{name}").unlink()
    else:
        path_of(f"gs://{bucket}/{name}").write_bytes(changed)
    for _ in range(2):
        with pytest.raises(InputError, match=f"^gs://.*{message}"):
            TokenStore.open(corpus)
    (copy,) = cache.iterdir()
    assert _tokens_file(tiny_corpus) not in {path.name for path in copy.iterdir()}
    assert not (copy / "manifest.json").exists()


def test_no_room_for_the_copy(corpus, cache, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(
        InputError, match="1000 bytes are free: free some space, or set BERTJAX_CACHE"
    ):
        TokenStore.open(corpus)
    assert not list(cache.rglob("*.bin"))


def test_a_corpus_that_is_not_staged(cloud, bucket, cache):
    address = f"gs://{bucket}/nothing"
    hint = f"gcloud storage rsync -r DIR {address}"
    with pytest.raises(InputError, match=f"^{address}: no token store: prepare .*{hint}"):
        TokenStore.open(address)
    write_json(f"{address}/store/shard-00000.json", {})
    with pytest.raises(InputError, match=f"^{address}: an unfinished token store"):
        TokenStore.open(address)


# ------------------------------------------------------------------------- the whole path


@pytest.fixture(scope="module")
def local_run(tiny_corpus, tmp_path_factory):
    run = tmp_path_factory.mktemp("local") / "run"
    assert pretrain.run(tiny_config(tiny_corpus), str(run)) == 0
    return run


def _parameters(run):
    return jax.device_get(load_run(run).params)


def _download(cloud, bucket, folder, target):
    for name in cloud.names(bucket, folder):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cloud.read(bucket, f"{folder}/{name}"))


@pytest.fixture(scope="module")
def bucket_run(cloud, tiny_corpus, tmp_path_factory):
    """gs://runs/one, stopped by a signal and resumed, and a local copy of it."""
    fetched = tmp_path_factory.mktemp("fetched")
    cloud.make("runs")
    cloud.upload(tiny_corpus, "gs://runs/corpus")
    run, config = "gs://runs/one", tiny_config("gs://runs/corpus")
    real = MetricsLog.write

    def write(metrics_log, at, split, metrics):
        real(metrics_log, at, split, metrics)
        if split == "train" and at == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BERTJAX_CACHE", str(tmp_path_factory.mktemp("cache")))
        with patched.context() as inner:
            inner.setattr(MetricsLog, "write", write)
            assert pretrain.run(config, run) == pretrain.EXIT_STOPPED
        stopped = load_run(run).step
        assert 3 <= stopped <= 5 and len(read_metrics(run)) == stopped // 2
        assert pretrain.run(config, run) == 0
    _download(cloud, "runs", "one", fetched)
    return run, fetched


def test_what_a_run_leaves_in_a_bucket(cloud, bucket_run, local_run):
    run, fetched = bucket_run
    names = {name for name in cloud.names("runs", "one") if "/" not in name}
    assert names == {path.name for path in local_run.iterdir() if path.is_file()} - {".lock"}
    for name in ("vocab.txt", "vocabulary.json"):
        assert (fetched / name).read_bytes() == (local_run / name).read_bytes()
    assert read_config(run) == read_config(local_run) | {"corpus": "gs://runs/corpus"}
    steps = {path.name for path in path_of(f"{run}/checkpoints").iterdir()}
    assert steps == {path.name for path in (local_run / "checkpoints").iterdir()}
    assert len(cloud.names("runs", "one/tensorboard")) == 2  # it was started twice
    assert metrics_of(fetched) == metrics_of(local_run)
    for copy in (run, fetched):
        jax.tree.map(np.testing.assert_array_equal, _parameters(copy), _parameters(local_run))


def test_what_opens_a_run_opens_one_in_a_bucket(cloud, bucket_run, tiny_corpus, cache, tmp_path):
    run, fetched = bucket_run
    results = evaluate.run(run, None, 2)
    assert results == evaluate.run(str(fetched), str(tiny_corpus), 2)
    assert json.loads(cloud.read("runs", "one/evaluation.json"))["32"] == results["32"]
    text = "meow meow [MASK] meow"
    assert fill_mask.run(run, [text], 3) == fill_mask.run(str(fetched), [text], 3)
    (tmp_path / "texts.txt").write_text("meow meow\nwoof\n")
    for number, source in enumerate((run, str(fetched))):
        output = str(tmp_path / f"{number}.npz")
        extract_features.run(source, str(tmp_path / "texts.txt"), output, Options("mean"))
    vectors = [np.load(tmp_path / f"{number}.npz") for number in range(2)]
    for name in vectors[0].files:
        np.testing.assert_array_equal(vectors[0][name], vectors[1][name])
    convert.run(run, f"hf:{tmp_path / 'there'}")
    convert.run(str(fetched), f"hf:{tmp_path / 'here'}")
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert "Held-out text" in (tmp_path / "there" / "README.md").read_text()


def test_another_config_in_the_same_folder(cloud, bucket, local_run, tiny_corpus):
    run = f"gs://{bucket}/run"
    cloud.upload(local_run, run)
    config = tiny_config(tiny_corpus, seed=9)
    with pytest.raises(InputError, match=f"^{run} holds a run with another config: seed was 0"):
        pretrain.run(config, run)


def test_a_run_copied_from_a_disk(cloud, bucket, local_run):
    run = f"gs://{bucket}/run"
    cloud.upload(local_run, run)
    jax.tree.map(np.testing.assert_array_equal, _parameters(run), _parameters(local_run))


def test_a_checkpoint_that_was_not_finished_is_none(cloud, bucket, bucket_run):
    run = f"gs://{bucket}/run"
    cloud.upload(bucket_run[1], run)
    path_of(f"{run}/checkpoints/12/commit_success.txt").unlink()
    assert load_run(run).step == 10


def test_a_damaged_checkpoint_is_passed_over(cloud, bucket, bucket_run, caplog):
    run = f"gs://{bucket}/run"
    cloud.upload(bucket_run[1], run)
    assert load_run(run).step == 12
    for name in cloud.names(bucket, "run/checkpoints/12/params"):
        path_of(f"{run}/checkpoints/12/params/{name}").unlink()
    assert load_run(run).step == 10
    assert f"checkpoint {run}/checkpoints/12 is damaged" in caplog.text


def test_closed_buckets_are_reported_before_the_work(cloud, bucket, corpus, cache, local_run):
    run = f"gs://{bucket}/run"
    cloud.refused["POST"] = 403
    with pytest.raises(InputError, match=f"^{run}: not permitted to write there"):
        pretrain.run(tiny_config(corpus), run)
    cloud.refused["GET"] = 403
    for opened in (
        lambda: fill_mask.run(run, ["[MASK]"], 1),
        lambda: pretrain.run(tiny_config(corpus), str(local_run / "other")),
    ):
        with pytest.raises(InputError, match=f"^gs://{bucket}/.*: not permitted to read there"):
            opened()


def test_a_bucket_without_a_run(cloud, bucket):
    with pytest.raises(InputError, match=f"^gs://{bucket}/run: not a run: it has no config.json"):
        evaluate.run(f"gs://{bucket}/run", None, 1)


def test_a_run_of_fine_tuning_in_a_bucket(cloud, bucket, tmp_path):
    run = f"gs://{bucket}/run"
    write_json(f"{run}/config.json", {"task": {}})
    write_json(f"{run}/results.json", {})
    with pytest.raises(InputError, match=f"on this machine only: gcloud storage cp -r {run}"):
        convert.run(run, f"hf:{tmp_path / 'out'}")


@pytest.mark.slow
def test_a_killed_run_goes_on_by_its_program(
    cloud, bucket, corpus, cache, tmp_path, local_run, started
):
    """kill -9 while it runs; the same command waits for the lease, then goes on."""
    run = path_of(f"gs://{bucket}/killed")
    config = tiny_config(corpus)
    process = start_pretraining(tmp_path, config, run)
    started.append(process)
    while "checkpoints/5" not in " ".join(cloud.names(bucket, "killed")):
        assert process.poll() is None, process.communicate()[1]
    process.kill()
    process.communicate()
    assert ".lease" in cloud.names(bucket, "killed")
    process = start_pretraining(tmp_path, config, run)
    started.append(process)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "whether it is alive" in output and "12 steps done" in output
    _download(cloud, bucket, "killed", tmp_path / "fetched")
    # A process with several simulated devices, as this one, rounds otherwise.
    rows, expected = metrics_of(tmp_path / "fetched"), metrics_of(local_run)
    for row, other in zip(rows, expected, strict=True):
        assert (row["step"], row["split"]) == (other["step"], other["split"])
        assert row["loss"] == pytest.approx(other["loss"], rel=2e-3)
    assert ".lease" not in cloud.names(bucket, "killed")
