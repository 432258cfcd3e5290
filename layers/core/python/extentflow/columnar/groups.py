"""The topics of columnar values: one for all columns, or one for each group of columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from extentflow.columnar.encryption import COLUMNS, ColumnEncryption
from extentflow.columnar.schemas import identity
from extentflow.columnar.values import Encoder, encoder, require_distinct
from extentflow.config.columnar import REST, ColumnGroup
from extentflow.errors import UnsupportedType

_WHOLE = ColumnGroup("", (REST,))


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """Columns that go to one topic: how they are encoded, and the identity of their schema.

    `encrypted` are those of the columns that are encrypted.
    """

    group: ColumnGroup
    columns: tuple[str, ...]
    encode: Encoder
    schema: str
    encrypted: tuple[str, ...] = ()

    def observe(self, rows: pa.RecordBatch) -> None:
        """See `Encoder`; of all columns."""
        self.encode.observe(rows.select(self.columns))

    def value(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return the value of a batch of all columns."""
        return self.encode(batch.select(self.columns))

    def topic(self, topic: str) -> str:
        """Return the topic of these columns, for rows of `topic`."""
        return self.group.topic(topic) if self.group.name else topic


def encoded_groups(
    schema: pa.Schema,
    groups: Sequence[ColumnGroup],
    encoding: str,
    compression: str,
    *,
    encryption: ColumnEncryption | None = None,
) -> list[EncodedGroup]:
    """Return the groups of the columns of a plain schema; without `groups` one of all columns.

    Each group encrypts its columns among those of `encryption`. Raises UnsupportedType for a group
    or an encryption with an unknown column, for a column of no group, and for one that the encoding
    cannot hold. Also raises as `encoder`.
    """
    require_distinct(schema)
    names = schema.names
    named = {name for one in groups for name in one.columns} - {REST}
    if lacking := sorted(named.difference(names)):
        raise UnsupportedType(
            f"columnar.groups: there is no column {', '.join(lacking)}, only {', '.join(names)}"
        )
    if encryption and (lacking := sorted({*encryption.columns}.difference(names))):
        # Not left out: it may be another spelling of one that would then be readable.
        raise UnsupportedType(
            f"{COLUMNS}: there is no column {', '.join(lacking)}, only {', '.join(names)}"
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
        hidden = None if encryption is None else encryption.within(columns)
        encode = encoder(encoding, compression, own, hidden)
        names_of = () if hidden is None else hidden.columns
        made.append(EncodedGroup(one, columns, encode, identity(own), names_of))
    return made
