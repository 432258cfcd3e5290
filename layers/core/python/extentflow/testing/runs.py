"""MemoryRuns: the Runs contract in memory.

Owns: which runs were started. Refuses to know: what they do.
"""

from extentflow.errors import RunsUnavailable
from extentflow.runs import Run


class MemoryRuns:
    """`Runs`; `away` counts calls that are still to fail, `started` has what began, by token.

    A call that fails has begun its run where `unclear`, as one whose answer is lost.
    """

    def __init__(self, *, unclear: bool = False) -> None:
        self.away = 0
        self.unclear = unclear
        self.started: dict[str, Run] = {}

    def start(self, run: Run) -> str:
        """See `Runs.start`."""
        if not self.away or self.unclear:
            self.started.setdefault(run.token, run)
        if self.away:
            self.away -= 1
            raise RunsUnavailable("what starts runs is away, as the test wants it")
        return f"{list(self.started).index(run.token):016x}"
