"""Commands that messages advise: each kind is followed by a test, or is known not to be yet."""

import re
from pathlib import Path

from tests.support.golden import FOLDER, entries

ADVICE = "integration/test_advice.py"
# A command and its long options, and the test that runs it as it was advised.
FOLLOWED = {
    "connectors put": (ADVICE, "test_the_command_that_put_names_delivers"),
    "connectors list --all": (
        "unit/cli/test_connector_commands.py",
        "test_a_connector_of_a_command_is_listed_and_shown_as_not_stored",
    ),
    "dead-letters": (ADVICE, "test_dead_letters_are_shown_corrected_and_replayed"),
    "dead-letters --json": (ADVICE, "test_dead_letters_are_shown_corrected_and_replayed"),
    "init": (ADVICE, "test_a_missing_ledger_and_topic_are_made_and_a_repetition_delivers_once"),
    "resume": (ADVICE, "test_a_connector_that_does_not_run_is_resumed"),
    "run": (ADVICE, "test_the_command_that_put_names_delivers"),
    "run --again": (
        ADVICE,
        "test_a_missing_ledger_and_topic_are_made_and_a_repetition_delivers_once",
    ),
    "run --failed": (ADVICE, "test_a_failed_job_is_continued_after_a_change_of_settings"),
    "status": (ADVICE, "test_a_corrected_object_is_delivered_and_its_failed_job_no_longer_open"),
    "status --undelivered": (
        "unit/cli/test_job_commands.py",
        "test_failed_jobs_that_were_delivered_since_are_counted_and_marked",
    ),
    "stop": (ADVICE, "test_a_connector_that_does_not_run_is_resumed"),
}
# Advised, and not yet followed by a test in the state in which they are advised.
OPEN = {
    "connectors list",
    "connectors show",
    "doctor",
    "plan --json",
    "replay",
    "replay --accept-duplicates",
    "replay --engine",
    "run --engine",
    "run --failed --engine",
    "run --topic",
    "stream",
    "submit",
    "up",
}
COMMAND = re.compile(r"`extentflow ([a-z-]+(?: (?:put|list|show|delete|validate))?)([^`]*)`")


def advised() -> set[str]:
    """Return every kind of command that a golden text advises."""
    texts = [text for path in FOLDER.glob("*.txt") for text in entries(path.stem).values()]
    found = (match for text in texts for match in COMMAND.findall(text))
    return {" ".join((verb, *re.findall(r"--[a-z-]+", rest))) for verb, rest in found}


def test_every_advised_command_is_followed_by_a_test_or_known_to_be_open() -> None:
    assert advised() - {*FOLLOWED} == OPEN


def test_the_tests_that_follow_advice_exist() -> None:
    root = Path(__file__).parents[1]

    missing = [
        name
        for file, name in FOLLOWED.values()
        if f"def {name}(" not in (root / file).read_text(encoding="utf-8")
    ]

    assert missing == []
