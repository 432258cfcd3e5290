"""A competitor in a warm process of its own: one JSON line in, one JSON line out."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from bench.cpu import cpu_seconds

END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WarmProcess:
    """The parent's side. `module` runs with this interpreter and ends with its standard input.

    As a context manager it ends with the context, at once after an error.
    """

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, module: str, environment: Mapping[str, str], *arguments: str) -> Self:
        """Start the module; it inherits standard error."""
        command = [sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return cls(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.process.terminate()
        self.close()

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
        """Send a request and return the response; `cpu_seconds` is the CPU time of the run.

        Raises:
            RuntimeError: the process ended without a response.
        """
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"the process ended with {self.process.wait()}; its messages are above")

    def interrupt(self) -> None:
        """Stop the current run (SIGUSR1); a module without a stop ends."""
        self.process.send_signal(signal.SIGUSR1)

    def close(self) -> None:
        """Close its input, and kill the process if it does not end in time."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # it ended without reading the request
                self.process.stdin.close()
        try:
            self.process.wait(timeout=END_SECONDS)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


def serve(run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Process requests until standard input ends."""
    for line in sys.stdin:
        before = cpu_seconds()
        answer = run(json.loads(line))
        answer["cpu_seconds"] = cpu_seconds() - before
        print(json.dumps(answer), flush=True)
