"""Worker settings: where they come from, what is refused, how they travel."""

import json
import pickle
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden

from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import TABLE, WorkerSettings, load, variable
from extentflow.errors import Misconfigured
from extentflow.wording import quoted

BROKERS = {"EXTENTFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:19092"}


def files(**texts: str) -> Callable[[str], str | None]:
    """Return a reader of these files; `__` in a name stands for a dot."""
    return {name.replace("__", "."): text for name, text in texts.items()}.get


def problems(
    environ: Mapping[str, str], read_text: Callable[[str], str | None] | None = None
) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        load(environ, read_text=read_text or files())
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def test_one_variable_is_enough() -> None:
    home = {"HOME": "/home/me"}

    settings = load({**BROKERS, **home}, read_text=files())

    assert settings == WorkerSettings(
        bootstrap_servers="127.0.0.1:19092", ledger_url=LedgerAddress.in_state_folder(home)
    )
    assert settings.ledger is not None
    assert not settings.ledger.chosen
    named = load({**BROKERS, "EXTENTFLOW_LEDGER_URL": settings.ledger.url}, read_text=files())
    assert named.ledger is not None
    assert named.ledger.chosen


def test_options_of_a_command_win_and_are_named_in_messages(golden: Golden) -> None:
    given = {"bootstrap.servers": "other:1"}

    assert load(BROKERS, read_text=files(), given=given).bootstrap_servers == "other:1"
    with golden.raises(Misconfigured, match="--bootstrap-servers='nowhere'"):
        load(BROKERS, read_text=files(), given={"bootstrap.servers": "nowhere"})


