"""A worker's peak memory is measured per process on every platform."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from extentflow.delivery import memory
from extentflow.delivery.memory import peak_rss_bytes

MEBIBYTE = 1 << 20
ASK = "from extentflow.delivery.memory import peak_rss_bytes; print(peak_rss_bytes())"


@pytest.mark.long
def test_a_peak_stays_when_the_memory_is_given_back() -> None:
    before = peak_rss_bytes()
    np.ones(before + 64 * MEBIBYTE, np.uint8)

    assert peak_rss_bytes() >= before + 64 * MEBIBYTE


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms have only getrusage")
def test_peak_of_a_child_excludes_its_parents_memory() -> None:
    large = np.ones(512 * MEBIBYTE, np.uint8)

    # Forked, as a worker's parent does it, so that the child begins as its parent.
    output = subprocess.run(
        [sys.executable, "-c", ASK],
        stdout=subprocess.PIPE,
        check=True,
        preexec_fn=lambda: None,  # which makes it a fork
    ).stdout

    assert int(output) < large.nbytes


@pytest.mark.parametrize("text", [None, "Name:\tpython\n"])
def test_peak_comes_from_getrusage_without_linuxs_figure(tmp_path: Path, text: str | None) -> None:
    status = tmp_path / "status"
    if text is not None:
        status.write_text(text)

    assert peak_rss_bytes(status) > 10 * MEBIBYTE


ARENAS = """
import ctypes, sys, threading
from extentflow.delivery.memory import tune_allocator
bounded = tune_allocator() if sys.argv[1] == "bounded" else None
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(12)
def take():
    together.wait()
    libc.malloc(4096)
    together.wait()
threads = [threading.Thread(target=take) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_stats()
print(bounded)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="another C library")
def test_threads_share_bounded_allocator_pools() -> None:
    def arenas(how: str) -> int:
        output = subprocess.run(
            [sys.executable, "-c", ARENAS, how], capture_output=True, text=True, check=True
        )
        assert output.stdout.strip() == ("True" if how == "bounded" else "None")
        return sum(line.startswith("Arena ") for line in output.stderr.splitlines())

    assert arenas("as it is") > arenas("bounded") == memory.ARENAS


REUSE = """
import resource, sys
import numpy as np
from extentflow.delivery.memory import tune_allocator
if sys.argv[1] == "tuned": assert tune_allocator()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(1 << 20, np.uint8)
before = faults()
for size in (3, 1, 2, 3, 1, 3) * 4: np.ones(size << 20, np.uint8)
print(faults() - before)
"""


def huge_pages() -> str:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.read_text() if setting.exists() else ""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="another C library")
@pytest.mark.skipif("[always]" in huge_pages(), reason="few faults either way")
def test_tuned_allocator_reuses_pages_of_freed_columns() -> None:
    def faults(how: str) -> int:
        output = subprocess.run(
            [sys.executable, "-c", REUSE, how],
            env={**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        return int(output)

    # By itself glibc adapts as well, but only when it has given the largest one back once.
    assert faults("tuned") < faults("as it is")


PREPARED = """
import pyarrow as pa
from extentflow.wiring.extents import prepare_process
prepare_process()
array = pa.array(range(100_000)).cast(pa.string())
print(pa.default_memory_pool().backend_name, pa.cpu_count(), pa.total_allocated_bytes() > 400_000)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="another C library")
def test_a_workers_columns_come_from_the_allocator_that_is_tuned() -> None:
    output = subprocess.check_output([sys.executable, "-c", PREPARED], text=True)

    assert output.split() == ["system", "1", "True"]


def test_a_c_library_without_pools_has_none_to_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())

    assert memory.tune_allocator() is False
