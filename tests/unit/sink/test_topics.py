"""What a topic's settings come to."""

import pytest

from extentflow.sink.topics import is_compacted


@pytest.mark.parametrize(
    ("policy", "compacted"),
    [
        ("delete", False),
        ("compact", True),
        ("compact,delete", True),
        ("delete, compact", True),
        ("", False),
    ],
)
def test_a_topic_that_deletes_as_well_is_compacted_too(policy: str, *, compacted: bool) -> None:
    assert is_compacted(policy) == compacted
