"""Traces of functions, for stages that want them."""

from dataclasses import replace

import pytest
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    BEHIND_WAF,
    FUNCTIONS,
    PLAIN,
    STAGES,
    Bench,
    actions,
    function,
    of_type,
)

SENT = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}


def test_functions_of_a_traced_stage_are_traced_and_may_send_it(bench: Bench) -> None:
    template = bench.template(replace(PLAIN, tracing=True))

    for service in FUNCTIONS:
        assert function(template, service)["TracingConfig"] == {"Mode": "Active"}
        assert actions(template, service) >= SENT


def test_the_rest_api_of_a_traced_stage_is_traced(bench: Bench) -> None:
    template = bench.template(replace(BEHIND_WAF, tracing=True))

    (stage,) = of_type(template, "AWS::ApiGateway::Stage").values()

    assert stage["TracingEnabled"]


@pytest.mark.parametrize("stage", STAGES)
def test_other_stages_send_no_traces(templates: Templates, stage: str) -> None:
    template = templates(stage)

    for service in ("planner", "worker", "reconciler"):
        assert "TracingConfig" not in function(template, service)
        assert not actions(template, service) & SENT
