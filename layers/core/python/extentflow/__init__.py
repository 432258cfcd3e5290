"""extentflow streams S3 objects of any size into Kafka, exactly once, extent by extent.

The public Python API; names are imported when first used:

    import extentflow

    report = extentflow.deliver("s3://shop/in/", connector="orders")

`Extentflow` is a configured stack: connectors, deliveries and jobs. `deliver` is a shortcut for one
delivery with the environment's settings. `RunReport`, `JobState`, `Outcome` and `Receipt` are what
they return. `TopicConsumer` reads topics. `ExtentflowError` is the root of all errors, and the
other errors say what the caller should do. docs/python.md lists the modules that are public, too;
everything else is internal.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extentflow.consumer import TopicConsumer
    from extentflow.errors import (
        CorruptRecord,
        ExtentflowError,
        Misconfigured,
        Permanent,
        Retryable,
    )
    from extentflow.jobs.run import RunReport
    from extentflow.model import JobState, Outcome, Receipt
    from extentflow.services.client import Extentflow, deliver

__version__ = "0.1.0"
__all__ = [
    "CorruptRecord",
    "Extentflow",
    "ExtentflowError",
    "JobState",
    "Misconfigured",
    "Outcome",
    "Permanent",
    "Receipt",
    "Retryable",
    "RunReport",
    "TopicConsumer",
    "__version__",
    "deliver",
]

_HOMES = {
    "extentflow.consumer": ("TopicConsumer",),
    "extentflow.errors": (
        "CorruptRecord",
        "ExtentflowError",
        "Misconfigured",
        "Permanent",
        "Retryable",
    ),
    "extentflow.jobs.run": ("RunReport",),
    "extentflow.model": ("JobState", "Outcome", "Receipt"),
    "extentflow.services.client": ("Extentflow", "deliver"),
}


if not TYPE_CHECKING:  # type checkers report names that do not exist

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562): `import extentflow` stays cheap."""
        for module, names in _HOMES.items():
            if name in names:
                from importlib import import_module  # noqa: PLC0415 - see above

                return getattr(import_module(module), name)
        raise AttributeError(f"module 'extentflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
