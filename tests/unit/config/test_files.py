"""The machinery under connectors and settings: files, references, values, client properties."""

import ctypes
import json
import os
import re
import string
from pathlib import Path

import confluent_kafka
import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden

from extentflow.config.__main__ import main, page
from extentflow.config.files import load, parse_text, read_owned
from extentflow.config.kafka_properties import (
    CLIENT_PROPERTIES,
    NOT_OFFERED,
    PRODUCER_PROPERTIES,
    REFUSED_CLIENT_PROPERTIES,
    REFUSED_PRODUCER_PROPERTIES,
    SECRET_PROPERTIES,
)
from extentflow.config.secrets import Reference, resolve
from extentflow.config.types import SIZE, Kind, choice, or_word, seconds
from extentflow.errors import CredentialsUnavailable, Misconfigured
from extentflow.kafka.settings import refusals

ROOT = Path(__file__).parents[3]
NAMES = st.text(string.ascii_lowercase + ".", min_size=1, max_size=12)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


def problems(text: str, path: str) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        parse_text(text, path)
    return caught.value.problems


def java_properties(config: dict[str, str]) -> str:
    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(character):04x}" for character in text)

    return "\n".join(f"{escaped(name)} = {escaped(text)}" for name, text in config.items())


# -- files ----------------------------------------


@given(st.dictionaries(NAMES, TEXTS, max_size=6))
def test_json_and_yaml_give_back_the_map_that_was_written(config: dict[str, str]) -> None:
    as_json, as_yaml = json.dumps(config), yaml.safe_dump(config, allow_unicode=True)

    assert parse_text(as_json, "a.json") == config
    assert parse_text(as_yaml, "a.yaml") == config


@given(
    st.dictionaries(
        NAMES, st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF)), max_size=6
    )
)
def test_properties_with_every_character_escaped_give_back_the_map(config: dict[str, str]) -> None:
    assert parse_text(java_properties(config), "a.properties") == config


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b ", "a", "b "),
        ("a: b", "a", "b"),
        ("a b c", "a", "b c"),
        ("a==b", "a", "=b"),
        ("a", "a", ""),
        ("   a=b", "a", "b"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\\=c", "a\\", "c"),
        (r"a=\t", "a", "\t"),
        (r"a=\u00e4", "a", "ä"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=ü", "a", "ü"),
    ],
)
def test_properties_follow_javas_syntax(line: str, name: str, value: str) -> None:
    assert parse_text(f"# comment \\\n! other\n\n{line}\n", "a.properties") == {name: value}


def test_properties_reject_a_truncated_unicode_escape(golden: Golden) -> None:
    golden(*problems(r"a=C:\users", "a.properties"))


def test_yaml_values_stay_as_written() -> None:
    text = "a: yes\nb: 010\nc: 1_000\nd: 12:30:00\ne: 2024-01-01\nf: 'x y'\ng: 0.10\n"

    config = parse_text(text, "a.yml")

    assert config == {
        "a": "yes",
        "b": "010",
        "c": "1_000",
        "d": "12:30:00",
        "e": "2024-01-01",
        "f": "x y",
        "g": "0.10",
    }


def test_json_scalars_become_the_text_they_are_written_as() -> None:
    text = '{"a": true, "b": 1.50, "c": 12345678901234567890, "d": "x", "e": false}'

    config = parse_text(text, "a.json")

    assert config == {"a": "true", "b": "1.50", "c": "12345678901234567890", "d": "x", "e": "false"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"name": "orders", "config": {"topic": "t", "tasks.max": 3}}', "a.json"),
        (
            '{"name": "orders", "config": {"name": "orders", "topic": "t", "tasks.max": 3}}',
            "a.json",
        ),
        ("name: orders\nconfig:\n  topic: t\n  tasks.max: 3\n", "a.yaml"),
    ],
)
def test_connects_envelope_is_unwrapped(text: str, path: str) -> None:
    assert parse_text(text, path) == {"name": "orders", "topic": "t", "tasks.max": "3"}


