"""`extentflow export`: columnar values of a topic as Parquet or Arrow files, in a folder or S3.

Tests: integration/test_export.py
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, StoreSettings, expand_options
from extentflow.cli.output import AsJson
from extentflow.errors import Misconfigured

if TYPE_CHECKING:
    from extentflow.export.partition_files import ExportedFile, ExportOptions

Name = Annotated[str, Argument(metavar="TOPIC", help="The topic, with columnar values.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Where files go, and how they are cut."""

    to: Annotated[
        str,
        Option("--to", metavar="WHERE", help="A local folder, or s3://bucket/prefix/."),
    ]
    file_bytes: Annotated[
        str,
        Option(
            "--file-bytes", metavar="SIZE", help="Close a file before it has more, such as 256MiB."
        ),
    ] = "128MiB"
    file_seconds: Annotated[
        float,
        Option("--file-seconds", min=1.0, help="Close a file when its first value is so old."),
    ] = 60.0
    once: Annotated[
        bool,
        Option("--once", help="End at the end that the topic has now; files have no age."),
    ] = False
    accept_gap: Annotated[
        bool,
        Option(
            "--accept-gap", help="Continue behind records that were deleted before they were read."
        ),
    ] = False
    settings: StoreSettings = None

    def options(self) -> ExportOptions:
        """Return how files are cut. Raises Misconfigured."""
        from extentflow.config.types import SIZE
        from extentflow.export.partition_files import ExportOptions

        try:
            most_bytes = SIZE.read(self.file_bytes)
        except ValueError as exc:
            raise Misconfigured(f"--file-bytes {self.file_bytes}: {exc}") from exc
        return ExportOptions(
            bytes=most_bytes,
            seconds=self.file_seconds,
            once=self.once,
            accept_gap=self.accept_gap,
        )


@expand_options
def export(
    topic: Name, *, files: FileOptions, servers: ServerOptions, as_json: AsJson = False
) -> None:
    """Write the columnar values of a topic into Parquet or Arrow files, each record once.

    Runs until Ctrl-C or SIGTERM, and then publishes its open files; --once ends at the end that the
    topic has now. Values are copied as they are, without decoding them. Files are called
    TOPIC/PARTITION/FIRST-LAST.parquet after the offsets that they hold, those of Arrow values
    FIRST-LAST.arrows (an IPC stream); the next run continues behind the last one.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.cli.progress import signals_stop
    from extentflow.services.addressed import parse_settings
    from extentflow.services.composition import open_exports

    options, given = files.options(), parse_settings(files.settings or ())
    exports = open_exports(open_runtime(servers, creates=False), output.note)
    ended, count, rows = threading.Event(), 0, 0
    with signals_stop(ended.set, "stopping: publishing the open files"):
        for found in exports.run(topic, files.to, options, stop=ended.is_set, settings=given):
            count, rows = count + 1, rows + found.rows
            output.say(output.json_text(asdict(found)) if as_json else _line(found))
    output.note(f"{output.counted(count, 'file')} with {output.counted(rows, 'row')}")


def _line(file: ExportedFile) -> str:
    facts = (
        output.counted(file.rows, "row"),
        output.counted(file.values, "value"),
        output.size(file.size_bytes),
    )
    return f"{file.uri}: {', '.join(facts)}"
