"""The cluster's id is read without the requests that can end the process."""

import subprocess
import sys

from tests.support.loopback_broker import HOST
from tests.support.starting_broker import CLUSTER, starting_broker

ASK = """
import sys
from tests.unit.kafka.scripted import timeouts
from extentflow.kafka.topic_admin import Admin
with Admin({"bootstrap.servers": sys.argv[1]}, timeouts()) as admin:
    print(admin.cluster_id())
"""


def test_a_broker_that_lists_no_broker_yet_is_asked_again() -> None:
    with starting_broker(empty=range(2, 4)) as broker:
        # In a process of its own, because librdkafka would end it (SIGABRT).
        asked = subprocess.run(
            [sys.executable, "-c", ASK, f"{HOST}:{broker.port}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert (asked.returncode, asked.stdout.strip()) == (0, CLUSTER), asked.stderr
    assert broker.asked > 2
