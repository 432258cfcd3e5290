"""Tells the arrivals queue of every upload to the S3 server, as S3 itself does on AWS.

Owns: following the server's log of changes, sending. Refuses to know: changes, documents
(`uploads`), where servers run.

    follow ──> change ──> new object? ──> send until the queue has it ──> remember how far
       ^                                                                        |
       +---- the server went away, or its log ended: again, a bit before that --+

The log stays when nobody reads it: what is uploaded while the queue or this reader is away is told
later. What was uploaded before the start is not told, nor a change that cannot be read; the
reconciler finds both.
"""

import logging
import subprocess
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from extentflow.aws.sessions import new_session
from extentflow.clock import Clock
from extentflow_local.event_source.uploads import documents, notification, upload_of
from extentflow_local.services import ACCESS_KEY, REGION, SECRET_KEY

log = logging.getLogger(__name__)

_CLOCK = Clock()
_PAUSE_SECONDS = 0.5
# Nothing is told twice, for the log's own times are compared; this only has to be enough.
_MARGIN_SECONDS = 60
_NANOSECONDS = 1_000_000_000

# The command that prints the log of changes of the last so many seconds, and then goes on.
Follow = Callable[[int], Sequence[str]]
Send = Callable[[str], object]
_ODD = (AttributeError, LookupError, TypeError, ValueError)


def to_queue(endpoint: str, url: str) -> Send:
    """Return what sends to a queue of the SQS server at `endpoint`."""
    client = new_session().client(
        "sqs",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 1}),
    )
    return lambda document: client.send_message(QueueUrl=url, MessageBody=document)


class Notifier:
    """Follows and tells, from `start` to `stop`, on a thread of its own.

    `send` returns when the document is kept, and raises when it may not be. Without `buckets` it
    tells of every bucket. What `follow` complains of goes to the file `output`. `ended` is called
    when nothing is told any more, whatever the reason.
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
        self._told_ns = 0
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def pid(self) -> int:
        """The process that follows the log, the last one where it has ended."""
        if self._process is None:
            raise LookupError("nothing is followed: it was not started")
        return self._process.pid

    def start(self) -> None:
        """Tell of everything that is uploaded from now on."""
        self._told_ns = int(self._clock.wall() * _NANOSECONDS)
        self._thread.start()

    def stop(self) -> None:
        """Tell of nothing more; return at once."""
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
        """Follow the log from a bit before what was told last; None when it is time to stop."""
        behind = self._clock.wall() - self._told_ns / _NANOSECONDS
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
        if moment_ns <= self._told_ns:
            return
        try:
            upload = upload_of(change)
        except _ODD as exc:
            log.warning("a change that cannot be read (%r) is not told: %.500s", exc, change)
            upload = None
        wanted = upload and (not self._buckets or upload.version.bucket in self._buckets)
        if upload is None or not wanted or self._sent(notification(upload)):
            self._told_ns = moment_ns

    def _sent(self, document: str) -> bool:
        """Send until the queue has the document; False when the notifier stops before."""
        while True:
            try:
                self._send(document)
            except (BotoCoreError, ClientError) as exc:
                log.warning("an upload could not be told, trying again: %s", exc)
            else:
                return True
            if self._stopping.wait(_PAUSE_SECONDS):
                return False
