"""Servers that speak AWS's JSON protocol: a first question, what clients need to ask their own.

Owns: headers, credentials that no server checks. Refuses to know: any server.
"""

import json
from types import MappingProxyType

from extentflow_local.services import ACCESS_KEY, REGION, SECRET_KEY
from extentflow_local.services.asking import ask

CREDENTIALS = MappingProxyType(
    {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }
)


def answers(port: int, target: str, *, service: str, version: str) -> bool:
    """Whether a call without arguments is answered with JSON; takes a second at most.

    `service` and `version` (of the protocol) are as in the headers of AWS's own clients.
    """
    scope = f"{ACCESS_KEY}/20250101/{REGION}/{service}/aws4_request"
    headers = {
        "Content-Type": f"application/x-amz-json-{version}",
        "X-Amz-Target": target,
        # Who asks, and which service: nobody checks the signature.
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope},SignedHeaders=host,Signature=0",
    }
    body = ask(port, "POST", "/", body=b"{}", headers=headers)
    return body is not None and isinstance(json.loads(body), dict)
