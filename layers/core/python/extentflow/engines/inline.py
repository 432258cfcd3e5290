"""The in-process engine: a few worker processes on this machine, fed over pipes.

Owns: worker processes, their deaths and their end. Refuses to know: what a worker does.

A worker that dies is replaced; its slot is taken over at once, because this driver knows that it
is dead, and its extents are run again. Workers are spawned, never forked, and leave by `os._exit`:
a forked or finalised Kafka client hangs. Ctrl-C reaches the driver only, which decides for all.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from uuid import uuid4

from extentflow.engines import RunListener, Task, Worker, WorkerSpec, run_in_turn
from extentflow.errors import ExtentflowError, Retryable
from extentflow.model import Extent, Outcome, Receipt

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0  # leaves time to settle, within the 5 s that a stop may take
MAX_START_DEATHS = 3
POLL_SECONDS = 0.5


class NoWorkers(Retryable):
    """Worker processes end before they are ready; the message says how. Run again to resume."""


@dataclass(slots=True)
class _Member:
    """One worker process and what it was given."""

    process: BaseProcess
    pipe: Connection
    owner: str
    ready: bool = False
    todo: deque[Extent] = field(default_factory=deque)


class InlineEngine:
    """Runs tasks on `cores` processes. `evict(owner)` settles the slot of a dead worker."""

    def __init__(
        self, spec: WorkerSpec[Worker], *, cores: int, evict: Callable[[str], int]
    ) -> None:
        self._spec = spec
        self._cores = max(1, cores)
        self._evict = evict
        self._members: list[_Member] = []
        self._stopping = False
        self._start_deaths = 0
        self._watch: RunListener | None = None

    @property
    def cores(self) -> int:
        """How many worker processes there are at most."""
        return self._cores

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the live workers."""
        return [member.process.pid or 0 for member in self._members]

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        """See `Engine.run`."""
        queue = deque(tasks)
        self._watch = watch
        while not self._stopping and (queue or any(m.todo for m in self._members)):
            self._staff(len(queue) + sum(1 for m in self._members if m.todo))
            self._hand_out(queue)
            self._listen(queue, watch)

    def stop(self) -> None:
        """See `Engine.stop`."""
        self._stopping = True
        for member in self._members:
            _signal(member.process, signal.SIGTERM)

    def close(self) -> None:
        """Let the workers finish their chunk, then end them; whatever is left is settled here."""
        for member in self._members:
            _send(member.pipe, None)
            _signal(member.process, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for member in self._members:
            self._drain(member, deadline)
            member.process.join(max(0.0, deadline - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.pipe.close()
        self._members.clear()
        self._evict(self._spec.run)

    def _drain(self, member: _Member, deadline: float) -> None:
        """Take the receipts of what a worker still committed; its pipe ends with it."""
        with suppress(EOFError, OSError):
            while member.pipe.poll(max(0.0, deadline - time.monotonic())):
                answer = member.pipe.recv()
                if isinstance(answer, Receipt) and self._watch is not None:
                    self._watch.on_receipt(answer)

    def _staff(self, wanted: int) -> None:
        while len(self._members) < min(self._cores, wanted):
            self._members.append(self._hire())

    def _hire(self) -> _Member:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        owner = f"{self._spec.run}/{uuid4().hex}"
        process = multiprocessing.get_context("spawn").Process(
            target=_main, args=(self._spec, owner, theirs), name="extentflow-worker"
        )
        with _interrupt_held_back():
            process.start()
        theirs.close()
        return _Member(process, ours, owner)

    def _hand_out(self, queue: deque[Task]) -> None:
        for member in self._members:
            if member.ready and not member.todo and queue:
                task = queue.popleft()
                member.todo.extend(task.extents)
                _send(member.pipe, task)

    def _listen(self, queue: deque[Task], watch: RunListener) -> None:
        by_pipe = {member.pipe: member for member in self._members}
        for pipe in wait(list(by_pipe), timeout=POLL_SECONDS):
            member = by_pipe[pipe]  # type: ignore[index]
            try:
                answer = member.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._bury(member, queue)
                continue
            self._take(member, answer, watch)

    def _take(self, member: _Member, answer: object, watch: RunListener) -> None:
        if isinstance(answer, ExtentflowError):
            raise answer
        if isinstance(answer, Receipt):
            if answer.outcome not in (Outcome.HANDED_BACK, Outcome.BUSY):
                member.todo.popleft()
            watch.on_receipt(answer)
        else:
            member.ready = True
            self._start_deaths = 0

    def _bury(self, member: _Member, queue: deque[Task]) -> None:
        """Replace a dead worker: settle its slot, put back what it had not finished."""
        member.process.join()
        self._members.remove(member)
        if not member.ready:
            self._start_deaths += 1
            if self._start_deaths >= MAX_START_DEATHS:
                raise NoWorkers(
                    f"{self._start_deaths} workers in a row ended while starting, the last one "
                    f"with exit code {member.process.exitcode}; what they said stands above. "
                    "Mend the cause, then run again to resume"
                )
        log.warning("worker %s ended with %s", member.process.pid, member.process.exitcode)
        self._evict(member.owner)
        if member.todo:
            queue.appendleft(Task(tuple(member.todo)))


def _main(spec: WorkerSpec[Worker], owner: str, pipe: Connection) -> None:
    """Be a worker process until the pipe says None or closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    stopped = False

    def on_term(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True
        worker.stop()

    code = 1
    try:
        worker = spec.open(spec.settings, owner)
        signal.signal(signal.SIGTERM, on_term)
        threading.Thread(target=_follow_driver, args=(worker,), daemon=True).start()
        pipe.send("ready")
        while not stopped and (task := pipe.recv()) is not None:
            wanted = takewhile(lambda _: not stopped, task.extents)
            for receipt in run_in_turn(wanted, worker.run):
                pipe.send(receipt)
        worker.close()
        code = 0
    except ExtentflowError as exc:
        _send(pipe, exc)
    except (EOFError, ConnectionResetError, BrokenPipeError):
        log.info("the driver is gone")
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # nobody else would: `os._exit` is the end
        pipe.close()
        os._exit(code)


def _follow_driver(worker: Worker) -> None:
    """End this process soon after its driver: nobody would hear of what an orphan delivers."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        worker.stop()
        time.sleep(STOP_SECONDS)
        os._exit(1)


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Start a child that Ctrl-C does not reach before `_main` ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(pipe: Connection, value: object) -> None:
    """Send to a peer that may be gone; its end shows at the next `recv`."""
    try:
        pipe.send(value)
    except (BrokenPipeError, OSError):
        log.debug("peer is gone")


def _signal(process: BaseProcess, number: signal.Signals) -> None:
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, number)
