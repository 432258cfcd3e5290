"""Options of `extentflow lake` that are refused before Spark starts."""

import pytest

from extentflow.cli import app, run_command_line

LAKE = ("lake", "orders")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--registry", "registry:8081"], "--registry='registry:8081': write http"),
        (["--registry", "http://user:secret@registry"], "--registry"),
        (["--registry-user", "${env:USER_INFO}"], "--registry-user: goes with --registry"),
        (["--registry", "http://registry", "--registry-user", "user:secret"], "--registry-user"),
        (["--keys", "cards:secret"], "--keys: a secret is not written down"),
        (["--keys", "${env:ABSENT_KEYS}"], "ABSENT_KEYS"),
        (["--schema", "id"], "--schema "),
        (["--continue-at", "orders:0:12"], "--continue-at orders:0:12: write offsets as JSON"),
        (["--continue-at", '{"orders": 12}'], "--continue-at"),
        (
            ["--partition-by", "day,days(seen)"],
            "--partition-by days(seen): transforms need --table",
        ),
        (["--partition-by", "bucket(16, id)"], "transforms need --table"),
        (["--to", "gs://lake/x"], "--to gs://lake/x: write s3://bucket/prefix, or a local folder"),
        (["--set", "aws.s3.region=x"], "--set aws.s3.region: only for targets in S3"),
        (["--to", "s3://lake", "--set", "aws.s3.regoin=x"], "aws.s3.regoin: no such key"),
        (["--to", "s3://lake", "--set", "input.format=csv"], "--set input.format: of a target"),
        (
            ["--to", "s3://lake", "--table", "a.b", "--set", "aws.s3.ca.bundle=/x"],
            "--set aws.s3.ca.bundle: not with --table",
        ),
        (
            ["--to", "s3://lake", "--set", "aws.s3.endpoint=http://a", "--endpoint", "http://b"],
            "--endpoint: says the same as --set aws.s3.endpoint",
        ),
        (["--to", "s3a:///x"], "--to s3a:///x: write s3://bucket/prefix"),
        (["--to", "hdfs://lake/x", "--table", "a.b"], "a warehouse elsewhere is one of --catalog"),
    ],
)
def test_a_wrong_option_is_named_without_its_secret(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    to = [] if "--to" in words else ["--to", "/nowhere"]
    code = run_command_line(app, [*LAKE, *to, *words])

    errors = capsys.readouterr().err
    assert code == 2
    assert said in errors
    assert "secret@" not in errors
    assert ":secret" not in errors
