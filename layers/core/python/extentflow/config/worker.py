"""Worker settings: Kafka clusters, the ledger, and limits on concurrency, memory and time.

    EXTENTFLOW_LEASE_SECONDS=30    wins over lease.seconds=30 in the file that EXTENTFLOW_CONFIG
                                   names, else in ./extentflow.yaml or ./extentflow.properties

The environment is passed in, so that tests and functions give their own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from extentflow.config.files import parse_text
from extentflow.config.hosts import EVERY
from extentflow.config.kafka_properties import CLIENT_PROPERTIES, REFUSED_CLIENT_PROPERTIES
from extentflow.config.ledgers import (
    DEFAULT_TABLE,
    DYNAMODB,
    LEDGER_URL,
    SQLITE,
    TABLE_NAME,
    LedgerAddress,
)
from extentflow.config.secrets import Reference, referring
from extentflow.config.table import Family, ParsedKeys, Table, declared, family, key
from extentflow.config.trust import EVERYWHERE, FOLDERS, PATTERNS, Trust
from extentflow.config.types import (
    BOOLEAN,
    NAME,
    SECRET,
    SERVERS,
    SIZE,
    TEXT,
    URL,
    choice,
    matching,
    seconds,
    whole,
)
from extentflow.errors import Misconfigured
from extentflow.wording import nearest, plain

PREFIX = "EXTENTFLOW_"
CONFIG_VARIABLE = "EXTENTFLOW_CONFIG"
# The local stack's, read by extentflow_local only.
FOREIGN_VARIABLES = ("EXTENTFLOW_IVY_SETTINGS", CONFIG_VARIABLE)
SETTINGS_FILES = ("extentflow.yaml", "extentflow.properties")
FOREIGN_PREFIXES = ("EXTENTFLOW_LOCAL_", "EXTENTFLOW_STACK_")

# Settings that options of commands replace.
OPTIONS = {"bootstrap.servers": "--bootstrap-servers", "ledger.url": "--ledger"}
OF_DYNAMODB = ("ledger.table", "ledger.endpoint", "ledger.region")
# They run a command or load code that the author of the file chose.
_COMMANDS = ("kinit.cmd", "ssl.providers")
ARRAYS, ONE_BY_ONE = "arrays", "records"
# Of arrivals that no connector reads.
DEAD_LETTER, IGNORE = "dead-letter", "ignore"
# Of a process that connects to no broker; RFC 6761 keeps the name from ever being one.
NO_BROKERS = "none.invalid:9092"

SPARK_THRESHOLD_BYTES = 20 << 30
# The default execution timeout of the service that runs Spark.
SPARK_TIMEOUT_MINUTES = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """A worker's settings; docs/configuration.md says what each means.

    Travels to executors (picklable, and as a flat map), so secrets in `kafka` stay references:
    `secrets.resolve` looks them up where they are used.
    """

    bootstrap_servers: str = key(
        SERVERS,
        "the Kafka brokers to ask first, as EXTENTFLOW_BOOTSTRAP_SERVERS or --bootstrap-servers."
        " host:port, separated by commas.",
        required=True,
        section="Clusters and ledger",
    )
    app_id: str = key(
        NAME,
        "Begins every transactional id and group; grant ACLs on this prefix. A ledger keeps the"
        " first one.",
        default="extentflow",
    )
    ledger_url: LedgerAddress | None = key(
        LEDGER_URL,
        "Where jobs, extents, slots and connectors are recorded: `sqlite:////absolute/path` on"
        " one machine, `postgresql://user@host/database`,"
        " `dynamodb://TABLE?region=...&endpoint=...`, or a plug-in's URL.",
        shown="SQLite in the user's state folder",
    )
    ledger_password: str | None = key(
        SECRET,
        "The password for PostgreSQL or a plug-in's ledger, as a reference only.",
        shown="that of PGPASSFILE",
    )
    ledger_table: str | None = key(
        TABLE_NAME,
        "DynamoDB's table. This key and the next two replace `ledger.url`; each selects DynamoDB.",
        shown=f"`{DEFAULT_TABLE}`",
    )
    ledger_endpoint: str | None = key(
        URL,
        "http(s)://host:port of the DynamoDB API.",
        shown="SDK's own",
    )
    ledger_region: str | None = key(TEXT, "The table's region.", shown="SDK's own")
    exactly_once_slots: int = key(
        whole(1, 10_000),
        "Transactional ids per Kafka cluster: the most workers at once.",
        default=256,
        section="Ownership and work",
    )
    lease_seconds: float = key(
        seconds(1), "How long before a silent worker's slot may go to another worker.", default=60.0
    )
    extent_stall_seconds: float = key(
        seconds(1), "How long a worker renews its lease without progress.", default=300.0
    )
    extent_attempts_max: int = key(
        whole(1, 1000), "Attempts without progress after which an extent is FAILED.", default=5
    )
    retry_timeout_seconds: float = key(
        seconds(0), "How long an attempt waits for store, broker or ledger.", default=120.0
    )
    extent_ahead_bytes: int = key(
        SIZE, "Payload prepared while earlier payload is sent and committed.", default=16 << 20
    )
    sink_enqueue: str = key(
        choice({ARRAYS, ONE_BY_ONE}),
        "`arrays`: the Kafka client takes exactly-once records of an Arrow array in one call,"
        " where a child process proved that this works (`doctor` shows it). `records`: one by one,"
        " at 1.6 times the CPU time; for tests of a new librdkafka.",
        default=ARRAYS,
    )
    transaction_max_bytes: int = key(
        SIZE,
        "Payload after which a transaction is committed; an extent begins with less.",
        default=64 << 20,
    )
    transaction_max_seconds: float = key(
        seconds(0.1), "Time after which a transaction is committed.", default=10.0
    )
    transaction_timeout_ms: int = key(
        whole(1000, 900_000),
        "Time after which brokers abort a transaction. So long can a dead worker hold back"
        " consumers of committed records. Brokers allow 15 minutes by default.",
        default=30_000,
    )
    arrivals_queue_url: str | None = key(
        URL,
        "The SQS queue of notifications, which the planner reads. Without it, `extentflow"
        " receive` stores them beside a ledger in SQL, for `extentflow stream`.",
        section="Queues and events",
    )
    arrivals_dlq_url: str | None = key(
        URL, "Dead-letter queue of notifications that cannot be parsed or planned."
    )
    arrivals_unmatched: str = key(
        choice({DEAD_LETTER, IGNORE}),
        "What happens to an arrived object that no connector reads: it becomes a dead letter, or is"
        " logged only.",
        default=DEAD_LETTER,
    )
    extents_queue_url: str | None = key(URL, "The SQS queue of extents, which workers read.")
    extents_dlq_url: str | None = key(URL, "Where FAILED extents wait for a replay.")
    metrics_connectors: tuple[str, ...] = key(
        PATTERNS,
        "The connectors of which functions write metrics of their own: patterns, or `none`.",
        default=(),
    )
    receiver_secret_id: str | None = key(
        TEXT, "The secret in Secrets Manager that verifies notifications over HTTP."
    )
    receiver_open_allowed: bool = key(
        BOOLEAN,
        "Accept a source without a proof, `open`, on the loopback interface; a stage cannot set"
        " it.",
        default=False,
    )
    event_bus: str | None = key(
        TEXT, "The EventBridge bus for job events; without it they go to Kafka only."
    )
    spark_application_id: str | None = key(
        matching(r"[0-9a-z]{1,64}", "write the id of an EMR Serverless application"),
        "The EMR Serverless application of Spark runs. The next three keys go with it.",
        section="Spark on EMR Serverless",
    )
    spark_job_role_arn: str | None = key(
        matching(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/\S+", "write the complete ARN of a role"),
        "The role that runs have.",
    )
    spark_entry_point: str | None = key(
        matching(r"s3://[^/\s]+/\S+\.py", "write s3://bucket/key.py"),
        "Where `jobs/spark_deliver.py` is in S3.",
    )
    spark_archive: str | None = key(
        matching(r"s3://[^/\s]+/\S+\.(tgz|tar\.gz)", "write s3://bucket/key.tgz; Spark unpacks it"),
        "Where the archive of `make spark-archive` is in S3.",
    )
    spark_threshold_bytes: int = key(
        SIZE,
        "Larger objects go to Spark if there is an application and `engine` of the connector is"
        " auto.",
        default=SPARK_THRESHOLD_BYTES,
    )
    spark_timeout_minutes: int = key(
        whole(5, 20_160),
        "How long a run may take; functions deliver what it left.",
        default=SPARK_TIMEOUT_MINUTES,
    )
    connectors_env_allowed: tuple[str, ...] = key(
        PATTERNS,
        "Variables that connectors may name as `${env:NAME}`: patterns (`TEAM_*`), or `none`. `*`"
        " leaves out `AWS_*`, `PGPASS*` and the worker's own. Functions allow none.",
        default=EVERY,
        section="What connectors may name",
    )
    connectors_file_allowed: tuple[str, ...] = key(
        FOLDERS,
        "Folders of files that they may name, as `${file:path:key}` or authorities; or `none`."
        " Never /proc and /sys; credentials (`.aws`, `.ssh`) and the worker's own if named.",
        default=EVERYWHERE,
    )
    connectors_secret_allowed: tuple[str, ...] = key(
        PATTERNS,
        "Names in Secrets Manager that they may name: patterns (`team/*`), or `none`. `*` leaves"
        " out the worker's own.",
        default=EVERY,
    )
    connectors_directory_allowed: tuple[str, ...] = key(
        FOLDERS,
        "Folders that `localfile` may read, or `none`. Never /proc and /sys; below /etc and"
        " /run/secrets, and of credentials, what is named. In functions none by default.",
        default=EVERYWHERE,
    )
    connectors_bucket_allowed: tuple[str, ...] = key(
        PATTERNS,
        "Buckets that they may name: patterns (`team-*`), or `none`.",
        default=EVERY,
    )
    connectors_completion_allowed: tuple[str, ...] = key(
        PATTERNS,
        "What they may name as `after.completion` (`tag,move`), or `none`.",
        default=EVERY,
    )
    connectors_host_allowed: tuple[str, ...] = key(
        PATTERNS,
        "Hosts of stores and registries that they may name: patterns (`*.example.com`), or"
        " `none`. `*` leaves out link-local addresses and, in functions, loopback.",
        default=EVERY,
    )
    kafka: Mapping[str, str] = family(
        Family(
            "kafka.",
            "Passed to all Kafka clients of the worker; a connector's `producer.*` goes over it.",
            CLIENT_PROPERTIES,
            REFUSED_CLIENT_PROPERTIES,
        )
    )

    @property
    def trust(self) -> Trust:
        """What stored connectors may name."""
        return Trust(
            variables=self.connectors_env_allowed,
            files=self.connectors_file_allowed,
            secrets=self.connectors_secret_allowed,
            folders=self.connectors_directory_allowed,
            buckets=self.connectors_bucket_allowed,
            completions=self.connectors_completion_allowed,
            hosts=self.connectors_host_allowed,
            own=frozenset(self._references()),
        )

    def _references(self) -> Iterator[Reference]:
        for text in referring(self.to_map()).values():
            if found := Reference.parse(text):
                yield found

    @property
    def ledger(self) -> LedgerAddress | None:
        """Where the ledger is; None: no setting says so, and it is the user's own."""
        if self.ledger_url is not None:
            return self.ledger_url
        given = (self.ledger_table, self.ledger_region, self.ledger_endpoint)
        return LedgerAddress.dynamodb(*given) if any(given) else None

    def to_map(self) -> dict[str, str]:
        """Return a flat, JSON-ready map without defaults; `from_map` reads it back."""
        return TABLE.write({"": self})

    @classmethod
    def from_map(
        cls, config: Mapping[str, str], *, labels: Mapping[str, str] | None = None
    ) -> Self:
        """Return the settings in a flat map; `labels` are names to use in messages.

        Raises Misconfigured with every problem at once, one line each: key, value, remedy.
        """
        reading = TABLE.read(config, labels=labels)
        draft = TABLE.make(cls, reading)
        found = [*reading.problems, *_problems(draft, reading)]
        if found:
            raise Misconfigured(found)
        return draft