def test_every_setting_comes_from_its_variable() -> None:
    environ = {
        "EXTENTFLOW_BOOTSTRAP_SERVERS": "a:9092, b:9092,[::1]:9092",
        "EXTENTFLOW_APP_ID": "ingest",
        "EXTENTFLOW_LEDGER_TABLE": "ingest-ledger",
        "EXTENTFLOW_LEDGER_ENDPOINT": "http://127.0.0.1:18000",
        "EXTENTFLOW_LEDGER_REGION": "eu-central-1",
        "EXTENTFLOW_EXACTLY_ONCE_SLOTS": "8",
        "EXTENTFLOW_LEASE_SECONDS": "3",
        "EXTENTFLOW_EXTENT_STALL_SECONDS": "20.5",
        "EXTENTFLOW_EXTENT_ATTEMPTS_MAX": "2",
        "EXTENTFLOW_EXTENT_AHEAD_BYTES": "2MiB",
        "EXTENTFLOW_SINK_ENQUEUE": "records",
        "EXTENTFLOW_RETRY_TIMEOUT_SECONDS": "0",
        "EXTENTFLOW_TRANSACTION_MAX_BYTES": "1MiB",
        "EXTENTFLOW_TRANSACTION_MAX_SECONDS": "0.5",
        "EXTENTFLOW_TRANSACTION_TIMEOUT_MS": "5000",
        "EXTENTFLOW_ARRIVALS_QUEUE_URL": "http://127.0.0.1:19324/1/arrivals",
        "EXTENTFLOW_ARRIVALS_DLQ_URL": "http://127.0.0.1:19324/1/arrivals-dlq",
        "EXTENTFLOW_ARRIVALS_UNMATCHED": "ignore",
        "EXTENTFLOW_EXTENTS_QUEUE_URL": "http://127.0.0.1:19324/1/extents",
        "EXTENTFLOW_EXTENTS_DLQ_URL": "http://127.0.0.1:19324/1/extents-dlq",
        "EXTENTFLOW_METRICS_CONNECTORS": "orders, re*",
        "EXTENTFLOW_RECEIVER_SECRET_ID": "grid",
        "EXTENTFLOW_RECEIVER_OPEN_ALLOWED": "true",
        "EXTENTFLOW_EVENT_BUS": "default",
        "EXTENTFLOW_SPARK_APPLICATION_ID": "00f1cbsc6anuij25",
        "EXTENTFLOW_SPARK_JOB_ROLE_ARN": "arn:aws:iam::111122223333:role/spark",
        "EXTENTFLOW_SPARK_ENTRY_POINT": "s3://code/spark_deliver.py",
        "EXTENTFLOW_SPARK_ARCHIVE": "s3://code/spark.tar.gz",
        "EXTENTFLOW_SPARK_THRESHOLD_BYTES": "1GiB",
        "EXTENTFLOW_SPARK_TIMEOUT_MINUTES": "60",
        "EXTENTFLOW_CONNECTORS_ENV_ALLOWED": "TEAM_*, AWS_REGION",
        "EXTENTFLOW_CONNECTORS_FILE_ALLOWED": "/etc/team",
        "EXTENTFLOW_CONNECTORS_SECRET_ALLOWED": "team/*",
        "EXTENTFLOW_CONNECTORS_DIRECTORY_ALLOWED": "none",
        "EXTENTFLOW_CONNECTORS_BUCKET_ALLOWED": "team-*",
        "EXTENTFLOW_CONNECTORS_COMPLETION_ALLOWED": "tag",
        "EXTENTFLOW_CONNECTORS_HOST_ALLOWED": "*.example.com",
        "EXTENTFLOW_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "EXTENTFLOW_KAFKA_SASL_PASSWORD": "${env:PASSWORD}",
        "EXTENTFLOW_KAFKA_LOG_LEVEL": "3",
    }

    settings = load(environ, read_text=files())

    assert settings == WorkerSettings(
        bootstrap_servers="a:9092,b:9092,[::1]:9092",
        app_id="ingest",
        ledger_table="ingest-ledger",
        ledger_endpoint="http://127.0.0.1:18000",
        ledger_region="eu-central-1",
        exactly_once_slots=8,
        lease_seconds=3.0,
        extent_stall_seconds=20.5,
        extent_attempts_max=2,
        retry_timeout_seconds=0.0,
        extent_ahead_bytes=2 << 20,
        sink_enqueue="records",
        transaction_max_bytes=1 << 20,
        transaction_max_seconds=0.5,
        transaction_timeout_ms=5000,
        arrivals_queue_url="http://127.0.0.1:19324/1/arrivals",
        arrivals_dlq_url="http://127.0.0.1:19324/1/arrivals-dlq",
        arrivals_unmatched="ignore",
        extents_queue_url="http://127.0.0.1:19324/1/extents",
        extents_dlq_url="http://127.0.0.1:19324/1/extents-dlq",
        metrics_connectors=("orders", "re*"),
        receiver_secret_id="grid",
        receiver_open_allowed=True,
        event_bus="default",
        spark_application_id="00f1cbsc6anuij25",
        spark_job_role_arn="arn:aws:iam::111122223333:role/spark",
        spark_entry_point="s3://code/spark_deliver.py",
        spark_archive="s3://code/spark.tar.gz",
        spark_threshold_bytes=1 << 30,
        spark_timeout_minutes=60,
        connectors_env_allowed=("TEAM_*", "AWS_REGION"),
        connectors_file_allowed=("/etc/team",),
        connectors_secret_allowed=("team/*",),
        connectors_directory_allowed=(),
        connectors_bucket_allowed=("team-*",),
        connectors_completion_allowed=("tag",),
        connectors_host_allowed=("*.example.com",),
        kafka={
            "security.protocol": "SASL_SSL",
            "sasl.password": "${env:PASSWORD}",
            "log_level": "3",
        },
    )


