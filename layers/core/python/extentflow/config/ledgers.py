"""Where a ledger is: a URL whose scheme selects the ledger, or DynamoDB's own settings.

    dynamodb://TABLE?region=eu-central-1&endpoint=http://127.0.0.1:8000
    sqlite:////absolute/path                         the file of one machine
    postgresql://user@host:5432/database?sslmode=verify-full
    SCHEME://...                                     the ledger of an installed package

Without any setting it is SQLite in the user's state folder.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from extentflow.config.types import URL, Kind, is_this_machine, matching
from extentflow.errors import Misconfigured
from extentflow.wording import either, nearest, plain

DYNAMODB, SQLITE, POSTGRESQL = "dynamodb", "sqlite", "postgresql"
DEFAULT_TABLE = "extentflow"
TABLE_NAME = matching(
    r"[A-Za-z0-9._-]{3,255}", "write 3 to 255 letters, digits, . _ -, for DynamoDB"
)
# Of libpq, which are safe to write down and to show.
POSTGRESQL_PARAMETERS = frozenset(
    {"application_name", "channel_binding", "gssencmode", "host", "krbsrvname", "options", "port"}
    | {"sslcert", "sslcrl", "sslkey", "sslmode", "sslnegotiation", "sslrootcert"}
)
_PASSWORD = (
    "a URL must not contain a password; ledger.password says where it is kept, or the clients of"  # noqa: S105
    " PostgreSQL read it from PGPASSFILE"
)
_SPELLINGS = {"postgres": POSTGRESQL, "postgresql+psycopg": POSTGRESQL, "sqlite3": SQLITE}


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """A ledger's URL, and what it says; `table`, `region` and `endpoint` are DynamoDB's.

    `chosen` is False where no setting says so, in the process that read the settings.
    """

    url: str
    table: str = ""
    region: str | None = None
    endpoint: str | None = None
    chosen: bool = field(default=True, compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a URL says. Raises ValueError with the remedy, which repeats no part."""
        text = text.strip()
        scheme, separator, _ = text.partition("://")
        if not separator or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
            raise ValueError(f"write {_forms()}")
        if " " in text or not text.isprintable():
            raise ValueError("a URL has no blanks or control characters; write %20 for a blank")
        if scheme in {"http", "https"}:
            raise ValueError("write dynamodb://TABLE?endpoint=..., or set ledger.endpoint")
        if meant := _SPELLINGS.get(scheme):
            raise ValueError(f"write {meant}://")
        parts = _split(text)
        _require_no_password(parts, text)
        if parts.fragment:
            raise ValueError("a URL of a ledger has no fragment; remove # and what follows")
        if scheme == DYNAMODB:
            found = _dynamodb(parts)
            return cls(text, found["table"], found.get("region"), found.get("endpoint"))
        if scheme == SQLITE:
            _check_sqlite(parts)
        elif scheme == POSTGRESQL:
            _check_postgresql(parts)
        return cls(text)

    @classmethod
    def dynamodb(cls, table: str | None, region: str | None, endpoint: str | None) -> Self:
        """Return the address that DynamoDB's own settings give."""
        table = table or DEFAULT_TABLE
        given = {"region": region, "endpoint": endpoint}
        query = urlencode({name: text for name, text in given.items() if text}, safe=":/")
        return cls(f"{DYNAMODB}://{table}{'?' if query else ''}{query}", table, region, endpoint)

    @classmethod
    def in_state_folder(cls, environ: Mapping[str, str], platform: str = sys.platform) -> Self:
        """Return the user's own ledger: a file of SQLite, created at its first use."""
        return replace(cls.of_file(state_folder(environ, platform) / "ledger.db"), chosen=False)

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Return the address of a file of SQLite, by its absolute path."""
        return cls(f"{SQLITE}:///{quote(str(path))}")

    @property
    def scheme(self) -> str:
        """The name of the ledger among those that are installed."""
        return self.url.partition("://")[0]

    @property
    def path(self) -> Path:
        """The file of SQLite."""
        return Path(unquote(urlsplit(self.url).path[1:]))

    @property
    def of_one_machine(self) -> bool:
        """Whether only processes of one machine can use it."""
        return self.scheme == SQLITE

    @property
    def may_send_clear_text(self) -> bool:
        """Whether PostgreSQL's client may do without TLS on a network, and no parameter says so."""
        if self.scheme != POSTGRESQL:
            return False
        parts = urlsplit(self.url)
        given = parse_qsl(parts.query)
        hosts = [text for name, text in given if name == "host"]
        hosts.append(re.sub(r":[0-9]+$", "", parts.netloc.rpartition("@")[2]))
        named = [host for text in hosts for host in text.split(",") if host]
        return "sslmode" not in dict(given) and not all(map(is_this_machine, named))

    def __str__(self) -> str:
        return self.url


