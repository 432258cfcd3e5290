"""What each error code of brokers means for records, by librdkafka's names.

    scope      what is wrong                          what happens
    record     records of a batch                     they are found, and become bad records
    topic      the topic, its settings, its ACLs      an operator must act
    cluster    the cluster's or the client's settings an operator must act
    owner      the producer: another one took over    the slot is acquired again
    outage     nothing that lasts                     the extent is tried again

`docs/broker-errors.md` shows this table. The codes of REFUSED mean something else in an answer to a
producer with a transactional id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CODES",
    "ELSEWHERE",
    "READING",
    "REFUSED",
    "REFUSED_REMEDY",
    "ErrorCode",
    "Scope",
    "scope_of",
]


class Scope(StrEnum):
    """What an error code is about, which decides what happens."""

    RECORD = "record"
    TOPIC = "topic"
    CLUSTER = "cluster"
    OWNER = "owner"
    OUTAGE = "outage"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """The scope of a code, and what a person can do; empty where nothing is to be done."""

    scope: Scope
    remedy: str = ""


def _all(scope: Scope, remedies: Mapping[str, str]) -> dict[str, ErrorCode]:
    return {name: ErrorCode(scope, remedy) for name, remedy in remedies.items()}


_RECORD = {
    "INVALID_RECORD": "its key is null and the topic is compacted, or the brokers' own validation"
    " refuses the value",
    "INVALID_TIMESTAMP": "raise message.timestamp.after.max.ms or message.timestamp.before.max.ms"
    " of the topic, set its message.timestamp.type=LogAppendTime, or choose another"
    " message.timestamp",
    "RECORD_LIST_TOO_LARGE": "raise segment.bytes of the topic",
    # Of the records that share a batch with a rejected one; librdkafka makes it from the answer.
    "_INVALID_DIFFERENT_RECORD": "another record of its batch is rejected",
}

# What readers need where the code says that a permission is missing: they write nothing.
READING = {"TOPIC_AUTHORIZATION_FAILED": "allow Read and Describe on the topic"}

_TOPIC = {
    "MSG_SIZE_TOO_LARGE": "max.message.bytes of the topic was lowered meanwhile",
    "TOPIC_AUTHORIZATION_FAILED": "allow Write, Describe and DescribeConfigs on the topic",
    "TOPIC_EXCEPTION": "use only letters, digits, `.`, `_` and `-` in topic names",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "raise message.format.version of the topic, which is below"
    " what transactions and headers need",
}

_CLUSTER = {
    "CLUSTER_AUTHORIZATION_FAILED": "allow IdempotentWrite and Describe on the cluster",
    "GROUP_AUTHORIZATION_FAILED": "allow Read and Describe on the consumer groups of `app.id`",
    "INVALID_CONFIG": "compare the producer settings with the broker's",
    "INVALID_TRANSACTION_TIMEOUT": "lower transaction.timeout.ms to at most the broker's"
    " transaction.max.timeout.ms",
    "POLICY_VIOLATION": "a policy of the cluster forbids it; ask its operators",
    "SASL_AUTHENTICATION_FAILED": "check user name, password, mechanism or the role's permissions",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow Write and Describe on the transactional ids of"
    " `app.id`",
    "UNSUPPORTED_COMPRESSION_TYPE": "choose another producer.compression.type",
    "UNSUPPORTED_SASL_MECHANISM": "choose a mechanism that the broker offers",
    "UNSUPPORTED_VERSION": "the broker is too old for transactions; Kafka 2.5 or later is needed",
    "_AUTHENTICATION": "check user name, password, mechanism and certificates; with IAM allow the"
    " role kafka-cluster:Connect",
    "_UNSUPPORTED_FEATURE": "the broker lacks a feature that transactions need",
}

# librdkafka reports a producer whose transaction timed out exactly as a fenced one.
_OWNER = ("_FATAL", "_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")

_OUTAGE = (
    "BROKER_NOT_AVAILABLE",
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "DUPLICATE_SEQUENCE_NUMBER",
    "FENCED_LEADER_EPOCH",
    "ILLEGAL_SASL_STATE",
    "INCONSISTENT_TOPIC_ID",
    # A checksum that does not match: the batch was damaged on its way.
    "INVALID_MSG",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_REQUEST",
    "INVALID_REQUIRED_ACKS",
    "INVALID_TXN_STATE",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_FOR_PARTITION",
    "OPERATION_NOT_ATTEMPTED",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "REBOOTSTRAP_REQUIRED",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "SECURITY_DISABLED",
    "THROTTLING_QUOTA_EXCEEDED",
    "TRANSACTION_ABORTABLE",
    "TRANSACTION_COORDINATOR_FENCED",
    "UNKNOWN",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_PRODUCER_ID",
    # A new topic reaches the brokers one after the other.
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PART",
    "UNSTABLE_OFFSET_COMMIT",
)

CODES: Mapping[str, ErrorCode] = {
    **_all(Scope.RECORD, _RECORD),
    **_all(Scope.TOPIC, _TOPIC),
    **_all(Scope.CLUSTER, _CLUSTER),
    **dict.fromkeys(_OWNER, ErrorCode(Scope.OWNER)),
    **dict.fromkeys(_OUTAGE, ErrorCode(Scope.OUTAGE)),
}

# Answers to requests of consumers, administrators and brokers, never to one for records.
_ELSEWHERE = """
DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_EXPIRED
DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DUPLICATE_RESOURCE DUPLICATE_VOTER ELECTION_NOT_NEEDED ELIGIBLE_LEADERS_NOT_AVAILABLE
FEATURE_UPDATE_FAILED FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH FENCED_STATE_EPOCH
FETCH_SESSION_ID_NOT_FOUND GROUP_ID_NOT_FOUND GROUP_MAX_SIZE_REACHED GROUP_SUBSCRIBED_TO_TOPIC
ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_VOTER_SET INVALID_COMMIT_OFFSET_SIZE
INVALID_FETCH_SESSION_EPOCH INVALID_GROUP_ID INVALID_MSG_SIZE INVALID_PARTITIONS
INVALID_PRINCIPAL_TYPE INVALID_RECORD_STATE INVALID_REGISTRATION INVALID_REGULAR_EXPRESSION
INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_SESSION_TIMEOUT
INVALID_SHARE_SESSION_EPOCH INVALID_UPDATE_VERSION INVALID_VOTER_KEY LISTENER_NOT_FOUND
LOG_DIR_NOT_FOUND MEMBER_ID_REQUIRED MISMATCHED_ENDPOINT_TYPE NON_EMPTY_GROUP NOT_CONTROLLER
NO_REASSIGNMENT_IN_PROGRESS OFFSET_METADATA_TOO_LARGE OFFSET_NOT_AVAILABLE OFFSET_OUT_OF_RANGE
PREFERRED_LEADER_NOT_AVAILABLE PRINCIPAL_DESERIALIZATION_FAILURE REASSIGNMENT_IN_PROGRESS
REBALANCE_IN_PROGRESS RESOURCE_NOT_FOUND SHARE_SESSION_LIMIT_REACHED SHARE_SESSION_NOT_FOUND
STALE_BROKER_EPOCH STALE_CTRL_EPOCH STALE_MEMBER_EPOCH STREAMS_INVALID_TOPOLOGY
STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED TELEMETRY_TOO_LARGE
TOPIC_ALREADY_EXISTS TOPIC_DELETION_DISABLED UNACCEPTABLE_CREDENTIAL UNKNOWN_CONTROLLER_ID
UNKNOWN_MEMBER_ID UNKNOWN_SUBSCRIPTION_ID UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR
UNSUPPORTED_ENDPOINT_TYPE VOTER_NOT_FOUND
"""
ELSEWHERE = frozenset(_ELSEWHERE.split())

# How clusters and topics without transactions answer a producer with a transactional id: at its
# start, when it adds partitions or offsets, or to its records (Inkless answers INVALID_REQUEST).
REFUSED = frozenset(
    {
        "INVALID_REQUEST",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_VERSION",
        "_UNSUPPORTED_FEATURE",
    }
)
REFUSED_REMEDY = (
    "exactly once needs transactions, which diskless topics lack; name another topic or cluster,"
    " or set delivery.guarantee=at_least_once, with"
    " headers=uri=uri,version=version,etag=etag,location=location to recognise repeated records"
)

_UNNAMED = ErrorCode(Scope.OUTAGE)


def scope_of(name: str) -> ErrorCode:
    """Return what the code called `name` means; an outage for errors of the client itself."""
    return CODES.get(name, _UNNAMED)
