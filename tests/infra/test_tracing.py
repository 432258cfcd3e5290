"""Traces of functions, for stages that want them."""

from dataclasses import replace

import pytest
from tests.infra.conftest import Templates
from tests.support.synthesis import FUNCTIONS, PLAIN, STAGES, Bench, actions, function

SENT = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}


def test_functions_of_a_traced_stage_are_traced_and_may_send_it(bench: Bench) -> None:
    template = bench.template(replace(PLAIN, tracing=True))

    for service in FUNCTIONS:
        assert function(template, service)["TracingConfig"] == {"Mode": "Active"}
        assert actions(template, service) >= SENT


@pytest.mark.parametrize("stage", STAGES)
def test_other_stages_send_no_traces(templates: Templates, stage: str) -> None:
    template = templates(stage)

    for service in ("planner", "worker", "reconciler"):
        assert "TracingConfig" not in function(template, service)
        assert not actions(template, service) & SENT
