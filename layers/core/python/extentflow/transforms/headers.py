"""Transforms of headers: from columns, constants; drop them; and the predicate on their names.

They see the headers of `headers` and `message.headers`, and add behind these. Names may repeat.
"""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from extentflow.arrays.buffers import Columns, RowErrors
from extentflow.config.column_lists import NAMES
from extentflow.config.specs import PredicateSpec, TransformSpec
from extentflow.config.table import key
from extentflow.config.types import EXACT, TEXT, choice
from extentflow.converters import open_header_converter
from extentflow.errors import UnsupportedType
from extentflow.kafka.record_headers import HeaderLists
from extentflow.transforms import NO_KEY, Rows


def _headers(rows: Rows) -> HeaderLists:
    return HeaderLists.none(rows.values.num_rows) if rows.headers is None else rows.headers


# -- HeaderFrom ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFromOptions:
    """The keys of HeaderFrom."""

    fields: tuple[str, ...] = key(NAMES, "The columns.", required=True)
    headers: tuple[str, ...] = key(
        NAMES, "The header of each column, in the same order.", required=True
    )
    operation: str = key(
        choice({"copy", "move"}), "Whether the columns stay (`copy`) or go (`move`).", required=True
    )


def _header_from(options: HeaderFromOptions, on_key: bool, rows: Rows) -> Rows:  # noqa: FBT001
    batch = rows.keys if on_key else rows.values
    if batch is None:
        raise UnsupportedType(NO_KEY)
    found = _headers(rows)
    with RowErrors() as errors:
        for column, name in zip(options.fields, options.headers, strict=True):
            converter = open_header_converter(batch.schema, column)
            with errors.collect(f"column '{column}': "):
                found = found.with_header(name, converter(batch))
    if options.operation == "copy":
        return replace(rows, headers=found)
    moved = Columns.select(batch.schema, options.fields).indices
    kept = [at for at in range(batch.num_columns) if at not in moved]
    if not kept:
        raise UnsupportedType("it moves all columns; keep at least one, or write operation=copy")
    rest = batch.select(kept)
    if on_key:
        return replace(rows, keys=rest, headers=found)
    return replace(rows, values=rest, headers=found)


def _header_from_problem(options: HeaderFromOptions) -> str | None:
    if len(options.fields) != len(options.headers):
        return (
            f"fields has {len(options.fields)} names and headers {len(options.headers)}; write one"
            " header for each field"
        )
    return None


HEADER_FROM = TransformSpec(
    open=lambda options, on_key: lambda rows: _header_from(options, on_key, rows),
    options=HeaderFromOptions,
    problem=_header_from_problem,
    headers=True,
)


# -- InsertHeader, DropHeaders ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertHeaderOptions:
    """The keys of InsertHeader."""

    header: str = key(TEXT, "The name of the header.", required=True)
    value_literal: str = key(EXACT, "Its text, the same for all records.", required=True)


def _insert_header(options: InsertHeaderOptions, rows: Rows) -> Rows:
    value = options.value_literal.encode()
    return replace(rows, headers=_headers(rows).with_header(options.header, value))


INSERT_HEADER = TransformSpec(
    open=lambda options, _: lambda rows: _insert_header(options, rows),
    options=InsertHeaderOptions,
    keys=False,
    headers=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropHeadersOptions:
    """The keys of DropHeaders."""

    headers: tuple[str, ...] = key(NAMES, "Names; all headers so called go.", required=True)


DROP_HEADERS = TransformSpec(
    open=lambda options, _: (
        lambda rows: replace(rows, headers=_headers(rows).without(options.headers))
    ),
    options=DropHeadersOptions,
    keys=False,
    headers=True,
)


# -- HasHeaderKey ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HasHeaderKeyOptions:
    """The keys of HasHeaderKey."""

    name: str = key(TEXT, "The name of the header.", required=True)


def _has_header(options: Any) -> Any:  # noqa: ANN401 - of PredicateSpec
    def matches(rows: Rows) -> pa.BooleanArray:
        return _headers(rows).has(options.name)

    return matches


HAS_HEADER_KEY = PredicateSpec(open=_has_header, options=HasHeaderKeyOptions, headers=True)
