"""Adapters by name: those that extentflow ships, and those that installed packages add.

    [project.entry-points."extentflow.formats"]      in the plug-in's pyproject.toml
    acme = "extentflow_acme:FORMAT"

Each process has its own registries (driver, inline worker, Spark executor, function). A registry
reads the installed packages' entry points at the first request for a name, and imports an adapter
at its first use. Hence a package needs no configuration, but must be installed in the environment
of every process that uses it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any, Final, Generic, TypeVar

from extentflow.errors import Misconfigured

T = TypeVar("T")

FORMATS = "extentflow.formats"
CONVERTERS = "extentflow.converters"
STORES = "extentflow.stores"
LEDGERS = "extentflow.ledgers"
ENGINES = "extentflow.engines"
ENVIRONMENTS = "extentflow.environments"
TRANSFORMS = "extentflow.transforms"
PREDICATES = "extentflow.predicates"
COMMANDS = "extentflow.commands"

# The library's own entry points, as `module:object`. They stand here and not in pyproject.toml
# because the library also runs where it has no package metadata: as a Lambda layer and as an
# archive of Spark.
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    ENGINES: {
        "emr": "extentflow.engines.emr.serverless:EMR_SERVERLESS",
        "inline": "extentflow.engines.inline:InlineEngine",
    },
    FORMATS: {
        "arrow": "extentflow.formats.arrow.arrow_format:ARROW",
        "avro": "extentflow.formats.avro.avro_format:AVRO",
        "bytes": "extentflow.formats.bytes_format:BYTES",
        "csv": "extentflow.formats.csv.csv_format:CSV",
        "json": "extentflow.formats.json.json_format:JSON",
        "jsonl": "extentflow.formats.json.jsonl_format:JSONL",
        "orc": "extentflow.formats.orc.orc_format:ORC",
        "parquet": "extentflow.formats.parquet.parquet_format:PARQUET",
        "text": "extentflow.formats.text.text_format:TEXT",
    },
    CONVERTERS: {
        "avro": "extentflow.converters.avro_converter:AVRO",
        "base64": "extentflow.converters.raw:base64_converter",
        "bytes": "extentflow.converters.raw:bytes_converter",
        "json": "extentflow.converters.json_converter:JSON",
        "json-schema": "extentflow.converters.json_schema_converter:JSON_SCHEMA",
        "protobuf": "extentflow.converters.protobuf_converter:PROTOBUF",
        "string": "extentflow.converters.raw:string_converter",
    },
    LEDGERS: {
        "dynamodb": "extentflow.ledger.dynamodb:DynamoLedger",
        "postgresql": "extentflow.ledger.sql:SqlLedger",
        "sqlite": "extentflow.ledger.sql:SqlLedger",
    },
    PREDICATES: {
        "Condition": "extentflow.transforms.predicates:CONDITION",
        "HasHeaderKey": "extentflow.transforms.headers:HAS_HEADER_KEY",
        "RecordIsTombstone": "extentflow.transforms.predicates:RECORD_IS_TOMBSTONE",
        "TopicNameMatches": "extentflow.transforms.predicates:TOPIC_NAME_MATCHES",
    },
    STORES: {
        "awss3": "extentflow.storage.s3:S3Store",
        "localfile": "extentflow.storage.local:LocalStore",
        "ontaps3": "extentflow.storage.s3:S3Store",
        "storagegrids3": "extentflow.storage.s3:S3Store",
    },
    TRANSFORMS: {
        "Cast": "extentflow.transforms.columns:CAST",
        "DropHeaders": "extentflow.transforms.headers:DROP_HEADERS",
        "ExtractField": "extentflow.transforms.columns:EXTRACT_FIELD",
        "ExtractTopic": "extentflow.transforms.records:EXTRACT_TOPIC",
        "Filter": "extentflow.transforms.records:FILTER",
        "Flatten": "extentflow.transforms.columns:FLATTEN",
        "HeaderFrom": "extentflow.transforms.headers:HEADER_FROM",
        "HoistField": "extentflow.transforms.columns:HOIST_FIELD",
        "InsertField": "extentflow.transforms.records:INSERT_FIELD",
        "InsertHeader": "extentflow.transforms.headers:INSERT_HEADER",
        "MaskField": "extentflow.transforms.columns:MASK_FIELD",
        "RegexRouter": "extentflow.transforms.records:REGEX_ROUTER",
        "ReplaceField": "extentflow.transforms.columns:REPLACE_FIELD",
        "TimestampConverter": "extentflow.transforms.timestamps:TIMESTAMP_CONVERTER",
        "ValueToKey": "extentflow.transforms.records:VALUE_TO_KEY",
    },
}


# What each extra installs. pip takes these in a checkout, too, where no index has extentflow.
EXTRAS: Final = {
    "aws": "aws-msk-iam-sasl-signer-python",
    "postgres": "psycopg[binary]>=3.3,<4",
    "spark": "pyspark>=4.0,<4.1",
}


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """Where one adapter is found; `package` is what a user can install, upgrade or remove."""

    name: str
    reference: str
    package: str

    def __str__(self) -> str:
        """Return the entry point as error messages name it."""
        return f"{self.name} = {self.reference} of package {self.package}"


@contextmanager
def from_extra(extra: str, needed_by: str, otherwise: str = "") -> Iterator[None]:
    """Import packages that only an extra of extentflow installs; `needed_by` begins the message.

    Raises Misconfigured where one is missing, with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        package = (exc.name or "extentflow").partition(".")[0]
        if package == "extentflow":
            raise
        raise Misconfigured(
            f"{needed_by} needs {package}; `pip install '{EXTRAS[extra]}'` installs it{otherwise}"
        ) from exc


