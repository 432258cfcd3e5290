"""All targets, the corpus of what was found, and how one input is tried."""

from pathlib import Path
from traceback import extract_tb

from tests.fuzz.arrow import ARROW
from tests.fuzz.avro import AVRO
from tests.fuzz.charsets import CHARSETS
from tests.fuzz.chunks import BYTES
from tests.fuzz.codecs import CODECS
from tests.fuzz.converters import CONVERTERS
from tests.fuzz.documents import JSON
from tests.fuzz.encoder import ENCODER
from tests.fuzz.lines import COMPRESSED, CSV, JSONL, TEXT
from tests.fuzz.messages import LEDGER, MESSAGES
from tests.fuzz.notifications import NOTIFICATIONS, REQUESTS
from tests.fuzz.orc import ORC
from tests.fuzz.parquet import PARQUET
from tests.fuzz.planted import PLANTED
from tests.fuzz.records import ATTRIBUTES, TRANSFORMS
from tests.fuzz.settings import ADDRESSES, CONNECTORS, SETTINGS
from tests.fuzz.targets import Target, require_bounded

from extentflow.errors import ExtentflowError

# Those of formats and codecs have their names.
OBJECTS = {
    target.name: target
    for target in (
        *(TEXT, CSV, JSONL, JSON, BYTES, PARQUET, ORC, ARROW, AVRO),
        *(CHARSETS, *CODECS, COMPRESSED),
    )
}
TARGETS = OBJECTS | {
    target.name: target
    for target in (
        *(NOTIFICATIONS, REQUESTS, CONNECTORS, SETTINGS, MESSAGES, LEDGER),
        *(CONVERTERS, ENCODER, TRANSFORMS, ATTRIBUTES, ADDRESSES),
    )
}
# Also of the campaign's own test; not a part of campaigns.
KNOWN = {**TARGETS, PLANTED.name: PLANTED}
CORPUS = Path(__file__).parent / "corpus"


def outcome(target: Target, data: bytes) -> tuple[str, BaseException | None]:
    """Return the kind of outcome of an input, and the exception if it is a finding."""
    try:
        try:
            return target.run(data), None
        except ExtentflowError as exc:
            require_bounded(exc)
            return f"refused: {type(exc).__name__}", None
    except BaseException as exc:
        if isinstance(exc, KeyboardInterrupt | SystemExit):
            raise
        return f"FOUND: {described(exc)}", exc


def described(exc: BaseException) -> str:
    """Return an exception's type, and the place in the library where it came from."""
    frames = extract_tb(exc.__traceback__)
    own = [frame for frame in frames if "/extentflow/" in frame.filename] or list(frames)
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
    law = f" {exc}" if isinstance(exc, AssertionError) and str(exc) else ""
    return f"{type(exc).__name__}{law[:80]} at {place}"
