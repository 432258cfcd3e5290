"""URLs of ledgers: what they say, and what is refused with the remedy."""

from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.config.ledgers import LEDGER_URL, LedgerAddress, state_folder
from extentflow.errors import Misconfigured


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("dynamodb://orders", LedgerAddress("dynamodb://orders", "orders")),
        (
            " dynamodb://Orders?region=eu-central-1 ",
            LedgerAddress("dynamodb://Orders?region=eu-central-1", "Orders", "eu-central-1"),
        ),
        (
            "dynamodb://orders?endpoint=http://127.0.0.1:8000",
            LedgerAddress(
                "dynamodb://orders?endpoint=http://127.0.0.1:8000",
                "orders",
                endpoint="http://127.0.0.1:8000",
            ),
        ),
        ("sqlite:////var/ledger.db", LedgerAddress("sqlite:////var/ledger.db")),
        ("postgresql://me@db/l", LedgerAddress("postgresql://me@db/l")),
        (
            "postgresql:///l?host=one:5432&host=two:5432&sslmode=verify-full",
            LedgerAddress("postgresql:///l?host=one:5432&host=two:5432&sslmode=verify-full"),
        ),
        ("acme://anything/at?all=1", LedgerAddress("acme://anything/at?all=1")),
    ],
)
def test_a_url_says_where_the_ledger_is(url: str, address: LedgerAddress) -> None:
    assert LEDGER_URL.read(url) == address
    assert LEDGER_URL.read(LEDGER_URL.write(address)) == address


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("ledger.db", "write sqlite:////absolute/path, postgresql://user@host/database or dyn"),
        ("/var/ledger.db", "write sqlite:////absolute/path"),
        ("Acme!://host", "write sqlite:////absolute/path"),
        ("http://127.0.0.1:8000", "write dynamodb://TABLE?endpoint=..., or set ledger.endpoint"),
        ("postgres://me@db/l", "write postgresql://"),
        ("sqlite3:////l.db", "write sqlite://"),
        ("dynamodb://ab", "3 to 255 letters"),
        ("dynamodb://", "3 to 255 letters"),
        ("dynamodb://key:secret@orders", "credentials come from the AWS SDK"),
        ("dynamodb://orders/more", "write dynamodb://TABLE"),
        ("dynamodb://orders?regoin=eu", "no parameter regoin; did you mean region?"),
        ("dynamodb://orders?endpoint=here", "write http://host:port"),
        ("dynamodb://orders?region=a&region=b", "parameter region needs one value, once"),
        ("dynamodb://orders?region=", "parameter region needs one value, once"),
        ("dynamodb://orders#x", "no fragment"),
        ("sqlite://", "four slashes"),
        ("sqlite:///ledger.db", "four slashes"),
        ("sqlite:///~/ledger.db", "four slashes"),
        ("sqlite://host/ledger.db", "four slashes"),
        ("sqlite:////var/ledgers/", "four slashes"),
        ("sqlite:////a b/l.db", "write %20 for a blank"),
        ("sqlite:////a\nb/l.db", "no blanks or control characters"),
        ("sqlite:////l.db?mode=ro", "no parameter mode; there are none"),
        ("postgresql://db", "write postgresql://user@host/database"),
        ("postgresql://db/", "write postgresql://user@host/database"),
        ("postgresql://db/a/b", "write postgresql://user@host/database"),
        ("postgresql://db:port/l", "no URL can be written like this"),
        ("postgresql://[db/l", "no URL can be written like this"),
        ("postgresql://me:secret@db/l", "ledger.password says where it is kept"),
        ("postgresql://me@db/l?password=secret", "ledger.password says where it is kept"),
        ("postgresql://me@db/l?sslmod=require", "did you mean sslmode?"),
        ("acme://me:secret@host", "ledger.password says where it is kept"),
        ("acme://me:1/secret@host", "ledger.password says where it is kept"),
        ("postgresql://me:1/secret@db/l", "ledger.password says where it is kept"),
        ("postgresql://me:1#secret@db/l", "ledger.password says where it is kept"),
        ("postgresql://me:1?secret@db/l", "ledger.password says where it is kept"),
        ("postgresql://db/l?host=me:secret@x", "ledger.password says where it is kept"),
        ("postgresql://db/l?host=me%3Asecret%40x", "ledger.password says where it is kept"),
        ("postgresql://db/l#me:secret@x", "ledger.password says where it is kept"),
        ("dynamodb://t?endpoint=http://me:secret@h:1", "ledger.password says where it is kept"),
        ("postgresql://me@secret@db/l", "@ after the user only; write %40"),
        ("postgresql://db/secret@l", "@ after the user only; write %40"),
        ("sqlite:////a@b/l.db", "@ after the user only; write %40"),
    ],
)
def test_another_url_is_refused_with_the_remedy(url: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        LEDGER_URL.read(url)

    assert remedy in str(caught.value)
    assert "secret" not in str(caught.value)


def test_dynamodbs_own_settings_make_the_same_address_as_its_url() -> None:
    made = LedgerAddress.dynamodb("orders", "eu-central-1", "http://127.0.0.1:8000")

    assert LedgerAddress.parse(made.url) == made
    assert LedgerAddress.dynamodb(None, None, None).url == "dynamodb://extentflow"


@pytest.mark.parametrize(
    ("environ", "platform", "folder"),
    [
        ({"HOME": "/home/me"}, "linux", "/home/me/.local/state/extentflow"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "/state"}, "linux", "/state/extentflow"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "relative"}, "linux", None),
        ({"HOME": "/Users/me"}, "darwin", "/Users/me/Library/Application Support/extentflow"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "/state"}, "darwin", "/state/extentflow"),
    ],
)
def test_state_is_kept_where_the_platform_keeps_it(
    environ: dict[str, str], platform: str, folder: str | None
) -> None:
    found = state_folder(environ, platform)

    assert found == Path(folder or "/home/me/.local/state/extentflow")


def test_a_relative_home_is_named(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="HOME=relative"):
        state_folder({"HOME": "relative"}, "linux")


def test_the_users_own_ledger_is_a_file_below_the_state_folder() -> None:
    address = LedgerAddress.in_state_folder({"XDG_STATE_HOME": "/a b/100%"})

    assert address.url == "sqlite:////a%20b/100%25/extentflow/ledger.db"
    assert address.path == Path("/a b/100%/extentflow/ledger.db")
    assert address.of_one_machine
    assert LEDGER_URL.read(address.url) == address
