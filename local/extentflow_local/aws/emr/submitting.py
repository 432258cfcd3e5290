"""Run a job on a standalone cluster with `spark-submit`, as EMR Serverless would.

    <folder>/<run>/spark_deliver.py, *.tgz     downloaded from S3
    <folder>/<run>/environment/               the archive, unpacked for the driver
    <folder>/<run>/output.log                 output of driver and spark-submit; it is kept

Python is an interpreter without packages, with the name that it has on Amazon Linux. Spark adds
PySpark to the path, as the release does; all other packages come from the archive.
"""

import os
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from botocore.exceptions import BotoCoreError, ClientError

from extentflow.aws import new_session
from extentflow_local.aws.emr.application import Order
from extentflow_local.stack import programs
from extentflow_local.stack.errors import ProgramMissing, ServiceFailed
from extentflow_local.stack.servers import REGION
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.spark_submit import Submission, submit

OUTPUT = "output.log"
PYTHON = "3.11"
ARCHIVES = "spark.archives"
# EMR properties that become variables of the driver.
DRIVER = "spark.emr-serverless.driverEnv."
EXECUTOR = "spark.executorEnv."
# On EMR the role gives credentials; endpoints must be set on one machine. The region comes from the
# run's properties only.
_GIVEN = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")
# JVMs that live for seconds gain nothing from the optimising compiler.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_POLL_SECONDS = 0.05
_NOWHERE = {"AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True, slots=True)
class SparkSubmits:
    """Starts runs on `master`, each in a folder of its own below `folder`.

    Of `environment`, runs get AWS credentials and endpoints only.
    """

    master: str
    folder: Path
    environment: Mapping[str, str]
    settings: LocalSettings = field(default_factory=LocalSettings.from_environment)

    def __call__(self, order: Order) -> "SubmittedRun":
        """Start a run.

        Raises:
            ServiceFailed: the code cannot be downloaded or unpacked.
            ProgramMissing: no Java, no PySpark, no such Python.
        """
        place = self.folder / order.run
        for name in ("tmp", "conf", "bin"):
            (place / name).mkdir(parents=True)
        _lay_python(place / "bin")
        program = self._fetch(order.entry_point, place)
        properties = dict(order.properties)
        if ARCHIVES in properties:
            properties[ARCHIVES] = self._unpacked(properties[ARCHIVES], place)
        executors = {**self._of_aws(), "PATH": _path(place)}
        with (place / OUTPUT).open("w") as output:
            found = submit(
                (program, *order.arguments),
                master=self.master,
                conf={
                    **{f"{EXECUTOR}{name}": text for name, text in executors.items()},
                    "spark.executor.extraJavaOptions": _QUICK,
                    **properties,
                },
                environment=self._environment(order, place),
                output=output,
                folder=place,
            )
        return SubmittedRun(found, place)

    def _environment(self, order: Order, place: Path) -> dict[str, str]:
        """Return the driver's variables: basic ones, AWS's, and those of the request."""
        java = programs.java(home=self.settings.java_home, search_path=self.settings.search_path)
        asked = {
            name.removeprefix(DRIVER): text
            for name, text in order.properties.items()
            if name.startswith(DRIVER)
        }
        return {
            "PATH": _path(place),
            "HOME": str(place),
            "TMPDIR": str(place / "tmp"),
            "LC_ALL": "C.UTF-8",
            "JAVA_HOME": str(java.resolve().parent.parent),
            "SPARK_CONF_DIR": str(place / "conf"),
            "SPARK_LOCAL_DIRS": str(place / "tmp"),
            "SPARK_SUBMIT_OPTS": f"{_QUICK} -Djava.io.tmpdir={place / 'tmp'}",
            **self._of_aws(),
            **asked,
        }

    def _of_aws(self) -> dict[str, str]:
        given = {name: text for name, text in self.environment.items() if name.startswith(_GIVEN)}
        return {**given, **_NOWHERE}

    def _unpacked(self, archives: str, place: Path) -> str:
        """Unpack the archives for the driver; return `spark.archives` with local files."""
        found = []
        for archive in archives.split(","):
            address, _, name = archive.partition("#")
            file = self._fetch(address, place)
            try:
                with tarfile.open(file) as tar:
                    tar.extractall(place / (name or file.name), filter="data")
            except tarfile.TarError as exc:
                raise ServiceFailed(f"{address} is not an archive: {exc}") from exc
            found.append(f"{file.as_uri()}#{name}" if name else file.as_uri())
        return ",".join(found)

    def _fetch(self, address: str, place: Path) -> Path:
        where = urlsplit(address)
        if where.scheme != "s3" or not where.path.strip("/"):
            raise ServiceFailed(f"{address}: not an object in S3, s3://bucket/key")
        file = place / Path(where.path).name
        client = s3_client(self.environment)
        try:
            client.download_file(where.netloc, where.path.lstrip("/"), str(file))
        except (BotoCoreError, ClientError) as exc:
            raise ServiceFailed(f"{address} cannot be downloaded: {exc}") from exc
        finally:
            client.close()
        return file


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """A run's `spark-submit` with its child processes, and the run's folder."""

    submission: Submission
    place: Path

    def wait(self, seconds: float) -> int | None:
        """See `Work.wait`."""
        return self._left() if self._over(seconds) else None

    def stop(self, grace_seconds: float) -> None:
        """See `Work.stop`."""
        os.killpg(self.submission.process.pid, signal.SIGTERM)
        self._over(grace_seconds)
        self._left()

    def _over(self, seconds: float) -> bool:
        """Wait for the end of spark-submit; its pid is not reused before `_left`."""
        process = psutil.Process(self.submission.process.pid)
        deadline = time.monotonic() + seconds
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _left(self) -> int:
        """Remove everything but the log; return the exit code."""
        os.killpg(self.submission.process.pid, signal.SIGKILL)
        code = self.submission.process.wait()
        for path in self.place.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != OUTPUT:
                path.unlink()
        return code


def s3_client(environment: Mapping[str, str]) -> Any:  # noqa: ANN401 - boto3's
    """Return a client of the S3 server that an environment names."""
    return new_session().client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL_S3"],
        region_name=REGION,
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


def _path(place: Path) -> str:
    return os.pathsep.join((str(place / "bin"), os.defpath))


def _lay_python(folder: Path) -> None:
    """Create an interpreter with the release's name that finds no packages."""
    name = f"python{PYTHON}"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON
    found = sys.executable if ours else shutil.which(name)
    if found is None:
        raise ProgramMissing(f"no {name} on PATH, for which archives of Spark jobs are built")
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{found}" -s -S "$@"\n')
    path.chmod(0o755)
