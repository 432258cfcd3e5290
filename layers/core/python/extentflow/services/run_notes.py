"""The texts of a run's notifications: one line each, about what is no error.

Tests: unit/services/test_runs.py, unit/cli/test_run_commands.py
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE, NONE
from extentflow.jobs.addresses import KeyScope
from extentflow.jobs.run import JobReport
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.model import Job
from extentflow.wording import again_command, counted

# Files that only tables have, and their kind.
_TABLES = (
    (re.compile(r"(.*/)?_delta_log/"), "Delta Lake"),
    (re.compile(r"(.*/)?\.hoodie(/|_partition_metadata\Z)"), "Hudi"),
    (re.compile(r"(.*/)?metadata/[^/]+\.metadata\.json\Z"), "Iceberg"),
)
TWICE = "(records already delivered are delivered twice)"


def describe_hidden(scope: KeyScope, hidden: Collection[str]) -> str:
    """Describe keys that a listing leaves out."""
    return (
        f"left out, because a name begins with _ or .: {counted(len(hidden), 'object')}, as"
        f" {scope.uri(min(hidden))}; give an object's own address to deliver it"
    )


def describe_links(scope: KeyScope, links: Collection[str], problem: str) -> str:
    """Describe names of files that a listing has under another name, or that have a problem."""
    if problem:
        return f"left out: {counted(len(links), 'name')}, as {scope.uri(min(links))}: {problem}"
    return (
        "left out, because they are links to files that are listed themselves:"
        f" {counted(len(links), 'name')}, as {scope.uri(min(links))}"
    )


def describe_names(others: Mapping[str, str]) -> str:
    """Describe files that are delivered although they are under another name, too."""
    uri, other = next(iter(others.items()))
    return (
        f"{counted(len(others), 'file')} delivered under another name, too: {uri} is the same file"
        f" as {other}; its records are in the topic once for each name"
    )


def is_of_table(key: str) -> bool:
    """Return whether a key is that of a file which only tables of Delta, Hudi or Iceberg have."""
    return any(pattern.match(key) for pattern, _ in _TABLES)


def describe_table(scope: KeyScope, key: str) -> str:
    """Describe what the files of a table hold; `key` is one for which `is_of_table` is true."""
    kind = next(kind for pattern, kind in _TABLES if pattern.match(key))
    return (
        f"{scope.uri(key)} is part of a table of {kind}: files whose rows it deleted or"
        " replaced are delivered, too; export the table's current rows, and deliver those"
    )


def describe_formats(found: Mapping[tuple[str, str], Counter[str]]) -> Iterator[str]:
    """Describe the formats of objects, and what decides them; `found` counts objects by folder."""
    for (name, source), folders in sorted(found.items(), key=lambda one: -one[1].total()):
        where = f" in {len(folders):,} folders" if len(folders) > 1 else ""
        yield f"format {name}, by {source}: {counted(folders.total(), 'object')}{where}"


def describe_array(uri: str) -> str:
    """Describe an object of JSON lines whose first line is an array."""
    return (
        f"the first line of {uri} is a JSON array, and each line stays one record; with"
        " input.format=json each element becomes one"
    )


def describe_refused() -> str:
    """Describe what a job that exists needs where the brokers refuse transactions."""
    return (
        "a job that exists keeps its guarantee: with delivery.guarantee=at_least_once, give --again"
        " as well"
    )


def describe_topic(facts: TopicFacts, *, created: bool) -> str:
    """Describe a topic that a run created, or that exists although its creation was asked for."""
    many = f"{facts.partitions} partition{'' if facts.partitions == 1 else 's'}"
    if created:
        return f"created topic {facts.name} with {many}"
    return f"topic {facts.name} exists, with {many}; --create-topic does not change it"


def describe_changed(config: ConnectorConfig, jobs: Collection[Job]) -> str:
    """Describe objects of which these jobs delivered an earlier version."""
    job = next(iter(jobs))
    files = (
        ", as is a file with another modification time"
        if config.endpoint_type == LOCAL_FILE
        else ""
    )
    return (
        f"changed since delivery: {counted(len(jobs), 'object')}, as {job.version.uri}"
        f" (job {job.id}); the new version is delivered in full{files}"
    )


def describe_outside(config: ConnectorConfig, outside: Mapping[str, str]) -> str:
    """Describe open jobs, with the addresses of their objects, that the connector reads no more."""
    name, (job_id, uri) = config.name, next(iter(outside.items()))
    return (
        f"{counted(len(outside), 'job')} of connector {name} left open, whose objects are not below"
        f" {KeyScope.of(config).source} any more, as {uri}: job {job_id}; `extentflow replay JOB`"
        f" continues one. `extentflow stop {name}` cancels all open jobs; then"
        f" `extentflow resume {name}` lets the connector run again"
    )


def describe_earlier(count: int) -> str:
    """Describe open jobs of versions that are not current any more."""
    return (
        f"{counted(count, 'job')} of earlier runs included, whose objects were replaced or deleted"
        " since: one is continued if its version still exists, and ends if not"
    )


def describe_nothing(config: ConnectorConfig) -> str:
    """Describe a run that finds no object."""
    return f"there is nothing to deliver below {KeyScope.of(config).source}"


def describe_nothing_failed(config: ConnectorConfig) -> str:
    """Describe a run of only failed objects that finds none."""
    return (
        f"there is nothing left to deliver: below {KeyScope.of(config).source} is no object whose"
        f" job of connector {config.name} FAILED, is CANCELLED or SUPERSEDED, and that was not"
        " delivered since"
    )


def describe_delivered(jobs: Sequence[JobReport], *, again: bool) -> Iterator[str]:
    """Describe the objects of a run that were delivered before; `again`: in its own delivery."""
    count = sum(job.delivered_before for job in jobs)
    if count and again:
        yield (
            f"skipped, because the resumed delivery has them already: {count:,} of"
            f" {counted(len(jobs), 'object')}; once it is complete, the same command begins another"
        )
    elif count:
        yield (
            f"delivered before and skipped: {count:,} of {counted(len(jobs), 'object')};"
            " --again delivers them a second time"
        )


def describe_lost(topic: str, count: int, *, again: bool) -> str:
    """Describe objects whose records a topic took that is gone; `again`: there is a new one."""
    were = f"{counted(count, 'object')} of these {'was' if count == 1 else 'were'} delivered to it"
    if not again:
        return (
            f"topic {topic} does not exist any more since {were}: --again delivers them, with"
            " --create-topic partitions=N if it has to be created"
        )
    return (
        f"topic {topic} was created again since {were}: it lacks their records, unless another run"
        " delivered them since, and --again delivers them"
    )


def describe_bad_records(config: ConnectorConfig, jobs: Sequence[JobReport]) -> Iterator[str]:
    """Describe where the bad records of a run are that the connector tolerates."""
    bad = sum(job.bad for job in jobs if not job.delivered_before)
    if config.dead_letter_topic is not None and bad:
        yield (
            f"{counted(bad, 'bad record')} sent to topic {config.dead_letter_topic}: `extentflow"
            f" dead-letters -c {config.name}` shows them"
        )


def describe_older(older: Sequence[JobReport], latest: int) -> str:
    """Describe jobs that pin an earlier revision of their connector than its latest."""
    job, more = older[0], len(older) - 1
    have = "object has" if more == 1 else "objects have"
    others = f" (and {more:,} more {have} an earlier one)" if more else ""
    return (
        f"{job.uri}: job {job.job} uses revision {job.revision} of connector "
        f"{job.connector}, whose latest is {latest}{others}; the same command with --again"
        f" delivers in full under that {TWICE}"
    )


def describe_other_connectors(config: ConnectorConfig, jobs: Sequence[JobReport]) -> Iterator[str]:
    """Describe the jobs of a run that other connectors of its topic began."""
    others = Counter(job.connector for job in jobs if job.connector != config.name)
    action = f"after.completion={config.after_completion}"
    without = "" if config.after_completion == NONE else f", and {action} is not applied"
    for name, count in others.items():
        yield (
            f"job of connector {name}, which delivers into the same topic: {count:,} of"
            f" {counted(len(jobs), 'object')}; no second one is begun{without}"
        )


def describe_value_topics(job: Job) -> str:
    """Describe a connector of which it is not known which records reached the topic."""
    return (
        f"connector {job.connector} delivered {job.version.uri}, and values of the records choose"
        " the topics: which records are in this topic is not known, so that they are delivered"
    )


def describe_other_settings(count: int, of: int) -> str:
    """Describe the objects of a run whose jobs pin other settings than the command's."""
    return (
        f"job with other settings than these: {count:,} of {counted(of, 'object')}; --again"
        f" delivers them in full with these {TWICE}"
    )


