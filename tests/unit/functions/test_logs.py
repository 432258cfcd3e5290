"""What the library logs is written on Lambda, whichever function it runs in."""

import logging
import re
from pathlib import Path

import pytest
from aws_lambda_powertools.logging.filters import SuppressFilter

import extentflow

LIBRARY = Path(extentflow.__file__).parent
LOGGER = re.compile(r"logging\.getLogger\((?:(__name__)|\"([^\"]+)\")\)")


def loggers() -> list[str]:
    """The names of the library's loggers."""
    found = []
    for path in LIBRARY.rglob("*.py"):
        module = ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts)
        found += [module if own else name for own, name in LOGGER.findall(path.read_text())]
    return found


@pytest.mark.parametrize("function", ["planner", "receiver", "reconciler", "worker"])
def test_powertools_drops_nothing_that_the_library_logs(function: str) -> None:
    written = SuppressFilter(function)

    records = [logging.makeLogRecord({"name": name}) for name in loggers()]

    assert len(records) > 10
    assert not [record.name for record in records if not written.filter(record)]
