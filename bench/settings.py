"""What both sides of every comparison have in common."""

CORES = 2

KAFKA_OPTIONS = {
    "compression.type": "lz4",
    "linger.ms": "50",
    "batch.size": "1000000",
    "acks": "all",
}
"""As Java's client names them; ours has the same values by default, acks by design."""
