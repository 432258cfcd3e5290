"""Objects through plan and run of a runtime in memory: what is planned, delivered and refused."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_delivery import DEAD, TOPIC
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.engines import Engine
from extentflow.errors import Misconfigured
from extentflow.model import JobState
from extentflow.services.composition import open_runs
from extentflow.services.plans import Plans
from extentflow.services.run_control import EngineChoice
from extentflow.wiring.extents import delivery_context

TOLERANT = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": DEAD}


@dataclass(frozen=True)
class Outcome:
    """Plans, and what a run did; `reasons` are those of FAILED jobs, or of a refused run."""

    plans: Plans
    values: list[bytes]
    dead: list[bytes | None]
    states: dict[str, JobState]
    reasons: str

    @property
    def formats(self) -> dict[str, str]:
        """The format of each object that can be delivered."""
        return {one.version.key: one.format for one in self.plans.objects}


def deliver(objects: Mapping[str, bytes], **connector: str) -> Outcome:
    """Plan and run objects by key; dots of a connector's keys are written as two underscores.

    The format is that of each object unless `input__format` is given.
    """
    runtime = MemoryRuntime()
    runtime.cluster.create_topic(DEAD, 1)
    changes = {key.replace("__", "."): text for key, text in connector.items()}
    usual = {"name": "c", "topic": TOPIC, "aws.s3.bucket.name": BUCKET}
    runtime.memory.connectors.put("c", {**usual, **changes})
    for key, body in objects.items():
        runtime.memory_store.put(BUCKET, key, body)
    plans = open_runs(runtime).plan(runtime.order())

    def opened(*_args: object, **_words: object) -> Engine:
        return CallingThreadEngine(until_final(delivery_context(runtime, runtime.slots("here"))))

    reasons: list[str] = []
    try:
        report = open_runs(runtime, open_engine=opened).run(
            runtime.order(), engine=EngineChoice("inline")
        )
        reasons += [*report.errors, *(job.reason for job in report.jobs)]
    except Misconfigured as exc:
        reasons += exc.problems
    return Outcome(
        plans,
        [record.value or b"" for record in runtime.cluster.read_committed(TOPIC)],
        [record.value for record in runtime.cluster.read_committed(DEAD)],
        runtime.states(),
        "\n".join(reasons),
    )
