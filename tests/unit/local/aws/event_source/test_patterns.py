"""Which events a rule wants."""

from typing import Any

import pytest
from tests.support.golden import Golden

from extentflow_local.aws.event_source.intrinsics import UnresolvedValue
from extentflow_local.aws.event_source.patterns import check, wants

PATTERN = {"source": ["aws.emr-serverless"], "detail": {"state": ["FAILED", "SUCCESS"]}}


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        ({"source": "aws.emr-serverless", "detail": {"state": "FAILED", "more": 1}}, True),
        ({"source": "aws.emr-serverless", "detail": {"state": "RUNNING"}}, False),
        ({"source": "aws.emr-serverless", "detail": "FAILED"}, False),
        ({"source": "aws.emr-serverless"}, False),
        ({"source": "aws.s3", "detail": {"state": "FAILED"}}, False),
    ],
)
def test_every_named_field_has_one_of_its_values(event: dict[str, Any], *, wanted: bool) -> None:
    check(PATTERN)

    assert wants(PATTERN, event) is wanted


@pytest.mark.parametrize("odd", [[{"prefix": "a"}], "FAILED"])
def test_filters_are_rejected(odd: object, golden: Golden) -> None:
    with golden.raises(UnresolvedValue, match=r"EventPattern\.state"):
        check({"detail": {"state": odd}})
