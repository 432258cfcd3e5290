"""`file.name.template`: topic and partition of a backup's objects, found in their names."""

import itertools
import re
from random import Random

import pytest
from tests.support.chains import convert
from tests.support.golden import Golden

from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse, to_map
from extentflow.config.types import NameTemplate
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.model import ObjectVersion

BASE = {"name": "c", "topic": "restored.{topic}", "aws.s3.bucket.name": "bucket"}
AIVEN = "{{topic}}-{{partition:padding=true}}-{{start_offset:padding=true}}.gz"


def connector(template: str = AIVEN, **more: str) -> ConnectorConfig:
    config = parse({**BASE, "file.name.template": template, **more})
    assert parse(to_map(config)) == config
    return config


def version(key: str) -> ObjectVersion:
    return ObjectVersion("bucket", key, None, "e", 1)


@pytest.mark.parametrize(
    ("key", "template", "found"),
    [
        ("a/b/orders-0000000003-000000000100.gz", AIVEN, {"topic": "orders", "partition": "3"}),
        ("my-topic.v1-2-7.gz", AIVEN, {"topic": "my-topic.v1", "partition": "2"}),
        ("x/7/orders", "{{ partition }}/{{topic}}", {"topic": "orders", "partition": "7"}),
        ("any thing+1", "{{key}}+{{timestamp}}", {}),
    ],
)
def test_topic_and_partition_are_found_in_names(
    key: str, template: str, found: dict[str, str]
) -> None:
    named = parse({**BASE, "topic": "t", "file.name.template": template}).named(version(key))

    assert {name: text.lstrip("0") for name, text in named.items()} == found


def test_the_topic_of_the_name_fills_the_topic() -> None:
    assert connector().topic_for(version("orders-1-2.gz")) == "restored.orders"


def test_an_object_with_another_name_is_an_error(golden: Golden) -> None:
    with golden.raises(Misconfigured) as caught:
        connector().topic_for(version("orders.csv"))

    assert "s3://bucket/orders.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "topic: {topic} is the {{topic}} of file.name.template"),
        ({"file.name.template": "{{partition}}"}, "topic: {topic} is the {{topic}} of"),
        ({"file.name.template": "{{topics}}"}, "'{{topics}}' is unknown or stands twice"),
        ({"file.name.template": "{{topic}}{{topic}}"}, "'{{topic}}' is unknown or stands twice"),
        ({"file.name.template": "x"}, "write placeholders"),
        ({"topic": "t", "message.partition": "name"}, "message.partition=name: is the {{part"),
    ],
)
def test_mistakes_are_problems_of_the_connector(config: dict[str, str], complaint: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse({**BASE, **config})

    assert complaint in str(caught.value)


def test_records_go_to_the_partition_of_the_name() -> None:
    config = {"file.name.template": "{{topic}}-{{partition}}", "message.partition": "name"}

    made = convert(b"a\nb\n", config, "text", key="orders-3")

    assert {chunk.records.partition for chunk in made.chunks} == {3}


def test_a_partition_that_the_topic_lacks_fails_the_object(golden: Golden) -> None:
    config = {"file.name.template": "{{topic}}-{{partition}}", "message.partition": "name"}

    with golden.raises(UnsupportedFormat, match="partition 4.*topic source"):
        convert(b"a\n", config, "text", key="orders-4")


PARTS = {
    "topic": "(?P<topic>[A-Za-z0-9._-]+)",
    "partition": "(?P<partition>[0-9]+)",
    "start_offset": "[0-9]+",
    "timestamp": "[0-9]+",
    "key": ".*",
}


def test_names_are_found_as_a_regular_expression_finds_them() -> None:
    random = Random(1)
    fits = 0

    for _ in range(6_000):
        names = random.sample(list(PARTS), random.randint(1, 4))
        texts = random.choices(["", "-", ".", "/", "1"], [4, 2, 1, 1, 1], k=len(names) + 1)
        template = texts[0] + "".join(
            f"{{{{{a}}}}}{b}" for a, b in zip(names, texts[1:], strict=True)
        )
        pattern = re.escape(texts[0]) + "".join(
            PARTS[a] + re.escape(b) for a, b in zip(names, texts[1:], strict=True)
        )
        key = "".join(random.choices("a-./1\n", [2, 3, 2, 2, 8, 0.2], k=random.randint(0, 12)))
        match = re.fullmatch(f"(?:.*/)?{pattern}", key)
        fits += match is not None
        assert NameTemplate(template).find(key) == (match and match.groupdict()), (template, key)
    assert fits > 300


def test_a_hostile_name_takes_no_longer_than_it_is_long() -> None:
    hostile = ["1" * 4_000 + "!", "-1" * 2_000 + "!", "1/" * 2_000 + "!", "\n" * 4_000]
    parts = [f"{{{{{name}}}}}" for name in PARTS]
    templates = ["".join(parts) + "?", "-".join(parts) + "?", "1".join(parts) + "?"]

    for key, template in itertools.product(hostile, templates):
        assert NameTemplate(template).find(key) is None
