"""An MSK cluster that the stack creates: the settings of a stage, and their checks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from .kinds import Between, Named, OneOf
from .typed_settings import TypedSettings

EXPRESS, STANDARD = "express.", "kafka."
ZONES = 3  # AWS keeps three replicas of each Express topic; two of them must acknowledge a record
STORAGE_GIB = Between(1, 16_384)
VERSION = Named(r"[0-9]+\.[0-9]+\.([0-9]+|x)[a-z.]*", "write a version of MSK, such as 3.9.x")
INSTANCE = Named(r"(express|kafka)\.[a-z0-9]+\.[a-z0-9-]+", f"write {EXPRESS}* or {STANDARD}*")
MONITORING = OneOf(
    "AWS", ("DEFAULT", "PER_BROKER", "PER_TOPIC_PER_BROKER", "PER_TOPIC_PER_PARTITION")
)
IAM_PORT = 9098
# The real ones are known when the cluster exists; settings are checked before that.
LATER = f"brokers.of.this.stack:{IAM_PORT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster(TypedSettings):
    """Brokers in three zones, with IAM over TLS only. The cluster stays without the stack.

    `instance` begins with `express.` or `kafka.`; standard brokers (`kafka.`) need `storage_gib`
    each, which only grows. The version is one of MSK; `monitoring` is the level of its metrics.
    """

    instance: Annotated[str, INSTANCE] = "express.m7g.large"
    brokers_per_zone: Annotated[int, Between(1)] = 1
    storage_gib: Annotated[int | None, STORAGE_GIB] = None
    kafka_version: Annotated[str, VERSION] = "3.9.x"
    monitoring: Annotated[str, MONITORING] = "PER_BROKER"

    @property
    def express(self) -> bool:
        """Whether AWS keeps the brokers' storage and replicas."""
        return self.instance.startswith(EXPRESS)

    def problems(self, zones: int) -> Iterator[str]:
        """Yield the problems of these settings in a network of so many zones."""
        if self.express and self.storage_gib is not None:
            yield "cluster.created: storage_gib is for standard brokers; remove it"
        elif self.instance.startswith(STANDARD) and self.storage_gib is None:
            limits = f"{STORAGE_GIB.least} to {STORAGE_GIB.most}"
            yield f"cluster.created.storage_gib: write {limits} per broker"
        if zones != ZONES:
            yield f"cluster.created: brokers need network.subnets in {ZONES} zones; {zones} listed"
