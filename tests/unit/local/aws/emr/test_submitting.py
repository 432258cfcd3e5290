"""What keeps a run on a standalone cluster from being begun; the rest needs one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from extentflow_local.aws.emr.application import Order
from extentflow_local.aws.emr.submitting import SparkSubmits
from extentflow_local.aws.event_source.serving import Handler, LoopbackServer
from extentflow_local.stack.errors import ServiceFailed
from extentflow_local.stack.ports import HOST

OBJECTS = {"/code/main.py": b"print()", "/code/broken.tgz": b"no archive"}


class S3(Handler):
    """An S3 server with two objects, as far as a download goes."""

    def __getattr__(self, name: str) -> object:
        if name in {"do_GET", "do_HEAD"}:
            return self._take
        raise AttributeError(name)

    def _take(self) -> None:
        body = OBJECTS.get(self.path.partition("?")[0])
        self.answer(404 if body is None else 200, body or b"", [("ETag", '"1"')])


@pytest.fixture
def submits(tmp_path: Path) -> Iterator[SparkSubmits]:
    server = LoopbackServer(S3).start()
    environment = {
        "AWS_ENDPOINT_URL_S3": f"http://{HOST}:{server.port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    yield SparkSubmits("spark://nowhere:1", tmp_path, environment)
    server.stop()


@pytest.mark.parametrize(
    ("program", "archive", "why"),
    [
        ("file:///main.py", "s3://code/main.tgz", "file:///main.py: not an object in S3"),
        ("s3://code", "s3://code/main.tgz", "s3://code: not an object in S3"),
        ("s3://code/absent.py", "s3://code/main.tgz", "s3://code/absent.py cannot be downloaded"),
        (
            "s3://code/main.py",
            "s3://code/absent.tgz#e",
            "s3://code/absent.tgz cannot be downloaded",
        ),
        ("s3://code/main.py", "s3://code/broken.tgz#e", "s3://code/broken.tgz is not an archive"),
    ],
)
def test_code_that_is_not_there_or_no_archive_is_named(
    submits: SparkSubmits, program: str, archive: str, why: str
) -> None:
    order = Order("00run", program, (), {"spark.archives": archive})

    with pytest.raises(ServiceFailed, match=why):
        submits(order)
