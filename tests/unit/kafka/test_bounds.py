"""Every call of the Kafka client that can block has a timeout."""

import ast
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import extentflow.kafka

SOURCES = sorted(Path(extentflow.kafka.__file__).parent.glob("*.py"))

# Blocking methods: the place of their timeout among positional arguments, its name.
BLOCKING = {
    "init_transactions": (0, "timeout"),
    "send_offsets_to_transaction": (2, "timeout"),
    "commit_transaction": (0, "timeout"),
    "abort_transaction": (0, "timeout"),
    "flush": (0, "timeout"),
    "poll": (0, "timeout"),
    "list_topics": (1, "timeout"),
    "committed": (1, "timeout"),
    "consume": (1, "timeout"),
    "list_consumer_groups": (0, "request_timeout"),
    "list_groups": (1, "timeout"),
    "describe_configs": (1, "request_timeout"),
    "create_topics": (1, "request_timeout"),
    "list_offsets": (1, "request_timeout"),
    "describe_topics": (1, "request_timeout"),
    "get_watermark_offsets": (1, "timeout"),
}
# Methods that wait for no broker, and those of a member of a group that have no timeout: `commit`
# and `close` end with the requests of the coordinator.
LOCAL = {
    "assign",
    "begin_transaction",
    "close",
    "commit",
    "incremental_assign",
    "incremental_unassign",
    "pause",
    "resume",
    "seek",
    "subscribe",
    "unassign",
    "consumer_group_metadata",
    "produce",
    "produce_batch",
    "purge",
}
# They call what they are given with the remaining seconds.
REPEATS = {"_resume", "_end"}


def client_methods() -> set[str]:
    kinds = (Producer, Consumer, AdminClient)
    return {name for kind in kinds for name in dir(kind) if not name.startswith("_")}


def uses(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield each use of a client's method, and whether it is bounded."""
    repeated: set[ast.AST] = set()
    called: dict[ast.AST, ast.Call] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called[node.func] = node
            if node.func.attr in REPEATS:
                repeated.update(node.args)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in BLOCKING:
            place, name = BLOCKING[node.attr]
            call = called.get(node)
            bounded = call is not None and (
                len(call.args) > place or name in {keyword.arg for keyword in call.keywords}
            )
            yield node.attr, bounded or node in repeated


def test_every_blocking_call_of_the_kafka_client_has_a_timeout() -> None:
    found = {path.name: list(uses(ast.parse(path.read_text("utf-8")))) for path in SOURCES}

    unbounded = {
        (name, method) for name, calls in found.items() for method, bounded in calls if not bounded
    }
    assert unbounded == set()
    # The table lists no method that is not used: the walk reaches all of them.
    assert {method for calls in found.values() for method, _ in calls} == set(BLOCKING)


def test_every_method_of_the_kafka_client_is_known_to_block_or_not() -> None:
    used = {
        node.func.attr
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }

    assert (used & client_methods()) - LOCAL == set(BLOCKING) - {"commit_transaction"}


def test_a_call_without_a_timeout_is_found() -> None:
    text = "p.flush()\np.flush(1)\nself._resume(p.commit_transaction)\nrun(p.commit_transaction)"

    assert sorted(uses(ast.parse(text))) == [
        ("commit_transaction", False),
        ("commit_transaction", True),
        ("flush", False),
        ("flush", True),
    ]
