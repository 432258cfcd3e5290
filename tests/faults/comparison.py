"""Compare a topic with the objects it comes from, field by field, with DuckDB on both sides.

objects ──read_parquet, read_csv, read_json──> expected ──┐
topic ──console consumer──> JSON or text ──────> found ───┼──> duplicates, missing, changed, foreign
topic ──TopicConsumer─────> columnar rows ─────> found ───┘

DuckDB's readers share no code with the product's.
"""

# ruff: noqa: S608 - the queries are made of this module's own texts
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

SAMPLES = 5
TYPES: Mapping[str, str] = {
    "id": "BIGINT",
    "object": "VARCHAR",
    "grp": "VARCHAR",
    "amount": "DECIMAL(15,2)",
    "ratio": "DOUBLE",
    "made_at": "TIMESTAMP",
    "day": "DATE",
    "flag": "BOOLEAN",
    "note": "VARCHAR",
}
COLUMNS = ", ".join(TYPES)
# The key of records with `message.key=object`.
OBJECT_KEY = "SELECT v.key FROM versions v WHERE v.label = object"


@dataclass(frozen=True)
class Source:
    """One object version. `required`: every record must be there; else some may be missing.

    `records` is what the ledger counts as delivered of it; None where nothing is known. Each record
    that is required is there `least` times, and none is there more than `most` times.
    """

    label: str
    path: Path
    format: str
    key: str | None = None
    required: bool = True
    records: int | None = None
    least: int = 1
    most: int = 1
    # Of dead letters: what names the version, and the number of its first row.
    pin: str | None = None
    first: int | None = None


@dataclass(frozen=True)
class Expectation:
    """How a topic's records are compared: as `text`, `columnar` or JSON rows, by key, in order.

    `key` is the SQL of a record's key, None for records without one. Of columnar rows, it chose the
    partition, and is not in the record. `refused` is the SQL condition of rows that the topic
    rejects, and whose values are its dead letters.
    """

    text: bool = False
    columnar: bool = False
    key: str | None = None
    ordered: bool = False
    dead: pa.Table | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What differs between objects and topics; `samples` show some of it."""

    expected: int = 0
    delivered: int = 0
    duplicates: int = 0
    missing: int = 0
    changed: int = 0
    foreign: int = 0
    misplaced: int = 0
    miscounted: int = 0
    samples: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        wrong = (self.duplicates, self.missing, self.changed, self.foreign)
        return not any(wrong) and not self.misplaced and not self.miscounted

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            self.expected + other.expected,
            self.delivered + other.delivered,
            self.duplicates + other.duplicates,
            self.missing + other.missing,
            self.changed + other.changed,
            self.foreign + other.foreign,
            self.misplaced + other.misplaced,
            self.miscounted + other.miscounted,
            self.samples + other.samples,
        )


def compare(sources: Sequence[Source], found: pa.Table, how: Expectation) -> Verdict:
    """Compare the records of a topic (and of its dead letter queue) with their objects."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        _register_sources(database, sources)
        database.register("raw", found)
        kinds = {source.format.removesuffix(".gz") for source in sources}
        if how.text:
            _text_rows(database, sources, kinds)
        else:
            _expected_rows(database, sources, kinds)
            (_columnar_rows if how.columnar else _json_rows)(database, how)
        if how.refused:
            database.execute(f"CREATE TABLE refused AS SELECT * FROM expected WHERE {how.refused}")
            database.execute(f"DELETE FROM expected WHERE {how.refused}")
        verdict = _verdict(database, how)
        if how.dead is not None and how.refused:
            verdict += _refused_verdict(database, how.dead)
        elif how.dead is not None:
            database.register("raw_dead", how.dead)
            verdict += _dead_verdict(database, sources)
        return verdict


