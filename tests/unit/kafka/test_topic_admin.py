"""Which topics a reader may mean."""

import pytest

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
