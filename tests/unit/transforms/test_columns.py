"""Connect's transforms on columns: each changes what it names, exactly, or says why it cannot."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.chains import chain, convert
from tests.support.golden import Golden

from extentflow.arrays.casts import local_times
from extentflow.errors import Misconfigured, UnsupportedType
from extentflow.transforms.columns import (
    EXTRACT_FIELD,
    FLATTEN,
    ExtractFieldOptions,
    FlattenOptions,
    OnColumns,
    caster,
)
from extentflow.transforms.timestamps import TIMESTAMP_CONVERTER, TimestampConverterOptions

INNER = pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string_view())]))])
TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "name": pa.array(["a", "b", None]),
        "price": pa.array([Decimal("1.50"), Decimal("20.00"), None], pa.decimal128(10, 2)),
        "inner": pa.array([{"x": 1, "y": {"z": "q"}}, None, {"x": 3, "y": None}], INNER),
    }
)
# The types that show what TimestampConverter made, as numbers.
INTEGERS = {"Timestamp": "int64", "Date": "int32", "Time": "int32"}
INSTANT = datetime(2024, 2, 29, 1, 2, 3, 45_000, UTC)


def values(config: dict[str, str], table: pa.Table = TABLE) -> list[Any]:
    return convert(table, config).values


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"include": "name,id"}, '{"name":"a","id":1}'),
        ({"exclude": "price,inner"}, '{"id":1,"name":"a"}'),
        ({"include": "id", "renames": 'id:"the id"'}, '{"the id":1}'),
        ({"include": "id,name", "renames": "id:name,name:id"}, '{"name":1,"id":"a"}'),
    ],
)
@pytest.mark.parametrize("word", ["ReplaceField", "ReplaceField$Value"])
def test_replace_field_keeps_drops_and_renames(
    options: dict[str, str], first: str, word: str
) -> None:
    prefix = "org.apache.kafka.connect.transforms." if "$" in word else ""

    made = convert(TABLE, chain(a={"type": prefix + word, **options}))

    assert made.payloads[0] == first.encode()


def test_cast_keeps_values_exact_and_makes_bad_records_of_others(golden: Golden) -> None:
    table = pa.table({"text": ["1", "x", None, "300"], "n": [1.0, 2.0, 3.0, 4.5]})

    made = convert(table, chain(a={"type": "Cast", "spec": "text:int8,n:int32"}))

    assert made.values == [{"text": 1, "n": 1}, {"text": None, "n": 3}]
    assert made.locations == [0, 2]
    assert [(at, why.partition(": ")[0]) for at, why in made.bad] == [
        (1, "transforms.a (Cast)"),
        (3, "transforms.a (Cast)"),
    ]
    golden(made.bad[0][1])
    assert "transforms.a" in made.bad[0][1]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("unix", 1_729_992_600_123),
        ("Timestamp", "2024-10-27T01:30:00.123Z"),
        ("Date", "2024-10-27"),
        ("Time", "02:30:00.123"),
    ],
)
def test_an_instant_in_the_hour_that_exists_twice_is_converted(
    target: str, expected: object
) -> None:
    """Trap: clocks that are set back made local times ambiguous, and the extent failed."""
    instants = pa.array([1_729_992_600_123_456], pa.timestamp("us", "Europe/Berlin"))
    options = {"type": "TimestampConverter", "field": "at", "target.type": target}

    assert values(chain(a=options), pa.table({"at": instants})) == [{"at": expected}]


def test_a_day_whose_midnight_does_not_exist_is_a_date() -> None:
    instants = pa.array([1_541_332_800], pa.timestamp("s", "America/Sao_Paulo"))
    options = {"type": "TimestampConverter", "field": "at", "target.type": "Date"}

    assert values(chain(a=options), pa.table({"at": instants})) == [{"at": "2018-11-04"}]


def test_an_instant_beyond_the_target_is_a_bad_record() -> None:
    table = pa.table({"at": [10**17, 60]})
    options = {"type": "TimestampConverter", "field": "at", "target.type": "Timestamp"}

    made = convert(table, chain(a={**options, "unix.precision": "seconds"}))

    assert made.values == [{"at": "1970-01-01T00:01:00.000Z"}]
    assert [location for location, _ in made.bad] == [0]


@pytest.mark.parametrize(
    ("at", "target", "expected"),
    [
        # A count of milliseconds that was read as seconds: the year 55,840.
        (1_700_000_000_123, "Timestamp", 1_700_000_000_123_000),
        (1_700_000_000_123, "Date", 19_675_925),
        (1_700_000_000_123, "Time", 80_123_000),
        (1_700_000_000_123, "string", None),
        (-1_700_000_000_123, "Date", -19_675_926),
        (253_402_300_799, "string", "9999-12-31 23:59:59"),
        (253_402_300_800, "string", None),
        (-62_167_219_200, "string", "0000-01-01 00:00:00"),
        (-62_167_219_201, "string", None),
        (2**63 - 1, "Date", None),
        (-(10**13), "Time", 22_400_000),
    ],
)
def test_instants_of_far_years_are_exact_or_bad_records(
    at: int, target: str, expected: object
) -> None:
    """Trap: `floor_temporal` and `strftime` write garbage for years beyond 32767."""
    table = pa.table({"at": pa.array([at, None], pa.int64())})
    options = {"field": "at", "target.type": target, "unix.precision": "seconds"}
    if target == "string":
        options["format"] = "yyyy-MM-dd HH:mm:ss"
    kept = [] if target == "string" else [{"type": "Cast", "spec": f"at:{INTEGERS[target]}"}]
    steps = [{"type": "TimestampConverter", **options}, *kept]

    made = convert(table, chain(**dict(zip("ab", steps, strict=False))))

    assert [value["at"] for value in made.values] == (
        [None] if expected is None else [expected, None]
    )
    assert [row for row, _ in made.bad] == ([0] if expected is None else [])


def test_the_largest_instant_of_a_zone_is_a_bad_record_and_does_not_wrap_around() -> None:
    table = pa.table({"at": pa.array([2**63 - 1, 0], pa.timestamp("us", "Asia/Tokyo"))})

    made = convert(
        table, chain(a={"type": "TimestampConverter", "field": "at", "target.type": "Date"})
    )

    assert made.values == [{"at": "1970-01-01"}]
    assert [row for row, _ in made.bad] == [0]


def test_an_instant_that_python_does_not_have_is_a_bad_record() -> None:
    table = pa.table({"at": pa.array([1_001, 1_000], pa.timestamp("ns"))})

    made = convert(table, chain(a={"type": "Cast", "spec": "at:timestamp(us)"}))

    assert made.locations == [1]
    assert made.bad == [
        (0, "transforms.a (Cast): column 'at': 1001 is no timestamp[us]"),
    ]


def test_cast_to_text_writes_what_the_converter_writes() -> None:
    table = pa.table(
        {
            "flag": [True],
            "price": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
            "at": pa.array([INSTANT], pa.timestamp("ms", "UTC")),
        }
    )
    spec = "flag:string,price:string,at:string"

    assert values(chain(a={"type": "Cast", "spec": spec}), table) == [
        {"flag": "true", "price": "1.50", "at": "2024-02-29T01:02:03.045Z"}
    ]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1.5, float("inf"), None]),
        pa.array([True, None, False]),
        pa.array([INSTANT, None], pa.timestamp("ms", "UTC")),
        pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    ],
    ids=lambda array: str(array.type),
)
def test_cast_of_dictionaries_to_text_writes_what_the_converter_writes(array: pa.Array) -> None:
    """Trap: Arrow's own cast wrote `inf`, and instants with a blank."""
    encoded = array.dictionary_encode()

    texts = caster("x", encoded.type, pa.string())(encoded)

    assert texts.equals(caster("x", array.type, pa.string())(array))


