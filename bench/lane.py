"""A competitor in a process of its own, warm between runs: one JSON line in, one JSON line out.

Owns: the process and the conversation. Refuses to know: what is run.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Lane:
    """The asking side. `module` is run with this interpreter and ends with its standard input."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, module: str, environment: Mapping[str, str]) -> "Lane":
        """Start the module; it inherits standard error."""
        command = [sys.executable, "-m", module]
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return cls(process)

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
        """Run one request and return its answer.

        Raises:
            RuntimeError: the process ended instead of answering.
        """
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the lane has no pipes")
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"the lane ended with {self.process.wait()}; its messages are above")

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=60)


def serve(run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Be the answering side until standard input ends."""
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
