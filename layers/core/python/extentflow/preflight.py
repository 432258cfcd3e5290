"""What must be there before a run starts, checked at once and named in one line each.

Owns: the checks before a run. Refuses to know: how a doctor explains them in full.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from extentflow.connectors import ConnectorConfig
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.model import ObjectVersion

SHOWN_OBJECTS = 20


class Cluster(Protocol):
    """What a check needs of Kafka; both raise Misconfigured with every problem."""

    def ensure_progress_topic(self) -> None:
        """Create the progress topic where it is missing."""
        ...

    def topics(self, names: Sequence[str]) -> object:
        """Return facts of topics."""
        ...


def check(config: ConnectorConfig, cluster: Cluster, versions: Iterable[ObjectVersion]) -> None:
    """Raise when a run over `versions` could not deliver one of them, or none.

    Raises:
        Misconfigured: every missing or unusable thing, one line each.
        SinkUnavailable: the broker does not answer.
    """
    wanted = {} if config.dead_letter_topic is None else {config.dead_letter_topic: None}
    problems = list(_unusable(config, versions, wanted))
    if len(problems) > SHOWN_OBJECTS:
        rest = len(problems) - SHOWN_OBJECTS
        problems = [*islice(problems, SHOWN_OBJECTS), f"and {rest} more objects like these"]
    _try(problems, cluster.ensure_progress_topic)
    _try(problems, lambda: cluster.topics(list(wanted)))
    if problems:
        raise Misconfigured(problems)


def _unusable(
    config: ConnectorConfig, versions: Iterable[ObjectVersion], wanted: dict[str, None]
) -> Iterator[str]:
    """Yield what is wrong with objects by their names; note the topics of the others."""
    for version in versions:
        try:
            config.format_for(version.key)
            config.compression_for(version.key)
            wanted[config.topic_for(version)] = None
        except (Misconfigured, UnsupportedFormat) as exc:
            yield str(exc)


def _try(problems: list[str], check_one: Callable[[], object]) -> None:
    try:
        check_one()
    except Misconfigured as exc:
        problems.extend(exc.problems)
