"""`after.completion` and headers of properties, on real servers and every way of delivery."""

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.eventpath import Ending, Ground
from tests.support.waiting import eventually

from extentflow.kafka import JOBS_TOPIC

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LINES = numbered_lines("line ", 5_000)


def keys(s3: "S3Client", bucket: str, prefix: str) -> list[str]:
    found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
    return [each["Key"] for each in found.get("Contents", [])]


@pytest.mark.parametrize(
    "engine", ["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.soak])]
)
@pytest.mark.long
def test_a_run_moves_the_objects_that_it_delivered(delivery: Delivery, engine: str) -> None:
    moved = f"moved-{delivery.name}/"
    delivery.connector(
        {
            "after.completion": "move",
            "after.completion.move.prefix": moved,
            "extent.bytes": "16KiB",
            "headers": "owner=metadata:owner,kind=content_type,at=last_modified,team=tag:team",
        }
    )
    delivery.put("empty.txt", b"")
    delivery.s3.put_object(
        Bucket=delivery.bucket,
        Key=f"{delivery.prefix}a.txt",
        Body=joined(LINES),
        ContentType="text/plain",
        Metadata={"owner": "shop"},
        Tagging="team=a",
    )

    delivery.finish(engine)
    delivery.finish(engine)

    assert keys(delivery.s3, delivery.bucket, delivery.prefix) == []
    assert keys(delivery.s3, delivery.bucket, moved) == [f"{moved}a.txt", f"{moved}empty.txt"]
    records = delivery.read()
    assert sorted(record.value or b"" for record in records) == sorted(LINES)
    for record in records:
        headers = dict(record.headers)
        assert headers.pop("at")
        assert headers == {"owner": b"shop", "kind": b"text/plain", "team": b"a"}
    assert {job.state.value for job in delivery.jobs()} == {"DONE"}
    events = [json.loads(record.value or b"") for record in delivery.read(JOBS_TOPIC)]
    ours = [event for event in events if event["connector"] == delivery.connector_name]
    assert [event["completion"] for event in ours] == ["", ""]


@pytest.mark.long
def test_functions_delete_the_objects_that_they_delivered(ground: Ground, s3: "S3Client") -> None:
    with ground.open() as path:
        feed = path.feed(after_completion="delete")
        feed.upload("lines.txt", joined(LINES))

        ending = feed.ending(LINES)

        assert ending == Ending(records=len(LINES))
        prefix = feed.delivery.prefix
        eventually("the object is deleted", lambda: not keys(s3, path.bucket, prefix))
