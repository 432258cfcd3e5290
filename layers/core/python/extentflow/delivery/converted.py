"""The records of a chunk, ready to send, and the parts in which they are sent.

Tests: unit/delivery/test_pipeline.py, unit/columnar/test_chunk_parts.py
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from extentflow.delivery.columnvalues import Cuts
from extentflow.errors import BatchTooLarge
from extentflow.formats import BadRecord
from extentflow.kafka import Records, RejectedRecord
from extentflow.kafka.record_headers import HeaderColumns, HeaderLists


@dataclass(frozen=True, slots=True)
class ConvertedChunk:
    """The records of a chunk, the locations of its rows, its bad records, the position behind it.

    A record is one row, unless `cuts` has the ends of records with many. The position before a row
    is its location plus `position_shift`. `filtered` rows were
    dropped by transforms or excluded by the format. Where there are any, `decoded` has the
    locations of all rows that were decoded, those of dropped ones included. `topics` has the topic
    of each record; None: that of `records`. `how_to_divide` as in `formats.DividingFormat`.
    """

    records: Records
    locations: Sequence[int]
    bad: tuple[BadRecord, ...]
    next_position: int
    position_shift: int = 0
    filtered: int = 0
    decoded: Sequence[int] = ()
    topics: pa.StringArray | None = None
    cuts: Cuts | None = None
    how_to_divide: Callable[[bytes], str] | None = None

    @property
    def rows(self) -> int:
        """The number of good rows."""
        return len(self.locations)

    @property
    def payload_bytes(self) -> int:
        """Bytes of keys, values and headers, which count towards `transaction.max.bytes`."""
        keys, headers = self.records.keys, self.records.headers
        size = int(self.records.values.nbytes) + (0 if keys is None else int(keys.nbytes))
        return size + (headers.nbytes if isinstance(headers, HeaderColumns | HeaderLists) else 0)

    def bad_with(self, rejected: Sequence[RejectedRecord]) -> list[BadRecord]:
        """Return the bad records, those that a producer rejected included.

        Raises BatchTooLarge for a rejected batch of rows, each of which was within the limit.
        """
        values, locations = self.records.values, self.locations
        if rejected and self.cuts is not None:
            raise BatchTooLarge(
                f"topic {self.records.topic}: {rejected[0].reason}; max.message.bytes of the topic"
                " was lowered meanwhile"
            )
        return [
            *self.bad,
            *(
                BadRecord(
                    values[one.index].as_py(),
                    int(locations[one.index]),
                    self._reason(one),
                    payload=True,
                )
                for one in rejected
            ),
        ]

    def _reason(self, rejected: RejectedRecord) -> str:
        value = self.records.values[rejected.index].as_py()
        if self.how_to_divide is None or value is None:
            return rejected.reason
        divided = self.how_to_divide(value)
        return f"{rejected.reason}, or {divided}" if divided else rejected.reason

    @property
    def units(self) -> int:
        """The number of records or, where these hold many rows, of batches of rows."""
        return len(self.records.values) if self.cuts is None else len(self.cuts)

    def split(self, most_bytes: float) -> Iterator[Self]:
        """Yield the chunk in parts of about `most_bytes`; whole if it has bad records."""
        count = len(self.records.values)
        step = max(1, int(count * min(1.0, most_bytes / max(1, self.payload_bytes))))
        if step >= count or self.bad:
            yield self
            return
        begun = (0, 0)
        for end in self._ends(step):
            yield self._part(begun, end)
            begun = end

    def parts(self, most_units: Callable[[], float]) -> Iterator[Self]:
        """Yield the chunk in parts of so many units, which are asked for before each part.

        Bad records are in the part of the good one before them.
        """
        begun, unit = (0, 0), 0
        while unit < self.units or not unit:
            unit = int(min(self.units, unit + max(1, most_units())))
            if unit == self.units and begun == (0, 0):
                yield self
                return
            end = (unit, unit) if self.cuts is None else self.cuts[unit - 1]
            yield self._part(begun, end)
            begun = end

    def _part(self, begun: tuple[int, int], end: tuple[int, int]) -> Self:
        """Return the part between two ends, each of which is one of records and one of rows."""
        (start, first), (stop, row) = begun, end
        is_last = stop == len(self.records.values)
        # Decoding resumes behind the rows that were dropped before the next record.
        after = None if is_last else int(self.locations[row])
        before = None if first == 0 else int(self.locations[first])
        return replace(
            self,
            records=self.records.slice(start, stop),
            locations=self.locations[first:row],
            bad=tuple(
                one
                for one in self.bad
                if (before is None or one.location >= before)
                and (after is None or one.location < after)
            ),
            topics=None if self.topics is None else self.topics.slice(start, stop - start),
            cuts=None
            if self.cuts is None
            else [(ends - start, rows - first) for ends, rows in self.cuts if start < ends <= stop],
            filtered=self._filtered_before(None if is_last else row)
            - self._filtered_before(first or 0),
            next_position=self.next_position if after is None else after + self.position_shift,
        )

    def _ends(self, step: int) -> Iterator[tuple[int, int]]:
        """Yield the ends of parts of about `step` records: those of records, and of rows."""
        count = len(self.records.values)
        if self.cuts is None:
            yield from ((end, end) for end in range(step, count, step))
            yield count, count
            return
        begun = 0
        for end, row in self.cuts:
            if end - begun >= step or end == count:
                yield end, row
                begun = end

    def _filtered_before(self, row: int | None) -> int:
        """Return how many rows were dropped before a row; None: in the whole chunk."""
        if row is None or not self.filtered:
            return self.filtered
        return bisect_left(self.decoded, self.locations[row]) - row if row else 0

    def by_topic(self) -> Iterator[tuple[Records, Sequence[int]]]:
        """Yield the records of each topic in their order, with their places in the chunk."""
        if not len(self.records.values):
            return  # with column groups, the topic of no record need not exist
        if self.topics is None:
            yield self.records, range(len(self.records.values))
            return
        for topic in self.topics.unique():
            places = np.flatnonzero(pc.equal(self.topics, topic).to_numpy(zero_copy_only=False))
            found: list[int] = places.tolist()
            yield replace(self.records.take(found), topic=topic.as_py()), found
