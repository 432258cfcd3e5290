"""How demos end: with a code and one message, and with what they started."""

import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo.eventrows import TopicComparison
from demo.frame import Demo, Outcome, ended
from demo.rig import CommandError, bring_up
from tests.support.echo import Echo

from extentflow_local.stack.errors import PortTaken
from extentflow_local.stack.ports import free_run
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.stack import Stack

DEMO_WITH_SERVERS = """
import sys, time
from contextlib import contextmanager
from demo.frame import ended

@contextmanager
def servers():
    try:
        yield
    finally:
        time.sleep(0.5)
        print("stopped", flush=True)

def main():
    with servers():
        print("running", flush=True)
        time.sleep(60)

sys.exit(ended("demo-x", main))
"""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_a_demo_as_ctrl_c_does_with_what_it_started() -> None:
    command = [sys.executable, "-c", DEMO_WITH_SERVERS]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "running\n"
        demo.terminate()
        demo.terminate()  # a second signal does not interrupt the clean-up
        out, err = demo.communicate(timeout=300)

    assert demo.returncode == 130
    assert out == "stopped\n"
    assert err == "make demo-x: stopped\n"


def test_what_goes_wrong_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise CommandError("s3://shop/[red]key[/red] is gone")

    assert ended("demo-x", main) == 1
    assert capsys.readouterr().err == "make demo-x: s3://shop/[red]key[/red] is gone\n"


def test_a_taken_port_leaves_no_server_behind_that_was_started_with_it(tmp_path: Path) -> None:
    ports = {name: free_run(2, random.SystemRandom()) for name in ("before", "fresh", "late")}
    settings = LocalSettings(tmp_path, ports, cache=tmp_path / "cache", search_path="/usr/bin:/bin")
    services = [Echo(name) for name in ports]
    stack = Stack(tmp_path, services=services, settings=settings)
    with stack, socket.create_server(("127.0.0.1", ports["late"])):
        bring_up(stack, ["before"])

        with pytest.raises(PortTaken, match=f"port {ports['late']} .late. is taken"):
            bring_up(stack)

        assert set(stack.endpoints()) == {"before"}


@pytest.mark.parametrize(
    ("missing", "dead", "code"), [(0, 0, 0), (1, 0, 1), (0, 2, 1)], ids=["fine", "missing", "dead"]
)
def test_a_demo_is_well_when_every_record_arrived_once(
    missing: int, dead: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demo.frame.ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo", "--scale", "0.1"])
    (tmp_path / "var" / "demo").mkdir(parents=True)
    asked: list[int] = []

    def run_story(_run: str, objects: int) -> Outcome:
        asked.append(objects)
        return Outcome({"dead": dead}, [TopicComparison("t", 9, 9 - missing, 0, missing, 0)] * 2)

    demo = Demo("demo-x", "x", 20, 4, run_story, lambda _told: None, dead_letters="dead")

    assert demo.main() == code
    assert asked == [4]
    summary = (tmp_path / "var" / "demo" / "x.json").read_text()
    assert f'"records": {2 * (9 - missing)}' in summary
