"""Settings of every Kafka client: defaults, fixed values, refused keys, IAM tokens, timeouts.

`kafka` are the worker's settings (bootstrap.servers, security); `producer` is a connector's
`producer.*` without its prefix. Which of them a user may set is in `config.kafka_properties`.
"""

import errno
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from extentflow.config.kafka_properties import REFUSED_PRODUCER_PROPERTIES
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.kafka import ProducerSettings
from extentflow.kafka.producer import error_of
from extentflow.retry import RetryPolicy

log = logging.getLogger(__name__)

DEFAULTS = {
    "linger.ms": "50",
    # Five requests in flight hold 2 MB, which brokers that take 0.25 MiB/s accept in less than
    # socket.timeout.ms. A request that times out is sent again, and its bytes are wasted.
    "batch.size": "400000",
    "batch.num.messages": "100000",
    # Both bound the memory of a worker: a queued record costs its bytes and about 200 more.
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "65536",
    "compression.type": "lz4",
    # librdkafka's defaults; `transaction` derives the time to a repeated request from them.
    "retry.backoff.ms": "100",
    "retry.backoff.max.ms": "1000",
    # The partition that Java's default partitioner chooses for a key.
    "partitioner": "murmur2_random",
}

# These send a record without a key to any partition; the others send all of them to one.
_SPREADING = ("random", "consistent_random", "murmur2_random", "fnv1a_random")
# `none`: otherwise an environment thawed after the broker's idle limit stalls for 10-18 s.
# socket.timeout.ms below librdkafka's default of a minute bounds calls that ignore their timeout.
# `false`: an AdminClient is a producer, whose default is true, so that a broker with
# auto.create.topics.enable would create each topic that it is only asked about.
COMMON = {
    "metadata.recovery.strategy": "none",
    "socket.timeout.ms": "10000",
    "allow.auto.create.topics": "false",
}
AUTHORITIES = frozenset({"ssl.ca.location", "https.ca.location"})  # directories, too, or `probe`
FILES = AUTHORITIES | {
    "ssl.certificate.location",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
}
SHARED_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.", "broker.address.", "client.dns.")

# The header of a record batch (61 bytes) counts against a topic's max.message.bytes, but not
# against librdkafka's message.max.bytes, whose minimum is 1000.
BATCH_HEADER_BYTES = 61
LEAST_MESSAGE_BYTES = 1000

SLICE_SECONDS = 2.0  # Python runs signal handlers only between two blocking calls
LEAST_SECONDS = 0.1  # a last attempt of a few milliseconds could only time out
SPACING = RetryPolicy(first_pause_seconds=0.05, longest_pause_seconds=1.0, attempts_block=True)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the sink waits for brokers, per kind of call, in seconds; `retry` spaces attempts.

    `retry.total_seconds` is replaced by the bound of each call.
    """

    request_seconds: float = 10.0
    topic_seconds: float = 3.0
    fence_seconds: float = 60.0
    read_seconds: float = 60.0
    commit_seconds: float = 60.0
    abort_seconds: float = 5.0
    retry: RetryPolicy = SPACING

    def attempts(self, seconds: float) -> Iterator[float]:
        """Yield the timeout of each attempt, at least one, until `seconds` are over."""
        for attempt in replace(self.retry, total_seconds=seconds).attempts():
            yield min(SLICE_SECONDS, max(attempt.remaining_seconds, LEAST_SECONDS))


def client_settings(kafka: Mapping[str, str], producer: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of an AdminClient or Consumer: address and security, nothing else."""
    shared = {key: value for key, value in producer.items() if key.startswith(SHARED_PREFIXES)}
    return {**COMMON, **kafka, **shared}


