"""Every client of AWS's silences what of the SDK's log holds secrets, whoever imports it first."""

import logging
import subprocess
import sys

import pytest

LOUD = ("auth", "endpoint", "hooks", "httpsession", "parsers", "credentials")


@pytest.mark.parametrize(
    "room",
    [
        "jobs.publish_eventbridge",
        "credentials.mskiam",
        "credentials.secretsmanager",
        "ledger.dynamodb",
        "queue.sqs",
        "storage.s3",
    ],
)
def test_at_debug_the_sdk_writes_down_nothing_that_it_signs_or_hears(room: str) -> None:
    program = (
        f"import logging, extentflow.{room}; logging.basicConfig(level=logging.DEBUG);"
        f"print([logging.getLogger('botocore.' + one).getEffectiveLevel() for one in {LOUD}])"
    )

    told = subprocess.check_output([sys.executable, "-c", program], text=True)

    assert told.strip() == str([logging.WARNING] * len(LOUD))
