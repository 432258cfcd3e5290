"""Servers with AWS's JSON protocol: a readiness request, and credentials for clients."""

import json
from types import MappingProxyType

from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY
from extentflow_local.stack.servers.asking import ask

CREDENTIALS = MappingProxyType(
    {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }
)


def answers(port: int, target: str, *, service: str, version: str) -> bool:
    """Return whether a call without arguments gets a JSON response; takes at most one second.

    `service` and `version` (of the protocol) are as in the headers of AWS's clients.
    """
    scope = f"{ACCESS_KEY}/20250101/{REGION}/{service}/aws4_request"
    headers = {
        "Content-Type": f"application/x-amz-json-{version}",
        "X-Amz-Target": target,
        # Access key and service of the request; the servers check no signature.
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope},SignedHeaders=host,Signature=0",
    }
    body = ask(port, "POST", "/", body=b"{}", headers=headers)
    return body is not None and isinstance(json.loads(body), dict)
