"""A folder of a bucket, for lake targets."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from extentflow.errors import ObjectChanged, ObjectGone
from extentflow.storage.s3.uploads import Uploads


@dataclass(frozen=True, slots=True)
class S3Folder:
    """The Folder port over the requests of a store; `prefix` is empty or ends with `/`."""

    uploads: Uploads
    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """See `Folder`."""
        return f"s3://{self.bucket}/{self.prefix}"

    def create(self, name: str, content: bytes) -> bool:
        """See `Folder`; a conditional PUT (If-None-Match)."""

        def put() -> None:
            with self.uploads.request(self.uri + name) as client:
                client.put_object(
                    Bucket=self.bucket, Key=self.prefix + name, Body=content, IfNoneMatch="*"
                )

        try:
            self.uploads.retry.call(put)
        except ObjectChanged:
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        """See `Folder`."""

        def put() -> None:
            with self.uploads.request(self.uri + name) as client:
                client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content)

        self.uploads.retry.call(put)

    def read(self, name: str) -> bytes | None:
        """See `Folder`."""
        try:
            return self.uploads.read(self.bucket, self.prefix + name)
        except ObjectGone:
            return None

    def names(self, prefix: str) -> Iterator[str]:
        """See `Folder`."""
        after = ""
        while True:
            page = self._page(prefix, after)
            yield from (key.removeprefix(self.prefix) for key in page)
            if not page:
                return
            after = page[-1]

    def _page(self, prefix: str, after: str) -> list[str]:
        def page() -> list[str]:
            with self.uploads.request(self.uri + prefix) as client:
                answer = client.list_objects_v2(
                    Bucket=self.bucket, Prefix=self.prefix + prefix, StartAfter=after
                )
            return [each["Key"] for each in answer.get("Contents", ())]

        return self.uploads.retry.call(page)

    def move(self, name: str, target: str) -> None:
        """See `Folder`."""

        def copy() -> None:
            with self.uploads.request(self.uri + name) as client:
                client.copy_object(
                    Bucket=self.bucket,
                    Key=self.prefix + target,
                    CopySource={"Bucket": self.bucket, "Key": self.prefix + name},
                )

        try:
            self.uploads.retry.call(copy)
        except ObjectGone:
            self._require(target)
            return
        self.delete(name)

    def _require(self, name: str) -> None:
        """Raise ObjectGone unless an object exists."""

        def head() -> None:
            with self.uploads.request(self.uri + name) as client:
                client.head_object(Bucket=self.bucket, Key=self.prefix + name)

        self.uploads.retry.call(head)

    def delete(self, name: str) -> None:
        """See `Folder`."""
        self.uploads.delete(self.bucket, self.prefix + name)

    def require_bucket(self) -> None:
        """See `Folder`."""
        self.uploads.require_bucket(self.bucket)

    def creates_once(self) -> bool:
        """See `Folder`; puts and deletes a small object."""
        name = f"_extentflow/probe-{secrets.token_hex(8)}"
        self.create(name, b"first")
        refused = not self.create(name, b"second")
        self.delete(name)
        return refused
