"""Options that several commands share, so that they are spelled and explained once."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Cores = Annotated[
    int | None,
    typer.Option("--cores", min=1, help="Workers at once on this machine (default: its cores)."),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="spark (default), inline: processes without Spark, or emr: a run on EMR Serverless.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master, for example spark://host:7077 (default: local)."),
]
