"""The topics of columnar values: one for all columns, or one for each group of columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from extentflow.columnar.schemas import identity
from extentflow.columnar.values import Encode, encoder, require_distinct
from extentflow.config.columnar import REST, ColumnGroup
from extentflow.errors import UnsupportedType

_WHOLE = ColumnGroup("", (REST,))


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """Columns that go to one topic: how they are encoded, and the identity of their schema."""

    group: ColumnGroup
    columns: tuple[str, ...]
    encode: Encode
    schema: str

    def value(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return the value of a batch of all columns."""
        return self.encode(batch.select(self.columns))

    def topic(self, topic: str) -> str:
        """Return the topic of these columns, for rows of `topic`."""
        return self.group.topic(topic) if self.group.name else topic


def encoded_groups(
    schema: pa.Schema, groups: Sequence[ColumnGroup], encoding: str, compression: str
) -> list[EncodedGroup]:
    """Return the groups of the columns of a plain schema; without `groups` one of all columns.

    Raises UnsupportedType for a group with a column that there is not, for a column of no group,
    and for one that the encoding cannot hold.
    """
    require_distinct(schema)
    names = schema.names
    named = {name for one in groups for name in one.columns} - {REST}
    if lacking := sorted(named.difference(names)):
        raise UnsupportedType(
            f"columnar.groups: there is no column {', '.join(lacking)}, only {', '.join(names)}"
        )
    rest = tuple(name for name in names if name not in named)
    found = groups or (_WHOLE,)
    if rest and not any(one.columns == (REST,) for one in found):
        raise UnsupportedType(
            f"columnar.groups: no group has {', '.join(rest)}; add `rest: *`, or leave these"
            " columns out by select"
        )
    made = []
    for one in found:
        columns = rest if one.columns == (REST,) else one.columns
        if not columns:
            raise UnsupportedType(
                f"columnar.groups: {one.name} has no columns, because the other groups have all;"
                " remove it"
            )
        own = pa.schema([schema.field(name) for name in columns])
        made.append(EncodedGroup(one, columns, encoder(encoding, compression, own), identity(own)))
    return made
