"""Which changes of the S3 server's files are uploads, and what is reported of them."""

import base64
import json
from typing import Any

import pytest

from extentflow.discovery.notifications import parse_notification
from extentflow_local.aws.event_source.uploads import Upload, documents, notification, upload_of

MD5 = base64.b64encode(bytes.fromhex("0cc175b9c0f1b6a831c399e269772661")).decode()


def entry(
    name: str, *, chunk: str = "3", written: str = "", size: int = 1, **marks: str
) -> dict[str, Any]:
    """What the server says of a file; marks are named as it names them, with `_` for `-`."""
    named = {key.replace("_", "-"): base64.b64encode(v.encode()) for key, v in marks.items()}
    return {
        "name": name,
        "isDirectory": False,
        "chunks": [{"offset": "0", "fid": {"fileKey": chunk}, "fileId": written}] if size else [],
        "attributes": {"fileSize": str(size), "md5": MD5},
        "extended": {key: value.decode() for key, value in named.items()},
        "content": "",
    }


def change(
    new: dict[str, Any] | None, old: dict[str, Any] | None = None, folder: str = "/buckets/shop"
) -> dict[str, Any]:
    reported = {"oldEntry": old, "newEntry": new, "newParentPath": folder if new else ""}
    return {"directory": folder, "eventNotification": reported, "tsNs": "1795307080334689323"}


def uploaded(*arguments: Any, **named: Any) -> Upload:  # noqa: ANN401 - those of `change`
    found = upload_of(change(*arguments, **named))
    assert found is not None
    return found


def test_a_new_file_is_an_upload_with_its_etag_and_size() -> None:
    new = entry("a b+c%25 ü.csv", size=7, Seaweed_X_Amz_ETag="abc")

    found = uploaded(new, folder="/buckets/shop/in/deep")

    version = found.version
    assert (version.bucket, version.key) == ("shop", "in/deep/a b+c%25 ü.csv")
    assert (version.etag, version.size, version.version_id) == ("abc", 7, None)
    assert found.moment_ns == 1795307080334689323


def test_a_file_without_the_mark_has_the_etag_of_its_bytes() -> None:
    assert uploaded(entry("a")).version.etag == "0cc175b9c0f1b6a831c399e269772661"


def test_a_version_is_an_upload_of_its_key() -> None:
    new = entry("v_67c2", Seaweed_X_Amz_Version_Id="67c2")

    found = uploaded(new, folder="/buckets/shop/in/x.csv.versions")

    assert (found.version.key, found.version.version_id) == ("in/x.csv", "67c2")


def test_a_folder_that_only_looks_like_versions_is_part_of_the_key() -> None:
    found = uploaded(entry("v_None"), folder="/buckets/shop/in/x.versions")

    assert (found.version.key, found.version.version_id) == ("in/x.versions/v_None", None)


def test_other_bytes_under_the_same_key_are_an_upload() -> None:
    found = uploaded(entry("a", chunk="4"), old=entry("a", chunk="3"))

    assert found.version.key == "a"


@pytest.mark.parametrize(
    "reported",
    [
        change(None, old=entry("a")),
        change(entry("a", X_Amz_Tagging_a="b"), old=entry("a", written="3,01")),
        change(entry("v_1", Seaweed_X_Amz_Delete_Marker="true"), folder="/buckets/shop/a.versions"),
        change({**entry("in"), "isDirectory": True}),
        change(entry("0001.part"), folder="/buckets/shop/.uploads/f00"),
        change(entry("conf"), folder="/buckets/.system/owners"),
        change(entry("conf"), folder="/etc/seaweedfs"),
        change(entry("shop"), folder="/buckets"),
    ],
    ids=["deleted", "tagged", "marker", "folder", "part", "system", "outside", "bucket"],
)
def test_every_other_change_is_none(reported: dict[str, Any]) -> None:
    assert upload_of(reported) is None


@pytest.mark.parametrize("key", ["in/1.jsonl", "in/a b+c%25 ü☃.csv"])
@pytest.mark.parametrize("version", [None, "67c2"])
def test_a_notification_names_the_exact_object_in_s3s_own_dialect(
    key: str, version: str | None
) -> None:
    folder, _, name = key.rpartition("/")
    place = f"/buckets/shop/{folder}"
    new = entry(name, size=12)
    if version:
        new = entry(f"v_{version}", size=12, Seaweed_X_Amz_Version_Id=version)
        place = f"/buckets/shop/{key}.versions"

    parsed = parse_notification(notification(uploaded(new, folder=place)))

    (arrival,) = parsed.arrivals
    assert not parsed.unparseable
    assert (arrival.bucket, arrival.key, arrival.version_id) == ("shop", key, version)
    assert (arrival.etag, arrival.size) == ("0cc175b9c0f1b6a831c399e269772661", 12)
    assert (arrival.event_time, arrival.region) == (1795307080.334, None)


@pytest.mark.parametrize(
    ("new", "name"),
    [
        (entry("a"), "Put"),
        (entry("a", X_Seaweedfs_Multipart_Parts_Count="3"), "CompleteMultipartUpload"),
    ],
)
def test_the_event_name_depends_on_the_kind_of_upload(new: dict[str, Any], name: str) -> None:
    reported = json.loads(notification(uploaded(new)))

    assert reported["Records"][0]["eventName"] == f"ObjectCreated:{name}"


def test_documents_are_read_from_indented_lines_as_they_come() -> None:
    reported = [{"a": {"b": "}"}}, {"a": {}}]
    lines = "".join(f"{json.dumps(one, indent=2)}\n" for one in reported).splitlines(keepends=True)

    assert list(documents(lines)) == reported
    assert list(documents(lines[:-1])) == reported[:1]
