"""A stack of small stand-in servers: real processes and ports, nothing to install."""

import json
import os
import random
import signal
import socket
from pathlib import Path

import pytest
from tests.support.echo import SERVE, Echo
from tests.support.golden import Golden
from tests.support.waiting import eventually

from extentflow.errors import Misconfigured
from extentflow_local.stack.errors import LocalStackError, PortTaken, ServiceFailed
from extentflow_local.stack.ports import free_run
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.stack import Stack


@pytest.fixture
def settings(tmp_path: Path) -> LocalSettings:
    ports = {"echo": free_run(2, random.SystemRandom()), "other": 1}
    return LocalSettings(tmp_path, ports, cache=tmp_path / "cache", search_path="/usr/bin:/bin")


def test_up_answers_and_down_ends(tmp_path: Path, settings: LocalSettings) -> None:
    stack = Stack(tmp_path, services=[Echo()], settings=settings)

    first, again = stack.up(), stack.up(["echo"])
    endpoints, environment = stack.endpoints(), stack.environment()
    stopped, stopped_again = stack.down(), stack.down()

    assert (first, again) == ({"echo": "started"}, {"echo": "already running"})
    assert endpoints == {"echo": f"echo:{settings.ports['echo']}"}
    assert environment == {"ECHO_ENDPOINT": f"echo:{settings.ports['echo']}"}
    assert (stopped, stopped_again) == (["echo"], [])
    assert stack.endpoints() == {}


def test_another_stack_object_sees_and_stops_what_runs(
    tmp_path: Path, settings: LocalSettings
) -> None:
    first = Stack(tmp_path, services=[Echo()], settings=settings)
    first.up()

    with Stack(tmp_path, services=[Echo()], settings=settings) as second:
        assert second.endpoints() == first.endpoints()

    assert first.endpoints() == {}


def test_the_summary_file_lists_running_services(tmp_path: Path, settings: LocalSettings) -> None:
    with Stack(tmp_path, services=[Echo()], settings=settings) as stack:
        stack.up()
        while_up = json.loads((tmp_path / "var" / "stack.json").read_text())
    after = json.loads((tmp_path / "var" / "stack.json").read_text())

    assert while_up["services"]["echo"]["endpoint"] == f"echo:{settings.ports['echo']}"
    assert while_up["services"]["echo"]["pid"] > 0
    assert after == {"services": {}, "environment": {}}


def test_taken_ports_are_explained_in_one_line(tmp_path: Path, settings: LocalSettings) -> None:
    port, other = settings.ports["echo"], free_run(3, random.SystemRandom())
    services = [Echo(), Echo("free"), Echo("other", port_names=("echo", "spare", "more"))]
    ports = {"free": free_run(2, random.SystemRandom()), "other": other}
    with (
        socket.create_server(("127.0.0.1", port + 1)),
        socket.create_server(("127.0.0.1", other)),
        socket.create_server(("127.0.0.1", other + 1)),
        socket.create_server(("127.0.0.1", other + 2)),
        Stack(tmp_path, ports, services=services, settings=settings) as stack,
    ):
        with pytest.raises(PortTaken) as caught:
            stack.up()

        running = stack.endpoints()

    assert str(caught.value) == (
        f"nothing was started: ports {port + 1} (echo), {other}-{other + 2} (other) are taken by"
        " another process: stop it; or choose other ports: --echo-port or"
        " EXTENTFLOW_LOCAL_ECHO_PORT (2 in a row), --other-port or EXTENTFLOW_LOCAL_OTHER_PORT"
        " (3 in a row)"
    )
    assert running == {}


def test_a_port_of_a_clients_connection_is_not_said_to_be_a_servers(
    tmp_path: Path, settings: LocalSettings
) -> None:
    """Trap: it was advised to stop a process, and none listened there."""
    port = settings.ports["echo"]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket() as client,
        Stack(tmp_path, services=[Echo()], settings=settings) as stack,
    ):
        client.bind(("127.0.0.1", port))
        client.connect(server.getsockname())
        with pytest.raises(PortTaken) as caught:
            stack.up()
        client.close()

        assert f"port {port} (echo) is taken by a connection" in str(caught.value)
        assert "stop it" not in str(caught.value)


def test_the_stack_of_another_folder_is_named_with_the_command_that_stops_it(
    tmp_path: Path, settings: LocalSettings
) -> None:
    port = settings.ports["echo"]
    there, here = tmp_path / "one project", tmp_path / "another"
    second = Stack(here, services=[Echo()], settings=settings)
    with Stack(there, services=[Echo()], settings=settings) as first:
        first.up()

        with pytest.raises(PortTaken) as caught:
            second.up()

    named = f"port {port} (echo) is taken by the stack in {there}: stop it with"
    assert f"{named} `extentflow down --dir '{there}'`" in str(caught.value)
    with second:
        assert second.up() == {"echo": "started"}