def test_every_setting_is_in_that_test() -> None:
    assert {variable(key.name) for key in TABLE} == {
        "EXTENTFLOW_BOOTSTRAP_SERVERS",
        "EXTENTFLOW_APP_ID",
        "EXTENTFLOW_LEDGER_TABLE",
        "EXTENTFLOW_LEDGER_ENDPOINT",
        "EXTENTFLOW_LEDGER_REGION",
        "EXTENTFLOW_LEDGER_URL",
        "EXTENTFLOW_LEDGER_PASSWORD",
        "EXTENTFLOW_EXACTLY_ONCE_SLOTS",
        "EXTENTFLOW_LEASE_SECONDS",
        "EXTENTFLOW_EXTENT_STALL_SECONDS",
        "EXTENTFLOW_EXTENT_ATTEMPTS_MAX",
        "EXTENTFLOW_EXTENT_AHEAD_BYTES",
        "EXTENTFLOW_SINK_ENQUEUE",
        "EXTENTFLOW_CONNECTORS_ENV_ALLOWED",
        "EXTENTFLOW_CONNECTORS_FILE_ALLOWED",
        "EXTENTFLOW_CONNECTORS_SECRET_ALLOWED",
        "EXTENTFLOW_CONNECTORS_DIRECTORY_ALLOWED",
        "EXTENTFLOW_CONNECTORS_BUCKET_ALLOWED",
        "EXTENTFLOW_CONNECTORS_COMPLETION_ALLOWED",
        "EXTENTFLOW_CONNECTORS_HOST_ALLOWED",
        "EXTENTFLOW_RETRY_TIMEOUT_SECONDS",
        "EXTENTFLOW_TRANSACTION_MAX_BYTES",
        "EXTENTFLOW_TRANSACTION_MAX_SECONDS",
        "EXTENTFLOW_TRANSACTION_TIMEOUT_MS",
        "EXTENTFLOW_ARRIVALS_QUEUE_URL",
        "EXTENTFLOW_ARRIVALS_DLQ_URL",
        "EXTENTFLOW_ARRIVALS_UNMATCHED",
        "EXTENTFLOW_EXTENTS_QUEUE_URL",
        "EXTENTFLOW_EXTENTS_DLQ_URL",
        "EXTENTFLOW_METRICS_CONNECTORS",
        "EXTENTFLOW_RECEIVER_SECRET_ID",
        "EXTENTFLOW_RECEIVER_OPEN_ALLOWED",
        "EXTENTFLOW_EVENT_BUS",
        "EXTENTFLOW_SPARK_APPLICATION_ID",
        "EXTENTFLOW_SPARK_JOB_ROLE_ARN",
        "EXTENTFLOW_SPARK_ENTRY_POINT",
        "EXTENTFLOW_SPARK_ARCHIVE",
        "EXTENTFLOW_SPARK_THRESHOLD_BYTES",
        "EXTENTFLOW_SPARK_TIMEOUT_MINUTES",
    }


def test_defaults_in_the_table_are_those_of_the_value() -> None:
    bare = WorkerSettings(bootstrap_servers="a:1")

    wrong = [
        key.name for key in TABLE if not key.required and getattr(bare, key.field) != key.default
    ]

    assert wrong == []


def test_no_two_settings_share_a_variable() -> None:
    names = TABLE.names() + [f.prefix + name for f in TABLE.families for name in f.refused]

    assert len({variable(name) for name in names}) == len(set(names))


# -- files ----------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("extentflow.yaml", "bootstrap.servers: a:1\nkafka.sasl.username: me\n"),
        ("extentflow.properties", "bootstrap.servers=a:1\nkafka.sasl.username=me\n"),
    ],
)
def test_a_file_in_the_working_directory_is_read(name: str, text: str) -> None:
    settings = load({}, read_text={name: text}.get)

    assert (settings.bootstrap_servers, settings.kafka) == ("a:1", {"sasl.username": "me"})


def test_a_named_file_replaces_the_one_in_the_working_directory() -> None:
    read_text = files(extentflow__yaml="app.id: here", prod__json='{"bootstrap.servers": "p:1"}')

    settings = load({"EXTENTFLOW_CONFIG": "prod.json"}, read_text=read_text)

    assert (settings.bootstrap_servers, settings.app_id) == ("p:1", "extentflow")


