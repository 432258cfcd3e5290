"""Connectors of a command's address and options: what they are, and how the ledger keeps them."""

from pathlib import Path

import pytest

from extentflow.errors import Misconfigured
from extentflow.services.addressed import (
    make_connector,
    parse_settings,
)


@pytest.mark.parametrize(
    ("addresses", "bucket", "prefix", "full"),
    [
        (["s3://shop/in/a.csv"], "shop", "in/", ["s3://shop/in/a.csv"]),
        (["s3a://shop/in/"], "shop", "in/", ["s3://shop/in/"]),
        (["s3://shop"], "shop", None, ["s3://shop/"]),
        (["s3://shop/in"], "shop", None, ["s3://shop/in"]),
        (["s3://shop/in/2026-*/x.csv"], "shop", "in/", ["s3://shop/in/2026-*/x.csv"]),
        (["s3://s/a/b/1", "s3://s/a/bc/2"], None, "a/", ["s3://s/a/b/1", "s3://s/a/bc/2"]),
        (["s3://shop/in/1", "s3://shop/out/2"], "shop", None, None),
    ],
)
def test_an_address_in_a_bucket_makes_a_connector_of_its_prefix(
    addresses: list[str], bucket: str | None, prefix: str | None, full: list[str] | None
) -> None:
    name = "bucket" if bucket is None else bucket
    made = make_connector([one.replace("//s/", "//bucket/") for one in addresses], "orders", {})

    assert made.name == f"orders-from-{name}"
    assert made.settings["aws.s3.bucket.name"] == name
    assert made.settings.get("aws.s3.prefix") == prefix
    wanted = [one.replace("//s/", "//bucket/") for one in full or addresses]
    assert list(made.addresses) == wanted


def test_files_make_a_connector_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a.csv", "b.csv", "star*.csv"):
        (folder / name).write_text("id\n1\n")
    monkeypatch.chdir(tmp_path)

    one = make_connector(["data/a.csv"], "orders", {})
    every = {
        address: make_connector([address], "orders", {}).addresses
        for address in (
            *("data", "data/", f"file://{folder}", f"file://localhost{folder}"),
            *("data/*.csv", "data/star*.csv"),
        )
    }
    several = make_connector(["data/a.csv", str(folder / "b.csv")], "orders", {})

    assert one.settings["endpoint.type"] == "localfile"
    assert one.settings["directory"] == str(folder)
    assert one.addresses == (f"file://{folder}/a.csv",)
    assert every == {
        "data": (f"file://{folder}/",),
        "data/": (f"file://{folder}/",),
        f"file://{folder}": (f"file://{folder}/",),
        f"file://localhost{folder}": (f"file://{folder}/",),
        "data/*.csv": (f"file://{folder}/*.csv",),
        "data/star*.csv": (f"file://{folder}/star*.csv",),
    }
    assert several.addresses == (f"file://{folder}/a.csv", f"file://{folder}/b.csv")
    assert one.name.startswith("orders-from-data-")
    assert one.name == several.name


