"""An MSK cluster that the stack creates: the settings of a stage, and their checks."""

from collections.abc import Iterator
from dataclasses import dataclass

from .typed_settings import TypedSettings

EXPRESS, STANDARD = "express.", "kafka."
ZONES = 3  # AWS keeps three replicas of each Express topic; two of them must acknowledge a record
LEAST_GIB, MOST_GIB = 1, 16_384
MONITORING = ("DEFAULT", "PER_BROKER", "PER_TOPIC_PER_BROKER", "PER_TOPIC_PER_PARTITION")
IAM_PORT = 9098
# The real ones are known when the cluster exists; settings are checked before that.
LATER = f"brokers.of.this.stack:{IAM_PORT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster(TypedSettings):
    """Brokers in three zones, with IAM over TLS only. The cluster stays without the stack.

    `instance` begins with `express.` or `kafka.`; standard brokers (`kafka.`) need `storage_gib`
    each, which only grows. The version is one of MSK; `monitoring` is the level of its metrics.
    """

    instance: str = "express.m7g.large"
    brokers_per_zone: int = 1
    storage_gib: int | None = None
    kafka_version: str = "3.9.x"
    monitoring: str = "PER_BROKER"

    @property
    def express(self) -> bool:
        """Whether AWS keeps the brokers' storage and replicas."""
        return self.instance.startswith(EXPRESS)

    def problems(self, zones: int) -> Iterator[str]:
        """Yield the problems of these settings in a network of so many zones."""
        if not self.instance.startswith((EXPRESS, STANDARD)):
            yield f"cluster.created: instance={self.instance}: write {EXPRESS}* or {STANDARD}*"
        elif self.express and self.storage_gib is not None:
            yield "cluster.created: storage_gib is for standard brokers; remove it"
        elif not self.express and not LEAST_GIB <= (self.storage_gib or 0) <= MOST_GIB:
            yield f"cluster.created: storage_gib: write {LEAST_GIB} to {MOST_GIB} per broker"
        if self.brokers_per_zone < 1:
            yield f"cluster.created: brokers_per_zone={self.brokers_per_zone}: write 1 or more"
        if self.monitoring not in MONITORING:
            yield f"cluster.created: monitoring={self.monitoring}: AWS has {', '.join(MONITORING)}"
        if zones != ZONES:
            yield f"cluster.created: brokers need network.subnets in {ZONES} zones; {zones} listed"
