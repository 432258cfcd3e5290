"""The data source `extentflow`: its name, its options, its columns.

Owns: reading options. Refuses to know: planning, delivering.

    connector      required: the connector's name
    path           objects, as `load` is given them: s3://bucket/key, prefix/ or glob; all of the
                   connector's where there is none
    mode           FAILFAST (default): what cannot be delivered fails the action, after everything
                   else was delivered. PERMISSIVE: it is a row with its state and reason
    replay         true (default): extents that FAILED before are tried again, from where they
                   stopped. false: they count as failed at once
    parallelism    tasks that may run at once (default: cores of the machine that plans); bounds
                   the fewest extents of an object that has no job yet
    anything else  a worker setting by its name (bootstrap.servers, ...), before the environment's
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from extentflow import settings as worker_settings
from extentflow.errors import Misconfigured
from extentflow.keys import read_if_present
from extentflow.settings import WorkerSettings
from extentflow.spark.batch import BatchReader
from extentflow.spark.receipts import COLUMNS, is_ours

FAIL_FAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"
TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What one read was asked for; `settings` are those of every worker."""

    connector: str
    addresses: tuple[str, ...]
    permissive: bool
    replay: bool
    parallelism: int
    settings: WorkerSettings

    @classmethod
    def read(cls, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Self:
        """Return what options and environment say.

        Raises:
            Misconfigured: every problem at once.
        """
        rest = {key.lower(): text for key, text in options.items()}
        problems: list[str] = []
        connector = rest.pop("connector", "")
        if not connector:
            problems.append('option connector is missing; .option("connector", "orders") names one')
        mode = rest.pop("mode", FAIL_FAST).upper()
        if mode not in (FAIL_FAST, PERMISSIVE):
            problems.append(f"option mode={mode}: it is {FAIL_FAST} or {PERMISSIVE}")
        replay = TRUTHS.get(rest.pop("replay", "true").lower())
        if replay is None:
            problems.append("option replay is true or false")
        cores = rest.pop("parallelism", str(os.cpu_count() or 1))
        if not cores.isdigit() or not int(cores):
            problems.append(f"option parallelism={cores}: it is a number of tasks, 1 or more")
        try:
            addresses = _addresses(rest)
            settings = _settings(rest, environ)
        except Misconfigured as exc:
            problems += exc.problems
        if problems:
            raise Misconfigured(problems)
        return cls(connector, addresses, mode == PERMISSIVE, bool(replay), int(cores), settings)


def _addresses(options: dict[str, str]) -> tuple[str, ...]:
    """Take and return what `load` was given: one path, or a list of them as JSON."""
    one, several = options.pop("path", None), options.pop("paths", None)
    try:
        listed = json.loads(several) if several else ()
    except ValueError:
        raise Misconfigured(f"option paths={several}: give addresses to `load`") from None
    return (*((one,) if one else ()), *listed)


def _settings(options: Mapping[str, str], environ: Mapping[str, str]) -> WorkerSettings:
    given = {worker_settings.variable(key): text for key, text in options.items()}
    return worker_settings.load({**environ, **given}, read_text=read_if_present)


class ExtentflowSource(DataSource):
    """Registered by `extentflow.spark.register`; see there.

    Spark makes it in a Python process beside the driver's JVM, once per `load`; its reader for
    every scan that is planned, so that wrong options are told by the first action.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "extentflow"

    def schema(self) -> StructType:
        """The columns of receipts."""
        return COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query.

        Raises:
            Misconfigured: the options are wrong, or somebody gave a schema that is not ours.
        """
        if not is_ours(schema):
            raise Misconfigured("receipts have columns of their own: leave out .schema(...)")
        return BatchReader(ReadOptions.read(self.options))
