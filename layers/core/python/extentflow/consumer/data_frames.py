"""Rows of a batch as dicts, and as frames of pandas and Polars."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import pyarrow as pa

from extentflow.consumer.row_batches import ConsumedBatch, dicts
from extentflow.errors import Misconfigured, UnsupportedType

Made = TypeVar("Made")
Refusals = type[BaseException] | tuple[type[BaseException], ...]
# Of Arrow's conversion to pandas.
_REFUSALS = (ValueError, TypeError, ArithmeticError, NotImplementedError)


def as_dicts(batch: ConsumedBatch) -> Iterator[dict[str, Any]]:
    """Yield a dict per row. Raises UnsupportedType first, for values that Python lacks."""
    return _converted(dicts, UnsupportedType, batch)


def pandas_conversion() -> Callable[[ConsumedBatch], Any]:
    """Return what makes frames of pandas, and raises UnsupportedType for values that it lacks.

    The columns have Arrow's types: with those of NumPy, integers beside nulls become doubles.
    """
    arrow_type = _imported("pandas").ArrowDtype
    make = partial(pa.RecordBatch.to_pandas, types_mapper=arrow_type)
    return partial(_converted, make, _REFUSALS)


def polars_conversion() -> Callable[[ConsumedBatch], Any]:
    """Return what makes frames of Polars, and raises UnsupportedType for types that it lacks."""
    polars = _imported("polars")
    # A panic is no PolarsError, and not even an Exception.
    refusals = (polars.exceptions.PolarsError, polars.exceptions.PanicException)
    return partial(_converted, polars.from_arrow, refusals)


def _imported(package: str) -> ModuleType:
    """Import a package that users install by themselves. Raises Misconfigured without it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as exc:
        if exc.name != package:
            raise
        raise Misconfigured(
            f"frames of {package} need the package {package}; `pip install '{package}'` installs it"
        ) from exc


def _converted(
    make: Callable[[pa.RecordBatch], Made], refusals: Refusals, batch: ConsumedBatch
) -> Made:
    try:
        return make(batch.rows)
    except refusals as exc:
        types = ", ".join(f"{one.name}: {one.type}" for one in batch.rows.schema)
        raise UnsupportedType(
            f"{batch.place}: not all values of the columns {types} can be converted ({exc}); leave"
            " the column out with columns=[...], or use batches()"
        ) from exc