def load(
    environ: Mapping[str, str],
    *,
    read_text: Callable[[str], str | None],
    given: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    brokers: bool = True,
) -> WorkerSettings:
    """Return the settings that the environment and a file give together; the environment wins.

    `read_text` returns a file's text, None where there is no such file. A variable that is set to
    nothing counts as not set. `given` are settings of `OPTIONS`, over all others; `labels` are the
    names of these in messages. Without a ledger, the settings name the user's own. With `brokers`
    False, the process uses the ledger only, and brokers may be missing. Raises Misconfigured with
    every problem at once.
    """
    problems: list[str] = []
    config = _from_file(environ, read_text, problems)
    known = {variable(name): name for name in TABLE.names()}
    refused = [f.prefix + name for f in TABLE.families for name in f.refused]
    names = {variable(name): name for name in refused} | known
    spelled: dict[str, str] = {}
    for found in sorted(environ):
        if _is_foreign(found) or not found.startswith(PREFIX) or not environ[found]:
            continue
        if found in names:
            config[names[found]] = environ[found]
            spelled[names[found]] = found
        else:
            problems.append(f"{plain(found)}: no such setting; {nearest(found, known)}")
    for name, text in (given or {}).items():
        for other in OF_DYNAMODB if name == "ledger.url" else ():
            config.pop(other, None)
        config[name] = text
        spelled[name] = (labels or OPTIONS)[name]
    if not brokers:
        config.setdefault("bootstrap.servers", NO_BROKERS)
    try:
        settings = with_ledger(WorkerSettings.from_map(config, labels=spelled), environ)
    except Misconfigured as exc:
        raise Misconfigured([*problems, *exc.problems]) from None
    if problems:
        raise Misconfigured(problems)
    return settings


