"""The Spark settings of a stage: capacity and release of EMR Serverless.

docs/decisions/0010-emr-brings-the-interpreter.md explains which releases are accepted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from extentflow.config.worker import SPARK_THRESHOLD_BYTES, SPARK_TIMEOUT_MINUTES

# The first releases with Spark 4; they must contain the Python version of the archive.
LEAST_LINE, PYTHON = 8, "3.11"
RELEASE = "emr-spark-8.0.0"
# Default size of a driver and of each executor on EMR Serverless.
PROCESS = {"most_vcpu": 4, "most_memory_gb": 16, "most_disk_gb": 20}

# Default quota of an account.
MOST_RUNS = 15
LEAST_MINUTES, MOST_MINUTES = 5, 20_160

_RELEASE = re.compile(r"emr-spark-([0-9]+)\.[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """An EMR Serverless application for large objects and backfills; it costs nothing when idle.

    `release_label` determines Spark and Python. `image_uri` names a custom image based on that
    release, for arm64, with `python3.11` on its path. `most_...` limit all runs together. Spark
    delivers objects of more than `threshold_bytes`. A run ends after `timeout_minutes`.
    """

    release_label: str = RELEASE
    image_uri: str | None = None
    most_vcpu: int = 64
    most_memory_gb: int = 256
    most_disk_gb: int = 320
    threshold_bytes: int = SPARK_THRESHOLD_BYTES
    timeout_minutes: int = SPARK_TIMEOUT_MINUTES

    @property
    def most_runs(self) -> int:
        """Number of concurrent runs, each with its driver and at least two executors."""
        return max(1, min(self._processes() // 3, MOST_RUNS))

    def _processes(self) -> int:
        """Return how many drivers and executors fit into the capacity."""
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
            if most < 2 * least:
                yield f"spark.{name}={most}: driver and executor need {least} each; raise it"
        if self.threshold_bytes < 1:
            yield f"spark.threshold_bytes={self.threshold_bytes}: write 1 or more"
        if not LEAST_MINUTES <= self.timeout_minutes <= MOST_MINUTES:
            yield (
                f"spark.timeout_minutes={self.timeout_minutes}: write {LEAST_MINUTES} to"
                f" {MOST_MINUTES}"
            )

    def _fits(self) -> bool:
        found = _RELEASE.fullmatch(self.release_label)
        return found is not None and int(found[1]) >= LEAST_LINE
