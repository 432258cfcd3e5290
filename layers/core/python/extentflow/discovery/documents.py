"""Strict JSON: no NaN, no lone surrogates, limited nesting, because parts are written again."""

import orjson


def load(text: str | bytes) -> object:
    """Return the document.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    document = orjson.loads(text)
    try:
        orjson.dumps(document)
    except orjson.JSONEncodeError as exc:
        raise ValueError(f"JSON that cannot be written again: {exc}") from exc
    return document


def dump(document: object) -> bytes:
    """Return the compact JSON of a document, or of a part of one, that `load` returned."""
    return orjson.dumps(document)