def configured_by(environ: Mapping[str, str], read_text: Callable[[str], str | None]) -> str | None:
    """Return the first variable, or file, that gives a setting of workers; None: nothing does."""
    if named := environ.get(CONFIG_VARIABLE):
        return named
    for found in sorted(environ):
        if found.startswith(PREFIX) and not _is_foreign(found) and environ[found]:
            return found
    return found_file(environ, read_text)


def found_file(environ: Mapping[str, str], read_text: Callable[[str], str | None]) -> str | None:
    """Return the file of settings of the current folder; None: none, or a variable names one."""
    if environ.get(CONFIG_VARIABLE):
        return None
    return next((path for path in SETTINGS_FILES if read_text(path) is not None), None)


def _is_foreign(variable_name: str) -> bool:
    return variable_name in FOREIGN_VARIABLES or variable_name.startswith(FOREIGN_PREFIXES)


def with_ledger(settings: WorkerSettings, environ: Mapping[str, str]) -> WorkerSettings:
    """Return settings that name a ledger: their own, else the user's, so that they may travel."""
    if settings.ledger is not None:
        return settings
    return replace(settings, ledger_url=LedgerAddress.in_state_folder(environ))


def variable(name: str) -> str:
    """Return the environment variable of a setting: `lease.seconds` -> EXTENTFLOW_LEASE_SECONDS."""
    return PREFIX + name.upper().replace(".", "_")


