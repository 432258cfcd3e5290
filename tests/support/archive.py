"""The archive of Spark jobs, built once for this machine, and an interpreter that can run it."""

import platform
import shutil
import sys

import pytest
from layers import wheels
from layers.spark import recipe


def this_machine() -> wheels.Machine:
    """Return this machine, for which wheels of Amazon Linux work wherever there is glibc."""
    for machine in wheels.MACHINES:
        if (platform.system(), platform.machine()) == ("Linux", machine.tag):
            return machine
    pytest.skip("the archive's libraries are Linux's")


def interpreter() -> str:
    """Return a Python of the archive's version."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == recipe.PYTHON:
        return sys.executable
    found = shutil.which(f"python{recipe.PYTHON}")
    return found or pytest.skip(f"there is no python{recipe.PYTHON} on the path")


def built(machine: wheels.Machine) -> recipe.Built:
    """Return the archive of today's pins and code, built now where it has to be."""
    return recipe.built(machine=machine) or recipe.build(machine=machine)
