"""Expressions of connectors take time that grows with the name only."""

import re

import pytest

from extentflow.config.types import NAME_TEMPLATE
from extentflow.transforms.topic_patterns import TopicPattern

HOSTILE = ["(a+)+b", "(a|aa)+b", "(.*)*b", "a*a*a*a*a*a*a*a*a*a*b"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_expression_halts_a_worker(text: str) -> None:
    """Python's `re` needs hours for each."""
    pattern = TopicPattern(text)

    assert not pattern.matches("a" * 248 + "X")
    assert pattern.replaced("a" * 248 + "X", "t") == "a" * 248 + "X"


@pytest.mark.parametrize(
    ("regex", "topic", "replacement", "routed"),
    [
        ("orders-(.*)", "orders-eu", "eu.$1", "eu.eu"),
        ("orders", "orders-eu", "x", "orders-eu"),
        ("(a)|b", "b", "x$1", "x"),
        ("(?i)ORDERS", "orders", "x", "x"),
        ("(?P<one>.*)-(.*)", "a-b", "$2$1$2", "bab"),
        ("a.*", "abc", r"c\1", r"c\1"),
        (".*", "abc", "d", "d"),
        ("", "", "x", "x"),
    ],
)
def test_a_replacement_is_that_of_connect(
    regex: str, topic: str, replacement: str, routed: str
) -> None:
    assert TopicPattern(regex).replaced(topic, replacement) == routed


@pytest.mark.parametrize(
    "text", ["(", "(?=a)b", r"(a)\1", "(a{1000}){1000}", "[z-a]", "a{99999999999}"]
)
def test_what_re2_does_not_take_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no regular expression of RE2"):
        TopicPattern(text)


def test_a_group_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ValueError, match="regex has no such group"):
        TopicPattern("(a)").replaced("", "$2")


def test_no_part_of_a_template_stands_twice() -> None:
    for part in ("key", "timestamp", "topic"):
        written = f"{{{{{part}}}}}"
        with pytest.raises(ValueError, match=re.escape(f"'{written}' is unknown or stands twice")):
            NAME_TEMPLATE.read(f"{written}x{written}")
