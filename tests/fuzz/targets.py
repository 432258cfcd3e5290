"""What is fuzzed: a target makes inputs from a random source, and tries one.

An input is bytes, so that every one of them can be kept as a file. `run` returns the kind of
outcome; it raises `ExtentflowError` for a refusal, and anything else is a finding: an assertion
too, which states a law.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(slots=True)
class Tried:
    """What this process has tried so far: `decodes` are extents that a format was asked for."""

    decodes: int = 0


TRIED = Tried()


UNBOUNDED = "memory is bounded"


def require_bounded(exc: BaseException | None) -> None:
    """Require that a refusal is none for want of memory, which a worker may have, and then use."""
    while exc is not None:
        assert not isinstance(exc, MemoryError), UNBOUNDED
        exc = exc.__cause__ or exc.__context__


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of input; of all inputs, it has `share` parts."""

    name: str
    share: int
    generate: Callable[[Random], bytes]
    run: Callable[[bytes], str]

    def input(self, seed: int, number: int) -> bytes:
        """Return input `number`, the same in every process."""
        return self.generate(Random(f"{seed}/{self.name}/{number}"))
