"""Which columns of a schema a converter reads.

Owns: finding columns by name, and that batches keep to the schema. Refuses to know: converting.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from extentflow.errors import UnsupportedType


@dataclass(frozen=True, slots=True)
class Columns:
    """Some fields of a schema, by their places in it."""

    fields: tuple[pa.Field, ...]
    places: tuple[int, ...]

    @classmethod
    def chosen(cls, schema: pa.Schema, names: Sequence[str] | None) -> Self:
        """Return the columns called `names`, in that order; all where it is None.

        Raises:
            UnsupportedType: no such column, or several of one name.
        """
        wanted = schema.names if names is None else list(names)
        require_unique(wanted, "columns")
        places = tuple(_place(schema, name) for name in wanted)
        return cls(tuple(schema.field(place) for place in places), places)

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the batch's arrays.

        Raises:
            UnsupportedType: the batch has another schema than the converter was made for.
        """
        arrays = [batch.column(place) for place in self.places]
        for field, array in zip(self.fields, arrays, strict=True):
            if array.type != field.type:
                raise UnsupportedType(
                    f"column '{field.name}' changed from type {field.type} to {array.type} within "
                    "an object; write such data to objects of their own"
                )
        return arrays


def require_unique(names: Sequence[str], kind: str) -> None:
    """Raise UnsupportedType where a name is there twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UnsupportedType(
            f"several {kind} are called '{twice[0]}'; names must be unique: rename all but one"
        )


def _place(schema: pa.Schema, name: str) -> int:
    places: list[int] = schema.get_all_field_indices(name)
    if not places:
        known = ", ".join(f"'{known}'" for known in schema.names)
        raise UnsupportedType(f"there is no column '{name}'; name one of {known or '(none)'}")
    require_unique([name] * len(places), "columns")
    return places[0]
