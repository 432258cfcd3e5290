"""The checks before a run: everything that is missing, at once, before anything is registered."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.support.golden import Golden

from extentflow.config.column_lists import MessageKey
from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.jobs import preflight
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.model import ObjectVersion

USUAL_LIMIT = 1_048_588


@dataclass
class Cluster:
    """A cluster with some topics, all of them alike."""

    known: frozenset[str] = frozenset({"records", "dead"})
    compacted: frozenset[str] = frozenset()
    max_message_bytes: int = USUAL_LIMIT
    progress_problem: str = ""
    unavailable: bool = False
    asked: list[str] = field(default_factory=list)

    def ensure_progress_topic(self) -> None:
        if self.unavailable:
            raise SinkUnavailable("no broker answers")
        if self.progress_problem:
            raise Misconfigured(self.progress_problem)

    def topics(self, names: Sequence[str]) -> list[TopicFacts]:
        self.asked += names
        if missing := [name for name in names if name not in self.known]:
            raise Misconfigured([f"topic {name} does not exist" for name in missing])
        return [
            TopicFacts(name, 1, self.max_message_bytes, compacted=name in self.compacted)
            for name in names
        ]


def config(**changes: object) -> ConnectorConfig:
    given: dict[str, object] = {"name": "c", "topic": "records", "s3_bucket": "b", **changes}
    return ConnectorConfig(**given)  # type: ignore[arg-type]


def objects(*keys: str) -> list[ObjectVersion]:
    return [ObjectVersion("b", key, None, "etag", 1) for key in keys]


def problems(
    cluster: Cluster, configured: ConnectorConfig, versions: list[ObjectVersion]
) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        preflight.check(configured, cluster, versions)
    return caught.value.problems


def test_a_run_that_can_deliver_passes_and_each_topic_is_asked_for_once() -> None:
    cluster = Cluster()

    preflight.check(config(dead_letter_topic="dead"), cluster, objects("a.csv", "b.csv"))

    assert sorted(cluster.asked) == ["dead", "records"]


def test_every_missing_topic_is_named_at_once() -> None:
    found = problems(
        Cluster(frozenset(), progress_problem="no progress topic"),
        config(topic="t-{extension}", dead_letter_topic="dead"),
        objects("a.csv", "b.txt"),
    )

    assert set(found) == {
        "no progress topic",
        "topic dead does not exist",
        "topic t-csv does not exist",
        "topic t-txt does not exist",
    }


def test_objects_of_unknown_format_are_named_before_anything_starts(golden: Golden) -> None:
    found = problems(Cluster(), config(), objects("b.unknown", "c"))

    assert len(found) == 2
    golden(found[0])
    assert "s3://b/b.unknown" in found[0]
    golden(found[1])
    assert "s3://b/c" in found[1]


def test_an_object_of_unknown_format_blocks_no_other() -> None:
    preflight.check(config(), Cluster(), objects("a.csv", "b.unknown", "c"))


def test_an_object_whose_topic_cannot_be_is_named() -> None:
    found = problems(Cluster(), config(topic="t-{key}"), objects("a b.csv"))

    assert len(found) == 1
    assert "s3://b/a b.csv" in found[0]


def test_a_compression_that_cannot_be_is_named(golden: Golden) -> None:
    found = problems(Cluster(), config(format="parquet"), objects("a.parquet.gz"))

    golden(found[0])
    assert "s3://b/a.parquet.gz" in found[0]


def test_many_objects_of_one_kind_do_not_fill_the_screen() -> None:
    found = problems(Cluster(), config(), objects(*(f"{n}.unknown" for n in range(1_000))))

    assert len(found) == preflight.SHOWN_OBJECTS + 1
    assert found[-1] == "and 980 more objects like these"


def test_a_broker_that_is_unavailable_is_not_taken_for_a_mistake() -> None:
    with pytest.raises(SinkUnavailable):
        preflight.check(config(), Cluster(unavailable=True), objects("a.csv"))


# -- topics that would refuse records -------------------------------------------------------------


def test_a_compacted_topic_is_rejected_where_records_have_no_key() -> None:
    (found,) = problems(Cluster(compacted=frozenset({"records"})), config(), objects("a.csv"))

    assert found.startswith("topic records is compacted")
    assert "connector c gives its records none" in found
    assert "set message.key" in found
    assert "cleanup.policy=delete" in found


@pytest.mark.parametrize("key", [MessageKey("object"), MessageKey("column", ("id",))])
def test_a_compacted_topic_takes_records_with_keys(key: MessageKey) -> None:
    cluster = Cluster(compacted=frozenset({"records"}))

    preflight.check(config(message_key=key), cluster, objects("a.csv"))

    assert cluster.asked == ["records"]


def test_a_compacted_dead_letter_topic_is_rejected_for_any_key() -> None:
    (found,) = problems(
        Cluster(compacted=frozenset({"dead"})),
        config(message_key=MessageKey("object"), errors_tolerance="all", dead_letter_topic="dead"),
        objects("a.csv"),
    )

    assert found.startswith("errors.deadletterqueue.topic.name=dead: ")
    assert "compacted" in found
    assert "name another topic" in found


def test_every_compacted_topic_is_named_beside_everything_else() -> None:
    found = problems(
        Cluster(frozenset({"t-csv", "t-txt", "dead"}), compacted=frozenset({"t-csv", "dead"})),
        config(topic="t-{extension}", errors_tolerance="all", dead_letter_topic="dead"),
        objects("a.csv", "b.txt"),
    )

    assert len(found) == 2
    assert found[0].startswith("errors.deadletterqueue.topic.name=dead: ")
    assert found[1].startswith("topic t-csv is compacted")


def test_a_topic_that_takes_hardly_anything_is_named(golden: Golden) -> None:
    cluster = Cluster(frozenset({"records"}), max_message_bytes=200)

    (found,) = problems(cluster, config(), objects("a.csv"))

    golden(found)
    assert "topic records" in found
    assert "raise it to 1061 or more" in found


def test_a_dead_letter_queue_that_takes_hardly_anything_is_named(golden: Golden) -> None:
    queue = TopicFacts("dead", 1, 150)

    found = preflight.dead_letters_refused(queue)

    assert found is not None
    golden(found)
    assert "topic dead" in found