def test_timestamps_in_dictionaries_are_converted() -> None:
    texts = pa.array(["2024-02-29", None, "2024-02-29"]).dictionary_encode()
    options = {"field": "x", "target.type": "Date", "format": "yyyy-MM-dd"}

    made = values(chain(a={"type": "TimestampConverter", **options}), pa.table({"x": texts}))

    assert made == [{"x": "2024-02-29"}, {"x": None}, {"x": "2024-02-29"}]


@pytest.mark.parametrize(
    ("mask", "data_type"),
    [("0x1F", pa.int32()), ("1e999", pa.float64()), ("1.5", pa.int32())],
)
def test_a_mask_that_is_no_value_of_the_column_is_refused(
    mask: str, data_type: pa.DataType, golden: Golden
) -> None:
    table = pa.table({"n": pa.array([1], data_type)})

    with golden.raises(UnsupportedType, match="'n'"):
        values(chain(a={"type": "MaskField", "fields": "n", "replacement": mask}), table)


@pytest.mark.parametrize(
    "transform",
    [
        FLATTEN.open(FlattenOptions(), False),  # noqa: FBT003 - of the specification
        EXTRACT_FIELD.open(ExtractFieldOptions(field=("s",)), False),  # noqa: FBT003
    ],
    ids=["Flatten", "ExtractField"],
)
def test_a_transform_that_leaves_no_columns_is_refused(transform: OnColumns) -> None:
    """Trap: a batch without columns has no rows, so that they were lost."""
    with pytest.raises(UnsupportedType, match="it leaves no columns"):
        transform.bind(pa.schema([("s", pa.struct([]))]))


