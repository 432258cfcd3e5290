"""Python files of `--py-files` and `addPyFile`, where Spark looks when a stream is planned.

Owns: this one gap of Spark 4.0. Refuses to know: what is in the files.

Spark tells every Python process where the application's files are. Only the one that plans a
streaming query is sent to a folder of its own below it, `streaming_job`, which nobody fills
(PythonStreamingSourceRunner.scala); whatever came by `--py-files` cannot be imported there.
"""

import shutil
from pathlib import Path
from uuid import uuid4

from pyspark import SparkContext, SparkFiles

FOLDER = "streaming_job"


def share_with_streams(sc: SparkContext) -> None:
    """Copy the application's Python files, as far as they are known now, to that folder."""
    names = list(sc._python_includes or ())  # noqa: SLF001 - there is no other way to them
    root = Path(SparkFiles.getRootDirectory())
    found = [root / name for name in names if (root / name).is_file()] + sorted(root.glob("*.py"))
    if not found:
        return
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    for file in found:
        # Renamed into place: somebody may be importing from the one before.
        half = folder / f".{uuid4().hex}"
        shutil.copy2(file, half)
        half.replace(folder / file.name)
