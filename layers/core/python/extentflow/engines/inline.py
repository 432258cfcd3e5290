"""The inline engine: worker processes on this machine, fed over pipes.

A worker that dies is replaced. The driver has seen its end, so it takes over the slot at once
and runs the extents again. Workers are spawned, never forked, and end by `os._exit`, because a
forked or finalised Kafka client hangs. Ctrl-C reaches the driver only, which stops the workers.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from uuid import uuid4

from extentflow.engines import RunListener, Task, Worker, WorkerSpec, run_in_turn
from extentflow.errors import ExtentflowError, Misconfigured, Retryable
from extentflow.model import Extent, Outcome, Receipt

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0  # leaves time to settle, within the 5 s that a stop may take
MAX_START_DEATHS = 3
# What a worker process sends before its first receipt: it runs our code; its worker is open.
BEGUN, READY = "begun", "ready"
POLL_SECONDS = 0.5


class NoWorkers(Retryable):
    """Worker processes begin and end before they are ready; the message says how."""


@dataclass(slots=True)
class _Member:
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
        self.cores = max(1, cores)
        self._evict = evict
        self._members: list[_Member] = []
        self._stopping, self._start_deaths = False, 0
        self._importable = False  # a worker of this run began: the program can be imported
        self._listener: RunListener | None = None

    def run(self, tasks: Sequence[Task], listener: RunListener) -> None:
        queue = deque(tasks)
        self._listener = listener
        while not self._stopping and (queue or any(m.todo for m in self._members)):
            wanted = min(self.cores, len(queue) + sum(1 for m in self._members if m.todo))
            while len(self._members) < wanted:
                self._start_worker()
            for member in self._members:
                if member.ready and not member.todo and queue:
                    task = queue.popleft()
                    member.todo.extend(task.extents)
                    _send(member.pipe, task)
            self._receive(queue, listener)

    def stop(self) -> None:
        self._stopping = True
        for process in [member.process for member in self._members]:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGTERM)

    def close(self) -> None:
        """Let the workers finish their chunk, end them, and settle their slots."""
        for member in self._members:
            _send(member.pipe, None)
        self.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for member in self._members:
            # Until its pipe closes, a stopping worker sends the receipts of what it handed back.
            with suppress(EOFError, OSError):
                while member.pipe.poll(max(0.0, deadline - time.monotonic())):
                    answer = member.pipe.recv()
                    if isinstance(answer, Receipt) and self._listener is not None:
                        self._listener.on_receipt(answer)
            member.process.join(max(0.0, deadline - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.pipe.close()
        self._members.clear()
        self._evict(self._spec.run)

    def _start_worker(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        owner = f"{self._spec.run}/{uuid4().hex}"
        process = spawn.Process(
            target=_main, args=(self._spec, owner, theirs), name="extentflow-worker"
        )
        # The child inherits the mask, so that Ctrl-C cannot reach it before `_main` ignores it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._members.append(_Member(process, ours, owner))

    def _receive(self, queue: deque[Task], listener: RunListener) -> None:
        ready = wait([member.pipe for member in self._members], timeout=POLL_SECONDS)
        for member in [one for one in self._members if one.pipe in ready]:
            try:
                answer = member.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._replace(member, queue)
                continue
            if isinstance(answer, ExtentflowError):
                raise answer
            if isinstance(answer, Receipt):
                # Neither outcome is final: the extent is queued again when the worker ends.
                if answer.outcome not in (Outcome.HANDED_BACK, Outcome.BUSY):
                    member.todo.popleft()
                listener.on_receipt(answer)
            elif answer == BEGUN:
                self._importable = True
            else:
                member.ready, self._start_deaths = True, 0

    def _replace(self, member: _Member, queue: deque[Task]) -> None:
        member.process.join()
        self._members.remove(member)
        if not member.ready:
            self._start_deaths += 1
            if self._start_deaths >= MAX_START_DEATHS:
                raise self._start_failure(member.process.exitcode)
        log.warning("worker %s ended with %s", member.process.pid, member.process.exitcode)
        self._evict(member.owner)  # first: a task that is queued again claims its extents
        if member.todo:
            queue.appendleft(Task(tuple(member.todo)))

    def _start_failure(self, code: int | None) -> ExtentflowError:
        """Return why no worker starts: one that raised before `_main` could not be prepared."""
        deaths = self._start_deaths
        if self._importable or code is None or code < 0:
            return NoWorkers(
                f"{deaths} workers in a row ended while starting, the last one with exit code "
                f"{code}; their output is above. Fix the cause, then run again to resume"
            )
        return Misconfigured(
            f"{deaths} worker processes in a row ended with exit code {code} while they imported "
            f"the program {sys.argv[0] or 'of standard input'}; their output is above. Each worker "
            'process imports it: put its calls of extentflow under `if __name__ == "__main__":`, '
            "and run it from a file, not from standard input"
        )


def _main(spec: WorkerSpec[Worker], owner: str, pipe: Connection) -> None:
    """Run tasks in a worker process until the pipe yields None or closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    stopped = False

    def on_term(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True
        worker.stop()

    code = 1
    try:
        pipe.send(BEGUN)
        worker = spec.open(spec.settings, owner)
        signal.signal(signal.SIGTERM, on_term)
        threading.Thread(target=_follow_driver, args=(worker,), daemon=True).start()
        pipe.send(READY)
        while not stopped and (task := pipe.recv()) is not None:
            wanted = takewhile(lambda _: not stopped, task.extents)
            for receipt in run_in_turn(wanted, worker.run):
                pipe.send(receipt)
        worker.close()
        code = 0
    except ExtentflowError as exc:
        _send(pipe, exc)
    except (EOFError, ConnectionResetError, BrokenPipeError):
        log.info("the driver has ended")
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # `os._exit` skips the interpreter's own report
        pipe.close()
        os._exit(code)


def _follow_driver(worker: Worker) -> None:
    """End this process soon after its driver, which no longer reads its receipts."""
    if driver := multiprocessing.parent_process():
        driver.join()
        worker.stop()
        time.sleep(STOP_SECONDS)
        os._exit(1)


def _send(pipe: Connection, value: object) -> None:
    with suppress(OSError):  # the peer has ended, which the next `recv` reports
        pipe.send(value)
