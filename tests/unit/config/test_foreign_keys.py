"""Keys of other products: each one is said to be something that exists here."""

import re
from pathlib import Path

import pytest

from extentflow.config import foreign_keys
from extentflow.config.foreign_keys import PRODUCTS, ForeignKeys
from extentflow.config.parsing import connector_table, parse
from extentflow.config.worker import TABLE
from extentflow.errors import Misconfigured

ROOT = Path(__file__).parents[3]
ORDERS = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "shop"}
# Names with dots in the advice that are no keys.
OTHERS = {"explode.array", "max.message.bytes"}
EVERY = [(product.name, key) for product in PRODUCTS for key in product.keys]


def problems(**changes: str) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as refused:
        parse({**ORDERS, **changes})
    return refused.value.problems


@pytest.mark.parametrize(("product", "key"), EVERY)
def test_a_key_of_another_product_says_what_it_is_here(product: str, key: str) -> None:
    says = ForeignKeys()[key]

    named = set(re.findall(r"[a-z0-9]+(?:\.[a-z0-9]+)+", says.replace("docs/migrate.md", "")))
    known = {*connector_table().names(), *TABLE.names(), *OTHERS}

    assert product
    assert f"{key}: {says}" in problems(**{key: "1"})
    assert named <= known


@pytest.mark.parametrize(
    ("key", "value"),
    sorted(
        {
            pair
            for product in PRODUCTS
            for says in (*product.keys.values(), *product.begins.values())
            for pair in re.findall(r"([a-z0-9]+(?:\.[a-z0-9]+)*)=([^\s,;:()]+)", says)
        }
    ),
)
def test_a_value_that_an_advice_names_is_accepted(key: str, value: str) -> None:
    found = problems(**{key: value.replace("NAME", "name"), "no.such.key": "1"})

    # Others say what else that value needs.
    assert not any(one.startswith(f"{key}=") for one in found)


@pytest.mark.parametrize("key", ["skip.headers", "skip.header.line.count"])
def test_a_number_of_skipped_lines_that_includes_the_header_is_one_less_here(key: str) -> None:
    assert "one less" in ForeignKeys()[key]
    assert "one less" not in ForeignKeys()["csv.skip.lines"]


def test_other_keys_that_begin_like_those_of_a_product_are_explained() -> None:
    assert "docs/migrate.md" in problems(**{"connect.s3.unheard.of": "1"})[0]
    assert "licence" in problems(**{"confluent.topic.replication.factor": "1"})[0]


@pytest.mark.parametrize("key", ["distribution.typ", "some.product.key", "ring.size"])
def test_a_name_that_is_far_from_all_is_not_guessed(key: str) -> None:
    (problem,) = problems(**{key: "1"})

    assert "did you mean" not in problem


def test_a_file_of_another_connector_is_explained_whole() -> None:
    found = problems(
        **{
            "connector.class": "io.lenses.streamreactor.connect.aws.s3.source.S3SourceConnector",
            "connect.s3.kcql": "insert into orders select * from shop:in STOREAS `JSON`",
            "connect.s3.aws.region": "eu-central-1",
            "connect.s3.partition.search.interval": "60000",
        }
    )

    assert len(found) == 4
    assert not any("no such key" in problem for problem in found)


def test_the_page_is_not_stale() -> None:
    written = (ROOT / "docs" / "migrate.md").read_text(encoding="utf-8")

    assert written == foreign_keys.page(), "run `make docs`"
