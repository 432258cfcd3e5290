"""Every AWS client module silences the SDK log, whatever is imported first."""

import logging
import subprocess
import sys

import pytest

LOUD = ("auth", "endpoint", "hooks", "httpsession", "parsers", "credentials")


@pytest.mark.parametrize(
    "room",
    [
        "jobs.publishers",
        "aws.msk",
        "aws.secrets_manager",
        "ledger.dynamodb",
        "queue.sqs_queue",
        "storage.s3",
    ],
)
def test_at_debug_the_sdk_logs_no_request_and_no_response(room: str) -> None:
    program = (
        f"import logging, extentflow.{room}; logging.basicConfig(level=logging.DEBUG);"
        f"print([logging.getLogger('botocore.' + one).getEffectiveLevel() for one in {LOUD}])"
    )

    output = subprocess.check_output([sys.executable, "-c", program], text=True)

    assert output.strip() == str([logging.WARNING] * len(LOUD))