def idempotent_settings(
    kafka: Mapping[str, str], client: ProducerSettings, *, delivery_timeout_ms: int
) -> dict[str, str]:
    """Return the settings of an at-least-once producer.

    Raises Misconfigured for refused settings, all of them at once, and for too low a limit.
    """
    if refused := refusals(client.producer):
        raise Misconfigured(refused)
    limits: dict[str, str] = {}
    if client.max_message_bytes is not None:
        if problem := too_narrow(client.topic, client.max_message_bytes):
            raise Misconfigured(problem)
        # Makes a too large record fail alone, at enqueue, not with its whole batch at the broker.
        limits |= _capped(client, "message.max.bytes", client.max_message_bytes)
    if client.max_batch_bytes is not None:
        # Bounds batches of several records; a larger record is still sent in a batch of its own.
        limits |= _capped(client, "batch.size", client.max_batch_bytes)
    return {
        **COMMON,
        **DEFAULTS,
        **kafka,
        **client.producer,
        **limits,
        # Idempotence requires acks=all; librdkafka then keeps at most 5 requests in flight, which
        # preserves the order when one is retried.
        "acks": "all",
        "enable.idempotence": "true",
        "message.timeout.ms": str(delivery_timeout_ms),
    }


def transactional_settings(
    kafka: Mapping[str, str], client: ProducerSettings, identity: str, *, timeout_ms: int
) -> dict[str, str]:
    """Return the settings of the producer that owns `identity`. Raises as idempotent_settings."""
    settings = idempotent_settings(kafka, client, delivery_timeout_ms=timeout_ms)
    # librdkafka requires it to be at least 100 ms below the transaction's timeout.
    socket_timeout_ms = min(int(settings["socket.timeout.ms"]), timeout_ms - 100)
    return {
        **settings,
        "transactional.id": identity,
        "transaction.timeout.ms": str(timeout_ms),
        "socket.timeout.ms": str(socket_timeout_ms),
    }


def spreads(settings: Mapping[str, str]) -> bool:
    """Whether these settings allow any partition for a record without a key."""
    return settings["partitioner"] in _SPREADING and "sticky.partitioning.linger.ms" not in settings


def refusals(producer: Mapping[str, str]) -> list[str]:
    """Return a line for each setting that a connector must not set: `config.kafka_properties`."""
    reasons = {key: REFUSED_PRODUCER_PROPERTIES.get(key) for key in producer}
    return [f"producer.{key}: {why}" for key, why in reasons.items() if why]


def problems(kafka: Mapping[str, str], producer: Mapping[str, str]) -> list[str]:
    """Return one line for every mistake in a connector's `producer.*`; opens no connection.

    librdkafka checks the name and value of each key, then all together.
    """
    found = refusals(producer)
    for key in sorted(producer.keys() - REFUSED_PRODUCER_PROPERTIES.keys()):
        if not (key.endswith(".pem") or producer[key].isprintable()):
            # The client writes client.id to its log lines as it is.
            found.append(f"producer.{key}: has a control character; remove it")
            continue
        complaint = _librdkafka_error({key: producer[key]})
        if complaint.startswith(("No such", "Invalid value")):
            found.append(f"producer.{key}: {complaint}")
    together = {**kafka, **producer, "enable.idempotence": "true"}
    if not found and (complaint := _librdkafka_error(together).strip()):
        found.append(f"producer.*: {complaint}")
    return found


def unreadable_files(settings: Mapping[str, str]) -> list[str]:
    """Return one line for every file of these settings that this process cannot read.

    librdkafka names neither the path nor the setting. Only the worker's `kafka.*` names files.
    """
    found: list[str] = []
    for key in sorted(key for key in FILES if settings.get(key)):
        path = settings[key]
        if key in AUTHORITIES and (path == "probe" or os.access(path, os.R_OK)):
            continue
        try:
            code = errno.EISDIR if stat.S_ISDIR(Path(path).stat().st_mode) else errno.EACCES
        except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
            code = exc.errno or errno.ENOENT
        if code != errno.EACCES or not os.access(path, os.R_OK):
            found.append(
                f"kafka.{key}={path}: {os.strerror(code)}; every machine that delivers needs "
                "this file, readable for the user of its workers"
            )
    return found