def state_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return where the user's programs keep their state, by the platform's conventions.

    $XDG_STATE_HOME or ~/.local/state, of the XDG base directories; on macOS the library's folder.
    """
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # a relative one is to be ignored
        home = environ.get("HOME") or _home()
        if not home.startswith("/"):
            raise Misconfigured(
                f"HOME={plain(home)}: write an absolute path, or set ledger.url={_forms()}"
            )
        where = "Library/Application Support" if platform == "darwin" else ".local/state"
        base = f"{home}/{where}"
    return Path(base) / "extentflow"


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        raise Misconfigured(
            f"ledger.url: the user has no home folder for a ledger; write {_forms()}"
        ) from None


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        parts.port if text.startswith(POSTGRESQL) else None
    except ValueError:
        raise ValueError(f"no URL can be written like this; write {_forms()}") from None
    return parts


def _require_no_password(parts: SplitResult, text: str) -> None:
    """Raise ValueError for a password, wherever it stands: it may hold what ends a host."""
    if parts.scheme == DYNAMODB and "@" in parts.netloc:
        raise ValueError("write dynamodb://TABLE; credentials come from the AWS SDK's chain")
    written = [text.partition("://")[2], *(one for _, one in parse_qsl(parts.query))]
    if any(":" in one.rpartition("@")[0] for one in written):
        raise ValueError(_PASSWORD)
    if "@" in f"{parts.path}{parts.query}{parts.fragment}" or parts.netloc.count("@") > 1:
        raise ValueError("a URL has @ after the user only; write %40 for another one")


def _parameters(parts: SplitResult, known: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if "pass" in name.lower():
            raise ValueError(_PASSWORD)
        if name not in known:
            listed = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise ValueError(f"no parameter {plain(name)}; {nearest(name, known, listed)}")
        # Several hosts are those of a cluster, of which the primary is used.
        if not text or (name in found and name != "host"):
            raise ValueError(f"parameter {name} needs one value, once")
        found[name] = text
    return found


def _dynamodb(parts: SplitResult) -> dict[str, str]:
    if parts.path.strip("/"):
        raise ValueError("write dynamodb://TABLE")
    found = _parameters(parts, frozenset({"region", "endpoint"}))
    if "endpoint" in found:
        URL.read(found["endpoint"])
    return {"table": TABLE_NAME.read(parts.netloc), **found}


def _check_sqlite(parts: SplitResult) -> None:
    _parameters(parts, frozenset())
    if parts.netloc or not parts.path.startswith("//") or parts.path.endswith("/"):
        raise ValueError(
            "write sqlite:// and an absolute path of a file, which makes four slashes:"
            " sqlite:////var/lib/extentflow/ledger.db"
        )


def _check_postgresql(parts: SplitResult) -> None:
    _parameters(parts, POSTGRESQL_PARAMETERS)
    if not re.fullmatch(r"/[^/]+", parts.path):
        raise ValueError("write postgresql://user@host/database")


def _forms() -> str:
    forms = ("sqlite:////absolute/path", "postgresql://user@host/database", "dynamodb://TABLE")
    return either(forms)


# A value that is refused may hold a password.
LEDGER_URL: Kind[LedgerAddress] = Kind(LedgerAddress.parse, secret=True)