def test_names_tell_folders_services_and_topics_apart(tmp_path: Path) -> None:
    for place in ("one", "other"):
        (tmp_path / place / "data").mkdir(parents=True)
    elsewhere = {"aws.s3.endpoint": "http://127.0.0.1:1"}

    names = [
        make_connector([str(tmp_path / "one" / "data")], "orders", {}).name,
        make_connector([str(tmp_path / "other" / "data")], "orders", {}).name,
        make_connector(["s3://data/"], "orders", {}).name,
        make_connector(["s3://data/"], "orders", elsewhere).name,
        make_connector(["s3://data/"], "{bucket}-{extension}", {}).name,
        make_connector(["s3://b-from-c/"], "a", {}).name,
        make_connector(["s3://c-c/"], "a-from-b", {}).name,
        make_connector(["s3://from-b/"], "a", {}).name,
        make_connector(["s3://b-b/"], "a-from", {}).name,
        make_connector(["s3://data/"], "o" * 200, {}).name,
        make_connector(["s3://data/"], "orders", {"name": "mine"}).name,
    ]

    assert len(set(names)) == len(names)
    assert names[-1] == "mine"


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ({"aws.s3.endpoint": "http://minio:9000"}, ""),
        ({"s3.url": "http://minio:9000"}, ""),
        ({"aws.s3.endpoint": "HTTP://MinIO:9000/"}, ""),
        ({}, "AWS_ENDPOINT_URL"),
        ({}, "AWS_ENDPOINT_URL_S3"),
    ],
)
def test_every_spelling_of_a_service_makes_one_name(
    given: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alias once gave two services one name, so that the second one's objects were skipped."""
    name = make_connector(["s3://shop/"], "orders", {"s3.url": "http://minio:9000"}).name
    of_aws = make_connector(["s3://shop/"], "orders", {}).name
    elsewhere = make_connector(["s3://shop/"], "orders", {"s3.url": "http://other:9000"}).name
    if variable:
        monkeypatch.setenv(variable, "http://minio:9000/")

    made = make_connector(["s3://shop/"], "orders", given)

    assert made.name == name
    assert len({name, of_aws, elsewhere}) == 3


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://s3.amazonaws.com",
        "https://s3.eu-central-1.amazonaws.com/",
        "https://s3.dualstack.us-east-1.amazonaws.com:443",
    ],
)
def test_an_endpoint_of_aws_is_its_usual_service(endpoint: str) -> None:
    made = make_connector(["s3://shop/"], "orders", {"aws.s3.endpoint": endpoint})

    assert made.name == "orders-from-shop"


def test_variables_of_endpoints_that_the_sdk_ignores_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")

    assert make_connector(["s3://shop/"], "orders", {}).name == "orders-from-shop"


@pytest.mark.parametrize(
    ("addresses", "settings", "said"),
    [
        ([], {}, "which objects? give an address"),
        (["no-such.csv"], {}, "/no-such.csv: no such file or folder; correct the path"),
        (["a" * 300], {}, "File name too long; correct the path"),
        (["file://elsewhere/in/"], {}, "file://elsewhere/in/: write file:///absolute/path"),
        (["gs://shop/in/"], {}, "gs://shop/in/: write s3://BUCKET/KEY, a file or a folder"),
        (["s3://one/", "s3://two/"], {}, "several buckets or folders"),
        (["s3://shop/"], {"topic": "x"}, "--set topic: the address and --topic say that"),
        (["s3://shop/"], {"aws.s3.prefix": "x"}, "--set aws.s3.prefix: the address"),
        (["s3://shop/"], {"input.fromat": "csv"}, "did you mean input.format?"),
        (["s3://shop/"], {"message.key": "colum:x"}, "message.key='colum:x'"),
        (["s3://"], {}, "aws.s3.bucket.name=''"),
    ],
)
def test_what_cannot_be_is_said_with_the_way_out(
    addresses: list[str], settings: dict[str, str], said: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        make_connector(addresses, "orders", settings)

    assert said in str(caught.value)


def test_settings_are_given_as_key_and_value() -> None:
    assert parse_settings(["a=b=c", " d = ", "e="]) == {"a": "b=c", "d": " ", "e": ""}
    with pytest.raises(Misconfigured) as caught:
        parse_settings(["input.format", "=x", "a=1", "a=2"])

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "--set input.format",
        "--set '=x'" if "--set '=x'" in str(caught.value) else "--set =x",
        "--set a",
    ]


def test_a_link_to_a_folder_makes_the_folders_connector(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").touch()
    (tmp_path / "link").symlink_to(tmp_path / "in")

    whole, one = (
        make_connector([str(tmp_path / "link" / name)], "orders", {}) for name in ("", "a.csv")
    )

    assert whole.settings["directory"] == str((tmp_path / "in").resolve())
    assert one.name == whole.name == make_connector([str(tmp_path / "in")], "orders", {}).name
