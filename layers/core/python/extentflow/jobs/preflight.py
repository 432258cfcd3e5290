"""The prerequisites of a run, checked together and reported in one line each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from extentflow.config.connector import NOTHING_FOUND, ConnectorConfig
from extentflow.errors import LedgerUnavailable, Misconfigured, UnsupportedFormat
from extentflow.kafka.settings import too_narrow
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import Content, ObjectVersion

if TYPE_CHECKING:
    from extentflow.kafka.topic_admin import TopicFacts  # imports the Kafka client

log = logging.getLogger(__name__)

SHOWN_OBJECTS = 20
CACHE_SECONDS = 5.0


class Cluster(Protocol):
    """The calls to Kafka that checks make; both raise Misconfigured with every problem."""

    def ensure_progress_topic(self) -> None:
        """Create the progress topic where it is missing."""

    def topics(self, names: Sequence[str]) -> Sequence[TopicFacts]:
        """Return facts of topics, in that order."""


def require_running(ledger: Ledger, connector: str) -> None:
    """Raise where a person paused or stopped the connector."""
    if reason := skip_reason(ledger, connector):
        raise Misconfigured(reason)


def skip_reason(ledger: Ledger, connector: str) -> str:
    """Return that the connector is paused or stopped and how to resume it, "" where it runs."""
    return explain_skip(connector, ledger.connectors.state(connector))


def check(
    config: ConnectorConfig,
    cluster: Cluster,
    versions: Iterable[ObjectVersion],
    recognised: Callable[[ObjectVersion], Content] = lambda _version: NOTHING_FOUND,
) -> None:
    """Raise when a run over `versions` could deliver none of them.

    `recognised` returns what an object's content shows, where that decides.
    Where only some objects have no format or topic, the run reports these and delivers the rest.
    Raises SinkUnavailable, or Misconfigured with each missing or unusable thing in a line.
    """
    wanted: dict[str, None] = {}
    problems: list[str] = []
    for version in versions:
        try:
            topic = route(config, version, recognised)
            wanted |= dict.fromkeys(config.written_topics(topic))
        except (Misconfigured, UnsupportedFormat) as exc:
            problems.append(str(exc))
    rest = len(problems) - SHOWN_OBJECTS
    if wanted:
        problems = []
    elif rest > 0:
        problems[SHOWN_OBJECTS:] = [f"and {rest} more objects like these"]
    topics = partial(check_topics, config, cluster, wanted)
    for check_one in (cluster.ensure_progress_topic, topics):
        try:
            check_one()
        except Misconfigured as exc:
            problems.extend(exc.problems)
    if problems:
        raise Misconfigured(problems)


def route(
    config: ConnectorConfig,
    version: ObjectVersion,
    recognised: Callable[[ObjectVersion], Content],
) -> str:
    """Return the topic of an object, having checked its format; see `ConnectorConfig.route`."""
    # Most objects need no request.
    with suppress(UnsupportedFormat):
        return config.route(version)
    return config.route(version, recognised(version))


def records_refused(config: ConnectorConfig, topic: TopicFacts) -> str | None:
    """Return why the connector's records cannot be written to `topic`, with the remedy."""
    if topic.compacted and config.columnar:
        return (
            f"topic {topic.name} is compacted, so that it takes only records with keys, and a"
            " columnar value holds rows of many keys; set cleanup.policy=delete on the topic,"
            " or name another"
        )
    if topic.compacted and not config.keyed:
        return (
            f"topic {topic.name} is compacted, so that it takes only records with keys, and "
            f"connector {config.name} gives its records none; set message.key, set "
            "cleanup.policy=delete on the topic, or name another topic"
        )
    return too_narrow(topic.name, topic.max_message_bytes)


def dead_letters_refused(queue: TopicFacts) -> str | None:
    """Return why dead letters cannot be written to `queue`, with the remedy."""
    if not queue.compacted:
        return too_narrow(queue.name, queue.max_message_bytes)
    return (
        f"errors.deadletterqueue.topic.name={queue.name}: the topic is compacted, so that it takes "
        "only records with keys, and dead letters have none; name another topic, or set "
        "cleanup.policy=delete on this one"
    )


def check_topics(
    config: ConnectorConfig, cluster: Cluster, wanted: Iterable[str], missing: Sequence[str] = ()
) -> None:
    """Raise what is wrong with the topics `wanted` by objects and with the dead letter queue.

    Those that are known to be `missing`, and are created, are left out.
    """
    wanted, queue = dict.fromkeys(wanted), config.dead_letter_topic
    names = wanted if queue is None else {queue: None, **wanted}
    topics = cluster.topics([name for name in names if name not in missing])
    require_accepting(config, topics, wanted)


def require_accepting(
    config: ConnectorConfig, topics: Iterable[TopicFacts], wanted: Container[str]
) -> None:
    """Raise why topics do not take what a run writes: records to those `wanted`, dead letters."""
    found: list[str | None] = []
    for topic in topics:
        found.append(records_refused(config, topic) if topic.name in wanted else None)
        is_queue = topic.name == config.dead_letter_topic
        found.append(dead_letters_refused(topic) if is_queue else None)
    if problems := [problem for problem in found if problem]:
        raise Misconfigured(problems)


@dataclass(frozen=True, slots=True)
class ConnectorStateCache:
    """Connector states of one process, read at most every CACHE_SECONDS. Safe from any thread."""

    ledger: Ledger
    monotonic: Callable[[], float]
    _cached: dict[str, tuple[float, ConnectorState]] = field(default_factory=dict)

    def state(self, connector: str) -> ConnectorState:
        """Return the state; ENABLED while the ledger is unavailable, which pauses no connector."""
        read_at, state = self._cached.get(connector, (float("-inf"), ConnectorState.ENABLED))
        now = self.monotonic()
        if now - read_at < CACHE_SECONDS:
            return state
        try:
            state = self.ledger.connectors.state(connector)
        except LedgerUnavailable as exc:
            log.warning("connector %s: state unknown, ENABLED is assumed: %s", connector, exc)
            state = ConnectorState.ENABLED
        self._cached[connector] = (now, state)
        return state

    def skip_reason(self, connector: str) -> str:
        """Return why extents of the connector must not start, and the remedy; "" if they may."""
        return explain_skip(connector, self.state(connector))


def explain_skip(connector: str, state: ConnectorState) -> str:
    """Return that a connector is paused or stopped and how to resume it; "" if it is enabled."""
    if state is ConnectorState.ENABLED:
        return ""
    return f"connector {connector} is {state}; continue it with `extentflow resume {connector}`"