def _register_sources(database: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> None:
    table = pa.table(
        {
            "label": [one.label for one in sources],
            "key": pa.array([one.key for one in sources], pa.string()),
            "required": [one.required for one in sources],
            "least": [one.least if one.required else 0 for one in sources],
            "most": [one.most for one in sources],
            "pin": pa.array([one.pin for one in sources], pa.string()),
            "first": pa.array([one.first for one in sources], pa.int64()),
            "records": pa.array([one.records for one in sources], pa.int64()),
        }
    )
    database.register("versions", table)


def _paths(sources: Iterable[Source], kind: str) -> str:
    ours = [str(one.path) for one in sources if one.format.removesuffix(".gz") == kind]
    return "[" + ", ".join(f"'{path}'" for path in ours) + "]"


def _expected_rows(
    database: duckdb.DuckDBPyConnection, sources: Sequence[Source], kinds: set[str]
) -> None:
    casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in TYPES.items())
    parts = []
    if "parquet" in kinds:
        parts.append(f"SELECT {casts} FROM read_parquet({_paths(sources, 'parquet')})")
    if "csv" in kinds:
        good = f"SELECT * FROM ({_csv(sources)}) WHERE try_cast(id AS BIGINT) IS NOT NULL"
        parts.append(f"SELECT {casts} FROM ({good})")
    if "jsonl" in kinds:
        columns = ", ".join(f"{name}: 'VARCHAR'" for name in TYPES)
        reader = (
            f"read_json({_paths(sources, 'jsonl')}, format = 'newline_delimited',"
            f" columns = {{{columns}}})"
        )
        parts.append(f"SELECT {casts} FROM {reader}")
    database.execute(f"CREATE TABLE expected AS {' UNION ALL '.join(parts)}")
    same = " AND ".join(f"f.{name} IS NOT DISTINCT FROM e.{name}" for name in TYPES)
    database.execute(f"CREATE MACRO same(f, e) AS f.shaped AND {same}")


def _columnar_rows(database: duckdb.DuckDBPyConnection, how: Expectation) -> None:
    database.execute(
        f"CREATE TABLE found AS SELECT topic, partition, position, row, {how.key or 'NULL'} AS key,"
        f" CAST(raw AS VARCHAR) AS value, {COLUMNS}, shaped FROM raw"
    )


def _json_rows(
    database: duckdb.DuckDBPyConnection, _: Expectation, raw: str = "raw", found: str = "found"
) -> None:
    names = "[" + ", ".join(f"'{name}'" for name in TYPES) + "]"
    fields = ", ".join(
        f"TRY_CAST(json_extract_string(body, '$.{name}') AS {kind}) AS {name}"
        for name, kind in TYPES.items()
    )
    database.execute(
        "CREATE OR REPLACE TABLE bodies AS SELECT *, coalesce(json_valid(value), false) AS valid,"
        f" CASE WHEN json_valid(value) THEN value ELSE '{{}}' END AS body FROM {raw}"
    )
    database.execute(
        f"CREATE TABLE {found} AS SELECT topic, partition, position, 0 AS row, key, value,"
        f" {fields}, valid AND json_keys(body) = {names} AS shaped, headers FROM bodies"
    )


def _csv(sources: Iterable[Source]) -> str:
    # Only an unquoted empty field is null.
    return (
        f"SELECT * FROM read_csv({_paths(sources, 'csv')}, header = true, all_varchar = true,"
        " allow_quoted_nulls = false, quote = '\"', escape = '\"', delim = ',',"
        " auto_detect = false, columns = {"
        + ", ".join(f"{name}: 'VARCHAR'" for name in TYPES)
        + "})"
    )


def _text_rows(
    database: duckdb.DuckDBPyConnection, sources: Sequence[Source], kinds: set[str]
) -> None:
    assert kinds == {"txt"}
    database.execute(
        "CREATE TABLE expected AS SELECT TRY_CAST(split_part(line, ' ', 1) AS BIGINT) AS id,"
        f" split_part(line, ' ', 2) AS object, line FROM ({_lines(sources, 'txt')})"
    )
    database.execute(
        "CREATE TABLE found AS SELECT topic, partition, position, 0 AS row, key, value,"
        " TRY_CAST(split_part(value, ' ', 1) AS BIGINT) AS id,"
        " split_part(value, ' ', 2) AS object, value AS line, true AS shaped FROM raw"
    )
    database.execute("CREATE MACRO same(f, e) AS f.line IS NOT DISTINCT FROM e.line")


