"""Background processes: recognised by pid and birth, never mistaken for another."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from extentflow.errors import Misconfigured
from extentflow_local.stack import processes
from extentflow_local.stack.processes import RunningProcess, birth_of, forget

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER) as process:
        yield process
        process.kill()


def start(directory: Path, command: list[str]) -> RunningProcess:
    environment = {"PATH": os.defpath}
    log = directory / "log"
    return processes.start(
        command, directory=directory, log=log, environment=environment, ports={"web": 1}
    )


def test_a_started_process_is_found_by_its_directory(tmp_path: Path) -> None:
    running = start(tmp_path, SLEEPER)

    found = RunningProcess.recorded_in(tmp_path)
    running.kill()

    assert found == running
    assert found.ports == {"web": 1}


def test_a_stopped_process_is_gone_and_its_record_forgotten(tmp_path: Path) -> None:
    running = start(tmp_path, SLEEPER)

    running.stop(grace_seconds=10)

    assert birth_of(running.pid) is None
    assert RunningProcess.recorded_in(tmp_path) is None
    assert not (tmp_path / "process.json").exists()


def test_a_process_that_ignores_the_request_is_ended(tmp_path: Path) -> None:
    running = start(tmp_path, [sys.executable, "-c", DEAF])
    while not (tmp_path / "log").read_bytes():
        assert running.alive()

    running.stop(grace_seconds=0.1)

    assert not running.alive()


def test_a_pid_that_was_given_to_another_process_is_never_signalled(
    bystander: subprocess.Popen[bytes],
) -> None:
    stale = RunningProcess(bystander.pid, "an earlier birth", {})

    stale.send(signal.SIGKILL)
    stale.stop(grace_seconds=0)

    assert not stale.alive()
    assert bystander.poll() is None


def test_a_record_whose_pid_was_reused_is_forgotten(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    record = tmp_path / "process.json"
    record.write_text(json.dumps({"pid": bystander.pid, "birth": "earlier", "ports": {}}))

    found = RunningProcess.recorded_in(tmp_path)

    assert found is None
    assert not record.exists()
    assert bystander.poll() is None


def test_a_living_process_of_another_parent_is_recognised(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    birth = birth_of(bystander.pid)
    record = {"pid": bystander.pid, "birth": birth, "ports": {"kafka": 9}}
    (tmp_path / "process.json").write_text(json.dumps(record))

    assert RunningProcess.recorded_in(tmp_path) == RunningProcess(
        bystander.pid, str(birth), {"kafka": 9}
    )


def test_a_zombie_is_not_alive(bystander: subprocess.Popen[bytes]) -> None:
    running = RunningProcess(bystander.pid, str(birth_of(bystander.pid)), {})

    bystander.send_signal(signal.SIGKILL)
    ended = running.wait(300)

    assert ended
    assert bystander.returncode is None


@pytest.mark.parametrize("port", ["39997,broker.attacker.example:9092", True, 0, 65_536, 9.0])
def test_a_record_whose_ports_are_no_ports_is_forgotten(
    tmp_path: Path, bystander: subprocess.Popen[bytes], port: object
) -> None:
    record = {"pid": bystander.pid, "birth": birth_of(bystander.pid), "ports": {"kafka": port}}
    (tmp_path / "process.json").write_text(json.dumps(record))

    assert RunningProcess.recorded_in(tmp_path) is None


def test_a_record_that_others_may_write_is_neither_used_nor_removed(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    record = tmp_path / "process.json"
    running = {"pid": bystander.pid, "birth": birth_of(bystander.pid), "ports": {"kafka": 9}}
    for content in (json.dumps(running), "damaged"):
        record.write_text(content)
        record.chmod(0o666)

        with pytest.raises(Misconfigured, match=f"{record}: everybody may write it"):
            RunningProcess.recorded_in(tmp_path)
        assert record.read_text() == content


@pytest.mark.parametrize("writable", [".", "var", "var/kafka"])
def test_a_stack_in_a_folder_that_others_may_write_is_not_used(
    tmp_path: Path, bystander: subprocess.Popen[bytes], writable: str
) -> None:
    directory = tmp_path / "var" / "kafka"
    directory.mkdir(parents=True)
    record = {"pid": bystander.pid, "birth": birth_of(bystander.pid), "ports": {"kafka": 9}}
    (directory / "process.json").write_text(json.dumps(record))
    assert RunningProcess.recorded_in(directory) is not None
    (tmp_path / writable).chmod(0o1777)

    with pytest.raises(Misconfigured, match=f"{tmp_path / writable}: everybody may write it"):
        RunningProcess.recorded_in(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
@pytest.mark.parametrize("theirs", ["var", "var/kafka", "var/kafka/process.json"])
def test_another_users_link_to_an_own_stack_is_not_followed(
    tmp_path: Path, bystander: subprocess.Popen[bytes], theirs: str
) -> None:
    own = tmp_path / "own" / "var" / "kafka"
    own.mkdir(parents=True)
    record = {"pid": bystander.pid, "birth": birth_of(bystander.pid), "ports": {"kafka": 9}}
    (own / "process.json").write_text(json.dumps(record))
    link = tmp_path / "evil" / theirs
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "own" / theirs)
    os.lchown(link, 65_534, 65_534)

    with pytest.raises(Misconfigured, match=f"{link}: user 65534 owns its link"):
        RunningProcess.recorded_in(tmp_path / "evil" / "var" / "kafka")


@pytest.mark.parametrize("content", ["", "[]", '{"pid": 1}', '{"pid": 1, "birth": "", "ports": 1}'])
def test_an_unreadable_record_is_forgotten(tmp_path: Path, content: str) -> None:
    (tmp_path / "process.json").write_text(content)

    assert RunningProcess.recorded_in(tmp_path) is None
    assert not (tmp_path / "process.json").exists()


def test_the_same_process_has_the_same_birth_and_two_have_different_ones(
    bystander: subprocess.Popen[bytes],
) -> None:
    assert birth_of(bystander.pid) == birth_of(bystander.pid)
    assert birth_of(bystander.pid) != birth_of(os.getpid())


def test_forgetting_twice_is_harmless(tmp_path: Path) -> None:
    forget(tmp_path)
    forget(tmp_path)

    assert RunningProcess.recorded_in(tmp_path) is None


def test_a_log_is_appended_to_until_it_is_too_large(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"earlier\n")
    start(tmp_path, [sys.executable, "-c", "print('later')"]).wait(300)
    appended = log.read_bytes()
    with log.open("ab") as file:
        file.truncate(33 * 1024 * 1024)

    start(tmp_path, [sys.executable, "-c", "print('again')"]).wait(300)

    assert appended == b"earlier\nlater\n"
    assert log.read_bytes() == b"again\n"
