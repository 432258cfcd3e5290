"""librdkafka's errors in our words: the one place where a KafkaError becomes ours.

Owns: which codes mean fenced, which ones only a person can mend and how. Refuses to know: what
was being attempted.
"""

from confluent_kafka import KafkaError, KafkaException

from extentflow.errors import ExtentflowError, Fenced, Misconfigured, SinkUnavailable

# A producer whose transaction timed out cannot be told from one that somebody fenced.
FENCING = frozenset({"_FENCED", "_FATAL", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

REMEDIES = {
    "CLUSTER_AUTHORIZATION_FAILED": "allow IdempotentWrite and Describe on the cluster",
    "GROUP_AUTHORIZATION_FAILED": "allow Read and Describe on the consumer groups of `app.id`",
    "INVALID_CONFIG": "compare the producer settings with the broker's",
    "INVALID_RECORD": "the topic's settings refuse these records; a compacted topic needs keys",
    "INVALID_TRANSACTION_TIMEOUT": (
        "lower transaction.timeout.ms to at most the broker's transaction.max.timeout.ms"
    ),
    "POLICY_VIOLATION": "the cluster's policy forbids it; ask its operators",
    "SASL_AUTHENTICATION_FAILED": "check user name, password and mechanism, or the role's rights",
    "TOPIC_EXCEPTION": "topic names are made of letters, digits, `.`, `_` and `-`",
    "TOPIC_AUTHORIZATION_FAILED": "allow Write, Describe and DescribeConfigs on the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "allow Write and Describe on the transactional ids of `app.id`"
    ),
    "UNSUPPORTED_COMPRESSION_TYPE": "choose another producer.compression.type",
    "UNSUPPORTED_SASL_MECHANISM": "choose a mechanism that the broker offers",
    "UNSUPPORTED_VERSION": "the broker is too old for transactions; Kafka 2.5 or later is needed",
    "_AUTHENTICATION": (
        "check user name, password, mechanism and certificates; where IAM decides, allow the role"
        " kafka-cluster:Connect"
    ),
    "_UNSUPPORTED_FEATURE": "the broker lacks a feature that transactions need",
}


def error_of(exc: KafkaException) -> KafkaError:
    """Return the KafkaError that an exception carries."""
    error = exc.args[0] if exc.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(exc))


def translate(error: KafkaError, subject: str) -> ExtentflowError:
    """Return our error for `error`; `subject` opens the message.

    Fenced for lost ownership, Misconfigured where a person has to act, SinkUnavailable for the
    rest: drop the producer and acquire the slot anew.
    """
    text = f"{subject}: {error.str()} ({error.name()})"
    if error.name() in FENCING:
        return Fenced(text)
    if hopeless(error):
        return Misconfigured(f"{text}; {REMEDIES[error.name()]}")
    return SinkUnavailable(text)


def hopeless(error: KafkaError) -> bool:
    """Whether only a person can mend it: waiting and asking again change nothing."""
    return error.name() in REMEDIES


def forgotten(exc: KafkaException) -> KafkaException:
    """Return `exc` without the frames it came through.

    What `poll` and `flush` raise is never freed (confluent-kafka 2.16 loses a reference); with
    its frames it would keep the producer, its threads and a batch of records for ever.
    """
    exc.__context__ = None
    return exc.with_traceback(None)


def resumable(error: KafkaError) -> bool:
    """Whether the very same call may be made again, and nothing else."""
    return error.retriable() and not error.fatal() and not error.txn_requires_abort()
