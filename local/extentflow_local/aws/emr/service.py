"""The emulator of EMR Serverless from start to stop, and the settings of its clients."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

from extentflow.config.worker import variable
from extentflow_local.aws.emr.application import MINUTE_SECONDS, Application, Begin, Listener
from extentflow_local.aws.emr.front import Front
from extentflow_local.aws.emr.submitting import s3_client
from extentflow_local.stack.servers import ACCOUNT

JOB_ROLE = f"arn:aws:iam::{ACCOUNT}:role/extentflow-spark-jobs"
ENDPOINT = "AWS_ENDPOINT_URL_EMR_SERVERLESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The code of runs: files, uploaded to a bucket of `environment`'s S3 server."""

    entry_point: Path
    archive: Path
    environment: Mapping[str, str]

    def upload(self, bucket: str) -> None:
        """Create the bucket, and upload both files."""
        client = s3_client(self.environment)
        client.create_bucket(Bucket=bucket)
        for file in (self.entry_point, self.archive):
            client.upload_file(str(file), bucket, file.name)
        client.close()


class EmrServerless:
    """One application on a port of 127.0.0.1; a context manager that stops it.

    `begin` starts its runs: `submitting.SparkSubmits`, or a test's own.
    """

    def __init__(
        self, begin: Begin, code: Code | None = None, *, minute_seconds: float = MINUTE_SECONDS
    ) -> None:
        self.id = f"00{uuid4().hex[:14]}"
        self._application = Application(self.id, begin, minute_seconds)
        self._code = code
        self._front = Front(self._application)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Its address."""
        return self._front.url

    @property
    def environment(self) -> dict[str, str]:
        """Variables of components that start runs, without the threshold."""
        found = {
            variable("spark.application.id"): self.id,
            variable("spark.job.role.arn"): JOB_ROLE,
            ENDPOINT: self.url,
        }
        if self._code is not None:
            where = f"s3://{self._bucket}"
            found[variable("spark.entry.point")] = f"{where}/{self._code.entry_point.name}"
            found[variable("spark.archive")] = f"{where}/{self._code.archive.name}"
        return found

    def start(self) -> None:
        """Upload the code, and start to serve."""
        if self._code is not None:
            self._code.upload(self._bucket)
        self._front.start()

    def forwarding(self, listener: Listener) -> AbstractContextManager[None]:
        """Call a listener with EventBridge's event of every state change, in order.

        The call is on the run's thread, which waits for it.
        """
        return self._application.forwarding(listener)

    def stop(self) -> None:
        """Stop serving, and end all runs."""
        self._front.stop()
        self._application.stop()

    @property
    def _bucket(self) -> str:
        return f"runs-{self.id}"
