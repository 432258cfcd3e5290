"""Names and values in messages: without credentials, and printable."""

import pytest

from extentflow.wording import shown_bytes, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x://me:1/secret@host/a", "x://(not shown)@host/a"),
        ("x://me:1#secret@host", "x://(not shown)@host"),
        ("x://me:1?secret@host", "x://(not shown)@host"),
        ("x://me:se@secret@host", "x://(not shown)@host"),
        ("me:1/secret@host", "(not shown)@host"),
        ("x://host/a?host=me:secret@y", "x://host/a?host=(not shown)@y"),
        ("x://host/a#me:secret@y", "x://host/a#(not shown)@y"),
    ],
)
def test_a_password_is_not_shown_whatever_it_contains(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


@pytest.mark.parametrize("address", ["s3://shop/in/a@b.csv", "file:///in/a:b@c.csv", "in/a@b.csv"])
def test_an_at_sign_in_a_key_is_shown(address: str) -> None:
    assert without_credentials(address) == address


@pytest.mark.parametrize(
    ("raw", "shown"),
    [(b"PAR1", "'PAR1'"), (b"", "''"), (b"\x89PNG", "0x89504e47"), (b"a\n", "0x610a")],
)
def test_bytes_are_shown_as_text_or_in_hexadecimal(raw: bytes, shown: str) -> None:
    assert shown_bytes(raw) == shown