def _lines(sources: Iterable[Source], kind: str) -> str:
    # No line has U+0001, so that each is one field; quotes mean nothing.
    return (
        f"SELECT line FROM read_csv({_paths(sources, kind)}, header = false, delim = '\\x01',"
        " quote = '', escape = '', auto_detect = false, columns = {line: 'VARCHAR'})"
    )


def _verdict(database: duckdb.DuckDBPyConnection, how: Expectation) -> Verdict:
    def count(query: str) -> int:
        ((answer,),) = database.execute(query).fetchall()
        return int(answer or 0)

    def sample(what: str, query: str) -> list[str]:
        rows = database.execute(f"{query} LIMIT {SAMPLES}").fetchall()
        return [f"{what}: {row}" for row in rows]

    queries = {
        "duplicate": "SELECT id, any_value(object),"
        " count(*) - coalesce(any_value(most), 1) AS more,"
        " list(topic || '/' || partition || '@' || position) FROM found LEFT JOIN versions v"
        " ON v.label = object WHERE id IS NOT NULL GROUP BY id HAVING more > 0",
        "missing": "SELECT e.object, e.id, coalesce(n, 0) FROM expected e JOIN versions v"
        " ON v.label = e.object LEFT JOIN (SELECT id, count(*) AS n FROM found GROUP BY id) f"
        " ON f.id = e.id WHERE coalesce(n, 0) < v.least",
        "changed": "SELECT f.topic, f.partition, f.position, f.value, e FROM found f"
        " JOIN expected e ON e.id = f.id WHERE NOT same(f, e)",
        "foreign": "SELECT f.topic, f.partition, f.position, f.value FROM found f"
        " WHERE f.id IS NULL OR f.id NOT IN (SELECT id FROM expected)",
        "miscounted": "SELECT v.label, v.records, coalesce(n, 0) FROM versions v LEFT JOIN"
        " (SELECT object, count(*) AS n FROM found GROUP BY object) ON object = v.label"
        " WHERE v.records IS NOT NULL AND v.records <> coalesce(n, 0)",
        "misplaced": _misplaced(how),
    }
    found = {name: count(f"SELECT count(*) FROM ({query})") for name, query in queries.items()}
    samples = [
        line for name, query in queries.items() if found[name] for line in sample(name, query)
    ]
    return Verdict(
        expected=count("SELECT sum(v.least) FROM expected e JOIN versions v ON v.label = e.object"),
        delivered=count("SELECT count(*) FROM found"),
        duplicates=count(f"SELECT sum(more) FROM ({queries['duplicate']})"),
        missing=found["missing"],
        changed=found["changed"],
        foreign=found["foreign"],
        misplaced=found["misplaced"],
        miscounted=found["miscounted"],
        samples=tuple(samples),
    )


def _misplaced(how: Expectation) -> str:
    """Return a query of the records with a wrong key, or not in the order of their object."""
    parts = []
    if how.key is None:
        parts.append("SELECT topic, partition, position, key FROM found WHERE key IS NOT NULL")
    else:
        parts.append(
            "SELECT topic, partition, position, found.key FROM found"
            f" WHERE found.key IS DISTINCT FROM ({how.key})"
        )
        parts.append(
            "SELECT topic, min(partition), max(partition), key FROM found GROUP BY topic, key"
            " HAVING count(DISTINCT partition) > 1"
        )
    if how.ordered:
        parts.append(
            "SELECT topic, partition, position, key FROM (SELECT *, lag(id) OVER"
            " (PARTITION BY object, topic, partition ORDER BY position, row) AS before FROM found)"
            " WHERE before > id"
        )
    return " UNION ALL ".join(parts)


