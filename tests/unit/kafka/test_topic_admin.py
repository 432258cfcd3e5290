"""Which topics a reader may mean, and which offsets brokers state."""

from typing import Any, NamedTuple, Self

import pytest
from confluent_kafka import TopicPartition
from tests.unit.kafka.scripted import timeouts

from extentflow.kafka import topic_admin
from extentflow.kafka.topic_admin import similar


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        (["og.rest", "other", "og.prices"], "there are topics og.prices, og.rest"),
        (["og.rest", "ogg"], "there is topic og.rest"),
        ([f"og.{n}" for n in range(7)], "there are topics og.0, og.1, og.2, og.3, og.4 and 2 more"),
        (["ogg", "__og"], "did you mean ogg?"),
        (["payments"], "correct its name"),
        ([], "correct its name"),
    ],
)
def test_topics_of_column_groups_or_a_near_name_are_named(names: list[str], remedy: str) -> None:
    assert similar("og", names) == remedy


def test_offsets_are_asked_for_again_until_brokers_state_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While leaders change, the client may answer -1001 (no offset) without an error."""
    answers = [(7, -1001), (7, 5), (9, 9)]

    class Scripted:
        def __init__(self, _settings: object) -> None: ...

        def poll(self, _seconds: float) -> int:
            return 0

        def list_offsets(self, places: list[TopicPartition], **_: object) -> dict[Any, Any]:
            found = answers.pop(0)
            return {at: Answered(offset) for at, offset in zip(places, found, strict=True)}

    class Answered(NamedTuple):
        offset: int

        def result(self) -> Self:
            return self

    monkeypatch.setattr(topic_admin, "AdminClient", Scripted)

    with topic_admin.Admin({"bootstrap.servers": "127.0.0.1:1"}, timeouts()) as admin:
        found = admin.bounds_of([("a", 0), ("a", 1)])

    assert found == {("a", 0): (7, 9), ("a", 1): (5, 9)}
