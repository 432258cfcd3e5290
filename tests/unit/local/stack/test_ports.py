"""Ports on the loopback interface."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden import Golden

from extentflow_local.stack import ports
from extentflow_local.stack.errors import PortTaken, ServiceFailed

PICK = """
import random
from extentflow_local.stack.ports import free_run
print(free_run(2, random.Random(1)))
"""


@pytest.fixture(autouse=True)
def _own_reservations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(ports, "_picked", set())
    ports._reservations.cache_clear()
    yield
    if ports._reservations.cache_info().currsize:
        os.close(ports._reservations())
    ports._reservations.cache_clear()


def picked_elsewhere() -> int:
    done = subprocess.run([sys.executable, "-c", PICK], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_a_port_is_picked_once_although_nothing_listens_there_yet() -> None:
    first, second = (ports.free_run(2, random.Random(1)) for _ in range(2))

    assert not {first, first + 1} & {second, second + 1}


def test_another_process_picks_other_ports_meanwhile() -> None:
    before = picked_elsewhere()
    mine = ports.free_run(2, random.Random(1))
    after = picked_elsewhere()

    assert before == mine  # that process is over
    assert not {mine, mine + 1} & {after, after + 1}


def test_a_missing_range_of_free_ports_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _port: False)

    with pytest.raises(PortTaken, match="no 3 consecutive free ports"):
        ports.free_run(3, random.Random(1))


def test_a_row_that_is_taken_in_part_keeps_none_of_its_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = ports.free_run(1, random.Random(1))
    monkeypatch.setattr(ports, "_ATTEMPTS", 1)

    with pytest.raises(PortTaken):
        ports.free_run(2, AlwaysAt(mine - 1))

    assert ports.free_run(1, AlwaysAt(mine - 1)) == mine - 1


def test_a_file_that_cannot_be_opened_is_named_and_not_taken_for_a_port(
    tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / f"extentflow-ports-{os.getuid()}").symlink_to(tmp_path / "elsewhere")

    with golden.raises(
        ServiceFailed,
    ):
        ports.free_run(1, random.Random(1))


class AlwaysAt(random.Random):
    """Dice that choose one port."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def choice(self, seq: Any) -> Any:  # noqa: ANN401 - any sequence's
        assert self._port in seq
        return self._port
