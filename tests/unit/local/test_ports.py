"""Ports on the loopback interface."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from extentflow_local import ports
from extentflow_local.errors import PortTaken

PICK = """
import random
from extentflow_local.ports import free_run
print(free_run(2, random.Random(1)))
"""


@pytest.fixture(autouse=True)
def _own_reservations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(ports, "_picked", set())
    ports._reservations.cache_clear()
    yield
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


def test_where_no_row_is_free_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _port: False)

    with pytest.raises(PortTaken, match="no 3 free ports in a row"):
        ports.free_run(3, random.Random(1))