def test_the_environment_wins_over_the_file_key_by_key() -> None:
    read_text = files(extentflow__yaml="bootstrap.servers: a:1\nlease.seconds: 30\n")

    settings = load({"EXTENTFLOW_LEASE_SECONDS": "20"}, read_text=read_text)

    assert (settings.bootstrap_servers, settings.lease_seconds) == ("a:1", 20.0)


def test_a_variable_that_is_set_to_nothing_counts_as_not_set() -> None:
    settings = load({**BROKERS, "EXTENTFLOW_LEDGER_REGION": ""}, read_text=files())

    assert settings.ledger_region is None


def test_a_named_file_that_is_missing_is_an_error(golden: Golden) -> None:
    golden(*problems({**BROKERS, "EXTENTFLOW_CONFIG": "/gone.yaml"}))


def test_two_files_in_the_working_directory_are_an_error(golden: Golden) -> None:
    read_text = files(extentflow__yaml="app.id: a", extentflow__properties="app.id=b")

    golden(*problems(BROKERS, read_text))


# -- mistakes ----------------------------------------


def test_all_problems_are_reported_at_once_under_the_names_that_were_used() -> None:
    read_text = files(
        extentflow__yaml="app.id: my app\nlease.second: 5\nkafka.sasl.password: hunter2\n"
        "kafka.linger.ms: 5\n"
    )
    environ = {
        "EXTENTFLOW_LEASE_SECOND": "30",
        "EXTENTFLOW_TRANSACTION_TIMEOUT_MS": "1000000",
        "EXTENTFLOW_KAFKA_ACKS": "0",
        "EXTENTFLOW_KAFKA_SASL_PASSWRD": "hunter2",
        "EXTENTFLOW_KAFKA_SSL_KEY_PASSWORD": "hunter2",
        "OTHER": "x",
    }

    reference = (
        "a secret is not written down; name where it is kept: ${env:NAME}, ${file:/path:key} or"
        " ${secretsmanager:name:key}"
    )

    found = problems(environ, read_text)

    assert found == (
        (
            "EXTENTFLOW_KAFKA_SASL_PASSWRD: no such setting; did you mean"
            " EXTENTFLOW_KAFKA_SASL_PASSWORD?"
        ),
        "EXTENTFLOW_LEASE_SECOND: no such setting; did you mean EXTENTFLOW_LEASE_SECONDS?",
        "app.id='my app': write letters, digits, . _ - (100 at most), a letter or digit first",
        "lease.second: no such key; did you mean lease.seconds?",
        f"kafka.sasl.password=(not shown): {reference}",
        "kafka.linger.ms: concerns producers only; write producer.linger.ms in the connector",
        "EXTENTFLOW_KAFKA_ACKS: fixed here, exactly once depends on it; remove the key",
        f"EXTENTFLOW_KAFKA_SSL_KEY_PASSWORD=(not shown): {reference}",
        "EXTENTFLOW_TRANSACTION_TIMEOUT_MS='1000000': write a whole number, 1000 to 900000",
        (
            "bootstrap.servers: missing; write the Kafka brokers to ask first, as "
            "EXTENTFLOW_BOOTSTRAP_SERVERS or --bootstrap-servers"
        ),
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bootstrap.servers", "broker"),
        ("bootstrap.servers", "a:1,,b:1"),
        ("bootstrap.servers", "a:0"),
        ("bootstrap.servers", "a:65536"),
        ("app.id", "-x"),
        ("ledger.table", "ab"),
        ("ledger.endpoint", "127.0.0.1:8000"),
        ("ledger.endpoint", "localhost:8000"),
        ("ledger.endpoint", "http://"),
        ("ledger.endpoint", "sqlite:////var/ledger.db"),
        ("exactly.once.slots", "0"),
        ("exactly.once.slots", "10001"),
        ("lease.seconds", "0.5"),
        ("lease.seconds", "nan"),
        ("retry.timeout.seconds", "-1"),
        ("transaction.max.bytes", "64M"),
        ("transaction.timeout.ms", "999"),
        ("kafka.client.id", "${env:}"),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, text: str) -> None:
    (problem,) = problems({**BROKERS, variable(name): text})

    assert problem.startswith(f"{variable(name)}={quoted(text)}: ")


