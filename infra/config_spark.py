"""A stage's Spark: how large, on which release of EMR Serverless.

Owns: these settings, and what is wrong with them. Refuses to know: CDK; why a release fits
(docs/decisions/0010-emr-brings-the-interpreter.md).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from extentflow.config.worker import SPARK_THRESHOLD_BYTES, SPARK_TIMEOUT_MINUTES

# The first line of releases with Spark 4, and the Python of the archive, which they have to bring.
LEAST_LINE, PYTHON = 8, "3.11"
RELEASE = "emr-spark-8.0.0"
# What EMR Serverless gives a driver and each executor unless a run says otherwise.
PROCESS = {"most_vcpu": 4, "most_memory_gb": 16, "most_disk_gb": 20}

# What an application takes unless AWS is asked for more.
MOST_RUNS = 15
LEAST_MINUTES, MOST_MINUTES = 5, 20_160

_RELEASE = re.compile(r"emr-spark-([0-9]+)\.[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """An EMR Serverless application for large objects and backfills; idle, it costs nothing.

    `release_label` decides Spark and Python. `image_uri` names an image of your own, made of that
    release, for arm64, with `python3.11` on its path. `most_...` bound all runs together. An object
    of more than `threshold_bytes` goes to Spark. A run is ended after `timeout_minutes`.
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
        """How many runs may go on at once: each with its driver and two executors at least."""
        return max(1, min(self._processes() // 3, MOST_RUNS))

    def _processes(self) -> int:
        """Return how many drivers and executors there is room for."""
        return int(min(getattr(self, name) // each for name, each in PROCESS.items()))

    def problems(self, *, in_vpc: bool, slots: int) -> Iterator[str]:
        """Yield what is wrong with it in a stage with so many slots for Spark."""
        if not in_vpc:
            yield "spark: EMR Serverless reaches brokers from a VPC only; set network"
        if slots < self.most_vcpu:
            yield (
                f"spark.most_vcpu={self.most_vcpu}: every core may take a slot, and"
                f" spark_cores={slots} counts them; raise the latter, or lower the former"
            )
        if not (self.image_uri or self._fits()):
            yield (
                f"spark.release_label={self.release_label}: not known to bring Spark 4 and Python"
                f" {PYTHON}; take {RELEASE} or a later emr-spark release, or set spark.image_uri"
                f" to an image of your own with python{PYTHON}"
            )
        for name, least in PROCESS.items():
            most = getattr(self, name)
            if most < 2 * least:
                yield f"spark.{name}={most}: driver and executor take {least} each; raise it"
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
