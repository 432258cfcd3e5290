"""Calls into librdkafka that may never return, given up from outside.

Owns: the thread that waits instead of us. Refuses to know: which call, what it means to give up.

Seen with librdkafka 2.16.1: `send_offsets_to_transaction` waits without a time-out of its own for
an answer of its main thread, and where a broker paused in that moment the answer never comes,
also when the broker is long back.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future


def bounded(call: Callable[[], None], seconds: float) -> None:
    """Return when `call` returned, raise what it raised.

    The thread of a call that never returns stays behind, and keeps alive what the call uses.

    Raises:
        TimeoutError: it did neither within `seconds`.
    """
    answer: Future[None] = Future()
    waiter = threading.Thread(
        target=_run, args=(call, answer), name="extentflow-bounded", daemon=True
    )
    waiter.start()
    answer.result(seconds)


def _run(call: Callable[[], None], answer: Future[None]) -> None:
    try:
        call()
    except BaseException as exc:  # noqa: BLE001 - handed over, whatever it is
        answer.set_exception(exc)
    else:
        answer.set_result(None)
