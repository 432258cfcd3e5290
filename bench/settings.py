"""Settings that all sides of every comparison share."""

from extentflow.kafka.settings import DEFAULTS

CORES = 2

KAFKA_OPTIONS = {
    "compression.type": "lz4",
    "linger.ms": "50",
    "batch.size": "400000",
    "acks": "all",
}
"""As Java's client names them; ours has the same values by default, acks by design."""

PRODUCER = {**DEFAULTS, "acks": "all", "enable.idempotence": "true"}
"""The same for a producer of librdkafka: codec, linger, batches and queue are our own defaults."""
