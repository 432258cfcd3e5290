"""The Spark settings of a stage: capacity and release of EMR Serverless.

docs/decisions/0010-emr-brings-the-interpreter.md explains which releases are accepted.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from extentflow.config.worker import SPARK_THRESHOLD_BYTES, SPARK_TIMEOUT_MINUTES

from .kinds import Between, Named
from .typed_settings import TypedSettings

# The first releases with Spark 4; they must contain the Python version of the archive.
LEAST_LINE, PYTHON = 8, "3.11"
RELEASE = "emr-spark-8.0.0"
# Default size of a driver and of each executor on EMR Serverless.
PROCESS = {"most_vcpu": 4, "most_memory_gb": 16, "most_disk_gb": 20}

# Default quotas of an account: concurrent runs of an application, vCPUs of all its applications.
MOST_RUNS = 15
QUOTA_VCPU = 16
# A run needs its driver and at least two executors.
LEAST_PROCESSES = 3

# Regions of EMR Serverless without these releases. Source: release notes of emr-spark-8.0.0.
ABSENT_REGIONS = frozenset({"me-central-1", "me-south-1"})

# Zones of EMR Serverless in regions that have others too, by their ids, which are the same in all
# accounts. Source: EMR Serverless user guide, "Endpoints and quotas", November 2026.
SERVED_ZONES: Mapping[str, frozenset[str]] = {
    "ap-northeast-1": frozenset({"apne1-az1", "apne1-az2", "apne1-az4"}),
    "ca-central-1": frozenset({"cac1-az1", "cac1-az2", "cac1-az4"}),
    "us-east-1": frozenset({f"use1-az{number}" for number in (1, 2, 4, 5, 6)}),
    "us-west-1": frozenset({"usw1-az1", "usw1-az3"}),
}

LABEL = Named(r"[a-z0-9.-]+", f"write a release label, such as {RELEASE}")
IMAGE = Named(
    r"[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[\w./:@-]+",
    "write an image in ECR, ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG",
)
_RELEASE = re.compile(r"emr-spark-([0-9]+)\.[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark(TypedSettings):
    """An EMR Serverless application for large objects and backfills; it costs nothing when idle.

    `release_label` determines Spark and Python. `image_uri` names a custom image based on that
    release, for arm64, with `python3.11` on its path. `most_...` limit all runs together. Spark
    delivers objects of more than `threshold_bytes`. A run ends after `timeout_minutes`.

    `quota_vcpu` is the account's quota "Max concurrent vCPUs per account" in this region, as far as
    this stage may use it.
    """

    release_label: Annotated[str, LABEL] = RELEASE
    image_uri: Annotated[str | None, IMAGE] = None
    most_vcpu: Annotated[int, Between(1)] = 16
    most_memory_gb: Annotated[int, Between(1)] = 64
    most_disk_gb: Annotated[int, Between(1)] = 80
    quota_vcpu: Annotated[int, Between(1)] = QUOTA_VCPU
    threshold_bytes: Annotated[int, Between(1)] = SPARK_THRESHOLD_BYTES
    timeout_minutes: Annotated[int, Between(5, 20_160)] = SPARK_TIMEOUT_MINUTES

    @property
    def most_runs(self) -> int:
        """Number of concurrent runs, each with its driver and at least two executors."""
        return max(1, min(self.processes // LEAST_PROCESSES, MOST_RUNS))

    @property
    def processes(self) -> int:
        """How many drivers and executors fit into the capacity."""
        return int(min(getattr(self, name) // each for name, each in PROCESS.items()))

    def problems(self, *, in_vpc: bool, slots: int) -> Iterator[str]:
        """Yield the problems of these settings in a stage with `spark_cores` slots."""
        if not in_vpc:
            yield "spark: EMR Serverless can reach brokers from a VPC only; set network"
        if slots < self.most_vcpu:
            yield (
                f"spark.most_vcpu={self.most_vcpu}: every core may use a slot, and"
                f" spark_cores={slots} is lower; raise spark_cores or lower spark.most_vcpu"
            )
        if not (self.image_uri or self._fits()):
            yield (
                f"spark.release_label={self.release_label}: not known to contain Spark 4 and Python"
                f" {PYTHON}; use {RELEASE} or a later emr-spark release, or set spark.image_uri"
                f" to a custom image with python{PYTHON}"
            )
        for name, least in PROCESS.items():
            most = getattr(self, name)
            if most < LEAST_PROCESSES * least:
                yield (
                    f"spark.{name}={most}: a driver and two executors need {least} each; raise it"
                )
        if self.most_vcpu > self.quota_vcpu:
            yield (
                f"spark.most_vcpu={self.most_vcpu}: the account allows"
                f" spark.quota_vcpu={self.quota_vcpu}, which drivers alone could fill; lower it, or"
                ' raise the quota "Max concurrent vCPUs per account" of EMR Serverless and then'
                " spark.quota_vcpu"
            )

    def _fits(self) -> bool:
        found = _RELEASE.fullmatch(self.release_label)
        return found is not None and int(found[1]) >= LEAST_LINE
