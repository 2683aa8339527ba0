"""A stand-in for Cloud TPU and its hosts: `gcloud`, and on each host `uv`, `sudo` and `python`.

It is called as `stand_in_gcloud.py PROGRAM ARGUMENTS...`. Its state is in the folder CLOUD:

  calls.jsonl      every call: the caller ("here" or the number of a host), program, arguments
  scenario.json    the intended failures (see `SCENARIO`)
  state.json       the slice, and how often each event has happened
  buckets/BUCKET/  objects
  hosts/POD/N/     the home of host N of the POD-th slice; commands of `ssh` run there, by bash
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

CLOUD = Path(os.environ["CLOUD"])
HERE = os.environ.get("STAND_IN_HOST", "here")

SCENARIO = {
    "hosts": 2,
    "refuse": "",  # the reason why `create` is refused
    "refuse_from": 0,  # the number of the first refused request
    "waits": 1,  # the number of queries before a request is granted; -1: never
    "fails": False,  # a request becomes FAILED when it would be granted
    "offline": [],  # the numbers of queries, from 0, at which the network is away
    "unreachable": [],  # [host, words of the command, times (-1: for ever)]
    "late": False,  # the run ends only while its hosts are asked about it
    "fits": True,  # the result of launch/compile_check.py
    # The ends of the runs, one after another: "CODE", "CODE@STEP" (saves a checkpoint first),
    # "hang" (until a signal), "preempt" (the slice is taken away), "lost" (one host is killed, the
    # others hang).
    "runs": ["0@100"],
}


def scenario() -> dict:
    file = CLOUD / "scenario.json"
    return SCENARIO | (json.loads(file.read_text()) if file.exists() else {})


class State:
    """The content of state.json, changed by one process at a time."""

    def __enter__(self) -> dict:
        self._lock = open(CLOUD / "lock", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        file = CLOUD / "state.json"
        self._state = json.loads(file.read_text()) if file.exists() else {}
        return self._state

    def __exit__(self, *_) -> None:
        # The file is complete at every moment, because a run that hangs reads it after a signal.
        (CLOUD / "state.tmp").write_text(json.dumps(self._state))
        (CLOUD / "state.tmp").replace(CLOUD / "state.json")
        self._lock.close()


def count(what: str) -> int:
    """Counts the call, and returns how often `what` was counted before."""
    with State() as state:
        counts = state.setdefault("counts", {})
        counts[what] = counts.get(what, 0) + 1
        return counts[what] - 1


def fail(message: str, code: int = 1) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


def flag(arguments: list[str], name: str, default: str = "") -> str:
    return next((a.split("=", 1)[1] for a in arguments if a.startswith(f"--{name}=")), default)


# ------------------------------------------------------------------------------------ gcloud


def gcloud(arguments: list[str]) -> None:
    match arguments:
        case ["compute", "tpus", "queued-resources", "create", name, *rest]:
            create(name, rest)
        case ["compute", "tpus", "queued-resources", "describe", _, *_]:
            describe_request()
        case ["compute", "tpus", "queued-resources", "delete", _, "--zone=z", "--force", "--quiet"]:
            delete()
        case ["compute", "tpus", "tpu-vm", "describe", _, *_]:
            describe_node()
        case ["compute", "tpus", "tpu-vm", "ssh", _, *rest]:
            ssh(rest)
        case ["compute", "tpus", "tpu-vm", "scp", source, target, *_]:
            import shutil  # here, because it takes longer than most calls

            for host in range(scenario()["hosts"]):
                shutil.copy(source, home(host) / target.split(":", 1)[1])
        case ["storage", "ls", address]:
            ls(address)
        case ["storage", "rsync", *_, source, target]:
            import shutil

            shutil.copytree(bucket_path(source), target, dirs_exist_ok=True)
        case _:
            fail(f"ERROR: (gcloud) unrecognized arguments: {arguments}", 2)


def create(name: str, arguments: list[str]) -> None:
    wanted = scenario()
    if wanted["refuse"] and count("create") >= wanted["refuse_from"]:
        fail(f"ERROR: (gcloud.compute.tpus.queued-resources.create) {wanted['refuse']}")
    with State() as state:
        assert not state.get("request"), "ALREADY_EXISTS"
        state.update(request="WAITING_FOR_RESOURCES", looks=0, pod=state.get("pod", 0) + 1)
    for host in range(wanted["hosts"]):
        home(host).mkdir(parents=True)


def describe_request() -> None:
    wanted = scenario()
    if count("look") in wanted["offline"]:
        fail("ERROR: gcloud crashed (TransportError): network is unreachable")
    with State() as state:
        request = state.get("request")
        if not request:
            fail("ERROR: (gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: no such thing")
        if request == "WAITING_FOR_RESOURCES":
            if state["looks"] == wanted["waits"]:
                state["request"] = "FAILED" if wanted["fails"] else "ACTIVE"
            state["looks"] += 1
        elif request == "SUSPENDING":
            state["request"] = "SUSPENDED"
    print(request)


def describe_node() -> None:
    with State() as state:
        request = state.get("request")
    if request is None:
        fail("ERROR: (gcloud.compute.tpus.tpu-vm.describe) NOT_FOUND: no such thing")
    print("READY" if request == "ACTIVE" else "PREEMPTED")


def delete() -> None:
    with State() as state:
        request = state.pop("request", None)
        if request == "SUSPENDING":
            state["request"] = request
            fail("ERROR: FAILED_PRECONDITION: the queued resource is SUSPENDING")
    if request is None:
        fail("ERROR: (gcloud.compute.tpus.queued-resources.delete) NOT_FOUND: no such thing")


def ssh(arguments: list[str]) -> None:
    import subprocess

    worker, command = flag(arguments, "worker", "0"), flag(arguments, "command")
    hosts = range(scenario()["hosts"]) if worker == "all" else [int(worker)]
    late = scenario()["late"] and " host status" in command
    if late:
        count("asked")
    codes = []
    for host in hosts:
        print(f"SSH: Attempting to connect to worker {host}...", file=sys.stderr)
        if is_unreachable(host, command):
            print(f"ssh: connect to host {host}: Connection refused", file=sys.stderr)
            codes.append(255)
            continue
        if late:
            with open(home(host) / "bertjax" / "run.lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
        environment = os.environ | {"HOME": str(home(host)), "STAND_IN_HOST": str(host)}
        result = subprocess.run(["bash", "-c", command], cwd=home(host), env=environment)
        codes.append(result.returncode)
    sys.exit(next((code for code in codes if code), 0))


def is_unreachable(host: int, command: str) -> bool:
    for index, (which, words, times) in enumerate(scenario()["unreachable"]):
        if which == host and words in command:
            return times < 0 or count(f"unreachable {index}") < times
    return False


def ls(address: str) -> None:
    path = bucket_path(address)
    if not (CLOUD / "buckets" / path.relative_to(CLOUD / "buckets").parts[0]).is_dir():
        fail(f"ERROR: (gcloud.storage.ls) {address} not found: 404.")
    if not path.exists():
        fail("ERROR: (gcloud.storage.ls) One or more URLs matched no objects.")
    if path.is_file():
        print(address)
    else:
        for each in sorted(path.iterdir()):
            print(f"{address.rstrip('/')}/{each.name}{'/' * each.is_dir()}")


def bucket_path(address: str) -> Path:
    return CLOUD / "buckets" / address.removeprefix("gs://")


def home(host: int) -> Path:
    with State() as state:
        return CLOUD / "hosts" / str(state["pod"]) / str(host)


# ------------------------------------------------------------------------------ on the hosts


def uv(arguments: list[str]) -> None:
    if arguments[0] == "venv":
        interpreter = Path(arguments[-1]) / "bin" / "python"
        interpreter.parent.mkdir(parents=True, exist_ok=True)
        interpreter.unlink(missing_ok=True)
        interpreter.symlink_to(CLOUD / "bin" / "python-of-the-run")


def sudo(arguments: list[str]) -> None:
    """Mounts in name only: ~/mounted is what `findmnt` finds."""
    mounted = Path.home() / "mounted"
    match arguments:
        case ["mount", *_, share, "/mnt/share"]:
            assert not mounted.exists()
            mounted.write_text(share)
        case ["umount", "/mnt/share"]:
            mounted.unlink()


def run(arguments: list[str]) -> None:
    """Acts as `launch/pretrain.py` or `launch/finetune.py` in the scenario."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    index = count(f"runs of {HERE}")
    wait_for([f"runs of {host}" for host in range(scenario()["hosts"])], index)
    if scenario()["late"]:
        wait_for(["asked"], index)
    action, _, step = scenario()["runs"][index].partition("@")
    first, last = HERE == "0", HERE == str(scenario()["hosts"] - 1)
    print(f"run {index} of host {HERE}: {action}", flush=True)
    if step and first:
        workdir = bucket_path(flag(arguments, "workdir"))
        assert CLOUD in workdir.parents, f"{workdir} is no bucket: give an end without a step"
        (workdir / "checkpoints" / step).mkdir(parents=True)
    if action == "preempt" and last:
        with State() as state:
            state["request"] = "SUSPENDING"
        sys.exit(137)
    if action == "hang" or action == "preempt" or (action == "lost" and not last):
        hang()
    sys.exit(137 if action == "lost" else int(action))


def hang() -> None:
    """Waits until the slice is gone, or for a quarter of an hour."""
    for _ in range(4500):
        with State() as state:
            if state.get("request") != "ACTIVE":
                sys.exit(137)
        time.sleep(0.2)


def wait_for(events: list[str], index: int) -> None:
    """Waits until all events have happened more than `index` times."""
    for _ in range(9000):
        with State() as state:
            if all(state["counts"].get(event, 0) > index for event in events):
                return
        time.sleep(0.1)
    fail(f"error: in time there was not all of {', '.join(events)}", 2)


def python(arguments: list[str]) -> None:
    """Acts as the environment's interpreter, which is only asked whether the config fits."""
    if arguments[0].endswith("launch/compile_check.py") and not scenario()["fits"]:
        fail("error: 21.3 GiB of the 15.75 GiB of a chip: does not fit", 2)


def main() -> None:
    program, *arguments = sys.argv[1:]
    with open(CLOUD / "calls.jsonl", "a") as calls:
        calls.write(json.dumps([HERE, program, arguments]) + "\n")
    programs = {"gcloud": gcloud, "uv": uv, "sudo": sudo, "python": python}
    (programs | {"python-of-the-run": run})[program](arguments)


if __name__ == "__main__":
    main()
