"""What is fuzzed: a target makes inputs from a random source, and tries one.

An input is bytes, so that every one of them can be kept as a file. `run` returns the kind of
outcome; it raises `ExtentflowError` for a refusal, and anything else is a finding: an assertion
too, which states a law.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


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
