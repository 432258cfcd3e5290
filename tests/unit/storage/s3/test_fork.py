"""One store across a fork: the child has connections, counts and locks of its own."""

import multiprocessing
import os
from multiprocessing.connection import Connection

import pytest
from tests.unit.storage.loopback import Loopback

from extentflow.model import ObjectVersion
from extentflow.storage.ranges import RangeReader
from extentflow.storage.s3 import S3Store

BODY = bytes(range(256)) * 4
VERSION = ObjectVersion("bucket", "key", None, "aaa", len(BODY))

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def read_in_child(store: S3Store, answer: Connection) -> None:
    body = b"".join(RangeReader(store, VERSION, window_bytes=100).stream(0, len(BODY)))
    answer.send((os.getpid(), body, store.fetched_bytes))


def test_a_forked_child_reads_over_its_own_connections(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/key", BODY, "aaa")
    store.read(VERSION, 0, 10)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    store._lock.acquire()

    child = context.Process(target=read_in_child, args=(store, theirs))
    child.start()
    store._lock.release()
    assert mine.poll(30)
    pid, body, fetched = mine.recv()
    child.join()

    assert pid != os.getpid()
    assert body == BODY
    assert fetched == len(BODY)
    assert store.fetched_bytes == 10
    assert store.read(VERSION, 0, 10) == BODY[:10]
    parents = {server.seen[0].client, server.seen[-1].client}
    assert parents.isdisjoint(request.client for request in server.seen[1:-1])
