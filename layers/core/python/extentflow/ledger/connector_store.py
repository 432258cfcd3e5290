"""Connectors of a ledger, over its items.

Tests: contracts/ledger.py
"""

from collections.abc import Iterator, Mapping

from extentflow.ledger import ConnectorState, ConnectorVersion
from extentflow.ledger.items import (
    Attr,
    Attributes,
    Items,
    Key,
    Stored,
    Write,
    decoding,
    new_token,
    race,
    refusal,
)

CONNECTORS = "CONNECTORS"
# What items hold for ENABLED, as processes of 0.1 read and write it.
ENABLED = "RUNNING"


class StoredConnectors:
    """A `ConnectorStore`."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._revisions: dict[tuple[str, int], ConnectorVersion] = {}

    def put(self, name: str, config: Mapping[str, str], *, listed: bool = True) -> ConnectorVersion:
        subject = f"storing connector {name}"

        def attempt() -> ConnectorVersion:
            shown = self._items.get(Key(CONNECTORS, name))
            latest = (shown and self._latest(name, shown)) or ConnectorVersion(name, 0)
            latest_as_read = Attr("revision").eq(latest.revision)
            if shown and latest.config == config:
                if listed and "deleted" in shown:
                    write = Write(Key(CONNECTORS, name), latest_as_read, removes=("deleted",))
                    self._items.update(subject, write)
                return latest
            revision = latest.revision + 1
            follows = latest_as_read if latest.revision else Attr("pk").not_exists()
            content: Attributes = {"name": name, "revision": revision, "config": {**config}}
            pointer: Attributes = {"revision": revision}
            if not listed and (shown is None or "deleted" in shown):
                write = Write(Key(CONNECTORS, name), follows, {**pointer, "deleted": new_token()})
            else:
                write = Write(Key(CONNECTORS, name), follows, pointer, ("deleted",))
            writes = (Write(_revision_key(name, revision), sets=content), write)
            self._items.transact(subject, writes)
            return ConnectorVersion(name, revision, dict(config))

        return race(self._items, subject, attempt)

    def get(self, name: str, revision: int | None = None) -> ConnectorVersion | None:
        if revision is not None:
            return self._revision(name, revision)
        shown = self._items.get(Key(CONNECTORS, name))
        return self._latest(name, shown) if shown and "deleted" not in shown else None

    def list(self, *, deleted: bool = False) -> Iterator[ConnectorVersion]:
        for shown in self._items.query(CONNECTORS):
            if not deleted and "deleted" in shown:
                continue
            if latest := self._latest(shown["sk"], shown):
                yield latest

    def names(self) -> Iterator[str]:
        return (shown["sk"] for shown in self._items.query(CONNECTORS))

    def delete(self, name: str) -> bool:
        # The token tells a lost response of this call from a deletion by another process.
        token = new_token()
        is_shown = Attr("revision").exists() & Attr("deleted").not_exists()
        write = Write(Key(CONNECTORS, name), is_shown, {"deleted": token})
        refused = refusal(self._items, f"deleting connector {name}", write)
        return refused is None or (refused.images[0] or {}).get("deleted") == token

    def state(self, name: str) -> ConnectorState:
        shown = self._items.get(Key(CONNECTORS, name)) or {}
        with decoding(shown):
            stored = shown.get("state", ENABLED)
            return ConnectorState.ENABLED if stored == ENABLED else ConnectorState(stored)

    def set_state(self, name: str, state: ConnectorState) -> bool:
        stored = ENABLED if state is ConnectorState.ENABLED else state
        write = Write(Key(CONNECTORS, name), Attr("revision").exists(), {"state": stored})
        return refusal(self._items, f"setting connector {name} to {state}", write) is None

    def _latest(self, name: str, shown: Stored) -> ConnectorVersion | None:
        with decoding(shown):
            revision = int(shown["revision"])
        return self._revision(name, revision)

    def _revision(self, name: str, revision: int) -> ConnectorVersion | None:
        # A revision never changes, so a process reads it once.
        key = (name, revision)
        if key not in self._revisions:
            item = self._items.get(_revision_key(name, revision))
            if item is None:
                return None
            with decoding(item):
                config = {str(each): str(text) for each, text in item["config"].items()}
                self._revisions[key] = ConnectorVersion(str(item["name"]), revision, config)
        return self._revisions[key]


def _revision_key(name: str, revision: int) -> Key:
    return Key(f"CONNECTOR#{name}", f"CONFIG#{revision:08}")