def _from_file(
    environ: Mapping[str, str], read_text: Callable[[str], str | None], problems: list[str]
) -> dict[str, str]:
    named = environ.get(CONFIG_VARIABLE)
    paths = (named,) if named else SETTINGS_FILES
    found = {path: text for path in paths if (text := read_text(path)) is not None}
    if named and not found:
        problems.append(f"{CONFIG_VARIABLE}={named!r}: no such file; correct the path or unset it")
    if len(found) > 1:
        problems.append(f"{' and '.join(found)}: both are here; keep one of the two")
    try:
        config = next((parse_text(text, path) for path, text in found.items()), {})
    except Misconfigured as exc:
        problems.extend(exc.problems)
        return {}
    if not named:
        problems.extend(_only_named(config, next(iter(found), "")))
    return config


def _only_named(config: Mapping[str, str], path: str) -> Iterator[str]:
    """Yield what a file may not say that came with its folder, as those of cloned projects do.

    References would send secrets of the user to brokers that its author chose.
    """
    for name, text in config.items():
        if name.endswith(_COMMANDS) or "${" in text:
            yield (
                f"{path}: {plain(name)}: only in a file that {CONFIG_VARIABLE} names; set"
                f" {CONFIG_VARIABLE}={path} if the file is your own"
            )


def _problems(settings: WorkerSettings, reading: ParsedKeys) -> Iterator[str]:
    commit, timeout = settings.transaction_max_seconds, settings.transaction_timeout_ms
    sound = reading.sound("transaction.max.seconds", "transaction.timeout.ms")
    if sound and commit * 1000 >= timeout:
        yield (
            f"transaction.max.seconds={commit:g}: must be shorter than"
            f" transaction.timeout.ms={timeout}, after which brokers abort; lower the former or"
            " raise the latter"
        )
    stall = settings.extent_stall_seconds
    if reading.sound("transaction.max.seconds", "extent.stall.seconds") and commit >= stall:
        yield (
            f"extent.stall.seconds={stall:g}: must be longer than"
            f" transaction.max.seconds={commit:g}, or healthy extents lose their lease; raise it"
        )
    yield from _ledger_problems(settings, reading)
    spark = {
        "spark.application.id": settings.spark_application_id,
        "spark.job.role.arn": settings.spark_job_role_arn,
        "spark.entry.point": settings.spark_entry_point,
        "spark.archive": settings.spark_archive,
    }
    missing = [name for name, value in spark.items() if value is None]
    if reading.sound(*spark) and 0 < len(missing) < len(spark):
        yield f"{', '.join(missing)}: missing beside the others of Spark; set all four or none"


def _ledger_problems(settings: WorkerSettings, reading: ParsedKeys) -> Iterator[str]:
    url = settings.ledger_url
    beside = [reading.spelled[name] for name in OF_DYNAMODB if name in reading.spelled]
    if "ledger.url" in reading.spelled and beside:
        where = reading.spelled["ledger.url"]
        yield f"{', '.join(beside)}: beside {where}, which says it all; keep one of the two"
    password = settings.ledger_password is not None and reading.sound("ledger.url")
    if password and (url is None or url.scheme in (SQLITE, DYNAMODB)):
        yield "ledger.password: goes with ledger.url=postgresql://user@host/database"
    if password and url is not None and url.may_send_clear_text:
        yield (
            f"{reading.spelled['ledger.url']}: ledger.password may go over the network in clear"
            " text; add ?sslmode=verify-full, or sslmode=prefer if you trust the network"
        )


TABLE = Table(tuple(declared(WorkerSettings)))
