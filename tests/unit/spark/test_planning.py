"""What a batch query finds of a job that was planned: extents, or why there are none."""

import pytest
from tests.support.memorysite import BUCKET, MemorySite

from extentflow.model import Job, JobState
from extentflow.spark.planning import _pending
from extentflow.testing.stores import Fault, FaultyStore


@pytest.fixture
def site() -> MemorySite:
    return MemorySite()


def planned(site: MemorySite, key: str, lines: int = 1) -> Job:
    """A job that somebody planned, of an object that may have changed since."""
    job = site.job(key, lines)
    return site.memory.plan(job.id, count=lines, cursor=4 * lines, complete=True)


def test_what_is_final_is_not_pending(site: MemorySite) -> None:
    site.put_connector()
    job = planned(site, "c/a.txt", lines=3)

    found, extents, why = _pending(site, job, {1})

    assert (found, why) == (job, "")
    assert [extent.ordinal for extent in extents] == [0, 2]


def test_an_object_that_cannot_be_cut_any_more_ends_its_job(site: MemorySite) -> None:
    site.put_connector(input__format="parquet")
    job = planned(site, "c/odd.parquet")

    found, extents, why = _pending(site, job, ())

    assert (found.state, extents, why) == (JobState.FAILED, [], "")
    assert "s3://shop/c/odd.parquet" in found.reason
    assert site.memory.job(job.id) == found


def test_an_object_that_was_replaced_supersedes_its_job(site: MemorySite) -> None:
    site.put_connector(input__format="parquet")
    job = planned(site, "c/odd.parquet")
    site.objects.put(BUCKET, "c/odd.parquet", b"another")

    found, extents, _ = _pending(site, job, ())

    assert (found.state, extents) == (JobState.SUPERSEDED, [])


def test_a_store_that_is_away_leaves_the_job_open_and_says_why(site: MemorySite) -> None:
    site.put_connector(input__format="parquet")
    job = planned(site, "c/odd.parquet")
    site.reads = FaultyStore(site.objects, Fault("unavailable"))

    found, extents, why = _pending(site, job, ())

    assert (found.state, extents) == (JobState.RUNNING, [])
    assert "no answer" in why
