"""Delivery to a real broker behind a link of limited bandwidth."""

from collections.abc import Iterator
from functools import partial

import pytest
from tests.support.slow_delivery import MIB, broker_behind_link, deliver_through
from tests.support.slow_link import SlowLink

pytestmark = pytest.mark.outage

SECONDS = 40.0


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowLink]:
    with broker_behind_link(tmp_path_factory.mktemp("slow")) as link:
        yield link


soak = partial(pytest.param, marks=pytest.mark.soak)


@pytest.mark.parametrize(("rate_mib", "workers"), [soak(0.25, 1), soak(2.0, 1), (0.25, 8)])
def test_most_of_what_a_slow_broker_takes_is_committed(
    link: SlowLink, rate_mib: float, workers: int
) -> None:
    found = deliver_through(link, rate_mib, SECONDS, workers)

    # Compared with what the broker took, not with the rate: a busy machine may not fill the link.
    assert found.committed >= 0.9 * found.passed > MIB
