"""JSON in and out.

Owns: what counts as a JSON document here. Refuses to know: what documents say. Strict: no NaN, no
lone surrogates, nothing nested so deep that it could not be written again, because parts of
documents are.
"""

import orjson


def load(text: str | bytes) -> object:
    """Return the document.

    Raises:
        ValueError: it is no JSON, or nested too deep.
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
