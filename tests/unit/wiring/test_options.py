"""From a connector's settings to the options of the rooms."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.golden import Golden

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.columnar.encryption import ColumnEncryption
from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse
from extentflow.config.worker import WorkerSettings
from extentflow.converters import CONVERTERS
from extentflow.errors import Misconfigured
from extentflow.formats.csv.csv_format import CsvOptions
from extentflow.formats.parquet.column_keys import MasterKeys
from extentflow.model import ObjectVersion
from extentflow.wiring import options

BASE = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "bucket"}
VERSION = ObjectVersion("bucket", "in/a b.csv", None, "etag", 10)
NO_SECRETS = options.SecretResolver(SecretsManager())


def config(**changes: str) -> ConnectorConfig:
    """Return a connector; dots in its keys are written as two underscores."""
    named: Mapping[str, str] = {key.replace("__", "."): text for key, text in changes.items()}
    return parse({**BASE, **named})


def table(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


# -- references -----------------------------------------------------------------------------------


def test_what_only_workers_with_such_variables_have_is_named(golden: Golden) -> None:
    chosen = config(
        aws__access__key__id="${env:GRID_KEY}",
        aws__secret__access__key="${secretsmanager:grid:secret}",
        producer__sasl__password="${env:PASSWORD}",
        producer__sasl__username="${file:/kafka.properties:user}",
    )

    absent = options.absent_elsewhere(chosen)
    assert absent is not None
    golden(absent)
    assert "aws.access.key.id=${env:GRID_KEY}" in absent
    assert options.absent_elsewhere(config()) is None


# -- object stores --------------------------------------------------------------------------------


def test_a_store_gets_its_endpoint_and_timeouts() -> None:
    chosen = options.store_options(
        config(
            aws__s3__endpoint="https://s3.example.net:9000",
            aws__s3__region="eu-test-1",
            aws__s3__path__style__access__enabled="false",
            aws__s3__ca__bundle="/etc/ca.pem",
        ),
        NO_SECRETS,
        retry_seconds=7,
    )

    assert chosen.endpoint == "https://s3.example.net:9000"
    assert (chosen.region, chosen.path_style, chosen.verify) == ("eu-test-1", False, "/etc/ca.pem")
    assert chosen.retry_seconds == 7
    assert (chosen.access_key_id, chosen.secret_access_key) == (None, None)


def test_credentials_are_looked_up_in_the_process_that_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ORDERS_SECRET", "hidden")
    connector = config(aws__access__key__id="id", aws__secret__access__key="${env:ORDERS_SECRET}")

    chosen = options.store_options(connector, NO_SECRETS, retry_seconds=1)

    assert (chosen.access_key_id, chosen.secret_access_key) == ("id", "hidden")
    assert connector.secret_access_key == "${env:ORDERS_SECRET}"


def test_a_secret_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORDERS_SECRET", raising=False)
    connector = config(aws__access__key__id="id", aws__secret__access__key="${env:ORDERS_SECRET}")

    with pytest.raises(Misconfigured, match=r"aws\.secret\.access\.key=.*ORDERS_SECRET"):
        options.store_options(connector, NO_SECRETS, retry_seconds=1)


# -- secrets of formats ----------------------------------------------------------------------------


def encrypted() -> ConnectorConfig:
    return config(input__format="parquet", parquet__encryption__footer__key="${env:FOOTER_KEY}")


def test_a_formats_secrets_are_looked_up_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOOTER_KEY", "hidden")

    own = options.own_options(encrypted(), "parquet", NO_SECRETS)

    assert own.encryption_footer_key == "hidden"
    assert encrypted().options_of("parquet").encryption_footer_key == "${env:FOOTER_KEY}"
    assert options.own_options(config(), "csv", NO_SECRETS) == CsvOptions()


def test_a_formats_secret_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOOTER_KEY", raising=False)

    with pytest.raises(Misconfigured, match=r"parquet\.encryption\.footer\.key=.*FOOTER_KEY"):
        options.own_options(encrypted(), "parquet", NO_SECRETS)


def test_a_formats_secret_in_a_variable_keeps_a_run_from_emr_serverless() -> None:
    assert "parquet.encryption.footer.key=${env:FOOTER_KEY}" in str(
        options.absent_elsewhere(encrypted())
    )


# -- encrypted columns -----------------------------------------------------------------------------

MASTER_KEYS = "old:MDEyMzQ1Njc4OWFiY2RlZg==, new:MDEyMzQ1Njc4OWFiY2RlZg=="


def encrypting(key: str = "new", **changes: str) -> ConnectorConfig:
    return config(
        columnar__encoding="parquet",
        columnar__encryption__columns="card",
        columnar__encryption__key=key,
        **changes,
    )


def listed(key: str = "new") -> ConnectorConfig:
    return encrypting(key, columnar__encryption__key__list="${env:MASTER_KEYS}")


def test_master_keys_are_looked_up_in_the_process_that_encrypts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MASTER_KEYS", MASTER_KEYS)

    made = options.columns(listed(), 1_000, lambda _: 1, lambda *_: None, NO_SECRETS)

    assert made is not None
    assert made.encryption == ColumnEncryption(
        ("card",), "new", MasterKeys.of(MASTER_KEYS, "columnar.encryption.key.list")
    )
    assert "MDEy" not in repr(made)
    assert options.encryption(config(columnar__encoding="parquet"), NO_SECRETS) is None


def test_a_master_key_that_the_secret_lacks_is_named_without_the_secret(
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    monkeypatch.setenv("MASTER_KEYS", MASTER_KEYS)

    with golden.raises(Misconfigured, match=r"columnar\.encryption\.key=lost") as it:
        options.encryption(listed("lost"), NO_SECRETS)
    assert "MDEy" not in str(it.value)
    monkeypatch.setenv("MASTER_KEYS", "new:nonsense")
    with golden.raises(Misconfigured, match=r"key\.list.*entry 1") as it:
        options.encryption(listed(), NO_SECRETS)
    assert "nonsense" not in str(it.value)
    monkeypatch.delenv("MASTER_KEYS")
    with pytest.raises(Misconfigured, match=r"columnar\.encryption\.key\.list=.*MASTER_KEYS"):
        options.encryption(listed(), NO_SECRETS)


def test_without_a_list_one_client_of_kms_wraps_for_the_process() -> None:
    first, second = (options.encryption(encrypting(f"alias/{n}"), NO_SECRETS) for n in "12")

    assert first is not None
    assert second is not None
    assert first.service is second.service is options.reading_keys("aws-kms", NO_SECRETS)


def test_master_keys_in_a_variable_keep_a_run_from_emr_serverless() -> None:
    assert "columnar.encryption.key.list=${env:MASTER_KEYS}" in str(
        options.absent_elsewhere(listed())
    )


def test_a_master_key_is_checked_by_wrapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_KEYS", MASTER_KEYS)

    ((key, ask),) = options.encryption_checks(listed(), NO_SECRETS)

    assert (key, ask()) == ("columnar.encryption.key", "this machine encrypts with new")
    assert not list(options.encryption_checks(config(), NO_SECRETS))


def test_keys_of_readers_are_references_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv("MASTER_KEYS", MASTER_KEYS)

    found = options.reading_keys("${env:MASTER_KEYS}", NO_SECRETS)

    assert found == MasterKeys.of(MASTER_KEYS, "keys")
    with golden.raises(Misconfigured, match="--keys.*aws-kms") as it:
        options.reading_keys(MASTER_KEYS, NO_SECRETS)
    assert "MDEy" not in str(it.value)


# -- timeouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("retry", "tried"), [(0, 0), (2, 2), (120, 30)])
def test_the_table_is_tried_no_longer_than_an_attempt_may_wait(retry: float, tried: float) -> None:
    settings = WorkerSettings(bootstrap_servers="127.0.0.1:1", retry_timeout_seconds=retry)

    assert options.ledger_options(settings, NO_SECRETS).retry_seconds == tried


@pytest.mark.parametrize(("retry", "tried"), [(0, 10), (20, 20), (120, 60)])
def test_brokers_are_given_the_seconds_that_healthy_ones_need(retry: int, tried: float) -> None:
    timeouts = options.sink_timeouts(retry)

    assert (timeouts.fence_seconds, timeouts.read_seconds, timeouts.commit_seconds) == (tried,) * 3
    assert timeouts.request_seconds == {0: 4, 20: 10, 120: 10}[retry]


# -- formats --------------------------------------------------------------------------------------


def test_a_format_gets_all_its_options() -> None:
    chosen = config(
        csv__separator__char=";",
        csv__quote__char="'",
        csv__escape__char="\\",
        csv__header="false",
        csv__null="NULL",
        csv__schema="id:int64, price:decimal(15,2)",
    )

    assert options.format_options(chosen, "csv", "gzip").compression == "gzip"
    assert chosen.options_of("csv") == CsvOptions(
        separator=";",
        quote="'",
        escape="\\",
        header=False,
        null="NULL",
        schema=(("id", "int64"), ("price", "decimal(15,2)")),
    )


def test_bytes_are_not_checked_for_being_text_and_strings_are() -> None:
    assert options.format_options(config(), "text", "none").validate_text
    as_bytes = config(value__converter="bytes")
    assert not options.format_options(as_bytes, "text", "none").validate_text


def test_columns_that_keys_need_are_passed_to_the_format() -> None:
    connector = config(message__key="column:id,line")

    assert options.format_options(connector, "jsonl", "none").columns == ("id", "line")


# -- values and keys ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["text", "jsonl"])
def test_lines_pass_through_as_they_are(name: str) -> None:
    batch = table(value=pa.array([b'{"a": 1}', b"\xff"], pa.binary()))

    convert = options.value(config(), name)(batch.schema)

    assert convert(batch).to_pylist() == [b'{"a": 1}', b"\xff"]


def test_columns_become_json() -> None:
    batch = table(id=pa.array([1, None], pa.int64()), name=pa.array(["a", "b"]))

    convert = options.value(config(), "parquet")(batch.schema)

    assert convert(batch).to_pylist() == [b'{"id":1,"name":"a"}', b'{"id":null,"name":"b"}']


def test_a_key_may_be_the_objects_name() -> None:
    batch = table(id=pa.array([1, 2, 3]))

    convert = options.key(config(message__key="object"), VERSION)(batch.schema)

    assert convert(batch).to_pylist() == [b"in/a b.csv"] * 3


def test_a_key_of_one_column_is_its_text() -> None:
    batch = table(id=pa.array([1, 2]), name=pa.array(["a", None]))

    by_id = options.key(config(message__key="column:id"), VERSION)(batch.schema)
    by_name = options.key(config(message__key="column:name"), VERSION)(batch.schema)

    assert by_id(batch).to_pylist() == [b"1", b"2"]
    assert by_name(batch).to_pylist() == [b"a", None]


def test_a_key_of_several_columns_is_one_json_object_in_the_order_named() -> None:
    batch = table(id=pa.array([1]), name=pa.array(["a"]), rest=pa.array([0]))

    convert = options.key(config(message__key="column:name,id"), VERSION)(batch.schema)

    assert convert(batch).to_pylist() == [b'{"name":"a","id":1}']


# -- converters of packages -----------------------------------------------------------------------


def _shout(
    _schema: pa.Schema, _columns: Sequence[str] | None = None
) -> Callable[[pa.RecordBatch], pa.BinaryArray]:
    return lambda batch: pc.utf8_upper(batch.column(0).cast(pa.string())).cast(pa.binary())


@pytest.mark.parametrize("name", ["csv", "text", "jsonl", "parquet"])
def test_a_packages_converter_makes_values_of_every_format(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(CONVERTERS._loaded, "shout", _shout)
    chosen = config(input__format=name, value__converter="shout")

    batch = table(value=pa.array([b"one", b"two"], pa.binary()))
    made = options.value(chosen, name)(batch.schema)(batch)

    assert made.to_pylist() == [b"ONE", b"TWO"]


def test_a_packages_converter_makes_keys_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONVERTERS._loaded, "shout", _shout)
    chosen = config(input__format="csv", message__key="column:id", key__converter="shout")

    batch = table(id=pa.array(["a"]))

    assert options.key(chosen, VERSION)(batch.schema)(batch).to_pylist() == [b"A"]


def test_a_built_in_converter_that_does_not_fit_is_still_refused(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"value\.converter=json"):
        config(input__format="text", value__converter="json")
