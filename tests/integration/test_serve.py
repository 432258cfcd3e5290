"""`extentflow serve` with uploads from S3 clients."""

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.delivery import PROGRAM
from tests.support.eventpath import Ground
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.kafka.reading import read_committed
from extentflow_local.stack.ports import free_run
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY

# Each service with the number of ports that it takes.
PORTS = {"kafka": 2, "s3": 8, "dynamodb": 1, "sqs": 1, "aws": 1, "receiver": 1}


@dataclass(frozen=True)
class Terminal:
    """A shell in a folder of its own."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        """Run a command that has to succeed; return what it prints."""
        command = [str(PROGRAM), *arguments, "--json"]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, check=True
        )
        return json.loads(done.stdout)

    def another(self) -> "Terminal":
        """Return a shell that has what `extentflow stack --env` prints."""
        stack_environment = self.run("stack")["environment"]
        return Terminal(self.folder, {**self.environment, **stack_environment})


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    first = free_run(sum(PORTS.values()), random.SystemRandom())
    environment = {**os.environ}
    for name, count in PORTS.items():
        environment[f"EXTENTFLOW_LOCAL_{name.upper()}_PORT"] = str(first)
        first += count
    opened = Terminal(tmp_path, environment)
    yield opened
    opened.run("down")


@pytest.fixture
def serving(terminal: Terminal, ground: Ground) -> Iterator[subprocess.Popen[str]]:
    command = [str(PROGRAM), "serve", "--json", "--template", str(ground.template)]
    command += ["--metrics", "127.0.0.1:0"]
    with (terminal.folder / "serve.err").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--project", str(Path.cwd()), "--dir", str(terminal.folder)],
            env=terminal.environment,
            cwd=terminal.folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    yield process
    if process.poll() is None:
        process.terminate()
    process.communicate()


@pytest.mark.variant
def test_uploads_with_any_client_are_in_kafka_until_it_is_stopped(
    terminal: Terminal, serving: subprocess.Popen[str]
) -> None:
    assert serving.stdout is not None
    ready = serving.stdout.readline()
    assert ready, (terminal.folder / "serve.err").read_text()
    shell = terminal.another()
    assert json.loads(ready)["queues"].items() <= shell.environment.items()
    broker = {"bootstrap.servers": shell.environment["EXTENTFLOW_BOOTSTRAP_SERVERS"]}
    admin = AdminClient({**broker})
    admin.create_topics([NewTopic("lines", 1)])["lines"].result()
    s3 = boto3.client(
        "s3",
        endpoint_url=shell.environment["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name=REGION,
    )
    s3.create_bucket(Bucket="shop")
    config = {"name": "lines", "topic": "lines", "aws.s3.bucket.name": "shop"}
    (shell.folder / "lines.json").write_text(json.dumps(config))
    shell.run("connectors", "put", "lines.json")

    s3.put_object(Bucket="shop", Key="in/a b.txt", Body=b"one\ntwo\n")

    eventually("the job is DONE", lambda: states(shell) == ["DONE"])
    values = [record.value for batch in read_committed(broker, "lines") for record in batch]
    assert values == [b"one", b"two"]
    with urlopen(json.loads(ready)["metrics"], timeout=AWAITED_SECONDS) as answer:  # noqa: S310
        assert 'extentflow_records_total{function="worker"} 2.0' in answer.read().decode()
    ours = [*running(serving.pid, "awslambdaric"), *running(serving.pid, "filer.meta.tail")]
    assert len(ours) >= 3  # planner, worker, who tells of uploads
    serving.send_signal(signal.SIGINT)
    assert serving.wait(AWAITED_SECONDS) == 0
    assert not any(one.is_running() for one in ours)
    assert terminal.run("stack")["services"].keys() == PORTS.keys() - {"receiver"}
    s3.close()


def running(pid: int, word: str) -> list[psutil.Process]:
    """Return the processes below one whose command line has a word; servers are below it, too."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if word in child.cmdline()]


def states(shell: Terminal) -> list[str]:
    return [job["state"] for job in shell.run("status")["jobs"]]


@pytest.mark.long
def test_without_the_project_nothing_is_started(terminal: Terminal) -> None:
    command = [str(PROGRAM), "serve", "--dir", str(terminal.folder)]

    done = subprocess.run(
        command, cwd=terminal.folder, env=terminal.environment, capture_output=True, check=False
    )

    assert done.returncode == 2
    assert b"no app.py and functions/ here" in done.stderr
    assert terminal.run("stack")["services"] == {}
