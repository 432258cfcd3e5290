"""Reading a topic back with `read_committed`, to verify what was delivered."""

from typing import NamedTuple

from extentflow.sink import Headers


class Delivered(NamedTuple):
    """One record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
