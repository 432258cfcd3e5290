"""Topics of columnar values as files in a folder and in S3, on a real broker and a real server."""

import io
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.contracts.folder import FolderContract, publish
from tests.integration.conftest import MakeTopic
from tests.support.delivery import PROGRAM
from tests.support.waiting import eventually

from extentflow.errors import Conflict
from extentflow.storage import StoreOptions
from extentflow.storage.folders import Folder
from extentflow.storage.s3 import S3Store
from extentflow.storage.s3.folder import S3Folder
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ROWS = 40_000


@dataclass(frozen=True)
class Commands:
    """Commands of the program, with a ledger of their own, in a folder of their own."""

    folder: Path
    environment: Mapping[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __call__(self, *words: str, code: int = 0) -> str:
        """Return what a command prints, errors included."""
        ended = subprocess.run(
            [str(PROGRAM), *words],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == code, ended.stdout
        return ended.stdout

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(PROGRAM), *words],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.started.append(process)
        return process

    def deliver(self, name: str, table: pa.Table, topic: str, encoding: str = "parquet") -> None:
        """Deliver a table as columnar values of a thousand rows, in Arrow's encoding more."""
        pq.write_table(table, self.folder / name, row_group_size=1000)
        settings = {
            "columnar.encoding": encoding,
            "columnar.batch.bytes": "64KiB",
            "name": f"of-{name.partition('.')[0]}",
        }
        given = [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]
        self("run", name, "--topic", topic, "--engine", "inline", *given)


@pytest.fixture
def commands(stack: Stack, tmp_path: Path) -> Iterator[Commands]:
    environment = {
        **os.environ,
        "EXTENTFLOW_BOOTSTRAP_SERVERS": stack.endpoint("kafka"),
        "EXTENTFLOW_LEDGER_URL": f"sqlite:///{tmp_path}/ledger.db",
        "AWS_ENDPOINT_URL_S3": stack.endpoint("s3"),
    }
    made = Commands(tmp_path, environment)
    made("init")
    yield made
    for process in made.started:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Place:
    """A target: all its keys, and how one is read."""

    where: str
    keys: Callable[[], list[str]]
    read: Callable[[str], bytes]

    def files(self) -> dict[str, bytes]:
        return {key: self.read(key) for key in self.keys() if "/." not in key}

    def rows(self) -> pa.Table:
        found = [pq.read_table(io.BytesIO(content)) for content in self.files().values()]
        return pa.concat_tables(found).sort_by("id")


@pytest.fixture
def place(
    request: pytest.FixtureRequest, tmp_path: Path, s3: "S3Client", bucket: str, prefix: str
) -> Place:
    if request.param == "folder":
        root = tmp_path / "lake"

        def below() -> list[str]:
            return [str(path.relative_to(root)) for path in root.glob("*/*/*")]

        return Place(str(root), below, lambda key: (root / key).read_bytes())

    def listed() -> list[str]:
        found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
        return [one["Key"].removeprefix(prefix) for one in found]

    def read(key: str) -> bytes:
        return s3.get_object(Bucket=bucket, Key=prefix + key)["Body"].read()

    return Place(f"s3://{bucket}/{prefix}", listed, read)


def orders(first: int = 0, rows: int = ROWS) -> pa.Table:
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "item": [f"item {(number * 7919) % 104729}" for number in ids],
            "lines": [[{"sku": str(number % 97), "n": number % 5}] for number in ids],
            "state": [("open", "paid", "sent")[number % 3] for number in ids],
        }
    )


