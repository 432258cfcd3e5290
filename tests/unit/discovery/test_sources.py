"""Declared sources are understood, or every mistake in them is named."""

import json

import pytest
from tests.support.golden import Golden
from tests.unit.discovery.posting import GRID, SEGMENT

from extentflow.discovery.sources import (
    NoProof,
    SecretPathProof,
    SignatureProof,
    Source,
    declared,
)
from extentflow.errors import Misconfigured


def problems(entries: object) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as refused:
        declared(json.dumps(entries))
    return refused.value.problems


def test_each_source_has_one_proof() -> None:
    text = json.dumps(
        [
            {"endpoint": GRID, "access_key_id": "AKIA", "secret_access_key": "s3cr3t"},
            {"secret_path": SEGMENT},
        ]
    )

    assert declared(text) == (
        Source(GRID, SignatureProof("AKIA", "s3cr3t")),
        Source(None, SecretPathProof(SEGMENT)),
    )


def test_where_it_is_allowed_the_only_source_may_be_open() -> None:
    assert declared('[{"open":true}]', open_allowed=True) == (Source(None, NoProof()),)


def test_an_open_source_lets_everybody_in_and_stands_alone(golden: Golden) -> None:
    with golden.raises(Misconfigured):
        declared(json.dumps([{"open": True}, {"secret_path": SEGMENT}]), open_allowed=True)


def test_a_public_endpoint_refuses_an_open_source(golden: Golden) -> None:
    (found,) = problems([{"open": True}])

    golden(found)
    assert "access_key_id" in found


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", "secret"])
def test_anything_but_a_list_is_rejected(text: str) -> None:
    with pytest.raises(Misconfigured, match="write a JSON list"):
        declared(text)


def test_every_mistake_is_named_at_once() -> None:
    found = problems(
        [
            7,
            {"endpoint": GRID},
            {"endpont": GRID, "open": True},
            {"strange": 1, "open": True},
            {"access_key_id": "AKIA"},
            {"access_key_id": "AKIA", "secret_access_key": 7},
            {"access_key_id": "AKIA", "secret_access_key": "x", "secret_path": SEGMENT},
            {"secret_path": "short"},
            {"secret_path": "with/slash/and/length"},
            {"open": False},
            {"endpoint": "", "secret_path": SEGMENT},
        ]
    )

    ways = "give exactly one proof: access_key_id with secret_access_key, secret_path, or open"
    known = "endpoint, access_key_id, open, secret_access_key, secret_path"
    segment = "write 16 characters or more of A-Z a-z 0-9 _ -"
    assert found == (
        "sources[0]: write an object",
        f"sources[1]: {ways}",
        "sources[2].endpont: unknown key; did you mean endpoint?",
        f"sources[3].strange: unknown key; known are {known}",
        f"sources[4]: {ways}",
        "sources[5].secret_access_key: write a text",
        f"sources[6]: {ways}",
        f"sources[7].secret_path: {segment}",
        f"sources[8].secret_path: {segment}",
        "sources[9].open: write true, or remove it",
        "sources[10].endpoint: write a text",
    )


def test_mistakes_do_not_repeat_secrets() -> None:
    said = problems(
        [{"access_key_id": "AKIA", "secret_acces_key": "hush"}, {"secret_path": "hush"}]
    )

    assert "hush" not in "".join(said)
