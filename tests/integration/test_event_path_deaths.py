"""Whatever dies, freezes or comes twice on the event path: every record arrives exactly once."""

from collections.abc import Iterator

import pytest
from tests.support.delivery import joined, numbered_lines
from tests.support.eventpath import Ending, EventPath, Ground


@pytest.fixture(scope="module")
def path(ground: Ground) -> Iterator[EventPath]:
    with ground.open() as path:
        yield path


def test_uploads_become_records(path: EventPath) -> None:
    lines = numbered_lines("line-", 20_000)
    feed = path.feed()

    feed.upload("lines.txt", joined(lines))

    assert feed.ending(lines) == Ending(records=len(lines))
