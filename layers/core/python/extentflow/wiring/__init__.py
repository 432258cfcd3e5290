"""The composition root: settings -> concrete objects. The only room that sees every adapter.

registry   built-in adapters by name        site     what a process has of the outside world
options    connector settings -> options    worker   a site with a slot: `open_worker`
checking   a connector, before it is stored engine   a site with workers: `open_engine`
announcing who hears of ends of jobs        rotation secrets that a store refuses
"""

from extentflow.wiring.checking import check_connector
from extentflow.wiring.engine import open_engine
from extentflow.wiring.registry import parse_connector
from extentflow.wiring.site import Site
from extentflow.wiring.worker import open_worker

__all__ = ["Site", "check_connector", "open_engine", "open_worker", "parse_connector"]
