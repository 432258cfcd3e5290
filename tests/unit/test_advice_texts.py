"""What messages advise: each kind is followed by a test."""

import re
from pathlib import Path

from tests.support.golden import FOLDER, entries

ADVICE = "integration/test_advice.py"
FOLLOWED_ADVICE = "unit/cli/test_followed_advice.py"
FIRST = "test_a_missing_ledger_and_topic_are_made_and_a_repetition_delivers_once"
ENCRYPTED = "test_encrypted_columns_are_left_out_or_shown_with_their_keys"
CORRECTED = "test_dead_letters_are_shown_corrected_and_replayed"
# A command and its long options, and the test that runs it as it was advised.
FOLLOWED = {
    "connectors list": (FOLLOWED_ADVICE, "test_the_connectors_that_there_are_are_listed_and_shown"),
    "connectors put": (ADVICE, "test_the_command_that_put_names_delivers"),
    "connectors show": (FOLLOWED_ADVICE, "test_the_connectors_that_there_are_are_listed_and_shown"),
    "connectors list --all": (
        "unit/cli/test_connector_commands.py",
        "test_a_connector_of_a_command_is_listed_and_shown_as_not_stored",
    ),
    "dead-letters": (ADVICE, CORRECTED),
    "dead-letters --json": (ADVICE, CORRECTED),
    "dead-letters --discard": (
        FOLLOWED_ADVICE,
        "test_bad_records_that_ended_a_job_are_tolerated_and_discarded",
    ),
    "dismiss": (FOLLOWED_ADVICE, "test_a_job_whose_object_is_gone_is_dismissed"),
    "doctor": (FOLLOWED_ADVICE, "test_doctor_is_repeated_when_the_brokers_answer"),
    "init": (ADVICE, FIRST),
    "plan --json": (FOLLOWED_ADVICE, "test_types_that_were_inferred_are_shown_and_given"),
    "replay": (FOLLOWED_ADVICE, "test_a_failed_job_is_replayed"),
    "replay --accept-duplicates": (
        FOLLOWED_ADVICE,
        "test_a_job_whose_object_was_delivered_since_is_replayed_with_accepted_duplicates",
    ),
    "replay --engine": (FOLLOWED_ADVICE, "test_a_failed_job_is_replayed"),
    "resume": (ADVICE, "test_a_connector_that_does_not_run_is_resumed"),
    "run": (ADVICE, "test_the_command_that_put_names_delivers"),
    "run --again": (ADVICE, FIRST),
    "run --engine": (
        FOLLOWED_ADVICE,
        "test_a_corrected_object_is_delivered_by_the_same_connector",
    ),
    "run --failed": (FOLLOWED_ADVICE, "test_what_failed_is_delivered_by_a_changed_connector"),
    "run --failed --engine": (
        FOLLOWED_ADVICE,
        "test_what_failed_is_delivered_by_a_changed_connector",
    ),
    "run --topic": (FOLLOWED_ADVICE, "test_a_connector_that_a_command_made_is_stored_later"),
    "status": (ADVICE, "test_a_corrected_object_is_delivered_and_its_failed_job_no_longer_open"),
    "status --undelivered": (
        "unit/cli/test_job_commands.py",
        "test_failed_jobs_that_were_delivered_since_are_counted_and_marked",
    ),
    "stop": (
        FOLLOWED_ADVICE,
        "test_a_job_that_its_connector_reads_no_more_is_continued_or_cancelled",
    ),
    "stream": (ADVICE, "test_the_command_that_put_names_delivers"),
    "submit": (
        FOLLOWED_ADVICE,
        "test_the_object_of_a_notification_that_is_not_understood_is_submitted",
    ),
    "up": (ADVICE, "test_the_stack_that_is_advised_takes_the_command_that_lacked_it"),
}
# Options that texts advise by themselves, and the test that gives them as it was advised.
FOLLOWED_OPTIONS = {
    "--accept-gap": (
        "integration/test_export.py",
        "test_records_that_were_deleted_before_they_were_read_are_an_error_unless_accepted",
    ),
    "--again": (ADVICE, FIRST),
    "--checkpoint": (
        "integration/test_lake.py",
        "test_a_checkpoint_ahead_of_the_table_is_refused",
    ),
    "--column": (FOLLOWED_ADVICE, ENCRYPTED),
    "--bootstrap-servers": (
        FOLLOWED_ADVICE,
        "test_commands_that_are_advised_take_the_servers_that_they_need",
    ),
    "--connector": (
        FOLLOWED_ADVICE,
        "test_the_objects_of_a_prefix_are_submitted_with_their_connector",
    ),
    "--continue-at": (
        "unit/export/lake/test_parquet_folder.py",
        "test_files_that_were_compacted_too_early_need_a_person",
    ),
    "--create-topic": (ADVICE, FIRST),
    "--debug": (
        "unit/cli/test_command_line.py",
        "test_debugging_shows_the_trace_before_the_same_line_and_code",
    ),
    "--deployed": (
        "unit/cli/test_health_commands.py",
        "test_a_stage_that_cannot_be_checked_is_refused",
    ),
    "--dry-run": (FOLLOWED_ADVICE, "test_what_failed_is_delivered_by_a_changed_connector"),
    "--engine": (
        "unit/wiring/test_runtime.py",
        "test_executors_elsewhere_refuse_the_ledger_of_this_machine",
    ),
    "--failed": (ADVICE, "test_a_failed_job_is_continued_after_a_change_of_settings"),
    "--json": (FOLLOWED_ADVICE, "test_types_that_were_inferred_are_shown_and_given"),
    "--keys": (FOLLOWED_ADVICE, ENCRYPTED),
    "--master": (FOLLOWED_ADVICE, "test_a_master_goes_with_the_engine_that_the_message_names"),
    "--metrics": (
        "unit/services/test_metrics.py",
        "test_a_taken_port_is_reported_and_another_one_serves",
    ),
    "--registry": (
        "unit/export/lake/test_lake_rows.py",
        "test_without_a_registry_its_values_are_refused_with_the_way_out",
    ),
    "--repairs": (ADVICE, CORRECTED),
    "--save": (FOLLOWED_ADVICE, "test_a_connector_that_a_command_made_is_stored_later"),
    "--set": (FOLLOWED_ADVICE, "test_rows_of_other_settings_are_compared_with_those"),
    "--since": (FOLLOWED_ADVICE, "test_jobs_since_a_time_are_listed_as_the_message_writes_it"),
    "--stage": (
        "unit/cli/test_health_commands.py",
        "test_a_stage_is_checked_in_its_own_region_before_its_deployment",
    ),
    "--table": (
        "unit/export/lake/test_lake_columns.py",
        "test_names_of_columns_that_iceberg_has_itself_are_refused_by_spark_alone",
    ),
    "--topic": (FOLLOWED_ADVICE, "test_a_connector_that_a_command_made_is_stored_later"),
    "-c": (FOLLOWED_ADVICE, "test_rows_of_other_settings_are_compared_with_those"),
}
COMMAND = re.compile(r"`extentflow ([a-z-]+(?: (?:put|list|show|delete|validate))?)([^`]*)`")
# Of other programs, which begin with their names.
PROGRAM = re.compile(r"`[^`-][^`]*`")
OPTION = re.compile(r"(?<![\w-])-(?:-[a-z][a-z-]+|[a-z])\b")
# Of an error that a test makes up.
MADE_UP = {"--x"}
SCRIPT = re.compile(r"\bjobs/\w+\.py\b|`extentflow-[^`]*`")