@functools.cache
def installed_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points that installed packages declare; reads all their metadata, once."""
    return tuple(
        EntryPoint(
            found.name,
            found.value,
            f"{found.dist.name} {found.dist.version}" if found.dist else "of unknown name",
        )
        for found in metadata.entry_points(group=group)
    )


class Registry(Generic[T]):
    """The adapters of one kind by name.

    Names are case-sensitive and unique. Two packages that claim one name, or a package that claims
    a built-in name, are Misconfigured at first use, because neither is a safe choice.

    `group` is the entry-point group, also the key of `BUILT_IN`; messages call an adapter `noun`,
    such as `format`. An object that an entry point refers to must satisfy `is_adapter`. `find`
    returns the installed entry points of a group.
    """

    def __init__(
        self,
        group: str,
        noun: str,
        *,
        is_adapter: Callable[[object], bool] = callable,
        find: Callable[[str], Iterable[EntryPoint]] = installed_entry_points,
    ) -> None:
        self.group = group
        self._noun = noun
        self._is_adapter = is_adapter
        self._find = functools.partial(find, group)
        self._built_in = BUILT_IN.get(group, {})
        self._loaded: dict[str, T] = {}

    def names(self) -> list[str]:
        """Return every name, sorted; imports no adapter."""
        return sorted({*self._declared, *self._loaded})

    def get(self, name: str) -> T:
        """Return the adapter called `name`. Raises KeyError where there is none of that name.

        Raises Misconfigured where the package that declares it cannot be imported, or it is not
        what an entry point of this group refers to.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(self._declared[name])
        return self._loaded[name]

    def is_built_in(self, name: str) -> bool:
        """Whether extentflow itself ships the adapter called `name`."""
        return name in self._built_in

    def load_problems(self, name: str) -> tuple[str, ...]:
        """Return why an installed package's adapter called `name` cannot be used; () if it can.

        A built-in adapter is not imported.
        """
        try:
            if not self.is_built_in(name):
                self.get(name)
        except Misconfigured as exc:
            return exc.problems
        return ()

    def items(self) -> Iterator[tuple[str, T]]:
        """Yield names and adapters, built-in ones first; loads each when reached, as `get`."""
        for name in sorted(self.names(), key=lambda name: (not self.is_built_in(name), name)):
            yield name, self.get(name)

    def register(self, name: str, adapter: T) -> None:
        """Add an adapter in this process only, as tests and one's own drivers do.

        Raises Misconfigured where the name has another adapter already.
        """
        taken = self._declared.get(name)
        if taken is not None or self._loaded.get(name, adapter) is not adapter:
            by = taken or "another call of register()"
            raise Misconfigured(f"{self._noun} {name!r} is already defined by {by}; rename one")
        self._loaded[name] = adapter

    @functools.cached_property
    def _declared(self) -> dict[str, EntryPoint]:
        own = self._built_in
        found = {name: EntryPoint(name, own[name], "extentflow") for name in own}
        problems = []
        for entry in self._find():
            first = found.setdefault(entry.name, entry)
            if first is not entry:
                problems.append(
                    f"{self._noun} {entry.name!r} is defined twice, by {first} and by {entry};"
                    " uninstall one of the packages, or rename its entry point"
                )
        if problems:
            raise Misconfigured(problems)
        return found

    def _load(self, entry: EntryPoint) -> T:
        module, _, path = entry.reference.partition(":")
        try:
            adapter: Any = import_module(module)
            for attribute in path.split("."):
                adapter = getattr(adapter, attribute)
        # A plug-in's module may raise anything while it is imported. SystemExit would end this
        # process with the module's exit code.
        except (Exception, SystemExit) as exc:
            raise Misconfigured(
                f"{self._noun} {entry.name!r}: entry point {entry} cannot be loaded"
                f" ({type(exc).__name__}: {exc}); install what it lacks, or upgrade or uninstall"
                " the package"
            ) from exc
        if not self._is_adapter(adapter):
            raise Misconfigured(
                f"{self._noun} {entry.name!r}: entry point {entry} refers to a"
                f" {type(adapter).__name__}, which defines no {self._noun} (docs/extending.md);"
                " correct the entry point, or uninstall the package"
            )
        loaded: T = adapter
        return loaded
