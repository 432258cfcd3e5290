"""A target of which some inputs do what a campaign has to find."""

import os
import signal
from random import Random

from tests.fuzz.targets import Target

from extentflow.errors import CorruptObject

KINDS = (b"accepted", b"typed", b"untyped", b"killed", b"hangs", b"large", b"huge")
_HELD: list[bytearray] = []


def _input(random: Random) -> bytes:
    # The rare ones cost a process, or seconds.
    return random.choices(KINDS, weights=(60, 30, 6, 2, 1, 1, 2))[0]


def _run(data: bytes) -> str:
    match data:
        case b"typed":
            raise CorruptObject("s3://bucket/key[0-1): planted; upload it again")
        case b"untyped":
            raise KeyError("planted")
        case b"killed":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"hangs":
            while True:
                pass
        case b"large":
            _HELD[:] = [bytearray(b"x") * (600 << 20)]
            _HELD.clear()
        case b"huge":
            # More than the process may hold, refused as any other damage.
            try:
                _HELD[:] = [bytearray(1 << 30)]
            except MemoryError as exc:
                raise CorruptObject("s3://bucket/key[0-1): planted; upload it again") from exc
    return "accepted"


PLANTED = Target("planted", 1, _input, _run)
