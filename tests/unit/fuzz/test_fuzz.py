"""What fuzzing has found stays fixed, and a campaign finds what was planted."""

from pathlib import Path

import pytest
from tests.fuzz.campaign import campaign
from tests.fuzz.every import CORPUS, TARGETS, outcome
from tests.fuzz.planted import KINDS, PLANTED

SLICE_INPUTS, SLICE_SEED = 10_000, 17
FEW_INPUTS = 20
PLANTED_SEED = 46  # draws every kind
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", FOUND, ids=label)
def test_an_input_that_was_a_finding_has_a_typed_outcome(path: Path) -> None:
    what, raised = outcome(TARGETS[path.parent.name], path.read_bytes())

    if raised is not None:
        raise AssertionError(what) from raised


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_inputs_have_typed_outcomes(name: str) -> None:
    """A few of each kind; `make fuzz` tries a million."""
    target = TARGETS[name]
    for number in range(FEW_INPUTS):
        what, raised = outcome(target, target.input(SLICE_SEED, number))
        if raised is not None:
            raise AssertionError(f"--seed {SLICE_SEED} --only {number}: {what}") from raised


@pytest.mark.soak
def test_ten_thousand_hostile_inputs_have_typed_outcomes(tmp_path: Path) -> None:
    report = campaign(SLICE_INPUTS, SLICE_SEED, list(TARGETS), tmp_path, processes=2)

    found = {name: one["found"] for name, one in report["targets"].items() if one["found"]}
    assert found == {}, f"inputs in {tmp_path}"
    assert report["inputs"] >= SLICE_INPUTS


def test_an_input_is_the_same_in_every_process() -> None:
    for target in TARGETS.values():
        assert target.input(3, 5) == target.input(3, 5)
        assert len({target.input(3, number) for number in range(20)}) > 10


@pytest.mark.fuzz
def test_a_campaign_finds_what_was_planted_and_goes_on(tmp_path: Path) -> None:
    inputs = [PLANTED.input(PLANTED_SEED, number) for number in range(40)]
    assert set(inputs) == set(KINDS)

    report = campaign(40, PLANTED_SEED, ["planted"], tmp_path, hangs_seconds=4.0)

    planted = report["targets"]["planted"]
    outcomes = {what.split(" at ")[0]: count for what, count in planted["outcomes"].items()}
    assert outcomes == {
        "accepted": inputs.count(b"accepted") + inputs.count(b"large"),
        "refused: CorruptObject": inputs.count(b"typed"),
        "FOUND: KeyError": inputs.count(b"untyped"),
        "FOUND: AssertionError memory is bounded": inputs.count(b"huge"),
    }
    found = {what.removeprefix("FOUND: ").split(" ")[0]: n for what, n in planted["found"].items()}
    kinds = {"KeyError": b"untyped", "exit": b"killed", "no": b"hangs", "memory": b"large"}
    kinds["AssertionError"] = b"huge"
    assert found == {what: inputs.count(kind) for what, kind in kinds.items()}
    saved = {(tmp_path / name).read_bytes() for name in planted["saved"]}
    assert saved == set(kinds.values())


@pytest.mark.fuzz
def test_a_campaign_can_end_behind_so_many_decodes(tmp_path: Path) -> None:
    report = campaign(1_000_000, 1, ["bytes"], tmp_path, decodes=1_000)

    assert 1_000 <= report["targets"]["bytes"]["decodes"] < 20_000
    assert report["found"] == 0
