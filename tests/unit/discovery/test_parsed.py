"""Parsed notifications are added up, errors travel."""

import pickle

from tests.support.golden import Golden

from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.notifications import (
    EXCERPT_CHARACTERS,
    ParsedNotification,
    UnparseableNotification,
)

ONE, TWO = (Arrival("shop", key, Dialect.AWS) for key in ("1", "2"))


def test_news_of_parts_keeps_their_order() -> None:
    odd = UnparseableNotification("odd", "{}")
    parts = [
        ParsedNotification((ONE,), ignored=("a",)),
        ParsedNotification(tests=("t",)),
        ParsedNotification((TWO,), unparseable=(odd,)),
    ]

    assert ParsedNotification.merged(parts) == ParsedNotification(
        (ONE, TWO), ("a",), ("t",), (odd,)
    )
    assert ParsedNotification.merged([]) == ParsedNotification()


def test_an_error_survives_a_process_boundary() -> None:
    again = pickle.loads(pickle.dumps(UnparseableNotification("odd", "the document")))  # noqa: S301 - our own

    assert (again.why, again.document) == ("odd", "the document")


def test_an_error_shows_how_the_document_begins_on_one_line(golden: Golden) -> None:
    said = str(UnparseableNotification("odd", "line\n" * 1_000))

    golden(said)
    assert "'line\\nline\\n" in said
    assert "\n" not in said
    assert len(said) < 2 * EXCERPT_CHARACTERS + 200
