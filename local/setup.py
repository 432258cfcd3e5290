"""Give the local stack the version of the library, which is stated once."""

import re
from pathlib import Path

from setuptools import setup

LIBRARY = Path(__file__).resolve().parents[1] / "layers/core/python/extentflow/__init__.py"
(VERSION,) = re.findall(r'^__version__ = "(.+)"$', LIBRARY.read_text("utf-8"), re.MULTILINE)

setup(version=VERSION)
