"""Send a notification to the arrivals queue, or a receiver, for every upload to the S3 server.

    follow ──> change ──> new object? ──> send until it is accepted ──> store the position
       ^                                                                    |
       +-- the server stopped, or its log ended: again, a little before ----+

The server keeps the log, so uploads while this reader or the recipient is down are sent later.
Uploads before the start, and changes that cannot be parsed, are left to the reconciler.
"""

import logging
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from extentflow.aws import new_session
from extentflow.retry import Clock
from extentflow_local.aws.event_source.uploads import documents, notification, upload_of
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY
from extentflow_local.stack.servers.s3 import follow_command
from extentflow_local.stack.stack import Stack

log = logging.getLogger(__name__)

_CLOCK = Clock()
_PAUSE_SECONDS = 0.5
# The log's own timestamps prevent duplicates, so this overlap may be generous.
_MARGIN_SECONDS = 60
_NANOSECONDS = 1_000_000_000

# Command that prints the changes of the last seconds, and then follows the log.
Follow = Callable[[int], Sequence[str]]
Send = Callable[[str], object]
# Also an HTTP response that is not a success, which urllib raises.
_UNSENT = (BotoCoreError, ClientError, HTTPException, OSError)
_REQUEST_SECONDS = 30
_ODD = (AttributeError, LookupError, TypeError, ValueError)


def to_queue(endpoint: str, url: str) -> Send:
    """Return a function that sends to a queue of the SQS server at `endpoint`."""
    client = new_session().client(
        "sqs",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 1}),
    )
    return lambda document: client.send_message(QueueUrl=url, MessageBody=document)


def to_receiver(url: str) -> Send:
    """Return a function that posts to the receiver at `url`, as a store's webhook does."""

    def post(document: str) -> None:
        request = urllib.request.Request(url, document.encode(), method="POST")  # noqa: S310 - http
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request, timeout=_REQUEST_SECONDS).close()  # noqa: S310 - as above

    return post


@contextmanager
def notifying(
    stack: Stack,
    send: Send,
    output: Path,
    *,
    buckets: Collection[str] = (),
    on_end: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Notify of uploads to the stack's S3 server while the context is active; see `Notifier`."""
    weed = stack.toolbox.weed()
    (s3,) = (state for state in stack.state() if state.name == "s3")
    notifier = Notifier(
        lambda seconds: follow_command(weed, s3.ports, seconds),
        send,
        output,
        buckets=buckets,
        ended=on_end,
    )
    notifier.start()
    try:
        yield
    finally:
        notifier.stop()
        notifier.join()


class Notifier:
    """Follows the log and sends, from `start` to `stop`, on a thread of its own.

    `send` returns when the message is stored, and raises if it may not be. Without `buckets` all
    buckets are covered. Errors of `follow` go to the file `output`. `ended` is called when
    notifications end, for any reason.
    """

    def __init__(
        self,
        follow: Follow,
        send: Send,
        output: Path,
        *,
        buckets: Collection[str] = (),
        ended: Callable[[], object] = lambda: None,
        clock: Clock = _CLOCK,
    ) -> None:
        self._follow = follow
        self._send = send
        self._output = output
        self._buckets = buckets
        self._ended = ended
        self._clock = clock
        self._reported_ns = 0
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def pid(self) -> int:
        """The process that follows the log, or its last one."""
        if self._process is None:
            raise LookupError("the notifier was not started")
        return self._process.pid

    def start(self) -> None:
        """Send a notification for every upload from now on."""
        self._reported_ns = int(self._clock.wall() * _NANOSECONDS)
        self._thread.start()

    def stop(self) -> None:
        """Stop sending; return at once."""
        self._stopping.set()
        with self._lock:
            if self._process is not None:
                self._process.terminate()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._tell_all()
        finally:
            self._ended()

    def _tell_all(self) -> None:
        while (process := self._begin()) is not None:
            try:
                for change in documents(process.stdout or ()):
                    self._tell(change)
                    if self._stopping.is_set():
                        return
            finally:
                process.terminate()
                process.communicate()
            self._stopping.wait(_PAUSE_SECONDS)

    def _begin(self) -> subprocess.Popen[str] | None:
        """Follow the log from a little before the last position; None after `stop`."""
        behind = self._clock.wall() - self._reported_ns / _NANOSECONDS
        command = self._follow(max(0, int(behind)) + _MARGIN_SECONDS)
        with self._lock, self._output.open("ab") as output:
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
            return self._process

    def _tell(self, change: dict[str, object]) -> None:
        moment_ns = int(str(change["tsNs"]))
        if moment_ns <= self._reported_ns:
            return
        try:
            upload = upload_of(change)
        except _ODD as exc:
            log.warning("a change could not be parsed (%r) and is skipped: %.500s", exc, change)
            upload = None
        wanted = upload and (not self._buckets or upload.version.bucket in self._buckets)
        if upload is None or not wanted or self._sent(notification(upload)):
            self._reported_ns = moment_ns

    def _sent(self, document: str) -> bool:
        """Send until the message is accepted; False after `stop`."""
        while True:
            try:
                self._send(document)
            except _UNSENT as exc:
                log.warning("a notification could not be sent, retrying: %s", exc)
            else:
                return True
            if self._stopping.wait(_PAUSE_SECONDS):
                return False
