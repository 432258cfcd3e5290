"""The address of a target: which store it is in, and which options are refused."""

from typing import cast

import pytest
from pyspark.sql import SparkSession

from extentflow.errors import Misconfigured
from extentflow.export.lake.iceberg import catalog_settings
from extentflow.export.lake.lake_session import ENDPOINT, LakeAddress
from extentflow.wiring.targets import open_folder

VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
S3A = "spark.sql.catalog.lake.hadoop.fs.s3a."


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def address(
    *, to: str | None = "s3a://lake/x", table: str | None = "a.b", endpoint: str | None = None
) -> LakeAddress:
    return LakeAddress(to=to, table=table, store={} if endpoint is None else {ENDPOINT: endpoint})


class Session:
    """Of Spark's session, its settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.conf = settings


def test_a_catalog_that_the_session_lacks_is_refused() -> None:
    where = LakeAddress(to=None, table="a.b", catalog="shop")
    known = cast("SparkSession", Session({"spark.sql.catalog.shop": "SomeCatalog"}))

    with pytest.raises(Misconfigured, match="--catalog shop: Spark's settings"):
        where.open(cast("SparkSession", Session({})), open_folder)
    assert where.open(known, open_folder).where == "Iceberg table shop.a.b"


def of_store(endpoint: str | None) -> dict[str, str]:
    settings = catalog_settings("lake", "s3a://lake/x", endpoint)
    return {name.removeprefix(S3A): settings[name] for name in settings if name.startswith(S3A)}


def test_an_endpoint_is_the_options_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address().store_endpoint() is None

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:1")
    assert address().store_endpoint() == "http://all:1"

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:2")
    assert address().store_endpoint() == "http://s3:2"
    assert address(endpoint="http://given:3").store_endpoint() == "http://given:3"


def test_a_catalog_in_aws_gets_the_region_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert of_store(None) == {}

    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert of_store(None) == {"endpoint.region": "eu-west-1"}

    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert of_store(None) == {"endpoint.region": "eu-north-1"}


def test_a_catalog_in_another_store_gets_its_endpoint() -> None:
    assert of_store("http://s3:2") == {
        "endpoint": "http://s3:2",
        "path.style.access": "true",
        "endpoint.region": "us-east-1",
    }
