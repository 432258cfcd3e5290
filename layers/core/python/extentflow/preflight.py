"""What must be there before a run starts, checked at once and named in one line each.

Owns: the checks before a run. Refuses to know: how a doctor explains them in full.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from extentflow.connectors import ConnectorConfig
from extentflow.errors import Misconfigured


class Cluster(Protocol):
    """What a check needs of Kafka; both raise Misconfigured with every problem."""

    def ensure_progress_topic(self) -> None:
        """Create the progress topic where it is missing."""
        ...

    def topics(self, names: Sequence[str]) -> object:
        """Return facts of topics."""
        ...


def check(config: ConnectorConfig, cluster: Cluster, topics: Iterable[str]) -> None:
    """Raise when a run into `topics` could not deliver anything.

    Raises:
        Misconfigured: every missing or unusable thing, one line each.
        SinkUnavailable: the broker does not answer.
    """
    wanted = dict.fromkeys(topics)
    if config.dead_letter_topic is not None:
        wanted[config.dead_letter_topic] = None
    problems: list[str] = []
    _try(problems, cluster.ensure_progress_topic)
    _try(problems, lambda: cluster.topics(list(wanted)))
    if problems:
        raise Misconfigured(problems)


def _try(problems: list[str], check_one: Callable[[], object]) -> None:
    try:
        check_one()
    except Misconfigured as exc:
        problems.extend(exc.problems)
