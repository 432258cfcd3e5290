"""An engine of an installed package is found by name and opened with the driver's limits."""

from pathlib import Path

from tests.support import workers
from tests.support.golden import Golden
from tests.support.local_engine import RecordingListener
from tests.support.toy_engine import ToyEngine
from tests.support.workers import RUN, extent

from extentflow import plugins
from extentflow.config.worker import WorkerSettings
from extentflow.engines import ENGINES, Engine, EngineFactory, Task, WorkerSpec
from extentflow.engines.remote import RunService
from extentflow.errors import Misconfigured
from extentflow.model import Outcome
from extentflow.plugins import EntryPoint, Registry
from extentflow.wiring import Runtime, open_engine

TOY = EntryPoint("toy", "tests.support.toy_engine:ToyEngine", "extentflow-toy 1.0")


def test_the_entry_point_of_a_package_is_an_engine_beside_the_built_in_one() -> None:
    engines: Registry[EngineFactory | RunService] = Registry(
        plugins.ENGINES, "engine", find=lambda group: [TOY] if group == plugins.ENGINES else []
    )

    assert engines.names() == ["emr", "inline", "toy"]
    assert engines.get("toy") is ToyEngine


def test_a_plugin_engine_runs_the_extents_of_its_tasks(tmp_path: Path) -> None:
    settings = {"done": str(tmp_path / "done")}
    watch, evicted = RecordingListener(), list[str]()

    def evict(owner: str) -> int:
        evicted.append(owner)
        return 0

    factory: EngineFactory = ToyEngine
    engine: Engine = factory(WorkerSpec(workers.skips, settings, RUN), cores=4, evict=evict)
    engine.run([Task((extent(0), extent(1))), Task((extent(2),))], watch)
    engine.close()

    assert [(one.ordinal, one.outcome) for one in watch.receipts] == [
        (0, Outcome.SKIPPED),
        (1, Outcome.SKIPPED),
        (2, Outcome.DONE),
    ]
    assert evicted == [RUN]


def test_a_driver_opens_a_plugin_engine_by_name_within_its_limits(golden: Golden) -> None:
    name = "toy-of-a-driver"
    ENGINES.register(name, ToyEngine)
    runtime = Runtime(WorkerSettings(bootstrap_servers="127.0.0.1:1"))

    engine = open_engine(runtime, name, cores=8)

    assert isinstance(engine, ToyEngine)
    assert engine.cores == 1
    assert engine.spec.settings == runtime.settings.to_map()
    assert engine.spec.run.startswith("run-")
    with golden.raises(Misconfigured, match="--master.*--engine"):
        open_engine(runtime, name, master="spark://host:7077")