def describe_second_delivery(since: float) -> str:
    """Describe an interrupted second delivery, which a run resumes."""
    began = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
    return f"resuming the second delivery, begun at {began} and interrupted"


def describe_done(job: Job, *, stored: bool) -> str:
    """Describe a job of which nothing is left to replay; `stored`: `-c` finds its connector."""
    run = again_command(job.version.address, job.connector)
    command = run if stored else "the same `run ADDRESS --topic` command with --again"
    return (
        f"job {job.id} is DONE, there is nothing to replay; {command} delivers its object a second"
        " time"
    )


def describe_no_replay(connector: str) -> str:
    """Describe a connector without a job to replay."""
    return f"connector {connector} has no job to replay"


def describe_pinned(jobs: Sequence[Job], *, topic: str, latest: int, stored: bool) -> str:
    """Describe jobs of one earlier revision before they are replayed, and where it delivers.

    `stored`: `-c` finds the connector.
    """
    job = jobs[0]
    run = f"`extentflow run -c {job.connector} --failed`"
    failed = run if stored else "the same `run ADDRESS --topic` command with --failed"
    return (
        f"{counted(len(jobs), 'job')} of revision {job.revision} of connector {job.connector},"
        f" to topic {topic}; the latest is {latest}, under which {failed} delivers their objects"
        " in full"
    )


def describe_followed(count: int) -> str:
    """Describe jobs that are not replayed, because another generation delivers the object."""
    return (
        f"{counted(count, 'job')} left out, because the object was delivered again since; "
        "`extentflow replay JOB --accept-duplicates` replays one all the same"
    )


def describe_in_work(connector: str, count: int) -> str:
    """Describe open jobs that are not replayed, because something delivers their connector now."""
    return (
        f"{counted(count, 'open job')} left out, because a worker delivers connector {connector}"
        " now; where its command was killed, repeat this one after `lease.seconds`"
    )


def describe_replaced(count: int) -> str:
    """Describe jobs that are not replayed, because their version of the object is gone."""
    return (
        f"{counted(count, 'job')} left out, because a later version of the object"
        " was delivered since"
    )