def test_a_stack_that_ended_by_itself_is_not_named(tmp_path: Path, settings: LocalSettings) -> None:
    port = settings.ports["echo"]
    first = Stack(tmp_path / "first", services=[Echo()], settings=settings)
    first.up()
    pid = first.state()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually("it ended", lambda: first.state()[0].pid is None)
    second = Stack(tmp_path / "second", services=[Echo()], settings=settings)

    with socket.create_server(("127.0.0.1", port)), pytest.raises(PortTaken) as caught:
        second.up()

    assert f"port {port} (echo) is taken by another process: stop it" in str(caught.value)


def test_a_folder_for_notes_that_cannot_be_written_stops_no_stack(
    tmp_path: Path, settings: LocalSettings
) -> None:
    (tmp_path / "cache").write_text("no directory")

    with Stack(tmp_path, services=[Echo()], settings=settings) as stack:
        assert stack.up() == {"echo": "started"}


def test_a_service_that_dies_is_explained_with_the_end_of_its_log(
    tmp_path: Path, settings: LocalSettings, golden: Golden
) -> None:
    dying = Echo(program="raise SystemExit('no space left')")

    with golden.raises(ServiceFailed) as caught:
        Stack(tmp_path, services=[dying], settings=settings).up()

    assert "no space left" in str(caught.value)
    assert str(tmp_path / "var" / "echo.log") in str(caught.value)


def test_a_service_that_never_gets_ready_times_out(tmp_path: Path, settings: LocalSettings) -> None:
    silent = Echo(program="import time; print('hm', flush=True); time.sleep(60)", ready_seconds=0.5)
    with Stack(tmp_path, services=[silent], settings=settings) as stack:
        with pytest.raises(ServiceFailed, match="was not ready in 0 s"):
            stack.up()

        running = stack.state()[0].pid

    assert running is not None
    assert stack.state()[0].pid is None


def test_all_failures_are_reported_and_the_rest_stays_up(
    tmp_path: Path, settings: LocalSettings
) -> None:
    services = [
        Echo(),
        Echo("first", "raise SystemExit('broken one')"),
        Echo("second", "raise SystemExit('broken two')"),
    ]
    with Stack(tmp_path, services=services, settings=settings, free_ports=True) as stack:
        with pytest.raises(LocalStackError) as caught:
            stack.up()

        running = list(stack.endpoints())

    assert "broken one" in str(caught.value)
    assert "broken two" in str(caught.value)
    assert running == ["echo"]


def test_a_restart_keeps_the_free_port_it_found(tmp_path: Path, settings: LocalSettings) -> None:
    with Stack(tmp_path, services=[Echo()], settings=settings, free_ports=True) as stack:
        stack.up()
        before, pid = stack.endpoint("echo"), stack.state()[0].pid
        stack.restart("echo")

        assert stack.endpoint("echo") == before
        assert stack.state()[0].pid != pid


def test_a_killed_service_is_gone_until_it_is_brought_up(
    tmp_path: Path, settings: LocalSettings
) -> None:
    with Stack(tmp_path, services=[Echo()], settings=settings) as stack:
        stack.up()
        stack.kill("echo")

        with pytest.raises(ServiceFailed, match="extentflow up echo"):
            stack.kill("echo")
        assert stack.up() == {"echo": "started"}


def test_moving_a_running_service_is_rejected(tmp_path: Path, settings: LocalSettings) -> None:
    with Stack(tmp_path, services=[Echo()], settings=settings) as stack:
        stack.up()
        moved = Stack(tmp_path, {"echo": 21_999}, services=[Echo()], settings=settings)

        with pytest.raises(ServiceFailed, match="extentflow down echo"):
            moved.up()


def test_an_unknown_service_is_named_with_the_known_ones(
    tmp_path: Path, settings: LocalSettings, golden: Golden
) -> None:
    stack = Stack(tmp_path, services=[Echo()], settings=settings)

    with golden.raises(Misconfigured, match="'kafak'"):
        stack.up(["kafak"])


def test_servers_get_a_small_environment_and_their_own_temporary_folder(
    tmp_path: Path, settings: LocalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLASSPATH", "elsewhere")
    report = Echo(
        program="import json, os; print(json.dumps(dict(os.environ)), flush=True)" + SERVE
    )
    with Stack(tmp_path, services=[report], settings=settings) as stack:
        stack.up()
        log = stack.state()[0].log

    seen = json.loads(log.read_text().splitlines()[0])
    assert "CLASSPATH" not in seen
    assert seen["TMPDIR"] == str(tmp_path / "var" / "echo" / "tmp")