def test_an_envelope_with_two_different_names_is_rejected() -> None:
    found = problems('{"name": "a", "config": {"name": "b"}}', "a.json")

    assert found == ("a.json: name: appears twice; keep one",)


def test_an_envelope_with_further_keys_is_rejected(golden: Golden) -> None:
    found = problems('{"name": "a", "config": {}, "initial_state": "PAUSED"}', "a.json")

    golden(*found)


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        (
            "a=1\n\na=2\n",
            "a.properties",
            "a.properties:3: a: appears twice (first in a.properties:1)",
        ),
        ("a: 1\nb: 2\na: 1\n", "a.yaml", "a.yaml:3: a: appears twice (first in a.yaml:1)"),
        ('{"a": 1, "a": 1}', "a.json", "a.json: a: appears twice"),
    ],
)
def test_a_key_that_appears_twice_is_rejected(text: str, path: str, line: str) -> None:
    assert problems(text, path) == (f"{line}; keep one",)


def test_everything_that_is_no_text_is_reported_at_once() -> None:
    nothing = 'no value; write one (in quotes, if it is "null" or ""), or remove the key'
    text = "csv:\n  header: true\ntopic: [a, b]\nname: null\nempty:\nquoted: 'null'\n"

    found = problems(text, "a.yaml")

    assert found == (
        "a.yaml:1: csv: a nested map; write its keys in full, as in `csv.header`",
        "a.yaml:3: topic: a list; write one text, with commas where the key takes several",
        f"a.yaml:4: name: {nothing}",
        f"a.yaml:5: empty: {nothing}",
    )


@pytest.mark.parametrize(
    ("text", "path", "beginning"),
    [
        ("{", "a.json", "a.json:1: not JSON"),
        ("[1]", "a.json", "a.json: the document is no object"),
        ("a: b: c", "a.yaml", "a.yaml:1: not YAML"),
        ("- a", "a.yaml", "a.yaml: the document is no mapping"),
        ("a: 1\n---\nb: 2\n", "a.yaml", "a.yaml:2: not YAML"),
        ("a: \x01", "a.yaml", "a.yaml: not YAML"),
        ("a=1", "a.ini", "a.ini: unknown kind of file"),
    ],
)
def test_a_syntax_that_differs_from_the_suffix_is_rejected(
    text: str, path: str, beginning: str
) -> None:
    (problem,) = problems(text, path)

    assert problem.startswith(beginning)
    assert "\n" not in problem


def test_a_file_is_read_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "orders.properties"
    path.write_text("topic=ä\n", encoding="utf-8")

    assert load(path) == {"topic": "ä"}


def test_a_missing_file_is_named(tmp_path: Path, golden: Golden) -> None:
    with golden.raises(Misconfigured, match="orders.yaml"):
        load(tmp_path / "orders.yaml")


def test_a_directory_or_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("topic: ä".encode("latin-1"))
    (tmp_path / "folder.yaml").mkdir()

    with pytest.raises(Misconfigured, match="not UTF-8 text"):
        load(tmp_path / "latin.yaml")
    with pytest.raises(Misconfigured, match="cannot be read"):
        load(tmp_path / "folder.yaml")


# -- references ----------------------------------------

ARN = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:app/kafka-AbCdEf"


def no_text(asked: str) -> str:
    raise AssertionError(f"{asked} was asked for")


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("${env:SECRET_1}", Reference("env", "", "SECRET_1")),
        ("${file:/run/s3.properties:secret}", Reference("file", "/run/s3.properties", "secret")),
        ("${file:C:/s3.properties:secret}", Reference("file", "C:/s3.properties", "secret")),
        ("${secretsmanager:app/kafka}", Reference("secretsmanager", "app/kafka", "")),
        ("${secretsmanager:app/kafka:user}", Reference("secretsmanager", "app/kafka", "user")),
        (
            "${secretsmanager:a_b+c=d.e@f-G1:x:y}",
            Reference("secretsmanager", "a_b+c=d.e@f-G1", "x:y"),
        ),
        (f"${{secretsmanager:{ARN}}}", Reference("secretsmanager", ARN, "")),
        (f"${{secretsmanager:{ARN}:key}}", Reference("secretsmanager", ARN, "key")),
        ("plain $HOME {x}", None),
    ],
)
def test_a_reference_is_recognised(text: str, reference: Reference | None) -> None:
    assert Reference.parse(text) == reference


