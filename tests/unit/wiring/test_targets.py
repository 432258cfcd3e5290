"""Addresses of folders, and the keys that state how S3 is reached."""

import pickle
from functools import partial
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.errors import Misconfigured
from extentflow.storage.local_folder import LocalFolder
from extentflow.wiring.targets import open_folder


def test_addresses_open_their_folder(tmp_path: Path) -> None:
    endpoint = (("aws.s3.endpoint", "http://127.0.0.1:1"),)
    hadoop = f"file:{tmp_path}"

    opened = [open_folder(one) for one in (str(tmp_path), tmp_path.as_uri(), hadoop)]

    assert opened == [LocalFolder(tmp_path)] * 3
    assert open_folder("s3a://lake/a/b/", endpoint).uri() == "s3://lake/a/b/"
    assert open_folder("s3://lake").uri("x") == "s3://lake/x"


@pytest.mark.parametrize("address", ["hdfs://host/lake", "s3:///lake"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(Misconfigured, match="write s3://bucket/prefix"):
        open_folder(address)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"input.format": "csv"}, "only keys that begin with aws.s3."),
        ({"aws.s3.endpont": "http://h"}, "aws.s3.endpont: no such key; did you mean aws.s3.endp"),
        ({"aws.s3.endpoint": "host"}, "aws.s3.endpoint='host': write http"),
        ({"aws.access.key.id": "AKI"}, "aws.secret.access.key: missing; an access key is"),
        ({"aws.secret.access.key": "hidden"}, "aws.secret.access.key=(not shown): a secret"),
        ({"aws.sts.role.external.id": "x"}, "applies only where aws.sts.role.arn is set"),
    ],
)
def test_keys_are_checked_without_a_connector(settings: dict[str, str], said: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        open_folder("s3://lake/in/", tuple(settings.items()))

    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_local_folders_take_no_keys_of_s3(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"aws\.s3\.region.*S3"):
        open_folder("lake", (("aws.s3.region", "eu-north-1"),))


def test_workers_open_the_folder_of_the_driver(tmp_path: Path) -> None:
    opener = pickle.loads(pickle.dumps(partial(open_folder, settings=())))  # noqa: S301 - our own

    assert opener(str(tmp_path)) is open_folder(str(tmp_path), settings=())
