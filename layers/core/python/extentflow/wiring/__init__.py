"""The composition root: turns settings into clients, workers, engines and functions.

Opens adapters through the registries of `plugins`, and those of brokers and queues itself. What is
done with them is left to the packages below, and to `extentflow.services` above.
"""

from extentflow.wiring.extents import open_engine, open_worker
from extentflow.wiring.objects import check_connector
from extentflow.wiring.runtime import Runtime

__all__ = ["Runtime", "check_connector", "open_engine", "open_worker"]
