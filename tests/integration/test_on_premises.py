"""A site without AWS: receiver, PostgreSQL and streaming query as processes, killed on the way."""

import http.client
import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.integration.faultproxy import Delay, FaultProxy
from tests.support.declared import CONFIGURED, INSTALLED, Declared, of_manifest, of_unit
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.secured import Certified
from tests.support.submitting import LAYER, ROOT
from tests.support.waiting import eventually

from extentflow.config.ledgers import LedgerAddress
from extentflow.model import JobState
from extentflow.wiring import Runtime
from extentflow.wiring.arrivals import ARRIVALS, DEAD, own_queue
from extentflow_local.stack.ports import HOST
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [pytest.mark.long, pytest.mark.spark]

# A query starts a JVM and several Python processes, one after the other.
START_SECONDS = 300.0
SEGMENT = "a-secret-segment-of-the-site"
LINES = 4_000
OBJECTS = 6
PAGE = ROOT / "docs" / "on-premises.md"


@dataclass
class Program:
    """A command that runs as a process with its output in a file."""

    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd=self.log.parent,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the process (SIGKILL: and to those below it); return its exit code."""
        assert self.process is not None
        if number is signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.process.wait()

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class Site:
    """A delivery whose ledger is in PostgreSQL, and its processes, which have nothing of AWS."""

    delivery: Delivery
    folder: Path
    postgres: str
    programs: list[Program] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: text
            for name, text in self.delivery.environment.items()
            if not name.startswith("AWS_")
        }
        # The scripts of the environment may be another checkout's.
        paths = f"{LAYER}:{ROOT / 'local'}:{ROOT}"
        return {**kept, "PYTHONPATH": paths, "SPARK_LOCAL_IP": HOST}

    def connector(self, **config: str) -> None:
        keys = self.folder / "grid.properties"
        keys.write_text(f"access_key_id={ACCESS_KEY}\nsecret_access_key={SECRET_KEY}\n")
        self.delivery.connector(
            {
                "endpoint.type": "storagegrids3",
                "aws.s3.region": REGION,
                "aws.access.key.id": f"${{file:{keys}:access_key_id}}",
                "aws.secret.access.key": f"${{file:{keys}:secret_access_key}}",
                **config,
            }
        )

    def program(
        self, name: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> Program:
        """Return a command of extentflow as a process that is not started yet."""
        command = [sys.executable, "-c", "from extentflow.cli import main; main()", *words]
        return self.add(name, command, environment or {})

    def add(self, name: str, command: list[str], environment: Mapping[str, str]) -> Program:
        whole = {**self.environment, **environment}
        made = Program(command, whole, self.folder / f"{name}.log")
        self.programs.append(made)
        return made

    def state(self) -> list[JobState]:
        return [job.state for job in self.delivery.jobs()]

    def depth(self, queue: str = ARRIVALS) -> int:
        found = own_queue(self.delivery.runtime, queue).depth()
        return found.waiting + found.hidden

    def announcement(self, key: str) -> str:
        store = self.delivery.s3.head_object(Bucket=self.delivery.bucket, Key=key)
        return json.dumps(
            {
                "Records": [
                    {
                        "eventVersion": "2.0",
                        "eventSource": "sgws:s3",
                        "eventName": "ObjectCreated:Put",
                        "s3": {
                            "bucket": {"name": self.delivery.bucket},
                            "object": {"key": key, "size": store["ContentLength"]},
                        },
                    }
                ]
            }
        )

    def logs(self) -> str:
        return "\n".join(f"{one.log.name}: {one.log.read_text()[-3000:]}" for one in self.programs)


def post(url: str, document: str = "", tls: ssl.SSLContext | None = None) -> int:
    """Post a notification; return the status, 0 without a response."""
    where = urlsplit(url)
    client = (
        http.client.HTTPSConnection(where.netloc, timeout=60, context=tls)
        if where.scheme == "https"
        else http.client.HTTPConnection(where.netloc, timeout=60)
    )
    try:
        client.request("POST" if document else "GET", where.path, document.encode() or None)
        return client.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        client.close()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def sql_of_page() -> list[str]:
    """The statements of docs/on-premises.md: those of the administrator, those after `init`."""
    return re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def site(
    stack: Stack, postgres: Stack, s3: "S3Client", *, bucket: str, unique: str, tmp_path: Path
) -> Iterator[Site]:
    """A database made, and rights granted, as docs/on-premises.md says."""
    server = postgres.endpoint("postgres")
    before, after = sql_of_page()
    names = {name: f"{name}_{unique}" for name in ("extentflow_owner", "extentflow")}

    def renamed(text: str) -> str:
        text = re.sub(r"\bextentflow_owner\b", names["extentflow_owner"], text)
        return re.sub(r"\bextentflow\b", names["extentflow"], text)

    with psycopg.connect(server, autocommit=True) as administrator:
        for statement in filter(str.strip, renamed(before).split(";")):
            administrator.execute(statement.encode())
    address = server.replace("://extentflow@", f"://{names['extentflow_owner']}@")
    address = re.sub(r"/postgres$", f"/{names['extentflow']}", address)
    user = address.replace(names["extentflow_owner"], names["extentflow"], 1)
    changes = {"ledger_table": None, "ledger_endpoint": None, "app_id": f"site-{unique}"}
    delivery = Delivery(
        stack, s3, bucket, unique, {**changes, "ledger_url": LedgerAddress.parse(user)}
    )
    made = Site(delivery, tmp_path, server)
    initialised = subprocess.run(
        [sys.executable, "-c", "from extentflow.cli import main; main()", "init"],
        env={**made.environment, "EXTENTFLOW_LEDGER_URL": address},
        check=False,
        capture_output=True,
        text=True,
    )
    assert initialised.returncode == 0, initialised.stderr
    with psycopg.connect(address, autocommit=True) as owned:
        for statement in filter(str.strip, renamed(after).split(";")):
            owned.execute(statement.encode())
    # Not `delivery.runtime`, which creates the ledger: the role of services may not.
    delivery.__dict__["runtime"] = Runtime(delivery.settings)
    try:
        yield made
    finally:
        for program in made.programs:
            if program.alive():
                program.end()


def test_notifications_survive_kills_of_receiver_query_and_database(
    site: Site, postgres: Stack, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    delivery, endpoint = site.delivery, s3_proxy.endpoint
    site.connector(**{"aws.s3.endpoint": endpoint, "extent.bytes": "16KiB"})
    s3_proxy.inject(Delay(0.2), when=lambda request: request.method == "GET", times=None)
    sources = tmp_path / "sources.json"
    sources.write_text(json.dumps([{"endpoint": endpoint, "secret_path": SEGMENT}]))
    port = free_port()
    url = f"http://{HOST}:{port}/{SEGMENT}"
    receiver = site.program("receive", "receive", "--sources", str(sources), "--port", str(port))
    # Listing would find the objects, too: here only notifications may.
    query = site.program(
        "stream", "stream", "--cores", "2", "--json", "--listing-interval-seconds", "3600"
    )
    expected: list[bytes] = []

    def arrive(number: int) -> str:
        lines = numbered_lines(f"line-{number}-", LINES)
        expected.extend(lines)
        return site.announcement(delivery.put(f"{number}.txt", joined(lines)))

    def send(document: str) -> None:
        """As a grid does: until it is accepted."""
        eventually("accepted", lambda: post(url, document) == 200)

    receiver.start()
    eventually(
        "the receiver is ready",
        lambda: post(url) == 200,
        process=_text(receiver),
        details=site.logs,
    )
    assert post(f"http://{HOST}:{port}/another", "{}") == 403
    # No query runs: what was acknowledged waits, over the death of the receiver and of the server.
    send(arrive(0))
    receiver.end()
    late = arrive(1)
    assert post(url, late) == 0
    receiver.start()
    send(late)
    postgres.kill("postgres")
    refused = arrive(2)
    assert post(url, refused) == 503
    postgres.up(["postgres"])
    send(refused)
    send(refused)  # the sender did not get the response
    assert site.depth() == 4

    query.start()
    eventually(
        "extents are under way",
        delivery.under_way,
        seconds=START_SECONDS,
        process=_text(query),
        details=site.logs,
    )
    send(arrive(3))
    query.end()
    send(arrive(4))
    assert site.depth() >= 1
    assert len(site.state()) < OBJECTS
    s3_proxy.clear()
    query.start()
    send(arrive(5))
    receiver.end()
    eventually(
        "all objects are delivered",
        lambda: site.state() == [JobState.DONE] * OBJECTS,
        seconds=START_SECONDS,
        process=_text(query),
        details=site.logs,
    )
    eventually(
        "no notification is left",
        lambda: site.depth() == 0,
        process=_text(query),
        details=site.logs,
    )
    code = query.end(signal.SIGTERM)

    assert code == 0, site.logs()
    assert site.depth(DEAD) == 0
    assert delivery.leftovers() == []
    assert sorted(delivery.values()) == sorted(expected)


def _text(program: Program) -> Any:  # noqa: ANN401 - its output is no pipe, of bytes or of text
    return program.process


# -- units and manifest ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """This machine in place of one where extentflow is installed: files and addresses differ."""

    site: Site
    port: int

    def prepare(self) -> None:
        programs = self.site.folder / "bin"
        programs.mkdir()
        environment = f"PYTHONPATH={shlex.quote(self.site.environment['PYTHONPATH'])}"
        python = f"exec env {environment} {shlex.quote(sys.executable)}"
        wrappers = {
            "python": f'{python} "$@"',
            "extentflow": f"{python} -c 'from extentflow.cli import main; main()' \"$@\"",
        }
        for name, line in wrappers.items():
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)

    def here(self, text: str) -> str:
        """Return a word of a command, or a value, with this machine's paths."""
        text = text.replace(INSTALLED, f"{self.site.folder}/bin/")
        text = text.replace(CONFIGURED, f"{self.site.folder}/")
        return {"0.0.0.0": HOST, "8480": str(self.port)}.get(text, text)  # noqa: S104

    def program(self, name: str, declared: Declared, expand: str) -> Program:
        for file, text in declared.files.items():
            if not (self.site.folder / file).exists():
                (self.site.folder / file).write_text(text)
        settings = self.site.environment
        # Addresses are this stack's; every other variable is as it is declared.
        own = {
            "EXTENTFLOW_BOOTSTRAP_SERVERS": settings["EXTENTFLOW_BOOTSTRAP_SERVERS"],
            "EXTENTFLOW_LEDGER_URL": settings["EXTENTFLOW_LEDGER_URL"],
            "SPARK_MASTER": "local[2]",
        }
        assert own.keys() <= declared.environment.keys()
        environment = {key: self.here(text) for key, text in declared.environment.items()} | own

        def value(found: re.Match[str]) -> str:
            return environment[found[1]]

        command = [self.here(re.sub(expand, value, word)) for word in declared.command]
        return self.site.add(name, command, environment)


