"""The ACLs that docs/deploy.md tells people to set are enough for all that a worker does."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from tests.contracts.sink import EXACTLY_ONCE, PROGRESS, lines, values_of
from tests.support.secured import QUICK, Secured, secured_stack

from extentflow.kafka import JOBS_TOPIC
from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.reading import read_committed

pytestmark = pytest.mark.secured

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_stack(tmp_path_factory.mktemp("documented")) as opened:
        yield opened


def documented(user: str, topic: str) -> Iterator[AclBinding]:
    """Yield what the page's table wants, for an application called as its user."""
    kinds = {
        "Topic": ResourceType.TOPIC,
        "Group": ResourceType.GROUP,
        "TransactionalId": ResourceType.TRANSACTIONAL_ID,
    }
    for kind, said, allowed in re.findall(r"^\| (\w+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE):
        if kind not in kinds:
            continue
        pattern, names = ResourcePatternType.LITERAL, re.findall(r"`(.+)`", said) or [topic]
        if said.startswith("prefix"):
            pattern, names = ResourcePatternType.PREFIXED, [f"{user}."]
        for word in re.findall(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*", allowed):
            operation = AclOperation[re.sub("(?<!^)(?=[A-Z])", "_", word).upper()]
            allow = (f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            yield AclBinding(kinds[kind], names[0], pattern, *allow)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_documented_acls_are_enough(secured: Secured, *, exactly_once: bool) -> None:
    user, topic = f"documented-{exactly_once}", secured.topic(f"documented-{exactly_once}")
    secured.user(user)
    for created in secured.admin.create_acls(list(documented(user, topic))).values():
        created.result(timeout=60)
    broker = KafkaBroker(secured.settings(user), timeouts=replace(QUICK, topic_seconds=20))

    secured.broker("app").ensure_progress_topic()
    assert broker.cluster
    broker.ensure_progress_topic()
    broker.topics([topic])
    fence = broker.fence(f"{user}.slot-1", replace(EXACTLY_ONCE, exactly_once=exactly_once))
    assert fence.read() is None
    fence.mark(PROGRESS)
    sink = fence.open()
    sink.send(lines(topic, b"a"))
    sink.commit(PROGRESS)
    sink.close()
    job_events = broker.open_job_events()
    job_events.send(lines(JOBS_TOPIC, b"ended", keys=pa.array([b"job"], pa.binary())))
    job_events.commit(PROGRESS)
    job_events.close()

    (batch,) = read_committed(secured.settings("app"), topic, timeouts=QUICK)
    assert values_of(batch) == [b"a"]
    (batch,) = broker.read_from(
        topic, {0: 0}, end=broker.end_offsets(topic), group=f"{user}.ledger.deadletters.reader"
    )
    assert values_of(batch) == [b"a"]
