"""The cases of the law suite: every `CASES` of the modules `tests/laws/*_cases.py`."""

import importlib
from pathlib import Path

from tests.laws.laws import FormatCase

CASES: list[FormatCase] = [
    case
    for path in sorted(Path(__file__).parent.glob("*_cases.py"))
    for case in importlib.import_module(f"tests.laws.{path.stem}").CASES
]