@pytest.mark.parametrize(
    ("read", "expand"),
    [
        pytest.param(of_unit, r"\$\{(\w+)\}", id="systemd"),
        pytest.param(of_manifest, r"\$\((\w+)\)", id="kubernetes", marks=pytest.mark.soak),
    ],
)
def test_declared_services_start_as_they_are_and_deliver(
    read: Callable[[str], Declared], expand: str, site: Site, tmp_path: Path
) -> None:
    delivery, machine = site.delivery, Machine(site, free_port())
    machine.prepare()
    site.connector()
    # The files of /etc/extentflow that hold secrets, and no example could.
    (tmp_path / "ledger.properties").write_text("password=not-asked-for\n")
    sources = json.dumps([{"endpoint": delivery.stack.endpoint("s3"), "secret_path": SEGMENT}])
    (tmp_path / "sources.json").write_text(sources)
    certified = Certified.make("receiver")
    (tmp_path / "receiver.pem").write_text(certified.certificate)
    (tmp_path / "receiver.key").write_text(certified.key)
    receiving, streaming = read("extentflow-receive"), read("extentflow-stream")
    receiver = machine.program("receive", receiving, expand)
    query = machine.program("stream", streaming, expand)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    scheme = "https" if "--tls-certificate" in receiver.command else "http"
    base = f"{scheme}://{HOST}:{machine.port}"

    receiver.start()
    probe = base + (receiving.probe or "/")
    eventually(
        "the receiver is ready",
        lambda: post(probe, tls=tls) == 200,
        process=_text(receiver),
        details=site.logs,
    )
    query.start()
    lines = numbered_lines("line-", 1_000)
    document = site.announcement(delivery.put("a.txt", joined(lines)))
    assert post(f"{base}/{SEGMENT}", document, tls) == 200
    eventually(
        "the object is delivered",
        lambda: site.state() == [JobState.DONE],
        seconds=START_SECONDS,
        process=_text(query),
        details=site.logs,
    )
    codes = [program.end(signal.SIGTERM) for program in (query, receiver)]

    assert codes == [0, 0], site.logs()
    assert sorted(delivery.values()) == sorted(lines)
