"""How the ledger keeps connectors of a command's address and options."""

from pathlib import Path

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import MemoryRuntime

from extentflow.errors import Misconfigured, ObjectGone
from extentflow.model import ObjectVersion
from extentflow.services.addressed import AddressedConnector, make_connector
from extentflow.services.composition import open_orders
from extentflow.services.orders import MadeOrder


def made(**settings: str) -> AddressedConnector:
    given = {key.replace("__", "."): text for key, text in settings.items()}
    return make_connector(["s3://shop/in/"], "orders", given)


def stored(runtime: MemoryRuntime, one: AddressedConnector, *, save: bool = False) -> MadeOrder:
    runtime.memory_store.put(one.config.bucket, "in/a.csv", b"1")
    return open_orders(runtime).store(one, save=save, notify=lambda _note: None)


def test_a_connector_that_is_not_saved_is_there_for_jobs_only(golden: Golden) -> None:
    runtime = MemoryRuntime()

    first = stored(runtime, made())
    same = stored(runtime, made())
    changed = stored(runtime, made(input__format="csv"))

    assert [one.revision for one in (first, same, changed)] == [1, 1, 2]
    assert runtime.connectors.revision(first.config.name, 1).prefix == ""  # one for every address
    assert list(runtime.memory.connectors.list()) == []
    assert not changed.stored
    assert runtime.connectors.revision(first.config.name, 2).format == "csv"
    with golden.raises(Misconfigured, match="`extentflow run --topic`.*--save"):
        runtime.connectors.latest(first.config.name)


@pytest.mark.parametrize("save", [True, False])
def test_a_connector_of_a_bucket_that_is_not_there_is_not_stored(*, save: bool) -> None:
    runtime = MemoryRuntime()

    with pytest.raises(ObjectGone, match="no such bucket"):
        open_orders(runtime).store(made(), save=save, notify=lambda _note: None)

    assert list(runtime.memory.connectors.list(deleted=True)) == []


def test_a_saved_connector_is_listed_and_used_again() -> None:
    runtime = MemoryRuntime()
    stored(runtime, made())

    saved = stored(runtime, made(), save=True)
    again = stored(runtime, made())

    assert [one.name for one in runtime.memory.connectors.list()] == [saved.config.name]
    assert (saved.stored, again.stored) == (True, True)
    assert saved.revision == again.revision == 2  # of which the prefix is a part


def test_a_stored_connector_is_neither_changed_nor_hidden() -> None:
    runtime = MemoryRuntime()
    saved = stored(runtime, made(), save=True)

    with pytest.raises(Misconfigured) as caught:
        stored(runtime, made(input__format="csv"))

    assert f"`extentflow run ADDRESS -c {saved.config.name}`" in str(caught.value)
    assert stored(runtime, made(input__format="csv"), save=True).revision == 2
    assert [one.revision for one in runtime.memory.connectors.list()] == [2]


def test_saving_names_connectors_that_deliver_the_same_objects(golden: Golden) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector(topic="orders", aws__s3__prefix="in/today/")
    notes: list[str] = []

    runtime.memory_store.put("shop", "in/a.csv", b"1")
    open_orders(runtime).store(made(), save=True, notify=notes.append)

    (note,) = notes
    golden(note)
    assert "connector c" in note


@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize(
    "changed",
    [
        {"topic": "others"},
        {"aws.s3.bucket.name": "other"},
        {"aws.s3.endpoint": "http://minio:9000"},
        {"input.format": "gone"},
    ],
)
def test_a_deleted_connector_of_other_objects_does_not_give_its_name(
    changed: dict[str, str], golden: Golden, *, save: bool
) -> None:
    """Its jobs once counted for the new topic: nothing was delivered."""
    runtime = MemoryRuntime()
    one = made()
    runtime.memory.connectors.put(one.name, {**one.settings, **changed})
    runtime.memory.connectors.delete(one.name)

    with golden.raises(Misconfigured, match="--set.*name=NAME"):
        stored(runtime, one, save=save)

    assert stored(runtime, made(name="mine"), save=save).config.name == "mine"


def notes_of(runtime: MemoryRuntime, one: AddressedConnector, *, save: bool = False) -> list[str]:
    notes: list[str] = []
    runtime.memory_store.put(one.config.bucket, "in/a.csv", b"1")
    open_orders(runtime).store(one, save=save, notify=notes.append)
    return notes


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("s3://shop/in/", True),
        ("s3://shop/", True),
        ("s3://shop/in/today/a.csv", True),
        ("s3://shop/in/today", True),
        ("s3://shop/in/*.csv", True),
        ("s3://shop/in/today2/", False),
        ("s3://shop/in/today2", False),
        ("s3://shop/in/to", False),
        ("s3://shop/in/x*.csv", False),
        ("s3://other/in/today/", False),
    ],
)
def test_a_stored_connector_of_the_same_objects_is_named_before_they_are_delivered(
    address: str,
    golden: Golden,
    *,
    read: bool,
) -> None:
    """A run without --save once delivered them a second time without a word."""
    runtime = MemoryRuntime()
    runtime.put_connector(topic="orders", aws__s3__prefix="in/today/")

    notes = notes_of(runtime, make_connector([address], "orders", {}))

    assert len(notes) == read
    if read:
        golden(notes[0])
        assert "connector c" in notes[0]
        assert "`extentflow run ADDRESS -c c`" in notes[0]
    assert notes_of(runtime, make_connector([address], "others", {})) == []


def test_another_spelling_of_the_service_is_the_same_service() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector(topic="orders", s3__url="http://minio:9000/")

    minio = make_connector(["s3://shop/c/"], "orders", {"aws.s3.endpoint": "http://MINIO:9000"})

    assert len(notes_of(runtime, minio)) == 1
    assert notes_of(runtime, make_connector(["s3://shop/c/"], "orders", {})) == []


def test_saving_names_what_an_earlier_command_delivered_from_a_parent_folder(
    tmp_path: Path,
) -> None:
    runtime = MemoryRuntime()
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    parent = stored(runtime, make_connector([str(tmp_path / "in")], "orders", {}))
    child = make_connector([str(tmp_path / "link" / "sub")], "orders", {})
    idle = notes_of(runtime, child, save=True)
    config = runtime.connectors.revision(parent.config.name, 1)
    version = ObjectVersion(config.bucket, "sub/a.csv", None, "etag", 4)
    runtime.planner().register(runtime.requests.make(config, 1, version, 1))

    notes = notes_of(runtime, child, save=True)

    assert idle == []
    (note,) = notes
    command = f"`extentflow run file://{tmp_path / 'in'} --topic orders`"
    assert note.startswith(f"connector {parent.config.name}, which {command} made or")
    assert note.endswith("deliver those objects a second time")
    assert notes_of(runtime, child) == []


def test_what_fits_only_the_address_is_refused_before_anything_is_stored() -> None:
    runtime = MemoryRuntime()
    # The connector of the bucket reads "delivered/" too, and would deliver moved objects again.
    moving = {"after.completion": "move", "after.completion.move.prefix": "delivered/"}
    one = make_connector(["s3://shop/in/"], "orders", moving)

    with pytest.raises(Misconfigured, match="--save keeps what the address covers"):
        stored(runtime, one)

    assert runtime.ledger.connectors.get(one.name, 1) is None
    assert stored(runtime, one, save=True).config.prefix == "in/"
