"""Attacks on `extentflow receive` by clients without a proof; a sender with one is answered."""

import http.client
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import psutil
import pytest

pytestmark = pytest.mark.hostile

HOST = "127.0.0.1"
SEGMENT = "a-secret-of-these-tests"
KEY = "AKIAOFTHESETESTS"
SOURCES = [{"secret_path": SEGMENT}, {"access_key_id": KEY, "secret_access_key": "unknown"}]
# More than the receiver serves at once.
CONNECTIONS = 1_500
SENDS = 5
# Those of StorageGRID repeat a notification then.
ANSWERED_SECONDS = 30.0
STARTED_SECONDS = 120.0
NOTIFICATION = json.dumps({"Records": []}).encode()
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


def claim() -> bytes:
    """A head as of a sender who only knows the access key id, before a body of a megabyte."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{KEY}/{now[:8]}/r/sns/aws4_request"
    stated = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=x"
    signed = f"X-Amz-Date: {now}\r\nAuthorization: {stated}\r\n"
    return HEAD + f"{signed}Content-Length: 1000001\r\n\r\n".encode()


@dataclass(frozen=True)
class Target:
    """A running receiver, and a sender that has the proof."""

    port: int
    process: psutil.Process

    def send(self) -> float:
        """Send a notification on a new connection; return how many seconds its answer took."""
        begun = time.monotonic()
        client = http.client.HTTPConnection(HOST, self.port, timeout=ANSWERED_SECONDS)
        try:
            client.request("POST", f"/{SEGMENT}", NOTIFICATION)
            assert client.getresponse().status == 200
        finally:
            client.close()
        return time.monotonic() - begun

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=ANSWERED_SECONDS)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("receiver")
    (folder / "sources.json").write_text(json.dumps(SOURCES))
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(folder),
        "EXTENTFLOW_BOOTSTRAP_SERVERS": f"{HOST}:1",
        "EXTENTFLOW_LOCAL_STACK": "off",
    }
    command = [sys.executable, "-m", "extentflow", "receive", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, "--sources", str(folder / "sources.json")],
        env=environment,
        stdout=subprocess.PIPE,
        # systemd starts services with as few.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, 4_096)),  # noqa: PLW1509 - no thread yet
    ) as running:
        assert running.stdout is not None
        try:
            url = json.loads(b"".join(iter(running.stdout.readline, b"}\n")) + b"}")["receiver"]
            yield Target(int(url.rpartition(":")[2]), psutil.Process(running.pid))
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                assert running.wait(STARTED_SECONDS) == 0
            finally:
                running.kill()  # otherwise the end of `with` awaits it for ever


@contextmanager
def held(
    target: Target, act: Callable[[socket.socket], object], *, hosts: int = 1
) -> Iterator[None]:
    """Hold `CONNECTIONS` of so many addresses, which `act` again and again; renew what ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CONNECTIONS + 512), hard))
    sources = itertools.cycle(f"127.0.1.{host}" for host in range(1, hosts + 1))
    ended, full = threading.Event(), threading.Event()

    def opened() -> socket.socket:
        client = socket.socket()
        client.bind((next(sources), 0))
        client.settimeout(0)
        client.connect_ex((HOST, target.port))
        return client

    def hold() -> None:
        clients = [opened() for _ in range(CONNECTIONS)]
        while not ended.is_set():
            for place, client in enumerate(clients):
                try:
                    act(client)
                    if not client.recv(1_000):
                        raise ConnectionError
                except BlockingIOError:
                    pass
                except OSError:
                    client.close()
                    clients[place] = opened()
            full.set()
            ended.wait(0.1)
        for client in clients:
            client.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert full.wait(ANSWERED_SECONDS)
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize(
    ("act", "hosts"),
    [
        pytest.param(lambda _client: None, 1, id="idle"),
        pytest.param(lambda client: client.send(b"X"), 1, id="slow"),
        pytest.param(lambda client: client.send(b"GET / HTTP/1.1\r\n\r\n"), 1, id="probes"),
        pytest.param(lambda client: client.send(b"GET / HTTP/1.1\r\n\r\n"), 200, id="many-hosts"),
        pytest.param(
            lambda client: client.send(HEAD + b"Content-Length: 1000000\r\n\r\n"), 1, id="bodies"
        ),
        pytest.param(lambda client: client.send(claim()), 1, id="claims"),
    ],
)
def test_a_sender_with_proof_is_answered_beside_many_connections(
    target: Target, act: Callable[[socket.socket], object], hosts: int
) -> None:
    with held(target, act, hosts=hosts):
        for _ in range(SENDS):
            target.send()


def test_bodies_without_a_proof_fill_a_bounded_memory(target: Target) -> None:
    begun = target.process.memory_info().rss
    with ExitStack() as opened:
        for _ in range(400):
            client = opened.enter_context(target.connect())
            with suppress(ConnectionError):  # those after it took its room
                client.sendall(claim() + b"x" * 1_000_000)

        assert target.process.memory_info().rss - begun < 200 << 20
        target.send()


def test_one_byte_chunks_are_refused_before_they_are_read(target: Target) -> None:
    used = target.cpu_seconds()
    with target.connect() as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(100):
                client.sendall(b"1\r\nx\r\n" * 10_000)
        except ConnectionError:
            pass  # refused
        target.send()

    assert target.cpu_seconds() - used < 1.0


def test_a_proof_does_not_buy_endless_chunks(target: Target) -> None:
    used = target.cpu_seconds()
    with target.connect() as client:
        client.sendall(f"POST /{SEGMENT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        client.sendall(b"1\r\nx\r\n" * 20_000)

        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
        target.send()

    assert target.cpu_seconds() - used < 1.0


@pytest.mark.parametrize(
    "header", [b"X: %s\r\n" % (b"a" * 8_000), b"a:\r\n", b"Authorization: %s\r\n" % (b";a" * 9_000)]
)
def test_huge_heads_are_refused_for_little_time(target: Target, header: bytes) -> None:
    used = target.cpu_seconds()
    for _ in range(20):
        with target.connect() as client:
            client.sendall(HEAD)
            try:
                client.sendall(header * 1_000)
                assert client.recv(100).startswith(b"HTTP/1.1 431 ")
            except ConnectionError:
                pass  # reset, since the rest was not read
    target.send()

    assert target.cpu_seconds() - used < 1.0


def test_the_claim_of_a_signature_is_checked_before_the_body(target: Target) -> None:
    names = ";".join(["host"] * 3_000)
    authorization = (
        "AWS4-HMAC-SHA256 Credential=AKIA/20260101/r/sns/aws4_request,"
        f" SignedHeaders={names}, Signature=x"
    )
    with target.connect() as client:
        client.sendall(
            HEAD + f"Authorization: {authorization}\r\nContent-Length: 900000\r\n\r\n".encode()
        )

        assert client.recv(100).startswith(b"HTTP/1.1 403 ")
        target.send()