def test_cast_of_a_type_without_such_a_cast_is_refused_before_the_first_record(
    golden: Golden,
) -> None:
    with golden.raises(UnsupportedType, match="int32"):
        values(chain(a={"type": "Cast", "spec": "inner:int32"}))


def test_mask_field_replaces_values_and_keeps_nulls() -> None:
    masked = values(
        chain(
            a={"type": "MaskField", "fields": "name", "replacement": "***"},
            b={"type": "MaskField", "fields": "id,price"},
            c={"type": "ReplaceField", "exclude": "inner"},
        )
    )

    assert masked == [
        {"id": 0, "name": "***", "price": 0},
        {"id": 0, "name": "***", "price": 0},
        {"id": 0, "name": None, "price": None},
    ]


def test_timestamp_converter_reads_and_writes_java_patterns(golden: Golden) -> None:
    table = pa.table({"at": ["29.02.2024 01:02:03.045", "30.02.2024 01:02:03.045", "never"]})
    parse = {"type": "TimestampConverter", "field": "at", "format": "dd.MM.yyyy HH:mm:ss.SSS"}
    write = {"type": "TimestampConverter", "field": "at", "format": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"}

    made = convert(
        table,
        chain(a={**parse, "target.type": "Timestamp"}, b={**write, "target.type": "string"}),
    )

    assert made.values == [{"at": "2024-02-29T01:02:03.045Z"}]
    assert [at for at, _ in made.bad] == [1, 2]
    golden(made.bad[1][1])
    assert "'never'" in made.bad[1][1]


@pytest.mark.parametrize(
    ("target", "precision", "expected"),
    [
        ("unix", "milliseconds", 1709168523045),
        ("unix", "seconds", 1709168523),
        ("unix", "microseconds", 1709168523045000),
        ("Date", "milliseconds", "2024-02-29"),
        ("Time", "milliseconds", "01:02:03.045"),
        ("Timestamp", "milliseconds", "2024-02-29T01:02:03.045Z"),
    ],
)
def test_timestamp_converter_has_connects_targets(
    target: str, precision: str, expected: object
) -> None:
    table = pa.table({"at": pa.array([INSTANT, None], pa.timestamp("us", "UTC"))})
    options = {"field": "at", "target.type": target, "unix.precision": precision}

    assert values(chain(a={"type": "TimestampConverter", **options}), table) == [
        {"at": expected},
        {"at": None},
    ]


def test_numbers_are_instants_of_the_precision() -> None:
    table = pa.table({"at": [1709168523045, -1]})
    options = {"field": "at", "target.type": "Timestamp"}

    assert values(chain(a={"type": "TimestampConverter", **options}), table) == [
        {"at": "2024-02-29T01:02:03.045Z"},
        {"at": "1969-12-31T23:59:59.999Z"},
    ]


def test_flatten_joins_names_and_keeps_nulls_of_structs() -> None:
    made = values(
        chain(
            a={"type": "Flatten", "delimiter": "_"},
            b={"type": "ReplaceField", "include": "inner_x,inner_y_z"},
        )
    )

    assert made == [
        {"inner_x": 1, "inner_y_z": "q"},
        {"inner_x": None, "inner_y_z": None},
        {"inner_x": 3, "inner_y_z": None},
    ]


def test_hoist_and_extract_field_are_inverse() -> None:
    there = chain(a={"type": "HoistField", "field": "all"})
    back = chain(
        a={"type": "HoistField", "field": "all"}, b={"type": "ExtractField", "field": "all"}
    )

    assert values(there)[0] == {"all": values({})[0]}
    assert values(back) == values({})


def test_extract_field_of_a_scalar_is_a_value_of_its_own() -> None:
    config = chain(a={"type": "ExtractField", "field": "name"}) | {"value.converter": "string"}

    assert convert(TABLE, config).payloads == [b"a", b"b", None]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"type": "ReplaceField", "include": "nope"}, "there is no column 'nope'"),
        ({"type": "ReplaceField", "exclude": "id,name,price,inner"}, "it drops all columns"),
        ({"type": "ReplaceField", "renames": "id:name"}, "several columns are called 'name'"),
        ({"type": "MaskField", "fields": "inner"}, "no such mask"),
        ({"type": "MaskField", "fields": "id", "replacement": "x"}, "is no value of column 'id'"),
        ({"type": "Cast$Key", "spec": "id:int64"}, "the key has no columns here"),
        ({"type": "TimestampConverter", "field": "name", "target.type": "unix"}, "set format"),
    ],
)
def test_what_cannot_be_is_refused_with_object_step_and_remedy(
    options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UnsupportedType, match=complaint) as caught:
        values(chain(a=options))

    assert str(caught.value).startswith("s3://bucket/folder/key?versionId=v1[0-")
    assert f"transforms.a ({options['type'].removesuffix('$Key')})" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (chain(a={"type": "Rename"}), "transforms.a.type='Rename': there is no such type; write"),
        (chain(a={"type": "MaskFeild$Value"}), "there is no such type; did you mean MaskField?"),
        (chain(a={}), "transforms.a.type: missing; write one of Cast, "),
        (chain(a={"type": "Cast"}), "transforms.a.spec: missing"),
        (chain(a={"type": "Cast", "spec": "id:int"}), "transforms.a.spec='id:int': no type 'int'"),
        (
            chain(a={"type": "Cast", "spec": "id:int8", "sepc": "x"}),
            "transforms.a.sepc: no such key",
        ),
        (chain(a={"type": "ReplaceField"}), "transforms.a: changes nothing"),
        (chain(a={"type": "Filter"}), "transforms.a.predicate: missing"),
        (chain(a={"type": "Flatten", "predicate": "x"}), "transforms.a.predicate='x': predicates"),
        (chain(a={"type": "Flatten", "negate": "true"}), "transforms.a.negate: applies only where"),
        (chain(a={"type": "ValueToKey$Key", "fields": "x"}), "works on values only"),
        ({"transforms.a.type": "Cast"}, "transforms.a.type: transforms does not list a"),
        (
            {"predicates": "a"},
            "predicates: applies only where transforms is set; transforms is not",
        ),
        ({"transforms": "a,a"}, "transforms='a,a': names a more than once"),
        (
            chain(
                a={"type": "TimestampConverter", "field": "x", "target.type": "string"},
            ),
            "transforms.a: target.type=string: needs a format",
        ),
        (
            chain(
                a={
                    "type": "TimestampConverter",
                    "field": "x",
                    "target.type": "string",
                    "format": "yy-MM-dd",
                },
            ),
            "transforms.a.format='yy-MM-dd': cannot read 'yy'",
        ),
    ],
)
def test_a_chain_is_checked_with_the_connector(config: dict[str, str], complaint: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        values(config)

    assert any(
        problem.startswith(complaint) or complaint in problem for problem in caught.value.problems
    )


def bad_rows(table: pa.Table, config: dict[str, str]) -> list[int]:
    """The rows that a chain refuses."""
    return [row for row, _ in convert(table, config).bad]


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (pa.array(["400000000000000000000", "1e30"]), "decimal(38,18)"),
        (pa.array([4 * 10**18, 4 * 10**18 + 1]), "decimal(38,20)"),
        (pa.array([3.4028235e38, 2e38], pa.float32()), "decimal(38,0)"),
        (
            pa.array([Decimal(4 * 10**20), Decimal(5 * 10**20)], pa.decimal128(21, 0)),
            "decimal(38,18)",
        ),
    ],
    ids=lambda each: str(getattr(each, "type", each)),
)
def test_a_decimal_that_does_not_fit_is_a_bad_record(array: pa.Array, target: str) -> None:
    """Trap: Arrow wraps around, 4e20 became 59717633079061536536.6."""
    spec = chain(a={"type": "Cast", "spec": f"x:{target}"})

    assert bad_rows(pa.table({"x": array}), spec) == [0, 1]