@pytest.mark.parametrize(
    "text",
    [
        "${env:}",
        "${env:1A}",
        "${file:/a}",
        "${file::k}",
        "${vault:a:b}",
        "${secretsmanager:}",
        "${secretsmanager::key}",
        "${secretsmanager:name:}",
        "${secretsmanager:a name}",
        f"${{secretsmanager:{ARN}:}}",
        "${secretsmanager:arn:aws:secretsmanager:eu-west-1:111122223333}",
        "${secretsmanager:arn:aws:s3:::bucket}",
        "x${env:A}",
        "${env:A",
        "${}",
    ],
)
def test_what_only_resembles_a_reference_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="env:NAME"):
        Reference.parse(text)


def test_references_are_looked_up_and_other_values_kept() -> None:
    values = {"a": "${env:A}", "b": "${file:/f.properties:b.c}", "c": "plain"}

    resolved = resolve(
        values,
        environ={"A": "one"},
        read_text={"/f.properties": "b.c = two\n"}.__getitem__,
        read_secret=no_text,
    )

    assert resolved == {"a": "one", "b": "two", "c": "plain"}


def test_a_secret_is_a_text_or_one_entry_of_a_json_object() -> None:
    values = {"a": "${secretsmanager:plain}", "b": f"${{secretsmanager:{ARN}:pass:word}}"}
    secrets = {"plain": "one", ARN: '{"pass:word": "two", "other": 1}'}

    resolved = resolve(values, environ={}, read_text=no_text, read_secret=secrets.__getitem__)

    assert resolved == {"a": "one", "b": "two"}


def test_what_is_looked_up_together_is_of_one_version_of_the_secret() -> None:
    values = {"user": "${secretsmanager:s:user}", "password": "${secretsmanager:s:password}"}
    versions = iter(('{"user": "u1", "password": "p1"}', '{"user": "u2", "password": "p2"}'))

    resolved = resolve(values, environ={}, read_text=no_text, read_secret=lambda _: next(versions))

    assert resolved == {"user": "u1", "password": "p1"}


def test_unavailable_secrets_are_retryable() -> None:
    def read_secret(_: str) -> str:
        raise CredentialsUnavailable("secret s: throttled")

    with pytest.raises(CredentialsUnavailable, match="throttled"):
        resolve(
            {"a": "${secretsmanager:s}"},
            environ={},
            read_text=no_text,
            read_secret=read_secret,
        )


def test_every_reference_that_leads_nowhere_is_reported_without_any_secret() -> None:
    texts = {"/ok": "other=hunter2", "/bad": "x=hunter2\nx=hunter2"}

    def read_text(path: str) -> str:
        if path == "/binary":
            return b"\xff".decode()
        if path not in texts:
            raise FileNotFoundError(2, "No such file or directory")
        return texts[path]

    values = {
        "a": "${env:UNSET}",
        "b": "${file:/gone:k}",
        "c": "${file:/ok:k}",
        "d": "${file:/bad:k}",
        "e": "${file:/binary:k}",
        "f": "${secretsmanager:gone}",
        "g": "${secretsmanager:text:k}",
        "h": "${secretsmanager:list:k}",
        "i": "${secretsmanager:object:k}",
        "j": "${secretsmanager:object:number}",
        "l": "${secretsmanager:object:empty}",
    }
    secrets = {
        "text": "hunter2",
        "list": '["hunter2"]',
        "object": '{"other": "hunter2", "number": 7, "empty": ""}',
    }

    def read_secret(name: str) -> str:
        if name not in secrets:
            raise Misconfigured(f"secret {name}: there is no such secret")
        return secrets[name]

    with pytest.raises(Misconfigured) as caught:
        resolve(values, environ={"OTHER": "hunter2"}, read_text=read_text, read_secret=read_secret)

    assert caught.value.problems == (
        "a=${env:UNSET}: the environment variable is not set on this worker",
        (
            "b=${file:/gone:k}: the file cannot be read on this worker (No such file or directory);"
            " correct its path"
        ),
        "c=${file:/ok:k}: the file has no such key; it holds key=value lines",
        "d=${file:/bad:k}: the file is no valid .properties file",
        "e=${file:/binary:k}: the file is not UTF-8 text",
        "f=${secretsmanager:gone}: secret gone: there is no such secret",
        *(
            f"{name}=${{secretsmanager:{secret}}}: the secret is no JSON object with a text for"
            " that key; correct one of them"
            for name, secret in {
                "g": "text:k",
                "h": "list:k",
                "i": "object:k",
                "j": "object:number",
                "l": "object:empty",
            }.items()
        ),
    )


