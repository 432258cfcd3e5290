"""Bodies on the queue fit it and lose nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.unit.discovery.posting import GRID, notification

from extentflow.discovery import documents
from extentflow.discovery.notifications import parse_notification
from extentflow.queue import UNSENDABLE


@given(st.binary(), st.none() | st.just(GRID))
def test_any_bytes_are_the_same_after_the_queue(document: bytes, endpoint: str | None) -> None:
    body = documents.wrapped(document, endpoint)

    assert body.isascii()
    assert body.isprintable()
    assert documents.unwrapped(json.loads(body)) == (document, endpoint)


@pytest.mark.parametrize("character", ["\x00", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_characters_that_sqs_rejects_are_recognised(character: str) -> None:
    assert UNSENDABLE.search(f"a{character}")


@pytest.mark.parametrize("text", ["", "\t\n\r ~\x7f", "\ud7ff\ue000\ufffd", "\U00010000\U0010ffff"])
def test_characters_that_sqs_takes_are_known(text: str) -> None:
    assert not UNSENDABLE.search(text)


def test_what_fits_is_one_message() -> None:
    document = notification("a", "b").encode()
    whole = documents.wrapped(document, GRID)

    assert documents.bodies(document, GRID, limit=len(whole)) == [whole]


@given(st.integers(2, 40), st.integers(700, 4_000))
def test_parts_fit_and_keep_the_order(count: int, limit: int) -> None:
    names = [f"in/{n}" for n in range(count)]

    bodies = documents.bodies(notification(*names).encode(), GRID, limit=limit)

    assert all(len(body) <= limit for body in bodies)
    assert [one.key for body in bodies for one in parse_notification(body).arrivals] == names


def test_two_entries_that_do_not_fit_together_go_apart() -> None:
    names = ["a" * 500, "b" * 500]

    bodies = documents.bodies(notification(*names).encode(), GRID, limit=1_000)

    assert [[one.key for one in parse_notification(body).arrivals] for body in bodies] == [
        [n] for n in names
    ]


def test_what_stands_beside_the_entries_goes_with_every_part() -> None:
    document = {**json.loads(notification(*"abcd")), "note": "☃"}

    bodies = documents.bodies(json.dumps(document).encode(), None, limit=700)

    assert len(bodies) > 1
    assert {json.loads(documents.unwrapped(json.loads(one))[0])["note"] for one in bodies} == {"☃"}


def test_one_entry_that_does_not_fit_stops_all_of_them(golden: Golden) -> None:
    document = notification("a", "x" * 5_000).encode()

    with golden.raises(documents.TooLarge):
        documents.bodies(document, GRID, limit=2_000)


def test_a_message_leaves_room_below_the_queues_limit() -> None:
    assert documents.MAX_BODY_BYTES < 256 * 1024