def delivered(table: pa.Table) -> pa.Table:
    """The table as Parquet holds it."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return pq.read_table(sink)


@pytest.mark.long
@pytest.mark.parametrize(
    "place", ["s3", pytest.param("folder", marks=pytest.mark.soak)], indirect=True
)
def test_files_hold_every_row_of_the_topic_once_and_the_next_run_continues(
    commands: Commands, make_topic: MakeTopic, place: Place
) -> None:
    topic = make_topic("exported", partitions=3)
    export = ("export", topic, "--to", place.where, "--once", "--file-bytes", "50KiB")
    commands.deliver("one.parquet", orders(), topic)

    commands(*export)
    first = place.files()
    commands.deliver("two.parquet", orders(ROWS), topic)
    commands(*export)
    both = place.files()

    assert len(first) > 3
    assert first.items() < both.items()
    assert all(key.split("/")[0] == topic and key.endswith(".parquet") for key in both)
    assert place.rows().equals(delivered(orders(rows=2 * ROWS)))
    assert "0 files with 0 rows" in commands(*export)


@pytest.mark.long
@pytest.mark.parametrize(
    "place", ["folder", pytest.param("s3", marks=pytest.mark.soak)], indirect=True
)
def test_a_run_without_an_end_publishes_its_files_when_it_is_terminated_and_after_a_kill(
    commands: Commands, make_topic: MakeTopic, place: Place
) -> None:
    topic = make_topic("followed", partitions=2)
    commands.deliver("one.parquet", orders(), topic)
    follow = ("export", topic, "--to", place.where, "--file-bytes", "20KiB")

    killed = commands.start(*follow)
    eventually("some files", lambda: len(place.files()) > 1)
    killed.kill()
    killed.wait()
    running = commands.start(*follow, "--file-seconds", "1")
    commands.deliver("two.parquet", orders(ROWS), topic)
    eventually("all rows", lambda: place.rows().num_rows == 2 * ROWS)
    commands.deliver("three.parquet", orders(2 * ROWS, 10), topic)
    running.send_signal(signal.SIGTERM)
    code = running.wait(timeout=60)
    commands("export", topic, "--to", place.where, "--once")

    assert code == 0
    left = {key for key in [*place.keys()] if "/." in key and "/.passed-" not in key}
    assert left <= {f"{topic}/.topic"}
    assert place.rows().equals(delivered(orders(rows=2 * ROWS + 10)))


@pytest.mark.soak
@pytest.mark.variant
def test_streams_of_arrow_are_joined_to_streams(
    commands: Commands, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic("arrow", partitions=1)
    commands.deliver("one.parquet", orders(), topic, "arrow")

    commands("export", topic, "--to", "lake", "--once")

    (path,) = (tmp_path / "lake" / topic / "0").glob("[!.]*")
    assert path.name.endswith(".arrows")
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        assert pa.types.is_dictionary(stream.schema.field("state").type)
        rows = stream.read_all().sort_by("id")
    assert rows.to_pylist() == orders().to_pylist()


@pytest.mark.long
def test_records_that_were_deleted_before_they_were_read_are_an_error_unless_accepted(
    commands: Commands, make_topic: MakeTopic, tmp_path: Path, bootstrap_servers: str
) -> None:
    """The marker of the last transaction, which was read, is no such record."""
    topic = make_topic("deleted", partitions=1)
    export = ("export", topic, "--to", "lake", "--once")
    folder = tmp_path / "lake" / topic / "0"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def delete_before(offset: int) -> None:
        for deletion in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            deletion.result(timeout=30)

    commands.deliver("one.parquet", orders(), topic)
    commands(*export)
    (path,) = folder.glob("[!.]*")
    behind = int(path.name[21:41]) + 1
    delete_before(-1)  # all: the marker, too
    idle = commands(*export)
    commands.deliver("two.parquet", orders(ROWS), topic)
    delete_before(behind + 3)

    said = commands(*export, code=2)
    accepted = commands(*export, "--accept-gap")

    assert "0 files with 0 rows" in idle
    gap = f"retention deleted the offsets {behind + 1} to {behind + 2}"
    assert all(gap in " ".join(each.split()) for each in (said, accepted))
    found = pq.read_table(tmp_path / "lake" / topic)
    assert ROWS < found.num_rows < 2 * ROWS


def test_a_topic_of_rows_is_refused(commands: Commands, make_topic: MakeTopic) -> None:
    topic = make_topic("rows", partitions=1)
    pq.write_table(orders(rows=5), commands.folder / "rows.parquet")
    commands("run", "rows.parquet", "--topic", topic, "--engine", "inline")

    assert "`extentflow lake`" in commands("export", topic, "--to", "lake", "--once", code=2)


@pytest.mark.long
def test_a_bucket_that_does_not_exist_is_not_created(
    commands: Commands, make_topic: MakeTopic, s3: "S3Client", unique: str
) -> None:
    topic, where = make_topic(1), f"s3://absent-{unique}/lake/"

    said = commands("export", topic, "--to", where, code=2)

    assert f"note: writing {topic} to {where}, until Ctrl-C or SIGTERM; --once ends" in said
    assert f"s3://absent-{unique}: no such bucket at http" in said
    assert f"absent-{unique}" not in [one["Name"] for one in s3.list_buckets()["Buckets"]]


@pytest.fixture
def folder(stack: Stack, bucket: str, prefix: str) -> S3Folder:
    found = S3Store(StoreOptions(endpoint=stack.endpoint("s3"))).folder(bucket, prefix)
    found.uploads.part_bytes = 5 << 20
    return found


class TestS3Folder(FolderContract):
    @pytest.fixture
    def folder(self, stack: Stack, bucket: str, prefix: str) -> Folder:
        return S3Store(StoreOptions(endpoint=stack.endpoint("s3"))).folder(bucket, prefix)


def test_an_object_in_parts_is_never_published_over_another_one(folder: S3Folder) -> None:
    content = bytes(12 << 20)

    publish(folder, "a", content)
    publish(folder, "a", content)
    with pytest.raises(Conflict, match="exists with other bytes"):
        publish(folder, "a", content[1:] + b"x")

    assert folder.read("a") == content


def test_unfinished_uploads_are_aborted(
    folder: S3Folder, s3: "S3Client", bucket: str, prefix: str
) -> None:
    def uploads() -> list[str]:
        found = s3.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", ())
        return [one["Key"] for one in found]

    s3.create_multipart_upload(Bucket=bucket, Key=f"{prefix}orders/0/a")
    before = uploads()

    folder.below("orders/0").clean()

    assert (before, uploads()) == ([f"{prefix}orders/0/a"], [])
