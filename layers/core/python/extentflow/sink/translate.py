"""Translates librdkafka's errors: which mean fenced, which need an operator, which to retry."""

from confluent_kafka import KafkaError, KafkaException

from extentflow.errors import ExtentflowError, Fenced, Misconfigured, SinkUnavailable

# librdkafka reports a producer whose transaction timed out exactly as a fenced one.
FENCING = frozenset({"_FENCED", "_FATAL", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

REMEDIES = {
    "CLUSTER_AUTHORIZATION_FAILED": "allow IdempotentWrite and Describe on the cluster",
    "GROUP_AUTHORIZATION_FAILED": "allow Read and Describe on the consumer groups of `app.id`",
    "INVALID_CONFIG": "compare the producer settings with the broker's",
    "INVALID_RECORD": "the topic's settings reject these records; a compacted topic needs keys",
    "INVALID_TRANSACTION_TIMEOUT": (
        "lower transaction.timeout.ms to at most the broker's transaction.max.timeout.ms"
    ),
    "POLICY_VIOLATION": "a policy of the cluster forbids it; ask its operators",
    "SASL_AUTHENTICATION_FAILED": "check user name, password, mechanism or the role's permissions",
    "TOPIC_EXCEPTION": "use only letters, digits, `.`, `_` and `-` in topic names",
    "TOPIC_AUTHORIZATION_FAILED": "allow Write, Describe and DescribeConfigs on the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "allow Write and Describe on the transactional ids of `app.id`"
    ),
    "UNSUPPORTED_COMPRESSION_TYPE": "choose another producer.compression.type",
    "UNSUPPORTED_SASL_MECHANISM": "choose a mechanism that the broker offers",
    "UNSUPPORTED_VERSION": "the broker is too old for transactions; Kafka 2.5 or later is needed",
    "_AUTHENTICATION": (
        "check user name, password, mechanism and certificates; with IAM allow the role"
        " kafka-cluster:Connect"
    ),
    "_UNSUPPORTED_FEATURE": "the broker lacks a feature that transactions need",
}


def error_of(exc: KafkaException) -> KafkaError:
    """Return the KafkaError that an exception carries."""
    error = exc.args[0] if exc.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(exc))


def translate(error: KafkaError, subject: str) -> ExtentflowError:
    """Return the extentflow error for `error`; the message starts with `subject`.

    Fenced for lost ownership, Misconfigured where an operator must act, SinkUnavailable for all
    others: drop the producer and acquire the slot again.
    """
    text = f"{subject}: {error.str()} ({error.name()})"
    if error.name() in FENCING:
        return Fenced(text)
    if needs_operator(error):
        return Misconfigured(f"{text}; {REMEDIES[error.name()]}")
    return SinkUnavailable(text)


def needs_operator(error: KafkaError) -> bool:
    """Whether retrying cannot help, because an operator must act."""
    return error.name() in REMEDIES


def without_frames(exc: KafkaException) -> KafkaException:
    """Return `exc` without its traceback and context.

    confluent-kafka 2.16 leaks a reference to each exception that `poll` and `flush` raise; the
    frames would keep the producer, its threads and a batch of records alive for ever.
    """
    exc.__context__ = None
    return exc.with_traceback(None)


def resumable(error: KafkaError) -> bool:
    """Whether the same call may be repeated (and no other call made instead)."""
    return error.retriable() and not error.fatal() and not error.txn_requires_abort()
