"""A function behind HTTP that answers with the event it got, or as the path says."""

import base64
import json
from typing import Any


def handler(event: dict[str, Any], _context: Any) -> Any:  # noqa: ANN401 - Lambda's
    path = event["rawPath"]
    if path == "/raise":
        raise ValueError("as the message asks")
    if path == "/plain":
        return {"no": "status"}
    if path == "/binary":
        body = base64.b64encode(b"\x00\xff").decode()
        return {
            "statusCode": 202,
            "headers": {"content-type": "application/octet-stream"},
            "cookies": ["a=1", "b=2"],
            "body": body,
            "isBase64Encoded": True,
        }
    return {
        "statusCode": 200,
        "headers": {"content-type": "application/json"},
        "body": json.dumps(event),
    }