def test_texts_of_decimals_with_signs_and_exponents_are_read() -> None:
    texts = pa.table({"x": ["+2", "1e3", "-1.5E-2", "0", None]})

    made = values(chain(a={"type": "Cast", "spec": "x:decimal(38,18)"}), texts)

    assert [None if one["x"] is None else float(one["x"]) for one in made] == [
        2,
        1000,
        -0.015,
        0,
        None,
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago"]
)
def test_local_times_from_2037_on_follow_the_rules_of_the_zone(zone: str, unit: str) -> None:
    """Trap: Arrow knows no summer time behind the last transition that a zone file lists."""
    rules, ticks = ZoneInfo(zone), {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    seconds = range(2_113_000_000, 250_000_000_000, 1_234_567_890)
    instants = pa.array([one * ticks for one in seconds], pa.timestamp(unit, zone))

    local = local_times(instants).view(pa.int64()).to_pylist()

    wanted = [datetime.fromtimestamp(one, UTC).astimezone(rules).utcoffset() for one in seconds]
    offsets = [there // ticks - one for there, one in zip(local, seconds, strict=True)]
    assert offsets == [one.total_seconds() for one in wanted if one is not None]


def test_local_times_of_years_that_python_does_not_have_follow_the_rules() -> None:
    cycle = 146_097 * 86_400
    near = [datetime(2440, month, 1, tzinfo=UTC).timestamp() for month in (1, 7)]
    instants = [int(one) + 30 * cycle for one in near]

    local = local_times(pa.array(instants, pa.timestamp("s", "Europe/Berlin")))

    assert pc.subtract(local.view(pa.int64()), pa.array(instants)).to_pylist() == [3_600, 7_200]


@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize(
    "options",
    [
        {"type": "Cast", "spec": "x:date"},
        {"type": "TimestampConverter", "field": "x", "target.type": "Time"},
    ],
)
def test_a_zone_that_does_not_exist_is_refused_before_the_first_record(
    options: dict[str, str],
    coded: bool,  # noqa: FBT001
) -> None:
    zoned = pa.timestamp("us", "Nowhere/Land")
    schema = pa.schema([("x", pa.dictionary(pa.int8(), zoned) if coded else zoned)])
    if options["type"] == "Cast":
        bind = partial(caster, "x", schema.field(0).type, pa.date32())
    else:
        own = TimestampConverterOptions(field=("x",), target_type="Time")
        transform = TIMESTAMP_CONVERTER.open(own, False)  # noqa: FBT003 - of the specification
        bind = partial(transform.bind, schema)

    with pytest.raises(UnsupportedType, match="whose zone does not exist here"):
        bind()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd 'o''clock'", "2024-02-29 o'clock"),
        ("yyyy-MM-dd''ss.SSS", "2024-02-29'03.045"),
        ("yyyy·MM·dd", "2024·02·29"),
    ],
)
def test_patterns_are_read_and_written_as_simple_date_format_does(pattern: str, text: str) -> None:
    there = {
        "type": "TimestampConverter",
        "field": "x",
        "target.type": "Timestamp",
        "format": pattern,
    }
    back = {**there, "target.type": "string"}

    made = values(chain(a=there, b=back), pa.table({"x": [text]}))

    assert made == [{"x": text}]


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("yyyy-MM-dd'%S.'SSS", "write SSS after ss and a point"),
        ("yyyy-MM-dd yyyy", "yyyy occurs twice"),
        ("yyyy-MM-dd'", "a quote is not closed"),
    ],
)
def test_a_pattern_that_cannot_be_run_is_a_problem_of_the_connector(
    pattern: str, complaint: str
) -> None:
    options = {
        "type": "TimestampConverter",
        "field": "x",
        "target.type": "string",
        "format": pattern,
    }

    with pytest.raises(Misconfigured, match=complaint):
        values(chain(a=options))


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        ({"type": "Cast", "spec": "x:int64"}, [1]),
        (
            {
                "type": "TimestampConverter",
                "field": "x",
                "target.type": "unix",
                "format": "yyyy-MM-dd",
            },
            [0, 1, 2],
        ),
        ({"type": "ExtractTopic", "field": "x", "topics": "12,7"}, [1]),
    ],
    ids=str,
)
def test_text_that_is_not_utf8_is_a_bad_record(options: dict[str, str], bad: list[int]) -> None:
    """Trap: the message about it was an error of another kind, and the extent failed."""
    table = pa.table({"x": pa.array([b"12", b"\xff", b"7"]).view(pa.string())})

    assert bad_rows(table, chain(a=options)) == bad
