"""The machine of a measurement, and the versions of its software."""

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import confluent_kafka

from extentflow_local.stack.components import read_components

PACKAGES = ("extentflow", "confluent-kafka", "pyarrow", "pyspark", "orjson")
MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def machine() -> dict[str, Any]:
    """Return what is needed to compare figures, as JSON-ready values."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {
            **{name: metadata.version(name) for name in PACKAGES},
            "librdkafka": confluent_kafka.libversion()[0],
            "kafka": _broker(),
        },
    }


def _cpu() -> str:
    try:
        found = MODEL.search(Path("/proc/cpuinfo").read_text("utf-8"))
    except OSError:  # not Linux
        found = None
    return found[1] if found else platform.processor() or sys.platform


def _broker() -> str:
    """Return the version of the local stack's broker."""
    roots = read_components()["kafka"].roots
    return next(one.version for one in roots if one.group == "org.apache.kafka")
