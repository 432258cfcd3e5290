"""What librdkafka is told: defaults, what a connector may change, and what it may not.

Owns: the settings of every client. Refuses to know: where settings come from, how clients are
used. `kafka` are the worker's settings (bootstrap.servers, security); `producer` is a connector's
`producer.*` without its prefix.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException, Producer

from extentflow.errors import Misconfigured
from extentflow.retry import RetryPolicy
from extentflow.sink import ProducerSettings
from extentflow.sink.access import spelled_out
from extentflow.sink.translate import error_of

DEFAULTS = {
    "linger.ms": "50",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    # Both bound a worker's memory: a queued record costs its bytes and about 200 more.
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "65536",
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
}

# Those that send a record without a key anywhere; the others send all of them to one partition.
_SPREADING = ("random", "consistent_random", "murmur2_random", "fnv1a_random")

# `none`: an environment thawed after the broker's idle limit would otherwise stall for 10-18 s.
# A socket time-out below librdkafka's minute is what bounds calls that ignore their own.
COMMON = {"metadata.recovery.strategy": "none", "socket.timeout.ms": "10000"}

REFUSED = {
    "transactional.id": "the slot's identity is the transactional id",
    "acks": "delivery needs acks=all",
    "request.required.acks": "delivery needs acks=all",
    "enable.idempotence": "both delivery guarantees need an idempotent producer",
    "enable.gapless.guarantee": "transactions already guarantee it",
    "bootstrap.servers": "the cluster is a worker setting",
    "metadata.broker.list": "the cluster is a worker setting",
    "metadata.recovery.strategy": "it must be `none`",
    "delivery.report.only.error": "the sink reads delivery reports itself",
}
TIMEOUT_REASON = "time-outs are worker settings, for example transaction.timeout.ms"

JAVA_NAMES = {
    "buffer.memory": "producer.queue.buffering.max.kbytes",
    "max.block.ms": "transaction.timeout.ms (a worker setting)",
    "max.request.size": "producer.message.max.bytes",
    "partitioner.class": "producer.partitioner",
    "sasl.jaas.config": "producer.sasl.username and producer.sasl.password",
    "ssl.keystore.type": "producer.ssl.keystore.location (PKCS#12) or producer.ssl.key.location",
    "ssl.truststore.location": "producer.ssl.ca.location (PEM)",
}
SHARED_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.", "broker.address.", "client.dns.")

# A record batch's header (61 bytes) counts against a topic's max.message.bytes, but not against
# librdkafka's message.max.bytes, whose least value is 1000.
BATCH_HEADER_BYTES = 61
LEAST_MESSAGE_BYTES = 1000

SLICE_SECONDS = 2.0  # Python runs signal handlers only between two blocking calls
LEAST_SECONDS = 0.1  # a last attempt of a few milliseconds could only time out


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the sink waits for brokers, per kind of call, in seconds; `retry` spaces attempts.

    `retry.total_seconds` is replaced by the bound of the call at hand.
    """

    request_seconds: float = 10.0
    topic_seconds: float = 3.0
    fence_seconds: float = 60.0
    read_seconds: float = 60.0
    commit_seconds: float = 60.0
    abort_seconds: float = 5.0
    retry: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(
            first_pause_seconds=0.05, longest_pause_seconds=1.0, attempts_block=True
        )
    )

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

    Raises:
        Misconfigured: refused settings, all of them at once.
    """
    if problems := refusals(client.producer):
        raise Misconfigured(problems)
    return {
        **COMMON,
        **DEFAULTS,
        **kafka,
        **client.producer,
        **_message_limit(client),
        **_batch_limit(client),
        "acks": "all",
        "enable.idempotence": "true",
        "message.timeout.ms": str(delivery_timeout_ms),
    }


def transactional_settings(
    kafka: Mapping[str, str],
    client: ProducerSettings,
    identity: str,
    *,
    transaction_timeout_ms: int,
) -> dict[str, str]:
    """Return the settings of the producer that owns `identity`. Raises as idempotent_settings."""
    settings = idempotent_settings(kafka, client, delivery_timeout_ms=transaction_timeout_ms)
    return {
        **settings,
        "transactional.id": identity,
        "transaction.timeout.ms": str(transaction_timeout_ms),
        # librdkafka wants it at least 100 ms below the transaction's time-out.
        "socket.timeout.ms": str(
            min(int(settings["socket.timeout.ms"]), transaction_timeout_ms - 100)
        ),
    }


def spreads(settings: Mapping[str, str]) -> bool:
    """Return whether these settings leave it open where a record without a key goes."""
    return settings["partitioner"] in _SPREADING and "sticky.partitioning.linger.ms" not in settings


def refusals(producer: Mapping[str, str]) -> list[str]:
    """Return one line for every setting that a connector must not touch."""
    reasons = {key: REFUSED.get(key) for key in producer}
    reasons |= {key: TIMEOUT_REASON for key in producer if key.endswith("timeout.ms")}
    return [f"producer.{key} cannot be set: {why}" for key, why in reasons.items() if why]


def problems(kafka: Mapping[str, str], producer: Mapping[str, str]) -> list[str]:
    """Return one line for every mistake in a connector's `producer.*`; makes no connection.

    Checked are each key's name and value, then the whole. Called when a connector is validated.
    """
    found = refusals(producer)
    for key, value in producer.items():
        if (complaint := _complaint({key: value})).startswith(("No such", "Invalid value")):
            hint = f"; use {JAVA_NAMES[key]}" if key in JAVA_NAMES else ""
            found.append(f"producer.{key}: {complaint}{hint}")
    whole = {**kafka, **producer, "enable.idempotence": "true"}
    if not found and (complaint := _complaint(whole).strip()):
        found.append(f"producer.*: {complaint}")
    return found


def too_narrow(topic: str, max_message_bytes: int) -> str | None:
    """Return why no client can be limited to what `topic` takes, with the remedy; else None."""
    least = LEAST_MESSAGE_BYTES + BATCH_HEADER_BYTES
    if max_message_bytes >= least:
        return None
    return (
        f"topic {topic}: max.message.bytes {max_message_bytes} is too small to work with; "
        f"raise it to {least} or more"
    )


def _complaint(settings: Mapping[str, str]) -> str:
    try:
        Producer({**spelled_out(settings), "log_level": 0})
    except KafkaException as exc:
        return error_of(exc).str()
    return ""


def _message_limit(client: ProducerSettings) -> dict[str, str]:
    """Make a too large record fail alone, at enqueue, not with its whole batch at the broker."""
    if client.max_message_bytes is None:
        return {}
    if problem := too_narrow(client.topic, client.max_message_bytes):
        raise Misconfigured(problem)
    limit = client.max_message_bytes - BATCH_HEADER_BYTES
    asked = client.producer.get("message.max.bytes", str(limit))
    return {"message.max.bytes": str(min(limit, int(asked)) if asked.isdigit() else asked)}


def _batch_limit(client: ProducerSettings) -> dict[str, str]:
    """Bound batches of several records; one that is larger by itself still goes out alone."""
    if client.max_batch_bytes is None:
        return {}
    limit = max(1, client.max_batch_bytes - BATCH_HEADER_BYTES)
    asked = client.producer.get("batch.size", DEFAULTS["batch.size"])
    return {"batch.size": str(min(limit, int(asked)) if asked.isdigit() else asked)}
