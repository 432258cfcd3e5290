"""The archive of Spark jobs, built once for this machine, and an interpreter that can run it."""

import platform
import shutil
import sys

import pytest
from infra.recipes import spark_archive, wheels


def this_machine() -> wheels.Machine:
    """Return this machine, for which wheels of Amazon Linux work wherever there is glibc."""
    for machine in wheels.MACHINES:
        if (platform.system(), platform.machine()) == ("Linux", machine.tag):
            return machine
    pytest.skip("the archive's libraries are Linux's")


def interpreter() -> str:
    """Return a Python of the archive's version."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == spark_archive.PYTHON:
        return sys.executable
    found = shutil.which(f"python{spark_archive.PYTHON}")
    return found or pytest.skip(f"there is no python{spark_archive.PYTHON} on the path")


def built(machine: wheels.Machine) -> spark_archive.ArchiveRecord:
    """Return the archive of today's pins and code, built now where it has to be."""
    return spark_archive.built(machine=machine) or spark_archive.build(machine=machine)
