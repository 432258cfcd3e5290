"""Lambda's recursive loop detection: how often a chain of requests has passed each function.

A function's SDK adds the trace header of its invocation to what it sends to SQS, and the message
keeps it. Lambda counts its own visits in the header's `Lineage`, as `hash:count|hash:count`.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
"""

import hashlib
from collections.abc import Iterable
from urllib.parse import unquote
from uuid import uuid4

# Lambda stops a chain at "about 16" visits of a function.
MOST_VISITS = 16
LINEAGE = "Lineage"


def entered(headers: Iterable[str], function_arn: str) -> tuple[str, int]:
    """Return the trace header of an invocation and the visits of its function, this one included.

    `headers` are those of the messages of its batch; the longest chain counts.
    """
    function = hashlib.sha256(function_arn.encode()).hexdigest()[:8]
    longest = max(map(_counts, headers), key=lambda counts: counts.get(function, 0), default={})
    counts = {**longest, function: longest.get(function, 0) + 1}
    lineage = "|".join(f"{name}:{count}" for name, count in counts.items())
    root = f"1-00000000-{uuid4().hex[:24]}"
    return f"Root={root};Sampled=0;{LINEAGE}={lineage}", counts[function]


def _counts(header: str) -> dict[str, int]:
    for part in header.split(";"):
        name, _, value = part.partition("=")
        if name == LINEAGE:
            # The SDK quotes the separator.
            visits = (entry.partition(":") for entry in unquote(value).split("|"))
            return {function: int(count) for function, _, count in visits}
    return {}
