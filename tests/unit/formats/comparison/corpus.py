"""All nasty objects; `python -m tests.unit.formats.comparison.corpus DIR` writes them."""

import importlib
import sys
from pathlib import Path

from tests.unit.formats.comparison.nasty import Nasty

FILES: list[Nasty] = [
    nasty
    for path in sorted(Path(__file__).parent.glob("*_files.py"))
    for nasty in importlib.import_module(f"tests.unit.formats.comparison.{path.stem}").FILES
]

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for one in FILES:
        (folder / f"{one.name}.{one.input_format}").write_bytes(one.write())
