"""Keep what was read of the latest object versions, which never change.

Tests: unit/formats/avro/test_avro_format.py, unit/formats/orc/test_orc_format.py
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from extentflow.model import ObjectVersion
from extentflow.storage import RangeSource

T = TypeVar("T")
_HELD = 64


class VersionCache(Generic[T]):
    """Reads facts of an object version once per process, as long as few others follow."""

    def __init__(self, read: Callable[[RangeSource], T]) -> None:
        self._read = read
        self._held: OrderedDict[ObjectVersion, T] = OrderedDict()

    def get(self, source: RangeSource) -> T:
        """Return the facts of a version. Raises as the function that reads them."""
        known = self._held.get(source.version)
        if known is None:
            known = self._held[source.version] = self._read(source)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
        return known
