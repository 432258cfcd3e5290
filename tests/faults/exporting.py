"""An exporter that is killed, whose topic loses records by retention.

producer      transactions of columnar values, some aborted; their offsets are those of the answers
deletion      records up to a cut
exporter      `extentflow export`, ended at random; `--accept-gap` only after an error that asks
comparison    each record that is left is in the files once, and each other one in a gap with a name

Tests: unit/faults/test_exporting.py
"""

import re
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import uuid4

import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.cimpl import Producer
from tests.faults.commands import UNEXPECTED
from tests.faults.comparison import Verdict
from tests.faults.retention import LAST_DELETIONS, Place, Reading
from tests.faults.servers import Servers
from tests.support.columnar_topics import columnar, rows_of
from tests.support.delivery import PROGRAM

PARTITIONS = 2
MOST_VALUES = 6
ROWS = 3
WAIT_SECONDS = 3.0
REQUEST_SECONDS = 20.0
FINISH_SECONDS = 180.0
START_SECONDS = 60.0
STARTED = "note: writing "
ACCEPT = "--accept-gap"
_GAP = re.compile(r"\[(\d+)\]: retention deleted the offsets (\d+) to (\d+)")


@dataclass
class RetainedExport:
    """Writes a topic of its own, deletes records, and exports it, until the faults are over."""

    servers: Servers
    folder: Path
    random: Random
    topic: str = field(default_factory=lambda: f"exported-{uuid4().hex[:12]}")
    reading: Reading = field(default_factory=Reading)
    # By the number of its first row.
    committed: dict[int, Place] = field(default_factory=dict)
    unclear: dict[int, Place] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)
    given_up: threading.Event = field(default_factory=threading.Event)
    stuck: str = ""
    _written: int = 0
    _accepts: bool = False
    _runs: int = 0

    def go(self, over: threading.Event) -> None:
        """Play until the faults are `over`; then export what is left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.servers.make_topic(self.topic, partitions=PARTITIONS)
        while not over.is_set() and not self.given_up.is_set():
            self._produce()
            self._export(seconds=self.random.uniform(0.5, 2 * WAIT_SECONDS))
            self._delete()
        for _ in range(LAST_DELETIONS):  # of what no export has read yet, too
            self._produce()
            self._delete()
        self._finish()

    # -- the topic ------------------------------------------------------------------------------

    def _produce(self) -> None:
        """Write a transaction, or abort it; without an answer it may be there."""
        sent: dict[int, Place] = {}
        client = Producer(
            {
                "bootstrap.servers": self.servers.bootstrap,
                "transactional.id": self.topic,
                "log_level": 0,
            }
        )
        try:
            client.init_transactions(REQUEST_SECONDS)
            client.begin_transaction()
            for _ in range(self.random.randrange(1, MOST_VALUES)):
                self._send(client, sent)
            client.flush(REQUEST_SECONDS)
            if self.random.random() < 0.3:
                client.abort_transaction(REQUEST_SECONDS)
                return
            client.commit_transaction(REQUEST_SECONDS)
        except KafkaException:
            self.unclear |= sent
            return
        self.committed |= sent

    def _send(self, client: Producer, sent: dict[int, Place]) -> None:
        number, self._written = self._written, self._written + ROWS
        place = self.random.randrange(PARTITIONS)
        value = columnar(rows_of(number, number + ROWS), place, encoding="parquet")

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent[number] = (place, message.offset() or 0)

        client.produce(
            self.topic,
            value.value,
            partition=place,
            headers=[*value.headers],
            on_delivery=delivered,
        )

    def _delete(self) -> None:
        """Delete all before an offset that was written, or behind a marker.

        What is deleted before the first export notes where partitions begin is no gap.
        """
        known = [*self.committed.values()]
        if not known or not (self.folder / "files" / self.topic / ".topic").exists():
            return
        partition, offset = self.random.choice(known)
        cut = offset + self.random.randrange(3)
        # Before: a deletion without an answer may have taken place.
        self.reading.cuts.add((partition, cut))
        try:
            self.servers.delete_records(self.topic, partition, cut)
        except (KafkaException, TimeoutError):
            return

    # -- the exporter ---------------------------------------------------------------------------

    def _export(self, *, seconds: float = FINISH_SECONDS, once: bool = False) -> int | None:
        """Run the command, for so long at most, and note which gaps it names; return its code."""
        self._runs += 1
        log = self.folder / f"export-{self._runs}.log"
        words = [str(PROGRAM), "export", self.topic, "--to", str(self.folder / "files")]
        words += ["--bootstrap-servers", self.servers.settings.bootstrap_servers]
        words += ["--file-bytes", "4KiB", "--file-seconds", "1"]
        words += [ACCEPT] if self._accepts else []
        words += ["--once"] if once else []
        with log.open("w") as output:
            process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
            code: int | None = None
            try:
                if not once:
                    self._await_start(process, log)
                code = process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                ends = self.random.choice((process.kill, process.terminate))
                ends()
                process.wait()
        said = " ".join(log.read_text(errors="replace").split())
        for partition, first, last in _GAP.findall(said):
            self.reading.gaps.add((int(partition), int(first), int(last) + 1))
        if any(mark in said for mark in UNEXPECTED):
            self.stuck = f"exporter: an unexpected error; see {log}"
        self._accepts = code == 2 and ACCEPT in said
        self.codes[f"export {'ended' if code is None else code}"] += 1
        return code

    def _await_start(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        """Wait until the command writes; on a busy machine, it would be ended before each time."""
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if STARTED in log.read_text(errors="replace") or self.given_up.wait(0.1):
                return

    def _finish(self) -> None:
        """Export to the end, as an operator would; what was deleted meanwhile is accepted."""
        deadline = time.monotonic() + FINISH_SECONDS
        while (code := self._export(once=True)) != 0:
            if time.monotonic() > deadline or self.given_up.is_set():
                self.stuck = f"exporter: exit code {code} after run {self._runs} in {self.folder}"
                return

    def verdict(self) -> Verdict:
        """Compare the files with the records that were written."""
        if self.stuck:
            return Verdict(missing=1, samples=(self.stuck,))
        places = {**self.unclear, **self.committed}
        seen: Counter[Place] = Counter()
        wrong = 0
        for path in (self.folder / "files").glob(f"{self.topic}/*/[!.]*"):
            numbers = pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist()
            firsts = numbers[::ROWS]
            wrong += numbers != [one + at for one in firsts for at in range(ROWS)]
            partition = int(path.parent.name)
            seen.update(places.get(one, (partition, -1 - one)) for one in firsts)
        self.reading.seen = seen
        records = {*self.committed.values()} | ({*self.unclear.values()} & seen.keys())
        cut = Counter[int]()
        for partition, before in self.reading.cuts:
            cut[partition] = max(cut[partition], before)
        deleted = {one for one in records if one[1] < cut[one[0]]}
        found = self.reading.verdict(deleted, records - deleted)
        samples = tuple(one.replace("reader", "exporter") for one in found.samples)
        return Verdict(
            missing=found.missing,
            duplicates=found.duplicates,
            foreign=found.foreign,
            changed=found.changed + wrong,
            samples=samples,
        )

    def figures(self) -> Counter[str]:
        """Return what happened, for the report; after `verdict`."""
        return self.codes + Counter(
            {
                "records exported": len(self.reading.seen),
                "gaps of exports": len(self.reading.gaps),
                "deletions under exports": len(self.reading.cuts),
            }
        )