# -- values ----------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("64MB", 64_000_000),
        ("2GiB", 2 << 30),
        ("3TB", 3 * 10**12),
        ("5B", 5),
        ("7KiB", 7168),
    ],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert SIZE.read(text) == size


@pytest.mark.parametrize(
    "text", ["0", "0MiB", "-1", "64M", "1.5GiB", "", "MiB", "1e6", "٣", "iB", "5iB"]
)
def test_sizes_without_a_clear_meaning_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="64MiB"):
        SIZE.read(text)


@given(st.integers(min_value=1, max_value=10**17))
def test_sizes_survive_writing_and_reading(size: int) -> None:
    assert SIZE.read(SIZE.write(size)) == size


@given(st.integers(min_value=0, max_value=10**14))
def test_seconds_survive_writing_and_reading(microseconds: int) -> None:
    kind: Kind[float] = seconds(0)
    value = microseconds / 10**6

    assert kind.read(kind.write(value)) == value


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (choice(["b"]), "write b"),
        (choice(["b", "a"]), "write a or b"),
        (choice(["b", "c", "a"]), "write a, b or c"),
        (or_word("auto", choice(["b"])), "write auto or b"),
        (or_word("auto", choice(["c", "b"])), "write auto, b or c"),
        (or_word("auto", seconds(0)), "write auto, a number of seconds, 0 or more"),
    ],
)
def test_a_choice_reads_as_people_write_one(kind: Kind[object], remedy: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(remedy)}$"):
        kind.read("?")


@given(st.none() | st.integers(min_value=1, max_value=10**15))
def test_a_word_for_none_survives_writing_and_reading(value: int | None) -> None:
    kind = or_word("auto", SIZE)

    assert kind.read(kind.write(value)) == value


# -- properties of the Kafka client ----------------------------------------


@pytest.mark.parametrize("name", sorted(PRODUCER_PROPERTIES | CLIENT_PROPERTIES))
def test_the_installed_client_supports_every_accepted_property(name: str) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer({name: "none", "no.such.property": "1"})

    assert f'No such configuration property: "{name}"' not in str(caught.value)


def test_no_property_is_both_accepted_and_rejected() -> None:
    assert not PRODUCER_PROPERTIES & set(REFUSED_PRODUCER_PROPERTIES)
    assert not CLIENT_PROPERTIES & set(REFUSED_CLIENT_PROPERTIES)
    assert not any(name.endswith("timeout.ms") for name in PRODUCER_PROPERTIES)
    assert SECRET_PROPERTIES <= CLIENT_PROPERTIES