def _dead_verdict(database: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> Verdict:
    """Compare the dead letter queue with the lines that are no rows: their bytes, each once."""
    has_lines = any(one.format.removesuffix(".gz") == "csv" for one in sources)
    lines = _lines(sources, "csv") if has_lines else "SELECT '' AS line WHERE false"
    database.execute(
        "CREATE TABLE bad AS SELECT line, split_part(line, ',', 2) AS object, count(*) AS n"
        f" FROM ({lines}) WHERE line LIKE 'bad-%' GROUP BY ALL"
    )
    database.execute(
        "CREATE TABLE dead AS SELECT rtrim(value, chr(10)) AS line, count(*) AS n,"
        " bool_and(coalesce(headers LIKE '%extentflow.reason:%', false)) AS explained"
        " FROM raw_dead GROUP BY ALL"
    )

    def rows(query: str) -> list[Any]:
        return database.execute(query).fetchall()

    twice = rows("SELECT line, n - 1 FROM dead WHERE n > 1")
    missing = rows(
        "SELECT b.line FROM bad b JOIN versions v ON v.label = b.object"
        " WHERE v.required AND b.line NOT IN (SELECT line FROM dead WHERE line IS NOT NULL)"
    )
    foreign = rows("SELECT line FROM dead WHERE line IS NULL OR line NOT IN (SELECT line FROM bad)")
    silent = rows("SELECT line FROM dead WHERE NOT explained")
    return Verdict(
        expected=len(
            rows("SELECT * FROM bad b JOIN versions v ON v.label = b.object WHERE v.required")
        ),
        delivered=sum(n for _, n, _ in rows("SELECT line, n, explained FROM dead")),
        duplicates=sum(more for _, more in twice),
        missing=len(missing),
        foreign=len(foreign),
        changed=len(silent),
        samples=tuple(
            f"dead letters, {what}: {row}"
            for what, found in (
                ("duplicate", twice),
                ("missing", missing),
                ("foreign", foreign),
                ("without a reason", silent),
            )
            for row in found[:SAMPLES]
        ),
    )


def _refused_verdict(database: duckdb.DuckDBPyConnection, dead: pa.Table) -> Verdict:
    """Compare dead letters with the rows that the topic rejects: values, places, each once."""
    database.register("raw_dead", dead)
    _json_rows(database, Expectation(), "raw_dead", "dead")

    def rows(query: str) -> list[Any]:
        return database.execute(query).fetchall()

    database.execute(
        "CREATE TABLE letters AS SELECT d.*, v.first + TRY_CAST(regexp_extract(headers,"
        " 'extentflow\\.row:([0-9]+)', 1) AS BIGINT) AS place FROM dead d LEFT JOIN versions v"
        " ON v.pin = regexp_extract(headers, 'extentflow\\.version:([^\\x1f]+)', 1)"
    )
    of_version = "SELECT r.id FROM refused r JOIN versions v ON v.label = r.object WHERE v.required"
    # Workers that reject a row have no value of it; too large a value is left out.
    whole = (
        "CASE WHEN d.value IS NULL THEN d.headers LIKE '%extentflow.bytes:row%'"
        " OR d.headers LIKE '%extentflow.omitted.bytes:%' ELSE same(d, r) END"
    )
    found = {
        "duplicate": rows(
            "SELECT place, count(*) - 1 FROM letters GROUP BY place HAVING count(*) > 1"
        ),
        "missing": rows(
            f"{of_version} AND r.id NOT IN (SELECT place FROM letters WHERE place IS NOT NULL)"
        ),
        "foreign": rows(
            "SELECT place, value, headers FROM letters"
            " WHERE place IS NULL OR place NOT IN (SELECT id FROM refused)"
        ),
        "changed": rows(
            "SELECT d.place, d.value, d.headers FROM letters d JOIN refused r ON r.id = d.place"
            f" WHERE NOT ({whole} AND d.headers LIKE '%extentflow.reason:%')"
        ),
    }
    return Verdict(
        expected=len(rows(of_version)),
        delivered=dead.num_rows,
        duplicates=sum(more for _, more in found["duplicate"]),
        missing=len(found["missing"]),
        changed=len(found["changed"]),
        foreign=len(found["foreign"]),
        samples=tuple(
            f"refused records, {what}: {str(row)[:500]}"
            for what, some in found.items()
            for row in some[:SAMPLES]
        ),
    )
