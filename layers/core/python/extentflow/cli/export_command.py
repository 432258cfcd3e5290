"""`extentflow export`: columnar values of a topic as Parquet or Arrow files, in a folder or S3."""

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.option_groups import StoreSettings
from extentflow.cli.output import AsJson

if TYPE_CHECKING:
    from extentflow.export.partition_files import ExportedFile

Name = Annotated[str, Argument(metavar="TOPIC", help="The topic, with columnar values.")]
Where = Annotated[
    str,
    Option("--to", metavar="WHERE", help="A local folder, or s3://bucket/prefix/."),
]
FileBytes = Annotated[
    str,
    Option("--file-bytes", metavar="SIZE", help="Close a file before it has more, such as 256MiB."),
]
FileSeconds = Annotated[
    float,
    Option("--file-seconds", min=1.0, help="Close a file when its first value is so old."),
]
Once = Annotated[
    bool,
    Option("--once", help="End at the end that the topic has now; files have no age."),
]
AcceptGap = Annotated[
    bool,
    Option("--accept-gap", help="Continue behind records that were deleted before they were read."),
]


def export(
    topic: Name,
    *,
    to: Where,
    file_bytes: FileBytes = "128MiB",
    file_seconds: FileSeconds = 60.0,
    once: Once = False,
    accept_gap: AcceptGap = False,
    settings: StoreSettings = None,
    as_json: AsJson = False,
) -> None:
    """Write the columnar values of a topic into Parquet or Arrow files, each record once.

    Values are copied as they are, without decoding them. Without --once it runs until Ctrl-C or
    SIGTERM, and then publishes its open files. Files are called
    TOPIC/PARTITION/FIRST-LAST.parquet after the offsets that they hold, those of Arrow values
    FIRST-LAST.arrows (an IPC stream); the next run continues behind the last one.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.cli.progress import signals_stop
    from extentflow.config.types import SIZE
    from extentflow.errors import Misconfigured
    from extentflow.export.partition_files import ExportOptions
    from extentflow.services.addressed import parse_settings
    from extentflow.services.exports import Exports

    try:
        most_bytes = SIZE.read(file_bytes)
    except ValueError as exc:
        raise Misconfigured(f"--file-bytes {file_bytes}: {exc}") from exc
    options = ExportOptions(
        bytes=most_bytes, seconds=file_seconds, once=once, accept_gap=accept_gap
    )
    given = parse_settings(settings or ())
    exporteds = Exports(open_runtime(creates=False), output.note)
    ended, files, rows = threading.Event(), 0, 0
    with signals_stop(ended.set, "stopping: publishing the open files"):
        for found in exporteds.run(topic, to, options, stop=ended.is_set, settings=given):
            files, rows = files + 1, rows + found.rows
            output.say(output.json_text(asdict(found)) if as_json else _line(found))
    output.note(f"{output.counted(files, 'file')} with {output.counted(rows, 'row')}")


def _line(file: "ExportedFile") -> str:
    facts = (
        output.counted(file.rows, "row"),
        output.counted(file.values, "value"),
        output.size(file.size_bytes),
    )
    return f"{file.uri}: {', '.join(facts)}"