def installed_properties(path: Path) -> set[str]:
    """Return the names in the CONFIGURATION that the installed librdkafka prints."""
    (bundled,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    library, libc = ctypes.CDLL(str(bundled)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    opened = libc.fopen(str(path).encode(), b"w")
    library.rd_kafka_conf_properties_show(opened)
    libc.fclose(opened)
    rows = re.findall(r"^([a-z][a-z0-9_.]+) +\| +[*CP]", path.read_text("utf-8"), re.MULTILINE)
    return set(rows)


def test_each_property_of_the_installed_client_was_decided_about(tmp_path: Path) -> None:
    installed = installed_properties(tmp_path / "CONFIGURATION.md")
    allowed = CLIENT_PROPERTIES | PRODUCER_PROPERTIES
    decided = allowed | set(REFUSED_PRODUCER_PROPERTIES) | NOT_OFFERED

    assert len(installed) > 150
    assert installed - decided == set(), "put each into a list of kafka_properties"
    assert not NOT_OFFERED & (allowed | set(REFUSED_PRODUCER_PROPERTIES))
    assert installed >= NOT_OFFERED


CREDENTIALS = {
    *("sasl.username", "sasl.password", "ssl.certificate.pem", "ssl.key.password", "ssl.key.pem"),
    *("sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.extensions"),
    *("sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.scope"),
    *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
}


def test_a_connector_sets_no_transport_security_but_credentials() -> None:
    security = re.compile(r"security\.|.*(sasl|ssl|https|kerberos|location|\.file)")

    assert {name for name in PRODUCER_PROPERTIES if security.match(name)} == CREDENTIALS


@pytest.mark.parametrize("name", sorted(PRODUCER_PROPERTIES))
def test_the_sink_rejects_no_property_that_connectors_may_set(name: str) -> None:
    assert refusals({name: "1"}) == []


# -- the reference page ----------------------------------------


def test_the_reference_page_is_not_stale() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

    assert written == page(), "run `make docs`"


def test_the_command_writes_the_reference_page(tmp_path: Path) -> None:
    path = tmp_path / "configuration.md"

    code = main([str(path)])

    assert code == 0
    assert path.read_text(encoding="utf-8") == page()


def test_the_command_explains_itself_when_it_is_misused(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])

    assert code == 2
    assert "usage:" in capsys.readouterr().err


# -- whose files are read ----------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_of_the_users_own_is_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "extentflow.yaml"
    path.write_text("app.id: a", encoding="utf-8")
    path.chmod(mode)

    assert read_owned(str(path)) == "app.id: a"
    assert read_owned(str(tmp_path / "absent.yaml")) is None


def test_a_file_that_others_may_have_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "extentflow.yaml"
    path.write_text("app.id: a", encoding="utf-8")
    path.chmod(0o666)

    with pytest.raises(Misconfigured, match=f"{path}: everybody may write it, .*chmod go-w"):
        read_owned(str(path))
    path.chmod(0o660)
    monkeypatch.setattr("extentflow.config.files._is_private", lambda *_: False)
    with pytest.raises(Misconfigured, match=r"group \d+ may write it"):
        read_owned(str(path))
    path.chmod(0o600)
    owner = path.stat().st_uid
    status = os.stat_result((0o100600, 0, 0, 1, owner + 1, 0, 0, 0, 0, 0))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", lambda _: status)
        with pytest.raises(Misconfigured, match=rf"user {owner + 1} owns it"):
            read_owned(str(path))
    link = tmp_path / "extentflow.properties"
    link.symlink_to(path)
    assert read_owned(str(link)) == "app.id: a"
    status = os.stat_result((0o120777, 0, 0, 1, owner + 1, 0, 0, 0, 0, 0))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "lstat", lambda _: status)
        with pytest.raises(Misconfigured, match=rf"user {owner + 1} owns its link"):
            read_owned(str(link))


def test_the_owner_of_the_text_that_was_read_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: another user's file was read, and the user's own, which took its name, was judged."""
    path, own = tmp_path / "extentflow.yaml", tmp_path / "own"
    path.write_text("app.id: theirs", encoding="utf-8")
    path.chmod(0o666)
    own.write_text("app.id: mine", encoding="utf-8")
    own.chmod(0o600)
    judge = os.fstat

    def swap(descriptor: int) -> os.stat_result:
        if own.exists():
            own.rename(path)
        return judge(descriptor)

    monkeypatch.setattr(os, "fstat", swap)
    with pytest.raises(Misconfigured, match="everybody may write it"):
        read_owned(str(path))
