"""`extentflow run ADDRESS --topic TOPIC`: a connector of the command, its topic, its second run."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.golden import Golden
from tests.support.memory_commands import CommandLine, line
from tests.support.memory_runtime import BUCKET, Cluster

from extentflow.cli import app, run_command_line
from extentflow.cli.option_groups import ServerOptions
from extentflow.kafka.topic_admin import NewTopics
from extentflow.model import Job, JobState
from extentflow.retry import RetryPolicy
from extentflow.services import trials
from extentflow.services.runs import AGAIN
from extentflow.storage import StoreOptions
from extentflow.storage.local import LocalStore
from extentflow.wiring.redeliveries import open_redelivery

__all__ = ["line"]

IN = f"s3://{BUCKET}/c/"
TOPIC = ("--topic", "orders")
REGISTRY = "value.converter.schema.registry.url"
FILTER = {
    "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.f.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "Condition",
    "predicates.p.condition": "user = 1",
}


def test_one_command_delivers_with_a_connector_that_it_shows(
    line: CommandLine, golden: Golden
) -> None:
    line.runtime.put("c/a.txt", lines=2)

    code = line.run(f"{IN}a.txt", *TOPIC, "--bootstrap-servers", "localhost:9092")

    assert code == 0
    assert line.delivered == [b"abc", b"abc"]
    assert line.given == ServerOptions(bootstrap_servers="localhost:9092")
    assert line.engines[0][0] == "inline"
    connector, by, *_ = line.said.splitlines()
    golden(connector)
    assert "connector orders-from-shop" in connector
    golden(by)
    assert ".txt" in by
    golden(line.said)
    assert list(line.runtime.memory.connectors.list()) == []


def test_the_same_command_again_delivers_what_is_new_and_says_so(
    line: CommandLine, golden: Golden
) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC) == 0
    line.runtime.put("c/b.txt")

    again = line.run(IN, *TOPIC)

    assert again == 0
    assert line.delivered == [b"abc", b"abc"]
    golden(line.said)


@pytest.mark.parametrize(
    "other", [f"s3://{BUCKET}", f"s3://{BUCKET}/c", f"{IN}*.txt", f"{IN}a.txt"]
)
def test_another_address_of_the_same_object_delivers_it_no_second_time(
    line: CommandLine, other: str, golden: Golden
) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC) == 0

    assert line.run(other, *TOPIC) == 0

    assert line.delivered == [b"abc"]
    golden(line.said)
    assert "other settings" not in line.said


def test_other_settings_are_reported_for_what_they_do_not_change(
    line: CommandLine, golden: Golden
) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC) == 0

    code = line.run(IN, *TOPIC, "--set", "message.key=object")

    assert code == 0
    assert line.delivered == [b"abc"]
    assert "revision 2" in line.said
    golden(line.said)
    assert "--again" in line.said


def test_every_key_of_connectors_can_be_set(line: CommandLine) -> None:
    line.runtime.put("c/a.txt")

    code = line.run(IN, *TOPIC, "--set", "message.key=object", "--set", "name=mine")

    assert code == 0
    (record,) = line.runtime.cluster.read_committed("orders")
    assert record.key == b"c/a.txt"
    assert "connector mine, revision 1" in line.said


def test_a_saved_connector_is_used_by_its_name(line: CommandLine) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC, "--save") == 0
    assert "--save keeps" not in line.said

    code = line.run("-c", "orders-from-shop", "--engine", "inline")

    assert code == 0
    assert line.delivered == [b"abc"]


# -- what a connector of the command reads ---------------------------------------------------------


@pytest.fixture
def files(line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder `data` of the working directory, with two files; the store reads files."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
    monkeypatch.chdir(tmp_path)
    line.runtime.reads = LocalStore(StoreOptions())
    return folder


@pytest.mark.usefixtures("files")
def test_a_file_is_delivered_once_by_whatever_address(line: CommandLine, golden: Golden) -> None:
    """Its folder and the folder above once made connectors that delivered it a second time."""
    for address in ("data/a.txt", "data", ".", "data/b.txt", "data/*.txt", "data/../data/a.txt"):
        assert line.run(address, *TOPIC) == 0

    assert sorted(filter(None, line.delivered)) == [b"a", b"b"]
    golden(line.said)


@pytest.mark.usefixtures("files")
def test_a_job_of_another_address_is_continued_under_its_own_connector(
    line: CommandLine, golden: Golden
) -> None:
    assert line.run("data/b.txt", *TOPIC) == 0
    name, runtime = line.said.split()[2].strip(","), line.runtime
    config = replace(runtime.connectors.revision(name, 1), object_key="a.txt")
    version = runtime.reads.head(config.bucket, "a.txt")
    begun = runtime.planner().register(runtime.requests.make(config, 1, version, 1))

    assert line.run(".", *TOPIC) == 0

    ended = runtime.memory.jobs.get(begun.id)
    assert ended is not None
    assert ended.state is JobState.DONE
    assert sorted(filter(None, line.delivered)) == [b"a", b"b"]
    golden(line.said)
    assert f"connector {name}" in line.said


@pytest.mark.parametrize("first", [True, False])
def test_what_another_command_registers_at_the_same_time_is_delivered_once(
    line: CommandLine, files: Path, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    """Trap: connectors were looked for once, before the first of many files was registered."""
    jobs, register, others = line.runtime.memory.jobs, line.runtime.memory.jobs.register, [files]

    def and_another_command(job: Job) -> Job:
        registered = register(job) if first else None
        if others:
            assert line.run(str(others.pop()), *TOPIC) == 0
        return registered or register(job)

    monkeypatch.setattr(jobs, "register", and_another_command)

    assert line.run(".", *TOPIC) == 0
    assert sorted(filter(None, line.delivered)) == [b"a", b"b"]


def test_an_interrupted_second_delivery_survives_another_command(
    line: CommandLine, files: Path
) -> None:
    """Trap: each address made another revision, and under another one `--again` began again."""
    files.joinpath("b.txt").unlink()
    assert line.run("data", *TOPIC) == 0
    line.runtime.ticker.sleep(60)
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(
            type(AGAIN), "clear", lambda *_: None
        )  # as if it had been interrupted at its end
        assert line.run("data", *TOPIC, "--again") == 0
    files.joinpath("b.txt").write_text("b\n")
    assert line.run("data/b.txt", *TOPIC) == 0

    assert line.run("data", *TOPIC, "--again") == 0

    assert "resuming the second delivery" in line.said
    assert line.delivered.count(b"a") == 2


def test_what_failed_is_continued_by_whatever_address_of_its_folder(
    line: CommandLine, files: Path
) -> None:
    """Trap: the address made another revision, under which it was delivered from its start."""
    files.joinpath("a.txt").write_text("one\ntwo\n" + "x" * 100 + "\n")
    limited = ("--set", "record.max.bytes=50", "--set", "extent.bytes=8")
    assert line.run("data", *TOPIC, *limited) == 1
    before = line.delivered

    assert line.run("data/a.txt", *TOPIC, *limited, "--failed", "--dry-run") == 0
    assert line.run("data/a.txt", *TOPIC, *limited, "--failed") == 1

    assert "to continue where it ended" in line.said
    assert line.delivered == before


def test_what_failed_under_a_folder_above_is_not_passed_over(
    line: CommandLine, files: Path, golden: Golden
) -> None:
    files.joinpath("a.txt").write_text("x" * 100 + "\n")
    limited = ("--set", "record.max.bytes=50")
    assert line.run(".", *TOPIC, *limited) == 1

    assert line.run("data", *TOPIC, *limited, "--failed") == 2

    assert "data/a.txt: job " in line.said
    golden(line.said)


@pytest.mark.usefixtures("files")
def test_a_dry_run_shows_the_jobs_of_other_folders(
    line: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line.run("data/a.txt", *TOPIC) == 0

    assert run_command_line(app, ["run", ".", *TOPIC, "--dry-run", "--json"]) == 0

    shown = {Path(one["object"]).name: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert shown == {"a.txt": "DONE", "b.txt": "new"}


def test_what_was_corrected_and_delivered_since_is_no_failure_of_any_folder(
    line: CommandLine, files: Path
) -> None:
    """Trap: each command with --failed advised what another one had delivered, for ever."""
    limited = ("--set", "record.max.bytes=50")
    files.joinpath("a.txt").write_text("x" * 100 + "\n")
    files.joinpath("b.txt").write_text("x" * 100 + "\n")
    assert line.run(".", *TOPIC, *limited) == 1
    files.joinpath("a.txt").write_text("corrected\n")
    files.joinpath("b.txt").unlink()
    assert line.run("data", *TOPIC, *limited) == 0
    before = line.delivered

    assert line.run("data", *TOPIC, *limited, "--failed") == 0
    assert line.run(".", *TOPIC, *limited, "--failed") == 0

    assert line.delivered == before
    assert "to deliver the new version" not in line.said


def test_what_one_cluster_got_is_delivered_to_another_one_as_well(
    line: CommandLine, files: Path
) -> None:
    """Trap: the second cluster was refused, and the advice doubled the records of the first."""
    files.joinpath("b.txt").unlink()
    assert line.run("data", *TOPIC) == 0
    first, second = line.runtime.cluster, Cluster({}, cluster="second")
    second.create_topic("orders")
    for cluster in (second, first, second):
        line.runtime.use_cluster(cluster)
        assert line.run("data", *TOPIC) == 0

    for cluster in (first, second):
        assert [record.value for record in cluster.read_committed("orders")] == [b"a"]


def test_a_file_that_changed_is_named_before_it_is_delivered_in_full(
    line: CommandLine, files: Path, golden: Golden
) -> None:
    assert line.run("data", *TOPIC) == 0
    assert "since delivery" not in line.said
    files.joinpath("a.txt").write_text("a\nc\n")

    assert line.run("data", *TOPIC, "--dry-run") == 0
    golden(line.said)
    assert "file://" in line.said
    assert line.run("data", *TOPIC) == 0

    assert "a.txt (job " in line.said
    assert sorted(filter(None, line.delivered)) == [b"a", b"a", b"b", b"c"]


def test_again_delivers_what_another_connector_delivered(line: CommandLine, files: Path) -> None:
    assert line.run("data/a.txt", *TOPIC) == 0
    files.joinpath("b.txt").unlink()

    assert line.run(".", *TOPIC, "--again") == 0

    assert line.delivered == [b"a", b"a"]


def test_a_saved_connector_of_a_file_reads_only_that_file(line: CommandLine, files: Path) -> None:
    assert line.run("data/a.txt", *TOPIC, "--save") == 0
    (stored,) = line.runtime.memory.connectors.list()

    assert stored.config["object.key"] == "a.txt"
    assert f"`extentflow stream -c {stored.name}` read only file://{files}/a.txt" in line.said
    assert line.run("-c", stored.name, "--engine", "inline") == 0
    assert line.run("data/a.txt", "-c", stored.name, "--engine", "inline") == 0
    assert line.run("data/b.txt", "-c", stored.name, "--engine", "inline") == 2
    assert f"file://{files}/b.txt is not file://{files}/a.txt, which is what" in line.said
    assert line.delivered == [b"a"]


@pytest.mark.usefixtures("files")
def test_another_file_than_the_saved_one_gets_a_connector_of_its_own(line: CommandLine) -> None:
    """It was once refused, because the connector of the folder was stored with other settings."""
    assert line.run("data/b.txt", *TOPIC) == 0
    assert line.run("data/a.txt", *TOPIC, "--set", "message.key=object", "--save") == 0
    (first,) = line.runtime.memory.connectors.list()

    assert line.run("data/b.txt", *TOPIC, "--save") == 0

    names = [one.name for one in line.runtime.memory.connectors.list()]
    assert len(names) == 2
    assert names[1].startswith(f"{first.name}-")
    assert sorted(filter(None, line.delivered)) == [b"a", b"b"]


@pytest.mark.usefixtures("files")
def test_the_saved_connector_of_a_folder_delivers_its_files(line: CommandLine) -> None:
    assert line.run("data", *TOPIC, "--save") == 0
    (stored,) = line.runtime.memory.connectors.list()

    assert line.run("data/a.txt", *TOPIC, "--save") == 0
    assert f"connector {stored.name}, revision 1:" in line.said
    assert line.run("data/a.txt", *TOPIC, "--set", "message.key=object", "--save") == 2

    assert "is stored with other settings" in line.said
    assert "next revision" not in line.said  # which would leave out the other files
    assert list(line.runtime.memory.connectors.list()) == [stored]


@pytest.mark.usefixtures("files")
def test_saving_a_folder_lets_the_connector_of_its_file_read_all(
    line: CommandLine, golden: Golden
) -> None:
    assert line.run("data/a.txt", *TOPIC, "--save") == 0
    assert line.run("data", *TOPIC) == 0
    golden(line.said)

    assert line.run("data", *TOPIC, "--save") == 0

    (stored,) = line.runtime.memory.connectors.list()
    assert "object.key" not in stored.config
    assert stored.revision == 2
    assert sorted(filter(None, line.delivered)) == [b"a", b"b"]


def test_a_relative_path_is_an_address_of_a_stored_connector(
    line: CommandLine, files: Path, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "link").symlink_to(files)
    line.runtime.memory.connectors.put(
        "c", {"name": "c", "topic": "orders", "endpoint.type": "localfile", "directory": str(files)}
    )

    for address in ("data/a.txt", "link/b.txt", "link", f"file://{files}/a.txt"):
        assert line.run(address, "-c", "c", "--engine", "inline") == 0
    assert line.run("data/c.txt", "-c", "c", "--engine", "inline") == 2
    missing = line.said
    assert line.run(str(tmp_path / "other"), "-c", "c", "--engine", "inline") == 2

    assert sorted(filter(None, line.delivered)) == [b"a", b"b"]
    golden(missing)
    assert f"file://{files}/c.txt" in missing
    assert f"file://{tmp_path}/other is not in folder {files}, which is what" in line.said


COMPACTED = "partitions=3,cleanup.policy=compact,delete"


@pytest.mark.parametrize(
    ("words", "partitions"),
    [
        (["--create-topic", "partitions=8"], 8),
        (["--set", "message.key=object", "--create-topic", COMPACTED], 3),
    ],
)
def test_a_missing_topic_is_created_where_the_command_says_so(
    line: CommandLine, words: list[str], partitions: int
) -> None:
    line.runtime.put("c/a.txt")

    code = line.run(IN, "--topic", "fresh", *words)

    assert code == 0
    assert f"note: created topic fresh with {partitions} partitions" in line.said
    assert len(line.runtime.cluster.read_committed("fresh")) == 1


def test_a_topic_that_exists_is_named_where_the_command_would_create_it(
    line: CommandLine, golden: Golden
) -> None:
    line.runtime.put("c/a.txt")

    assert line.run(IN, *TOPIC, "--create-topic", "partitions=8") == 0

    golden(line.said)
    assert "topic orders" in line.said
    assert line.run(IN, *TOPIC) == 0
    assert "exists" not in line.said


@pytest.mark.usefixtures("files")
def test_bad_records_that_are_tolerated_are_found_with_the_next_command(
    line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("id,total\n1,2\n1,2,3\n")
    line.runtime.cluster.create_topic("dead")
    settings = ("errors.tolerance=all", "errors.deadletterqueue.topic.name=dead")
    words = [word for one in settings for word in ("--set", one)]

    assert line.run("bad.csv", *TOPIC, *words) == 0

    name = line.said.split()[2].strip(",")
    command = f"1 bad record sent to topic dead: `extentflow dead-letters -c {name}` shows them"
    assert command in line.said
    assert open_redelivery(line.runtime, name).topic == "dead"
    assert line.run("bad.csv", *TOPIC, *words) == 0
    assert command not in line.said


@pytest.mark.parametrize("connector", [("-c", "c"), TOPIC], ids=" ".join)
def test_the_engine_is_inline_unless_an_option_names_spark(
    line: CommandLine, connector: tuple[str, ...]
) -> None:
    line.runtime.put_connector(topic="orders")
    spark = ("--engine", "spark"), ("--master", "local[2]")

    for number, words in enumerate(((), ("--engine", "inline"), *spark)):
        line.runtime.put(f"c/{number}.txt")
        line.run(f"{IN}{number}.txt", *connector, *words)

    assert [name for name, _ in line.engines] == ["inline", "inline", "spark", "spark"]


@pytest.mark.usefixtures("files")
def test_a_file_without_a_format_names_the_option_that_gives_it(line: CommandLine) -> None:
    Path("odd.xyz").write_text("x\n")

    assert line.run("odd.xyz", *TOPIC) == 2
    assert "(with --topic: --set input.format=csv)" in line.said


@pytest.mark.parametrize("creates", [True, False])
def test_a_missing_topic_is_created_where_the_brokers_would_do_so(
    line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    creates: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    asked: list[NewTopics] = []
    create: Callable[..., list[str]] = line.runtime.cluster.create_topics

    def noted(names: list[str], wanted: NewTopics) -> list[str]:
        asked.append(wanted)
        return create(names, wanted)

    monkeypatch.setattr(line.runtime.cluster, "create_topics", noted)
    monkeypatch.setattr(line.runtime.cluster, "creates_topics", creates)
    line.runtime.put("c/a.txt")

    line.run(IN, "--topic", "orders")

    assert asked == ([NewTopics()] if creates else [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --topic TOPIC, and the command makes a connector of the address"),
        ([IN, *TOPIC, "-c", "orders"], "leave one of them out"),
        ([*TOPIC], "which objects? give an address"),
        ([IN, "-c", "c", "--set", "message.key=object"], "--set and --save go with --topic"),
        ([IN, "-c", "c", "--save"], "--set and --save go with --topic"),
        ([IN, *TOPIC, "--set", "x"], "--set x: write KEY=VALUE"),
        ([IN, *TOPIC, "--set", "input.fromat=csv"], "did you mean input.format?"),
        ([IN, *TOPIC, "--create-topic", "8"], "--create-topic 8: write partitions=8"),
        ([IN, *TOPIC, "--create-topic", "partitions=no"], "are whole numbers"),
        ([IN, *TOPIC, "--create-topic", "partitions=0"], "are whole numbers"),
        ([IN, *TOPIC, "--engine", "emr"], "--engine emr reads a stored connector: add --save"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_the_next_command(
    line: CommandLine, words: list[str], said: str
) -> None:
    assert line.run(*words) == 2

    assert said in line.said
    assert line.engines == []


def test_a_failure_says_what_the_commands_need_that_it_names(
    line: CommandLine, golden: Golden
) -> None:
    line.runtime.put("c/a.parquet")

    code = line.run(IN, *TOPIC, "--bootstrap-servers", "broker:9092")

    assert code == 1
    assert "`extentflow replay" in line.said
    golden(line.said)
    assert "`--bootstrap-servers broker:9092`" in line.said


def test_a_failure_advises_commands_with_the_same_engine(line: CommandLine, golden: Golden) -> None:
    line.runtime.put("c/a.parquet")

    line.run(IN, *TOPIC)
    made = line.said
    line.runtime.put_connector("c", input__format="parquet")
    line.run("-c", "c", "--engine", "inline")
    chosen = line.said
    line.run("-c", "c")

    (found,) = line.runtime.memory.jobs.list("orders-from-shop")
    assert f"`extentflow replay {found.id}` continues" in made
    golden(made)
    assert "--failed" in made
    golden(chosen)
    assert "`extentflow run -c c --engine inline`" in chosen
    assert "--engine" not in line.said


def test_a_replay_of_what_a_command_made_advises_that_command(
    line: CommandLine, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    line.runtime.put("c/a.parquet")
    line.run(IN, *TOPIC)
    (found,) = line.runtime.memory.jobs.list("orders-from-shop")

    assert run_command_line(app, ["replay", found.id, "--engine", "inline"]) == 1

    said = capsys.readouterr().err
    golden(said)
    assert "`run ADDRESS --topic`" in said
    assert "run -c" not in said


@pytest.mark.parametrize(
    ("key", "body", "settings"),
    [
        (
            "c/a.jsonl",
            b'{"user":1}\n',
            {
                "transforms": "m",
                "transforms.m.type": "org.apache.kafka.connect.transforms.MaskField$Value",
                "transforms.m.fields": "user",
            },
        ),
        ("c/a.json", b'[{"user":1}]', {"transforms": "f", **FILTER}),
        ("c/a.csv", b"id\n1\n", {"select": "user"}),
        ("c/a.csv", b"id\n1\n", {"message.key": "column:user"}),
        ("c/a.csv", b"id\n1\n", {"headers": "who=column:user"}),
        ("c/a.csv", b"id\n1\n", {"transforms": "f", **FILTER}),
    ],
)
def test_a_column_that_no_object_has_is_an_error_before_a_job_and_a_topic(
    line: CommandLine, key: str, body: bytes, settings: dict[str, str], golden: Golden
) -> None:
    line.runtime.memory_store.put(BUCKET, key, body)
    words = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]

    code = line.run(IN, "--topic", "missing", "--create-topic", "partitions=1", *words)

    assert code == 2, line.said
    assert "user" in line.said
    golden(line.said)
    assert list(line.runtime.ledger.jobs.list()) == []
    assert line.runtime.broker.missing_topics(["missing"])


def test_a_line_that_is_an_array_is_one_record_and_named_once(line: CommandLine) -> None:
    for name in ("a", "b"):
        line.runtime.memory_store.put(BUCKET, f"c/{name}.jsonl", b' [{"user":1},{"user":2}]\n')
    words = ("--set", "extent.bytes=auto")

    planned = line.run(IN, *TOPIC, *words, "--dry-run")
    dry = line.said
    ran = line.run(IN, *TOPIC, *words)

    assert (planned, ran) == (0, 0)
    assert line.delivered == [b' [{"user":1},{"user":2}]'] * 2
    for said in (dry, line.said):
        assert said.count("a.jsonl is a JSON array, and each line stays one record") == 1
        assert "b.jsonl is" not in said


def test_a_job_that_its_first_run_cannot_plan_is_of_no_earlier_run(line: CommandLine) -> None:
    line.runtime.memory_store.put(BUCKET, "c/a.csv", b"id\n1\n")
    line.runtime.memory_store.put(BUCKET, "c/b.csv", bytes(257) + b"ustar")

    assert line.run(IN, *TOPIC) == 1
    assert "b.csv begins as tar" in line.said
    assert "was not tried again" not in line.said

    line.runtime.ticker.sleep(1)
    assert line.run(IN, *TOPIC) == 1
    assert "was not tried again" in line.said


def test_after_the_correction_of_a_setting_one_advice_says_how_to_try_again(
    line: CommandLine, golden: Golden
) -> None:
    line.runtime.memory_store.put(BUCKET, "c/a.csv", b"id\n1\nx\n")
    schema = ("--set", "csv.schema=id:int64")
    corrected = ("--set", "csv.schema=id:string")
    assert line.run(IN, *TOPIC, *schema) == 1
    assert "was not tried again" not in line.said
    line.runtime.ticker.sleep(1)

    code = line.run(IN, *TOPIC, *corrected)

    assert code == 1
    assert line.delivered == []
    golden(line.said)
    assert "was not tried again" in line.said
    assert line.said.count("--failed") == 1
    assert "twice" not in line.said

    assert line.run(IN, *TOPIC, *corrected, "--failed") == 0
    assert line.delivered == [b'{"id":"1"}', b'{"id":"x"}']


@pytest.mark.parametrize("objects", [1, 20])
def test_a_registry_that_does_not_answer_ends_a_run_before_a_job_and_a_topic(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch, objects: int
) -> None:
    monkeypatch.setattr(trials, "REGISTRY_RETRIES", RetryPolicy(total_seconds=0.1))
    for number in range(objects):
        line.runtime.memory_store.put(BUCKET, f"c/{number}.csv", b"id\n1\n")
    settings = ("value.converter=avro", f"{REGISTRY}=http://127.0.0.1:9")

    code = line.run(
        IN,
        "--topic",
        "missing",
        "--create-topic",
        "partitions=1",
        *(word for one in settings for word in ("--set", one)),
    )

    assert code == 1
    assert line.said.count("http://127.0.0.1:9") == 2  # of the connector and of the error
    assert "does not answer" in line.said
    assert list(line.runtime.ledger.jobs.list()) == []
    assert line.runtime.broker.missing_topics(["missing"])


def test_a_run_says_of_how_many_folders_its_objects_are(line: CommandLine) -> None:
    line.runtime.put("c/a.txt")
    line.runtime.put("c/x/b.txt")

    assert line.run(f"{IN}*.txt", *TOPIC) == 0

    assert "format text, by extension .txt: 2 objects in 2 folders" in line.said


def test_a_link_that_leads_nowhere_is_left_out_and_named(
    line: CommandLine, tmp_path: Path, golden: Golden
) -> None:
    """Trap: one such link, or a name that is not UTF-8, refused its whole folder."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"abc\n")
    (tmp_path / "outside.txt").write_bytes(b"abc\n")
    (folder / "b.txt").symlink_to(folder / "no-such.txt")
    (folder / "c.txt").symlink_to(tmp_path / "outside.txt")
    (folder / os.fsdecode(b"d\xff.txt")).write_bytes(b"abc\n")
    line.runtime.reads = LocalStore(StoreOptions())

    assert line.run(f"{folder}/", "--topic", "orders") == 0

    noted = [one for one in line.said.splitlines() if "left out" in one]
    golden("\n".join(noted).replace(str(tmp_path), "/tmp"))  # noqa: S108 - no file
    assert (line.count, len(noted)) == (1, 3)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_a_second_name_of_a_delivered_file_is_delivered_with_a_note(
    line: CommandLine, tmp_path: Path, golden: Golden, *, at_once: bool, stored: bool
) -> None:
    """Trap: nothing said that its records are in the topic twice."""
    (tmp_path / "b.txt").write_bytes(b"abc\n")
    (tmp_path / "link.txt").symlink_to("b.txt")
    line.runtime.reads = LocalStore(StoreOptions())
    words = ["--topic", "orders"]
    if stored:
        local = {"endpoint.type": "localfile", "directory": str(tmp_path)}
        line.runtime.memory.connectors.put("c", {"name": "c", "topic": "orders", **local})
        line.runtime.cluster.create_topic("orders")
        words = ["-c", "c"]
    first, link = str(tmp_path / "b.txt"), str(tmp_path / "link.txt")

    assert line.run(first, *([link] if at_once else []), *words) == 0
    noted = at_once == ("under another name" in line.said)
    if not at_once:
        assert line.run(link, *words) == 0

    assert noted
    (note,) = [one for one in line.said.splitlines() if "under another name" in one]
    golden(note.replace(str(tmp_path), "/tmp"))  # noqa: S108 - no file
    assert line.count == 2
    assert line.run(first, *words) == 0
    assert "under another name" not in line.said
