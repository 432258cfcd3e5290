"""The identity of a ledger, which is part of every transactional id, and copies of ledgers.

A copy, such as a restored backup, holds the identity and the place of the original. What was
delivered after the copy is unknown in it, so it is refused until `adopt` makes it a ledger of its
own.

Tests: contracts/ledger.py
"""

import secrets

from extentflow.errors import Misconfigured
from extentflow.ledger.items import LEDGER_KEY, Attr, Attributes, Items, Write, decoding, store
from extentflow.ledger.job_store import StoredJobs
from extentflow.model import JobState

IDENTITY_BYTES = 6


def identity(items: Items, place: str) -> str:
    """Return the identity of the ledger at `place`; the first caller writes it.

    Misconfigured: the ledger is a copy of the one at another place.
    """
    item = items.get(LEDGER_KEY) or {}
    if "id" not in item:
        content: Attributes = {"id": secrets.token_hex(IDENTITY_BYTES), "table": place}
        # Not "the item is new": `bind` may have written it.
        write = Write(LEDGER_KEY, Attr("id").not_exists(), content)
        item = store(items, "writing the ledger's identity", write)
    # A ledger of an earlier version has no `table`; it gets the name at its first use.
    if "table" not in item:
        write = Write(LEDGER_KEY, Attr("table").not_exists(), {"table": place})
        item = store(items, "writing the ledger's table", write)
    if item.get("table") != place:
        raise Misconfigured(
            f"{items}: a copy of table {item.get('table')}, for example restored from a backup;"
            " what was delivered later would be delivered again;"
            ' read docs/operations.md, "Restore the table", then run `extentflow init`'
        )
    with decoding(item):
        return str(item["id"])


def adopt(items: Items, place: str) -> tuple[str, ...]:
    """Give a copied ledger an identity of its own; return what its operator must know.

    Under the old identity, a slot's group states progress of the original ledger's claims, and
    settlements would conclude from it that nothing was committed.
    """
    item = items.get(LEDGER_KEY) or {}
    if "id" not in item or item.get("table", place) == place:
        return ()
    is_as_read = Attr("id").eq(item["id"]) & Attr("table").eq(item["table"])
    content: Attributes = {"id": secrets.token_hex(IDENTITY_BYTES), "table": place}
    write = Write(LEDGER_KEY, is_as_read, {**content, "copied_from": item["id"]})
    store(items, "adopting a copied table", write)
    jobs = StoredJobs(items)
    count = sum(1 for state in JobState if state.open for _ in jobs.list(state=state))
    replay = "`extentflow replay JOB --accept-duplicates`"
    return (
        f"{place} is a copy of table {item['table']} and has a new ledger id",
        f"extents in work then become FAILED, progress unknown; {replay} continues them",
        f"{count} jobs are open: what was delivered of them after the copy is delivered again",
        "objects that were delivered after the copy are unknown, and are delivered again",
    )