def test_a_transaction_must_be_committed_before_brokers_abort_it(golden: Golden) -> None:
    (problem,) = problems({**BROKERS, "EXTENTFLOW_TRANSACTION_MAX_SECONDS": "30"})

    golden(problem)
    assert "transaction.max.seconds=30" in problem


def test_a_healthy_extent_must_not_count_as_stalled(golden: Golden) -> None:
    (problem,) = problems({**BROKERS, "EXTENTFLOW_EXTENT_STALL_SECONDS": "10"})

    golden(problem)
    assert "extent.stall.seconds=10" in problem


@pytest.mark.parametrize(
    "name",
    ["EXTENTFLOW_LOCAL_DIR", "EXTENTFLOW_STACK_ANYTHING", "EXTENTFLOW_IVY_SETTINGS", "EXTENTFLO"],
)
def test_variables_of_the_local_stack_and_of_others_are_left_alone(name: str) -> None:
    assert load({**BROKERS, name: "x"}, read_text=files()).app_id == "extentflow"


URL = {"EXTENTFLOW_LEDGER_URL": "postgresql://me@db/ledgers?sslmode=verify-full"}


def test_the_ledger_comes_from_its_url_with_a_password_by_reference() -> None:
    password = {"EXTENTFLOW_LEDGER_PASSWORD": "${env:PGPASSWORD}"}

    settings = load({**BROKERS, **URL, **password}, read_text=files())

    assert settings.ledger_url == LedgerAddress(URL["EXTENTFLOW_LEDGER_URL"])
    assert settings.ledger == settings.ledger_url
    assert settings.ledger_password == "${env:PGPASSWORD}"
    assert WorkerSettings.from_map(settings.to_map()) == settings


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@db/l",
        "postgresql://me:1/secret@db/l",
        "postgresql://me:1#secret@db/l",
        "postgresql://db/l?host=me:secret@x",
        "http://127.0.0.1:8000/secret",
        "postgresql:me:secret@db",
        "postgresql://me:secret/l",
        "x://me:1/secret@h",
        "dynamodb://secret!",
    ],
)
def test_a_refused_url_of_a_ledger_is_never_shown(url: str) -> None:
    (problem,) = problems({**BROKERS, "EXTENTFLOW_LEDGER_URL": url})

    assert problem.startswith("EXTENTFLOW_LEDGER_URL=(not shown): ")
    assert "secret" not in problem


def test_settings_of_dynamodb_without_a_url_name_its_ledger() -> None:
    own = {"EXTENTFLOW_LEDGER_ENDPOINT": "http://127.0.0.1:8000"}

    settings = load({**BROKERS, **own}, read_text=files())

    assert settings.ledger is not None
    assert settings.ledger.url == "dynamodb://extentflow?endpoint=http://127.0.0.1:8000"


@pytest.mark.parametrize("other", ["LEDGER_TABLE", "LEDGER_ENDPOINT", "LEDGER_REGION"])
def test_a_url_and_other_settings_of_a_ledger_contradict(other: str) -> None:
    given = {f"EXTENTFLOW_{other}": "http://127.0.0.1:8000" if "END" in other else "orders"}

    (problem,) = problems({**BROKERS, **URL, **given})

    assert problem.startswith(f"EXTENTFLOW_{other}: beside EXTENTFLOW_LEDGER_URL")


@pytest.mark.parametrize(
    "url", [{}, {"EXTENTFLOW_LEDGER_URL": "sqlite:////l"}, {"EXTENTFLOW_LEDGER_TABLE": "orders"}]
)
def test_only_a_server_with_passwords_takes_one(url: dict[str, str], golden: Golden) -> None:
    given = {**BROKERS, **url, "EXTENTFLOW_LEDGER_PASSWORD": "${env:SECRET}"}

    (problem,) = problems(given)

    golden(problem)
    assert "ledger.password" in problem