def texts() -> list[str]:
    return [text for path in FOLDER.glob("*.txt") for text in entries(path.stem).values()]


def advised() -> set[str]:
    """Return every kind of command that a golden text advises."""
    found = (match for text in texts() for match in COMMAND.findall(text))
    return {" ".join((verb, *re.findall(r"--[a-z-]+", rest))) for verb, rest in found}


def advised_options() -> set[str]:
    """Return every option that a golden text names outside of a command."""
    return {option for text in texts() for option in OPTION.findall(PROGRAM.sub("", text))}


def test_every_advised_command_is_followed_by_a_test() -> None:
    assert advised() - {*FOLLOWED} == set()


def test_every_advised_option_is_given_by_a_test() -> None:
    assert advised_options() - {*FOLLOWED_OPTIONS} - MADE_UP == set()


def test_no_text_advises_a_program_that_no_test_follows() -> None:
    assert [found for text in texts() for found in SCRIPT.findall(text)] == []


def test_the_tests_that_follow_advice_exist() -> None:
    root = Path(__file__).parents[1]

    missing = [
        name
        for file, name in (*FOLLOWED.values(), *FOLLOWED_OPTIONS.values())
        if f"def {name}(" not in (root / file).read_text(encoding="utf-8")
    ]

    assert missing == []
