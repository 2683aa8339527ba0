"""launch/tpu_vm.sh with a stand-in for Cloud TPU, whose hosts are folders of this machine."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.checkout import REPOSITORY
from tests.helpers.patience import PATIENCE
from tests.helpers.slow_cases import others_slow

STAND_IN = REPOSITORY / "tests" / "launch" / "stand_in_gcloud.py"

SLICE = ("--name=bert", "--zone=z", "--type=v4", "--chips=8")  # two hosts
RUN = (
    *("--config=configs/pretrain_base_16.py", "--corpus=gs://data/wiki", "--workdir=gs://out/run"),
)
TUNING = (
    *("--config=configs/finetune_glue_16.py:RTE", "--corpus=gs://data/glue"),
    *("--workdir=/mnt/share/rte", "--share=10.0.0.2:/runs"),
)
DELETE = "bert is there, and costs. To delete it: bash {} delete --name=bert --zone=z"

# The calls of a run without a slice, without its queries of the state.
CHECKS = ["ls gs://data", "ls gs://data/wiki/store/manifest.json", "ls gs://out", "compile_check"]
NEWEST = "ls gs://out/run/checkpoints/"
START = ["scp", "ssh all setup", "ssh all run"]


class Cloud:
    """The stand-in's folder, and a checkout to launch from."""

    def __init__(self, folder: Path, checkout: Path):
        self.folder, self.checkout = folder, checkout
        self.here = checkout  # where the script is called
        self.script = checkout / "launch" / "tpu_vm.sh"
        for bucket in ("data/wiki/store", "out"):
            (folder / "buckets" / bucket).mkdir(parents=True)
        (folder / "buckets" / "data" / "wiki" / "store" / "manifest.json").write_text("{}")
        self._make_programs()
        self._make_environment()

    def _make_programs(self) -> None:
        stand_in = f"exec {sys.executable} -SE {STAND_IN}"
        names = ("gcloud", "uv", "sudo", "python-of-the-run")
        programs = {name: f'{stand_in} {name} "$@"' for name in names}
        # A sleep ends when all runs have ended, or after a second if a run hangs.
        programs["sleep"] = (
            'for lock in "$CLOUD"/hosts/*/*/bertjax/run.lock; do\n'
            '  [[ ! -e "$lock" ]] || flock --timeout 1 "$lock" true\n'
            "done\nexec /bin/sleep 0.05"
        )
        programs["findmnt"] = 'cat "$HOME/mounted" 2>/dev/null'
        programs["hostname"] = 'echo "t1v-n-1a2b3c4d-w-$STAND_IN_HOST"'
        for name, text in programs.items():
            self._write_program(self.folder / "bin" / name, text)

    def _make_environment(self) -> None:
        """Makes the environment of launch/environment.sh, up to date."""
        venv = self.folder / "venv"
        self._write_program(
            venv / "bin" / "python", f'exec {sys.executable} -SE {STAND_IN} python "$@"'
        )
        files = [self.checkout / "setup.py", *sorted((self.checkout / "constraints").iterdir())]
        stamp = f"{self.checkout}\n" + "".join(file.read_text() for file in files)
        for name in ("package", "tpu"):
            (venv / f".bertjax-{name}").write_text(stamp)

    @staticmethod
    def _write_program(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def wait_for_preemption(self) -> None:
        """Waits until the run has caused the preemption."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with open(self.folder / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if json.loads((self.folder / "state.json").read_text())["request"] != "ACTIVE":
                    return
            time.sleep(0.05)
        pytest.fail("no preemption")

    def __call__(self, *arguments: str, **scenario: object) -> tuple[int, str, str]:
        """Runs the script; returns its exit code, standard output and standard error."""
        process = self.start(*arguments, **scenario)
        out, error = process.communicate(timeout=PATIENCE)
        return process.returncode, out, error

    def start(self, *arguments: str, **scenario: object) -> subprocess.Popen:
        new = self.folder / "scenario.new"  # what runs already may read the file at any time
        new.write_text(json.dumps(scenario))
        new.replace(self.folder / "scenario.json")
        return subprocess.Popen(
            ["bash", self.script, *arguments],
            cwd=self.here,
            env=os.environ
            | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "CLOUD": str(self.folder)}
            | {"BERTJAX_VENV": str(self.folder / "venv")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Ctrl-C works even if the suite runs in the background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def calls(self, program: str = "gcloud", who: str | None = "here") -> list[list[str]]:
        """The arguments of all calls of `program`; `who` None means all hosts."""
        file = self.folder / "calls.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        calls = [json.loads(line) for line in lines]
        return [a for w, p, a in calls if p == program and (w == who or who is None)]

    def acts(self) -> list[str]:
        """All calls from this machine that change or decide something, abbreviated and in order."""
        file = self.folder / "calls.jsonl"
        calls = [json.loads(line) for line in file.read_text().splitlines()]
        short = [_short(program, arguments) for who, program, arguments in calls if who == "here"]
        return [each for each in short if each]

    def home(self, host: int, pod: int = 1) -> Path:
        return self.folder / "hosts" / str(pod) / str(host) / "bertjax"

    def is_there(self) -> bool:
        file = self.folder / "state.json"
        return file.exists() and bool(json.loads(file.read_text()).get("request"))

    def end_runs(self) -> None:
        for lock in self.folder.glob("hosts/*/*/bertjax/run.lock"):
            with open(lock) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(int((lock.parent / "run.pid").read_text()), signal.SIGKILL)


def _short(program: str, arguments: list[str]) -> str | None:
    match program, arguments:
        case "python", [script, *_] if script.endswith("compile_check.py"):
            return "compile_check"
        case "gcloud", ["compute", "tpus", "queued-resources", "create" | "delete" as verb, *_]:
            return verb
        case "gcloud", ["compute", "tpus", "tpu-vm", "scp", *_]:
            return "scp"
        case "gcloud", ["compute", "tpus", "tpu-vm", "ssh", *rest]:
            worker = next(a for a in rest if a.startswith("--worker=")).removeprefix("--worker=")
            command = next((a for a in rest if a.startswith("--command=")), "")
            verb = re.search(r"tpu_vm.sh host (\w+)", command)
            verb = verb[1] if verb else command
            return None if verb == "status" else f"ssh {worker} {verb}".rstrip()
        case "gcloud", ["storage", "ls", address]:
            return f"ls {address}"
    return None


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git checkout with the files that the script needs, in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("check") / "my checkout"
    for name in ("launch", "configs", "constraints"):
        shutil.copytree(
            REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("setup.py", ".gitignore"):
        shutil.copy(REPOSITORY / name, folder / name)
    (folder / "a 'b'.txt").write_text("tracked")
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "--all"], check=True)
    (folder / "untracked.py").write_text("")
    return folder


@pytest.fixture
def cloud(tmp_path: Path, checkout: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path / "cloud", checkout)
    yield cloud
    cloud.end_runs()


# -------------------------------------------------------------------------------------- "up"


def test_up_goes_from_nothing_to_a_finished_run_and_deletes_the_slice(cloud):
    code, _, error = cloud("up", *SLICE, *RUN)
    assert code == 0, error
    assert cloud.acts() == [*CHECKS, NEWEST, "create", *START, "delete"]
    assert not cloud.is_there()
    assert "host 1: exit 0" in error
    assert error.splitlines()[-2].startswith("== complete: gs://out/run")
    assert "and costs" not in error


def test_up_with_keep_leaves_the_slice_and_names_it_last(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, "--keep")
    assert code == 0, error
    assert cloud.acts()[-1] == "ssh all run"
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")


def test_up_fine_tunes_on_the_share_that_setup_mounts(cloud):
    (cloud.folder / "buckets" / "data" / "glue" / "RTE").mkdir(parents=True)
    init_from = "--config.init_from=/mnt/share/mnli"
    code, _, error = cloud("up", *SLICE, *TUNING, "--keep", "--", init_from, runs=["0"])
    assert code == 0, error
    assert cloud.acts() == ["ls gs://data", "ls gs://data/glue/", "create", *START]
    assert "finetune_glue_16.py:RTE: a fine-tuning is not compiled before" in error
    (call,) = cloud.calls("python-of-the-run", "1")
    assert call == [
        *("launch/finetune.py", f"--config.data={cloud.home(1)}/corpus", TUNING[0]),
        *("--workdir=/mnt/share/rte", "--hosts=2", "--chips=8", init_from),
    ]
    (cloud.home(1).parent / "mounted").unlink()
    code, _, error = cloud("run", *SLICE, *TUNING)
    assert code == 2 and "error: host 1: /mnt/share is not mounted: setup with --share" in error


@pytest.mark.slow
def test_a_share_that_cannot_be_mounted_ends_it(cloud):
    (cloud.folder / "buckets" / "data" / "glue" / "RTE").mkdir(parents=True)
    cloud._write_program(cloud.folder / "bin" / "sudo", "echo mount.nfs: timed out >&2; exit 32")
    code, _, error = cloud("up", *SLICE, *TUNING)
    assert code == 1 and "mount.nfs: timed out" in error
    assert cloud.acts()[-4:] == ["scp", *["ssh all setup"] * 3]
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")


@pytest.mark.slow
def test_setup_mounts_one_share_once(cloud):
    (cloud.folder / "buckets" / "data" / "glue" / "RTE").mkdir(parents=True)
    cloud("create", *SLICE)
    for name in ("runs", "runs", "more"):
        words = "--corpus=gs://data/glue", f"--share=10.0.0.2:/{name}"
        code, out, error = cloud("setup", *SLICE, *words)
        assert (code, out) == (0, "host 0: ready\nhost 1: ready\n"), error
    mount = ["mount", "-t", "nfs", "-o", "lookupcache=none,actimeo=0"]
    assert [call for call in cloud.calls("sudo", "1") if "mount" in call[0]] == [
        [*mount, "10.0.0.2:/runs", "/mnt/share"],
        ["umount", "/mnt/share"],
        [*mount, "10.0.0.2:/more", "/mnt/share"],
    ]


@pytest.mark.slow
def test_up_gives_up_a_fine_tuning_after_failures_in_a_row(cloud):
    (cloud.folder / "buckets" / "data" / "glue" / "RTE").mkdir(parents=True)
    code, _, error = cloud("up", *SLICE, *TUNING, runs=["1"] * 4)
    assert code == 1
    assert cloud.acts()[-4:] == [*["ssh all run"] * 3, "ssh all ends"]
    assert error.count("== again, from the last checkpoint\n") == 3
    assert "error: 4 failures in a row (above)" in error


@pytest.mark.slow
def test_up_begins_again_after_a_preemption(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, "--spot", runs=["preempt", "0@100"])
    assert code == 0, error
    assert cloud.acts() == [*CHECKS, NEWEST, "create", *START, "delete"] + [
        *("create", *START, "delete")
    ]
    assert all("--spot" in call for call in cloud.calls() if "create" in call)
    assert "bert was taken away" in error
    assert (cloud.home(0, pod=2) / "run.exit").read_text() == "0\n"


@pytest.mark.slow
def test_a_preemption_while_the_hosts_are_asked_is_no_failure_of_the_run(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, runs=["preempt", "0@100"], late=True)
    assert code == 0, error
    again = ["create", *START, "delete"]
    assert cloud.acts() == [*CHECKS, NEWEST, *again, *again]
    assert "bert was taken away" in error


@pytest.mark.slow
def test_up_is_never_tired_of_preemptions(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, runs=["preempt"] * 4 + ["0"])
    assert code == 0, error
    assert cloud.acts().count("create") == 5


@pytest.mark.slow
def test_up_starts_a_stopped_run_again_on_the_same_slice(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, runs=["75@40", "12", "132", "0@100"])
    assert code == 0, error
    assert cloud.acts() == [
        *(*CHECKS, NEWEST, "create", *START),
        *[NEWEST, "ssh all run"] * 3,
        "delete",
    ]
    assert "again, from checkpoint 40" in error
    assert (
        "host 1: exit 12\n" in error and "host 1: exit 132\n" in error
    )  # no bad input, which is 2


def test_up_shows_bad_input_and_does_not_try_again(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, runs=["2"])
    assert code == 2
    assert cloud.acts() == [*CHECKS, NEWEST, "create", *START, "ssh all ends"]
    assert "the run ended with exit code 2, bad input" in error
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")


@pytest.mark.slow
def test_up_gives_up_after_failures_without_a_new_checkpoint(cloud):
    runs = ["1", "1@10", "1", "1", "1", "1"]  # the second one does save something
    code, _, error = cloud("up", *SLICE, *RUN, runs=runs)
    assert code == 1
    again = [NEWEST, "ssh all run"]
    assert cloud.acts() == [
        *(*CHECKS, NEWEST, "create", *START, *again * 5, NEWEST, "ssh all ends"),
    ]
    assert "error: 4 failures in a row without a new checkpoint" in error
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")


@pytest.mark.slow
def test_up_ends_hosts_that_hang_after_another_has_died(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, runs=["lost", "0"])
    assert code == 0, error
    assert cloud.acts() == [
        *(*CHECKS, NEWEST, "create", *START, "ssh all stop"),
        *(NEWEST, "ssh all run", "delete"),
    ]
    assert "host 1: exit 137" in error


@pytest.mark.slow
def test_up_watches_a_run_that_is_going(cloud):
    scenario = dict(runs=["hang", "0@100"])
    assert cloud("create", *SLICE, **scenario)[0] == 0
    assert cloud("setup", *SLICE, *RUN, **scenario)[0] == 0
    assert cloud("run", *SLICE, *RUN, **scenario)[0] == 0
    before = len(cloud.acts())
    _wait_for(cloud, 1, "run.log", "run 0 of host 1")
    os.killpg(int((cloud.home(1) / "run.pid").read_text()), signal.SIGTERM)
    code, _, error = cloud("up", *SLICE, *RUN, **scenario)
    assert code == 0, error
    assert cloud.acts()[before:] == [NEWEST, "ssh all stop", NEWEST, "ssh all run", "delete"]


def test_an_interrupt_ends_up_and_not_the_run(cloud):
    process = cloud.start("up", *SLICE, *RUN, runs=["hang"])
    seen = ""
    while "host 0: running" not in seen:
        seen += process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")
    assert "host 1: running" in cloud("status", *SLICE, runs=["hang"])[1]


def _wait_for(cloud: Cloud, host: int, file: str, text: str) -> None:
    """Waits until a file of the run on a host exists and contains the text."""
    path = cloud.home(host) / file
    while not path.exists() or text not in path.read_text():
        time.sleep(0.02)


@pytest.mark.slow
def test_up_deletes_what_an_earlier_preemption_left(cloud):
    scenario = dict(runs=["preempt", "0"])
    for command in ("create", "setup", "run"):
        assert cloud(command, *SLICE, *RUN, **scenario)[0] == 0
    cloud.wait_for_preemption()
    before = len(cloud.acts())
    code, _, error = cloud("up", *SLICE, *RUN, **scenario)
    assert code == 0, error
    assert cloud.acts()[before:] == [NEWEST, "delete", "create", *START, "delete"]


def test_up_goes_through_a_network_that_is_away(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, offline=[2, 5, 6])
    assert code == 0, error
    assert cloud.acts() == [*CHECKS, NEWEST, "create", *START, "delete"]
    assert error.count("network is unreachable") == 3


# ----------------------------------------------------------------- what the cloud does not do


@pytest.mark.parametrize("command", ["create", "up"])
def test_a_refused_quota_ends_with_what_the_cloud_said(cloud, command):
    refusal = "RESOURCE_EXHAUSTED: Quota limit 'TPUV5sLitepod' has been exceeded. Limit: 0"
    code, _, error = cloud(command, *SLICE, *RUN, refuse=refusal)
    assert code == 1
    assert cloud.acts() == [*CHECKS, *([NEWEST] if command == "up" else []), "create"]
    assert refusal in error and "console.cloud.google.com/iam-admin/quotas" in error
    assert error.splitlines()[-1] == "error: bert: refused (above); nothing was left there"


@pytest.mark.slow
def test_up_asks_again_when_a_later_request_is_refused(cloud):
    code, _, error = cloud(
        "up", *SLICE, *RUN, refuse="UNAVAILABLE: 503", refuse_from=1, runs=["preempt"]
    )
    assert code == 1
    assert cloud.acts()[-9:] == ["delete", *["create", NEWEST] * 4]
    assert "error: 4 failures in a row" in error and "and costs" not in error


def test_create_stops_waiting_and_says_what_is_in_the_queue(cloud):
    code, _, error = cloud("create", *SLICE, "--wait=08", waits=-1)  # no number to bash
    assert code == 1
    assert cloud.acts() == ["create"]
    assert "not granted within 8 minutes. It stays in the queue" in error
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")
    looks = [call for call in cloud.calls() if "describe" in call and "queued-resources" in call]
    assert len(looks) == 10  # one for the name, and one at each minute from 0 to 8


def test_up_stops_waiting_and_withdraws_the_request(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, "--wait=3", waits=-1)
    assert code == 1
    assert cloud.acts() == [*CHECKS, NEWEST, "create", "delete"]
    assert "not granted within 3 minutes, and withdrawn" in error
    assert not cloud.is_there()


@pytest.mark.slow
def test_up_gives_up_on_requests_that_fail(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, fails=True)
    assert code == 1
    assert cloud.acts() == [*CHECKS, NEWEST, *["create", NEWEST, "delete"] * 3, "create", NEWEST]


@pytest.mark.parametrize("stage", others_slow(["host setup", "host run"], "host setup"))
def test_a_host_that_is_not_reached_once_is_tried_again(cloud, stage):
    code, _, error = cloud("up", *SLICE, *RUN, unreachable=[[1, stage, 1]])
    assert code == 0, error
    start = [act for act in START for _ in range(1 + act.endswith(stage[5:]))]
    assert cloud.acts() == [*CHECKS, NEWEST, "create", *start, "delete"]
    assert cloud.calls("python-of-the-run", "0") == cloud.calls("python-of-the-run", "0")[:1]


def test_what_a_host_refuses_is_not_asked_again(cloud):
    cloud._write_program(cloud.folder / "bin" / "uv", "exit 2")
    code, _, error = cloud("up", *SLICE, *RUN)
    assert code != 0
    assert cloud.acts() == [*CHECKS, NEWEST, "create", "scp", "ssh all setup"]
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")


def test_a_host_that_is_never_reached_ends_it(cloud):
    code, _, error = cloud("up", *SLICE, *RUN, unreachable=[[1, "host run", -1]])
    assert code == 1
    assert cloud.acts() == [*CHECKS, NEWEST, "create", *START, *["ssh all run"] * 2]
    assert "ssh: connect to host 1: Connection refused" in error
    assert "error: the run could not be started on every host" in error
    assert error.splitlines()[-1] == DELETE.format(f"'{cloud.script}'")


# --------------------------------------------------------------------------------- bad input


def test_a_config_that_does_not_fit_asks_for_nothing(cloud):
    code, _, error = cloud("create", *SLICE, *RUN, "--", "--config.seed=1", fits=False)
    assert code == 2
    assert cloud.acts() == CHECKS
    assert "21.3 GiB of the 15.75 GiB" in error
    assert "configs/pretrain_base_16.py does not go on 8 chips of v4" in error
    check = next(call for call in cloud.calls("python") if "compile_check" in call[0])
    assert check[1:] == [
        *(f"--config={cloud.checkout}/configs/pretrain_base_16.py", "--topology=v4:2x2x2"),
        "--config.seed=1",
    ]


def test_a_name_that_exists_is_not_taken(cloud):
    assert cloud("create", *SLICE)[0] == 0
    code, _, error = cloud("create", *SLICE)
    assert code == 2
    assert cloud.acts() == ["create"]
    assert "error: bert is there already (ACTIVE): take another --name" in error


def test_a_corpus_that_is_not_staged(cloud):
    shutil.rmtree(cloud.folder / "buckets" / "data" / "wiki")
    code, _, error = cloud("up", *SLICE, *RUN)
    assert code == 2
    assert cloud.acts() == CHECKS[:2]
    assert "error: gs://data/wiki: not a staged corpus" in error
    assert "gcloud storage rsync --recursive FOLDER gs://data/wiki" in error


def test_files_of_a_task_that_are_not_in_the_bucket(cloud):
    code, _, error = cloud("create", *SLICE, *TUNING)
    assert code == 2
    assert cloud.acts() == ["ls gs://data", "ls gs://data/glue/"]
    assert "error: gs://data/glue: nothing there: copy the folder of the task's files" in error


@pytest.mark.parametrize("bucket", ["data", "out"])
def test_a_missing_bucket(cloud, bucket):
    shutil.rmtree(cloud.folder / "buckets" / bucket)
    code, _, error = cloud("up", *SLICE, *RUN)
    assert code == 2
    assert cloud.acts() == CHECKS[: 1 if bucket == "data" else 3]
    assert f"error: gs://{bucket}: not there" in error
    assert f"gcloud storage buckets create gs://{bucket}" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["start"], "start: no such command"),
        (["create"], "create needs --name"),
        (["create", "--name=bert"], "create needs --type"),
        (["create", "--name=Bert"], "--name=Bert: lower-case letters"),
        (["create", "--name=bert", "--chips=16", "--type=v7"], "--type=v7: no such type: v2, v3"),
        (["create", "--name=bert", "--type=v4", "--chips=17"], "v4 has slices of 4 8 16 32 64"),
        (["create", "--name=bert", "--type=v4", "--chips=x[$(id)]"], "v4 has slices of"),
        (["create", *SLICE, "--wait=soon"], "--wait=soon: not a number of minutes"),
        (["create", *SLICE, "--zone"], "--zone: no such flag, or without its =value"),
        (["create", *SLICE, "--config=configs/no.py"], "--config=configs/no.py: no such file"),
        (["create", *SLICE, "--config=untracked.py"], "not a tracked file"),
        *(
            (
                [command, *SLICE, *RUN, "--", "--config.seed=1", f"--config.{source}"],
                f"--config.{source}: lies on this machine, and no host has it: name a run in a b",
            )
            for command, source in (
                ("create", "init_from=hf:configs"),
                ("run", "init_from=configs/"),
                ("up", "init_from.teacher=tf1:configs#0,2"),
                ("up", "decay_from=configs@400"),
            )
        ),
        (["create", *SLICE, *RUN, "--", "--config.seed", "1"], "write --config.key=value"),
        (["setup", "--name=bert"], "setup needs --corpus"),
        (["setup", "--name=bert", "--corpus=wiki"], "--corpus=wiki: write gs://BUCKET/FOLDER"),
        (["setup", "--name=bert", *TUNING[:2]], "setup needs --share"),
        (["up", *SLICE, *TUNING[:3]], "up needs --share"),
        (["up", *SLICE, *RUN, *TUNING[3:]], "--share=10.0.0.2:/runs: only for fine-tuning, and co"),
        (["setup", *SLICE, *TUNING[1:3], "--share=10.0.0.2"], "write ADDRESS:/NAME, a share of"),
        (
            ["run", *SLICE, *TUNING[:2], *RUN[2:]],
            "--workdir=gs://out/run: write /mnt/share/RUN, on the --share: a fine-tuning replaces",
        ),
        (["run", *SLICE, *RUN[:2], TUNING[2]], "--workdir=/mnt/share/rte: write gs://BUCKET/FOLD"),
        (["run", *SLICE, *RUN[:1]], "run needs --workdir"),
        (["up", *SLICE, *RUN[:2]], "up needs --workdir"),
    ],
)
def test_mistakes_are_named_before_anything_is_asked_for(cloud, arguments, message):
    code, _, error = cloud(*arguments)
    assert code == 2
    assert re.search(rf"^error: .*{re.escape(message)}", error, re.MULTILINE), error
    assert "create" not in [call[3] for call in cloud.calls() if len(call) > 3]


# --------------------------------------------------------------------------- single commands


def test_names_of_every_type(cloud):
    """The names are those of Cloud TPU's pages "TPU software versions" and of each type."""
    expected = {
        ("v2", 16): ("v2-32", "tpu-ubuntu2204-base", "v2:4x4", 4),
        ("v3", 64): ("v3-128", "tpu-ubuntu2204-base", "v3:8x8", 16),
        ("v4", 16): ("v4-32", "tpu-ubuntu2204-base", "v4:2x2x4", 4),
        ("v5e", 8): ("v5litepod-8", "v2-alpha-tpuv5-lite", "v5e:2x4", 1),
        ("v5e", 16): ("v5litepod-16", "v2-alpha-tpuv5-lite", "v5e:4x4", 4),
        ("v5e", 64): ("v5litepod-64", "v2-alpha-tpuv5-lite", "v5e:8x8", 16),
        ("v5p", 64): ("v5p-128", "v2-alpha-tpuv5", "v5p:4x4x4", 16),
        ("v6e", 1): ("v6e-1", "v2-alpha-tpuv6e", "v6e:1x1", 1),
        ("v6e", 64): ("v6e-64", "v2-alpha-tpuv6e", "v6e:8x8", 16),
    }
    for (kind, chips), (accelerator, runtime, topology, hosts) in expected.items():
        flags = ["--name=a", f"--type={kind}", f"--chips={chips}", *RUN, "--dry_run"]
        _, _, error = cloud("up", *flags)
        for word in (
            *(f"--accelerator-type={accelerator}", f"--runtime-version={runtime}"),
            *(f"--topology={topology}", f"--hosts={hosts} --chips={chips}"),
        ):
            assert re.search(rf" {re.escape(word)}\s", error), (kind, chips, word, error)


def test_create_asks_with_these_words(cloud):
    code, _, error = cloud("create", *SLICE, "--project=p", "--spot")
    assert code == 0, error
    (create,) = [call for call in cloud.calls() if "create" in call]
    assert create[4:] == [
        *("bert", "--project=p", "--zone=z", "--node-id=bert"),
        *("--accelerator-type=v4-16", "--runtime-version=tpu-ubuntu2204-base"),
        *("--labels=bertjax=bert", "--spot"),
    ]
    assert "WAITING_FOR_RESOURCES" in error and "ACTIVE READY" in error
    assert "delete --name=bert --project=p --zone=z" in error.splitlines()[-1]


def test_gcloud_s_own_project_and_zone_are_left_to_it(cloud):
    cloud("create", "--name=bert", "--type=v4", "--chips=8")
    assert not any(word.startswith(("--zone", "--project")) for c in cloud.calls() for word in c)


def test_setup_brings_code_versions_and_corpus_to_every_host_and_can_be_repeated(cloud):
    cloud("create", *SLICE)
    for _ in range(2):
        code, out, error = cloud("setup", *SLICE, *RUN)
        assert code == 0, error
        assert out.splitlines() == [f"host {host}: ready" for host in range(2)]
    sent = subprocess.run(
        ["git", "ls-files", "-z"], cwd=cloud.checkout, capture_output=True, text=True
    ).stdout.split("\0")[:-1]
    for host in range(2):
        code_there = cloud.home(host) / "code"
        there = [str(f.relative_to(code_there)) for f in code_there.rglob("*") if f.is_file()]
        assert sorted(there) == sorted(sent)
        assert (cloud.home(host) / "corpus" / "store" / "manifest.json").read_text() == "{}"
        venv, install = cloud.calls("uv", str(host))[:2]
        assert venv == ["venv", "--quiet", "--allow-existing", "--python", "3.12", "venv"]
        assert install[-5:] == [
            *("venv/bin/python", "--constraint", "code/constraints/python3.12.txt"),
            *("--editable", "./code[tpu,gcs]"),
        ]


def test_run_starts_the_same_command_everywhere_once_with_its_words_unchanged(cloud):
    words = [
        "--config.seed=1",
        '--note=it\'s "quoted"',
        "--glob=a *.txt $HOME `id` \\n",
        "--x=a\nb",
    ]
    scenario = dict(runs=["hang"])
    cloud("create", *SLICE)
    cloud("setup", *SLICE, *RUN)
    for state in ("started", "running already"):
        code, out, error = cloud("run", *SLICE, *RUN, "--", *words, **scenario)
        assert code == 0, error
        assert out.splitlines() == [f"host {host}: {state}" for host in range(2)]
    _wait_for(cloud, 1, "run.log", "run 0 of host 1")
    code, out, error = cloud("status", *SLICE, **scenario)
    assert code == 0
    assert out.splitlines()[:2] == ["queued resource bert: ACTIVE", "node bert: READY"]
    assert len(re.findall(r"^host \d: running: ", out, re.MULTILINE)) == 2
    calls = cloud.calls("python-of-the-run", None)
    assert len(calls) == 2
    corpora = [f"--config.corpus={cloud.home(host)}/corpus" for host in range(2)]
    assert sorted(call[1] for call in calls) == corpora
    for script, _, *rest in calls:
        assert script == "launch/pretrain.py"
        assert rest == [
            *("--config=configs/pretrain_base_16.py", "--workdir=gs://out/run"),
            *("--hosts=2", "--chips=8", "--verify", *words),
        ]
    code, _, error = cloud("setup", *SLICE, *RUN, **scenario)
    assert code == 2 and "host 0: a run is going here" in error


@pytest.mark.slow
def test_logs_follow_host_0_and_collect_what_failed_elsewhere(cloud):
    scenario = dict(runs=["2"])
    for command in ("create", "setup", "run"):
        cloud(command, *SLICE, *RUN, **scenario)
    for host in range(2):
        _wait_for(cloud, host, "run.exit", "2")
    code, out, error = cloud("logs", *SLICE)
    assert code == 0, error
    assert cloud.acts()[-2:] == ["ssh 0 follow", "ssh all ends"]
    assert out.splitlines()[1] == "run 0 of host 0: 2"
    assert "host 1: exit 2\nhost 1| == " in out and "\nhost 1| run 0 of host 1: 2\n" in out
    (cloud.home(1) / "run.exit").write_text("0\n")
    assert "host 1" not in cloud("logs", *SLICE)[1]
    assert "host 1| run 0 of host 1: 2\n" in cloud("logs", *SLICE, "--all")[1]
    assert cloud.acts()[-1] == "ssh all ends"


def test_ssh_runs_a_command_with_its_words_unchanged(cloud):
    cloud("create", *SLICE)
    words = ["printf", "%s|", "a b", "it's", '"', "$HOME *"]
    code, out, _ = cloud("ssh", "--name=bert", "--zone=z", "--worker=1", "--", *words)
    assert (code, out) == (0, "a b|it's|\"|$HOME *|")
    assert cloud("ssh", "--name=bert", "--zone=z", "--", "exit", "7")[0] == 7


def test_status_and_delete_of_what_is_there_and_of_what_is_not(cloud):
    cloud("create", *SLICE, "--wait=1", waits=-1)
    code, out, _ = cloud("status", *SLICE, waits=-1)
    assert (code, out) == (0, "queued resource bert: WAITING_FOR_RESOURCES\n")
    code, _, error = cloud("delete", *SLICE, waits=-1)
    assert code == 0 and error.endswith("bert: deleted\n")
    assert cloud.acts() == ["create", "delete"]
    for _ in range(2):
        code, _, error = cloud("delete", *SLICE)
        assert code == 0 and error.endswith("bert: nothing there to delete\n")
    assert cloud("status", *SLICE)[1] == "queued resource bert: none\n"
    assert cloud.acts() == ["create", "delete"]


def test_every_command_is_printed_as_it_can_be_pasted(cloud):
    _, _, error = cloud("up", *SLICE, *RUN, "--", "--note=it's")
    printed = subprocess.run(
        [
            "bash",
            "-c",
            'gcloud() { printf "%s\\0" "$@"; echo; }\n'
            + "\n".join(line for line in error.splitlines() if line.startswith("gcloud compute")),
        ],
        capture_output=True,
        text=True,
    ).stdout
    printed = {tuple(line.split("\0")[:-1]) for line in printed.splitlines()}
    assert printed == {tuple(call) for call in cloud.calls() if call[0] == "compute"}


COMMANDS = ("create", "setup", "run", "logs", "status", "ssh", "delete", "up")


@pytest.mark.parametrize("command", COMMANDS)
def test_dry_run_prints_and_does_nothing(cloud, command):
    before = sorted(cloud.checkout.rglob("*"))
    code, out, error = cloud(command, *SLICE, *RUN, "--dry_run")
    assert (code, out) == (0, ""), error
    assert "gcloud compute tpus" in error
    assert error.endswith("\ndry run: nothing was done\n")
    assert not (cloud.folder / "calls.jsonl").exists()
    assert sorted(cloud.checkout.rglob("*")) == before


def test_configs_are_found_from_anywhere(cloud, tmp_path):
    """So are weights that every host reaches."""
    cloud.here = tmp_path
    sources = "--config.init_from.a=hf:bert", "--config.init_from.b=gs://out/configs"
    for name in ("configs/pretrain_base_16.py", "pretrain_base_16", "base_16:w"):
        words = *SLICE, *RUN[1:], f"--config={name}", "--dry_run", "--", *sources
        code, _, error = cloud("up", *words)
        assert code == 0, error
        found = "configs/pretrain_base_16.py" + ":w" * name.endswith(":w")
        checked = f"'--config={cloud.checkout}/{found}' --topology=v4:2x2x2 {' '.join(sources)}\n"
        assert checked in error and f"host run pretrain --config={found} --workdir" in error
    words = "--config=glue_16:all", *TUNING[1:], "--dry_run"
    code, _, error = cloud("up", *SLICE, *words)
    assert code == 0, error
    assert "host setup gs://data/glue 10.0.0.2:/runs'" in error
    assert "host run finetune --config=configs/finetune_glue_16.py:all --workdir=/mnt/" in error
    assert "compile_check" not in error and "checkpoints" not in error


def test_help_is_the_head_of_the_script(cloud):
    code, out, _ = cloud("--help")
    assert code == 0
    assert "bash launch/tpu_vm.sh COMMAND --name=NAME" in out
    assert all(f"\n  {command} " in out for command in COMMANDS)


# --------------------------------------------------------------------------------- the guide


def test_the_guide_s_commands_pass_as_they_stand_there(cloud):
    guide = (REPOSITORY / "docs" / "tpu.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    lines = [line.split("   #")[0] for line in "".join(blocks).splitlines()]
    assert all(f"`{each}`" in guide or f"tpu_vm.sh {each} " in guide for each in COMMANDS)
    settings = []  # of the shell, before each command
    for line in lines:
        if re.match(r"[A-Z]+=(?!.*\$\()", line):
            settings.append(line)
        if not line.startswith("bash launch/tpu_vm.sh"):
            continue
        dry = line.replace(" -- ", " --dry_run -- ") if " -- " in line else f"{line} --dry_run"
        result = subprocess.run(
            ["bash", "-euc", "\n".join([*settings, dry])],
            cwd=cloud.checkout,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, f"{line}\n{result.stderr}"