def test_settings_of_spark_belong_together(golden: Golden) -> None:
    found = problems({**BROKERS, "EXTENTFLOW_SPARK_APPLICATION_ID": "00f1cbsc6anuij25"})

    (problem,) = found
    golden(problem)
    assert "spark.job.role.arn" in problem
    assert problem.endswith("set all four or none")


def test_an_archive_that_spark_would_not_unpack_is_rejected(golden: Golden) -> None:
    (problem, *_) = problems({**BROKERS, "EXTENTFLOW_SPARK_ARCHIVE": "s3://code/spark.gz"})

    golden(problem)
    assert "EXTENTFLOW_SPARK_ARCHIVE='s3://code/spark.gz'" in problem


# -- travelling ----------------------------------------


@given(
    st.builds(
        WorkerSettings,
        bootstrap_servers=st.sampled_from(["a:1", "a:1,b:65535"]),
        app_id=st.from_regex(r"[a-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
        ledger_endpoint=st.sampled_from(["http://127.0.0.1:18000", "https://db:1"]),
        ledger_region=st.none() | st.sampled_from(["eu-central-1", "local"]),
        exactly_once_slots=st.integers(1, 10_000),
        lease_seconds=st.integers(1, 10**6).map(float) | st.just(1.5),
        extent_stall_seconds=st.floats(31, 1000).map(lambda value: round(value, 3)),
        transaction_max_bytes=st.integers(1, 1 << 40),
        transaction_max_seconds=st.floats(0.1, 29).map(lambda value: round(value, 3)),
        transaction_timeout_ms=st.integers(30_000, 900_000),
        kafka=st.dictionaries(
            st.sampled_from(["client.id", "sasl.username"]), st.sampled_from(["x", "${env:A}"])
        ),
    )
)
def test_settings_survive_every_way_of_travelling(settings: WorkerSettings) -> None:
    flat = settings.to_map()
    environ = {variable(name): text for name, text in flat.items()}

    assert WorkerSettings.from_map(json.loads(json.dumps(flat))) == settings
    assert load(environ, read_text=files()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    "line",
    [
        "kafka.sasl.kerberos.kinit.cmd: touch x",
        "kafka.ssl.providers: x",
        "kafka.sasl.password: ${env:AWS_SECRET_ACCESS_KEY}",
        "kafka.sasl.password: ${env:GITHUB_TOKEN}",
        "kafka.sasl.username: ${file:/home/me/.aws/credentials:aws_secret_access_key}",
        "kafka.sasl.password: ${secretsmanager:team:key}",
    ],
)
def test_a_file_that_came_with_its_folder_runs_nothing_and_names_no_credentials(line: str) -> None:
    (problem,) = problems(BROKERS, files(extentflow__yaml=line))

    assert "only in a file that EXTENTFLOW_CONFIG names" in problem
    named = {**BROKERS, "EXTENTFLOW_CONFIG": "extentflow.yaml"}
    assert load(named, read_text=files(extentflow__yaml=line)).kafka


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("postgresql://me@db.example.com/l", True),
        ("postgresql:///l?host=db.example.com", True),
        ("postgresql://me@db.example.com/l?sslmode=verify-full", False),
        ("postgresql://me@127.0.0.1:5432/l", False),
        ("postgresql://me@[::1]:5432/l", False),
        ("postgresql://me@[::1]/l", False),
        ("postgresql://me@localhost/l", False),
        ("postgresql:///l?host=/run/postgresql", False),
        ("postgresql:///l", False),
    ],
)
def test_a_password_of_postgresql_does_not_cross_a_network_in_silence(
    url: str,
    refused: bool,  # noqa: FBT001 - a parameter
) -> None:
    config = {
        "bootstrap.servers": "a:1",
        "ledger.url": url,
        "ledger.password": "${env:PGPASSWORD}",
    }

    if not refused:
        assert WorkerSettings.from_map(config).ledger_password
        return
    with pytest.raises(Misconfigured, match=r"^ledger.url: .*clear text; add \?sslmode"):
        WorkerSettings.from_map(config)
