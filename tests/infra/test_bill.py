"""The bill of materials: every shipped package, its version, and a licence that is permitted."""

import json
from pathlib import Path

import pytest
from infra.recipes import bill
from infra.recipes.wheels import PackagingError


def described(**fields: str | list[str]) -> dict[str, list[str]]:
    return {
        name.replace("_", "-"): [text] if isinstance(text, str) else text
        for name, text in {"Version": "1.0", **fields}.items()
    }


def test_every_shipped_package_has_a_permitted_licence() -> None:
    pinned = bill.pins(bill.LOCKS)

    shipped = list(bill.packages(pinned))

    assert {one.name: one.version for one in shipped} == pinned
    assert {"boto3", "confluent-kafka", "pyarrow"} <= set(pinned)


def test_the_bill_lists_packages_with_urls_and_licences() -> None:
    shipped = [bill.Package("a", "1.0", "MIT"), bill.Package("b", "2", "Apache-2.0 OR MIT")]

    made = json.loads(json.dumps(bill.bill(shipped)))

    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert [one["purl"] for one in made["components"]] == ["pkg:pypi/a@1.0", "pkg:pypi/b@2"]
    assert made["components"][1]["licenses"] == [{"expression": "Apache-2.0 OR MIT"}]
    assert made == bill.bill(shipped)
    assert made["serialNumber"] != bill.bill(shipped[:1])["serialNumber"]


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        (
            {"License_Expression": "MPL-2.0 AND (Apache-2.0 OR MIT)"},
            "MPL-2.0 AND (Apache-2.0 OR MIT)",
        ),
        ({"License": "Apache License 2.0"}, "Apache-2.0"),
        ({"Classifier": ["x", "License :: OSI Approved :: MIT License"]}, "MIT"),
    ],
)
def test_a_licence_is_read_wherever_a_package_states_it(
    fields: dict[str, str | list[str]], licence: str
) -> None:
    (found,) = bill.packages({"a": "1.0"}, lambda _: described(**fields))

    assert found.licence == licence


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"License": "GPL-3.0-only"},
        {"License_Expression": "MIT AND AGPL-3.0-only"},
        {"License_Expression": "GPL-3.0-only", "License": "MIT"},
    ],
)
def test_a_licence_that_is_not_permitted_is_rejected(fields: dict[str, str]) -> None:
    with pytest.raises(PackagingError, match=r"a: its licence .* not permitted"):
        list(bill.packages({"a": "1.0"}, lambda _: described(**fields)))


def test_another_installed_version_is_rejected() -> None:
    with pytest.raises(PackagingError, match=r"a: 1\.0 is installed, 2 is pinned"):
        list(bill.packages({"a": "2"}, lambda _: described(License="MIT")))


def test_locks_that_disagree_are_rejected(tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("a==1 \\\n    --hash=sha256:0\n")
    second.write_text("a==2\n")

    with pytest.raises(PackagingError, match="a is 1 elsewhere"):
        bill.pins((first, second))
