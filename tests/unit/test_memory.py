"""A worker's peak memory is its own, and told wherever it runs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from extentflow.memory import peak_rss_bytes

MEBIBYTE = 1 << 20
ASK = "from extentflow.memory import peak_rss_bytes; print(peak_rss_bytes())"


def test_a_peak_stays_when_the_memory_is_given_back() -> None:
    before = peak_rss_bytes()
    np.ones(before + 64 * MEBIBYTE, np.uint8)

    assert peak_rss_bytes() >= before + 64 * MEBIBYTE


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only getrusage tells")
def test_a_process_that_was_started_by_a_large_one_is_not_as_large() -> None:
    large = np.ones(512 * MEBIBYTE, np.uint8)

    # Forked, as a worker's parent does it, so that the child begins as its parent.
    told = subprocess.run(
        [sys.executable, "-c", ASK],
        stdout=subprocess.PIPE,
        check=True,
        preexec_fn=lambda: None,  # which makes it a fork
    ).stdout

    assert int(told) < large.nbytes


@pytest.mark.parametrize("text", [None, "Name:\tpython\n"])
def test_without_linuxs_figure_getrusage_tells(tmp_path: Path, text: str | None) -> None:
    status = tmp_path / "status"
    if text is not None:
        status.write_text(text)

    assert peak_rss_bytes(status) > 10 * MEBIBYTE
