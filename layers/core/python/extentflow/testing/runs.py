"""MemoryJobRuns: the JobRuns contract in memory."""

from extentflow.engines.emr import Run, RunState, RunStatus
from extentflow.errors import Misconfigured, RunsUnavailable


class MemoryJobRuns:
    """`JobRuns`; `away` counts calls that are still to fail, `started` has what began, by token.

    A start that fails has begun its run where `unclear`, as one whose answer is lost. `states` says
    where runs stand, by id: WAITING when they begin, CANCELLED when they are cancelled.
    """

    def __init__(self, *, unclear: bool = False) -> None:
        self.away = 0
        self.unclear = unclear
        self.started: dict[str, Run] = {}
        self.states: dict[str, RunStatus] = {}

    def start(self, run: Run) -> str:
        """See `JobRuns.start`."""
        if not self.away or self.unclear:
            self.started.setdefault(run.token, run)
        self._pass()
        run_id = f"{list(self.started).index(run.token):016x}"
        self.states.setdefault(run_id, RunStatus(RunState.WAITING))
        return run_id

    def describe(self, run_id: str) -> RunStatus:
        """See `JobRuns.describe`."""
        self._pass()
        if run_id not in self.states:
            raise Misconfigured(f"there is no run {run_id}")
        return self.states[run_id]

    def cancel(self, run_id: str) -> None:
        """See `JobRuns.cancel`."""
        if not self.describe(run_id).state.ended:
            self.states[run_id] = RunStatus(RunState.CANCELLED)

    def _pass(self) -> None:
        if self.away:
            self.away -= 1
            raise RunsUnavailable("the service that starts runs is unavailable (injected)")
