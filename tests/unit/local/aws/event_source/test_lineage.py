"""How often a chain of messages has passed a function, as Lambda counts it."""

from urllib.parse import quote

from extentflow_local.aws.event_source.lineage import MOST_VISITS, entered

WORKER = "arn:aws:lambda:us-east-1:000000000000:function:worker"
PLANNER = "arn:aws:lambda:us-east-1:000000000000:function:planner"


def test_a_first_invocation_is_the_first_visit() -> None:
    assert entered([], WORKER)[1] == entered([""], WORKER)[1] == 1


def test_each_invocation_that_an_earlier_one_led_to_counts() -> None:
    header = ""
    for visits in range(1, MOST_VISITS + 2):
        header, counted = entered([header], WORKER)
        assert counted == visits


def test_each_function_has_its_own_count() -> None:
    first, _ = entered([], PLANNER)
    second, _ = entered([first], WORKER)

    assert entered([second], WORKER)[1] == 2
    assert entered([quote(second, safe="=;:")], WORKER)[1] == 2  # as an SDK sends it
    assert entered([second], PLANNER)[1] == 2


def test_the_longest_chain_of_a_batch_counts() -> None:
    once, _ = entered([], WORKER)
    twice, _ = entered([once], WORKER)

    assert entered([once, "", twice], WORKER)[1] == 3