def too_narrow(topic: str, max_message_bytes: int) -> str | None:
    """Return why no producer can respect the limit of `topic`, and the remedy; else None."""
    least = LEAST_MESSAGE_BYTES + BATCH_HEADER_BYTES
    if max_message_bytes >= least:
        return None
    return (
        f"topic {topic}: max.message.bytes {max_message_bytes} is below the client's minimum; "
        f"raise it to {least} or more"
    )


_UNREAD = logging.getLogger(f"{__name__}.unread")
_UNREAD.addHandler(logging.NullHandler())
_UNREAD.propagate = False


def _librdkafka_error(settings: Mapping[str, str]) -> str:
    try:
        # Without a logger the client writes to standard error, whatever `debug` names.
        Producer({**_with_oauthbearer(settings), "log_level": 0}, logger=_UNREAD)
    except KafkaException as exc:
        return error_of(exc).str()
    return ""


def _capped(client: ProducerSettings, key: str, most_bytes: int) -> dict[str, str]:
    limit = max(1, most_bytes - BATCH_HEADER_BYTES)
    configured = client.producer.get(key, DEFAULTS.get(key, str(limit)))
    # librdkafka reports a value that is no number.
    return {key: str(min(limit, int(configured))) if configured.isdigit() else configured}


# -- authentication by IAM (sasl.mechanism=AWS_MSK_IAM) -------------------------------------------

AWS_MSK_IAM = "AWS_MSK_IAM"
MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")

# Region (None: the environment's) -> token, its expiry in seconds since 1970.
Sign = Callable[[str | None], tuple[str, float]]

_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2}[a-z0-9-]*-[0-9]+)\.amazonaws\.com")


def with_tokens(settings: Mapping[str, Any], sign: Sign | None) -> dict[str, Any]:
    """Return a client's settings for librdkafka; with AWS_MSK_IAM including a source of tokens.

    librdkafka requests a token on its own thread: before the constructor of the client returns,
    and after four fifths of a token's lifetime. The first token is also signed here, where an
    error reaches the caller, for the region in the names of MSK brokers. Raises as `sign`
    (CredentialsUnavailable, Misconfigured), and Misconfigured without TLS.
    """
    if _mechanism(settings) != AWS_MSK_IAM:
        return dict(settings)
    if sign is None:
        raise Misconfigured(f"sasl.mechanism={AWS_MSK_IAM}: this process has no signer of tokens")
    if settings.get("security.protocol", "").upper() != "SASL_SSL":
        raise Misconfigured(
            f"sasl.mechanism={AWS_MSK_IAM}: brokers accept tokens over TLS only; set"
            " security.protocol=SASL_SSL"
        )
    found = _REGION.search(settings.get("bootstrap.servers", ""))
    region = None if found is None else found[1]
    sign(region)

    def token(_: str) -> tuple[str, float]:
        try:
            return sign(region)
        except ExtentflowError as exc:
            # librdkafka retries in a few seconds, and logs only that there was an exception.
            log.warning("the token for the brokers was not renewed: %s", exc)
            raise

    return {**_with_oauthbearer(settings), "oauth_cb": token}


def _mechanism(settings: Mapping[str, Any]) -> str:
    """Return the SASL mechanism; the later one of its two spellings counts."""
    return next((settings[key] for key in reversed([*settings]) if key in MECHANISMS), "")


def _with_oauthbearer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with AWS_MSK_IAM replaced by OAUTHBEARER, the mechanism of its tokens."""
    if _mechanism(settings) != AWS_MSK_IAM:
        return dict(settings)
    others = {key: value for key, value in settings.items() if key not in MECHANISMS}
    return {**others, "sasl.mechanisms": "OAUTHBEARER"}


def describe_security(settings: Mapping[str, Any]) -> str:
    """Return protocol and mechanism, without credentials."""
    mechanism = _mechanism(settings)
    protocol = settings.get("security.protocol", "plaintext").upper()
    return f"{protocol} with {mechanism}" if protocol.startswith("SASL") and mechanism else protocol
