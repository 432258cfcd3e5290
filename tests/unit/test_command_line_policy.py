"""The IAM policy of the documentation allows what the adapters call, and nothing else."""

import json
import re
from pathlib import Path

from extentflow.config.ledgers import DEFAULT_TABLE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "layers/core/python/extentflow"
ADAPTERS = {
    "s3": [*(SOURCE / "storage/s3").glob("*.py")],
    "dynamodb": [*(SOURCE / "ledger").glob("dynamodb*.py")],
    "sqs": [SOURCE / "queue/sqs_queue.py"],
}
# Calls whose actions have other names than they.
ACTIONS = {
    "s3:HeadObject": {"s3:GetObject", "s3:GetObjectVersion"},
    "s3:GetObject": {"s3:GetObject", "s3:GetObjectVersion"},
    "s3:HeadBucket": {"s3:ListBucket"},
    "s3:ListObjectsV2": {"s3:ListBucket"},
    "s3:ListObjectVersions": {"s3:ListBucketVersions"},
    "s3:GetObjectTagging": {"s3:GetObjectTagging", "s3:GetObjectVersionTagging"},
    "s3:PutObjectTagging": {"s3:PutObjectTagging", "s3:PutObjectVersionTagging"},
    "s3:CopyObject": {"s3:GetObject", "s3:PutObject"},
    "s3:CreateMultipartUpload": {"s3:PutObject"},
    "s3:ListMultipartUploads": {"s3:ListBucketMultipartUploads"},
    "s3:UploadPart": {"s3:PutObject"},
    "s3:UploadPartCopy": {"s3:GetObject", "s3:PutObject"},
    "s3:CompleteMultipartUpload": {"s3:PutObject"},
    "s3:DeleteObject": {"s3:DeleteObject", "s3:DeleteObjectVersion"},
    "dynamodb:TransactWriteItems": {"dynamodb:ConditionCheckItem", "dynamodb:UpdateItem"},
    "sqs:SendMessageBatch": {"sqs:SendMessage"},
}


def called() -> set[str]:
    """The actions of every call of an AWS client that the adapters make."""
    found: set[str] = set()
    for service, modules in ADAPTERS.items():
        text = "".join(module.read_text() for module in modules)
        names = set(re.findall(r"client\.([a-z]\w*)\(", text)) - {"close"}
        if service == "dynamodb":  # the paginated ones are passed by name
            names |= {name for name in ("query", "scan") if f'"{name}"' in text}
        for name in names:
            words = "".join(word.capitalize() for word in name.split("_"))
            action = f"{service}:{words}"
            found |= ACTIONS.get(action, {action})
    return found


def test_the_policy_allows_what_the_adapters_call_and_nothing_else() -> None:
    policy = json.loads((ROOT / "docs/command-line-policy.json").read_text())

    allowed = {action for statement in policy["Statement"] for action in statement["Action"]}

    assert allowed == called()
    tables = [resource for one in policy["Statement"] for resource in [*one["Resource"]]]
    assert any(resource.endswith(f"table/{DEFAULT_TABLE}") for resource in tables)
