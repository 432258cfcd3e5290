"""extentflow streams S3 objects of any size into Kafka, exactly once, extent by extent.

The public Python API (docs/python.md); names are imported when first used:

    import extentflow

    report = extentflow.deliver("s3://shop/in/", connector="orders")

`Extentflow` is a configured stack: connectors, deliveries and jobs. `deliver` is a shortcut for one
delivery with the environment's settings. `JobState`, `Outcome`, `Receipt` and `RunReport` are what
they return; errors are in `extentflow.errors`. Everything else is internal.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extentflow.jobs.run import RunReport
    from extentflow.model import JobState, Outcome, Receipt
    from extentflow.services.client import Extentflow, deliver

__version__ = "0.1.0"
__all__ = ["Extentflow", "JobState", "Outcome", "Receipt", "RunReport", "__version__", "deliver"]

_HOMES = {
    "Extentflow": "extentflow.services.client",
    "deliver": "extentflow.services.client",
    "RunReport": "extentflow.jobs.run",
    "JobState": "extentflow.model",
    "Outcome": "extentflow.model",
    "Receipt": "extentflow.model",
}


if not TYPE_CHECKING:  # type checkers report names that do not exist

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562): `import extentflow` stays cheap."""
        if name not in _HOMES:
            raise AttributeError(f"module 'extentflow' has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - see above

        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
