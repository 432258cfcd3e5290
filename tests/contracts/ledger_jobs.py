"""The ledger's contract for identity, connectors and jobs."""

from dataclasses import replace

import pytest
from tests.contracts.ledger import (
    EXTENT_BYTES,
    LedgerUnderTest,
    Scene,
    fresh,
    unregistered,
)

from extentflow.errors import Conflict, ProgressUnknown
from extentflow.ledger import (
    ConnectorState,
    ConnectorVersion,
    JobProgress,
    Ledger,
    Settlement,
)
from extentflow.model import ExtentState, Job, JobState, Plan, job_id

UNKNOWN = Settlement(0, 0, 0, unknown=True)


class IdentityContract:
    def test_processes_of_one_table_agree_on_its_id(self, world: LedgerUnderTest) -> None:
        assert world.ledger.id == world.elsewhere().id

    def test_two_tables_have_different_ids(self, world: LedgerUnderTest) -> None:
        assert world.ledger.id != world.another_table().id

    def test_the_clock_never_runs_backwards_between_calls(self, world: LedgerUnderTest) -> None:
        first = world.ledger.now()

        assert world.ledger.now() >= first

    def test_the_first_app_id_stays(self, world: LedgerUnderTest) -> None:
        first = world.ledger.bind("orders")

        assert world.elsewhere().bind("others") == first
        assert world.ledger.bind(first) == first


class ConnectorContract:
    def test_each_changed_configuration_is_the_next_revision(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")

        revisions = [
            world.ledger.connectors.put(name, {"format": form}) for form in ("text", "csv", "text")
        ]

        assert [version.revision for version in revisions] == [1, 2, 3]
        assert revisions[1] == ConnectorVersion(name, 2, {"format": "csv"})

    def test_the_same_configuration_again_is_the_latest_revision(
        self, world: LedgerUnderTest
    ) -> None:
        name = fresh("orders")
        world.ledger.connectors.put(name, {"format": "text"})
        latest = world.ledger.connectors.put(name, {"format": "csv"})

        assert world.elsewhere().connectors.put(name, {"format": "csv"}) == latest

    def test_without_a_revision_the_latest_is_returned(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        world.ledger.connectors.put(name, {"format": "text"})
        latest = world.ledger.connectors.put(name, {"format": "csv"})

        assert world.ledger.connectors.get(name) == latest

    def test_a_connector_that_is_not_listed_has_revisions_for_jobs_only(
        self, world: LedgerUnderTest
    ) -> None:
        connectors, name = world.ledger.connectors, fresh("orders")

        stored = [
            connectors.put(name, {"format": form}, listed=False) for form in ("text", "text", "csv")
        ]

        assert [version.revision for version in stored] == [1, 1, 2]
        assert connectors.get(name) is None
        assert name not in [one.name for one in connectors.list()]
        assert connectors.get(name, 2) == stored[2]

    def test_a_connector_is_listed_once_it_is_stored_and_stays_so(
        self, world: LedgerUnderTest
    ) -> None:
        connectors, name = world.ledger.connectors, fresh("orders")
        connectors.put(name, {"format": "text"}, listed=False)

        listed = connectors.put(name, {"format": "text"})
        connectors.put(name, {"format": "text"}, listed=False)
        latest = connectors.put(name, {"format": "csv"}, listed=False)

        assert (listed.revision, latest.revision) == (1, 2)
        assert connectors.get(name) == latest

    def test_every_revision_stays_readable(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        first = world.ledger.connectors.put(name, {"format": "text"})
        world.ledger.connectors.put(name, {"format": "csv"})

        assert world.ledger.connectors.get(name, 1) == first
        assert world.ledger.connectors.get(name, 3) is None

    def test_a_connector_is_enabled_until_another_state_is_set(
        self, world: LedgerUnderTest
    ) -> None:
        name = fresh("orders")
        world.ledger.connectors.put(name, {"format": "text"})
        before = world.ledger.connectors.state(name)

        said = world.ledger.connectors.set_state(name, ConnectorState.PAUSED)
        world.ledger.connectors.put(name, {"format": "csv"})

        assert (before, said) == (ConnectorState.ENABLED, True)
        assert world.elsewhere().connectors.state(name) is ConnectorState.PAUSED
        world.ledger.connectors.set_state(name, ConnectorState.ENABLED)
        assert world.elsewhere().connectors.state(name) is ConnectorState.ENABLED

    def test_an_unknown_connector_has_no_state_to_set(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")

        assert not world.ledger.connectors.set_state(name, ConnectorState.STOPPED)
        assert world.ledger.connectors.state(name) is ConnectorState.ENABLED

    def test_an_unknown_connector_is_none(self, world: LedgerUnderTest) -> None:
        assert world.ledger.connectors.get(fresh("orders")) is None
        assert world.ledger.connectors.get(fresh("orders"), 1) is None

    def test_a_configuration_may_be_empty_and_hold_any_text(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        strange = {"key.with.dots": "", "ключ": "\u2028 100% \U0001f40d"}

        assert world.ledger.connectors.put(name, {}).config == {}
        world.ledger.connectors.put(name, strange)

        latest = world.ledger.connectors.get(name)
        assert latest is not None
        assert latest.config == strange

    def test_connectors_are_listed_by_name_in_their_latest_revision(
        self, world: LedgerUnderTest
    ) -> None:
        prefix = fresh("listed")
        world.ledger.connectors.put(f"{prefix}-b", {"format": "text"})
        world.ledger.connectors.put(f"{prefix}-a", {"format": "text"})
        world.ledger.connectors.put(f"{prefix}-b", {"format": "csv"})

        listed = [v for v in world.ledger.connectors.list() if v.name.startswith(prefix)]

        assert [(v.name, v.revision) for v in listed] == [(f"{prefix}-a", 1), (f"{prefix}-b", 2)]

    def test_a_deleted_connector_is_hidden_but_its_revisions_stay(
        self, world: LedgerUnderTest
    ) -> None:
        name = fresh("orders")
        first = world.ledger.connectors.put(name, {"format": "text"})

        assert world.ledger.connectors.delete(name)

        assert world.ledger.connectors.get(name) is None
        assert name not in [version.name for version in world.ledger.connectors.list()]
        assert world.ledger.connectors.get(name, 1) == first

    def test_deleting_an_unknown_connector_returns_false(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        world.ledger.connectors.put(name, {"format": "text"})
        world.ledger.connectors.delete(name)

        assert not world.ledger.connectors.delete(name)
        assert not world.ledger.connectors.delete(fresh("orders"))

    def test_putting_a_deleted_connector_shows_it_again(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        first = world.ledger.connectors.put(name, {"format": "text"})
        world.ledger.connectors.delete(name)

        assert world.ledger.connectors.put(name, {"format": "text"}) == first
        assert world.ledger.connectors.get(name) == first


class RegistrationContract:
    def test_a_new_job_is_stored_as_given(self, world: LedgerUnderTest) -> None:
        job = replace(unregistered(ordered=True, created=1_700_000_000.25), generation=2)
        job = replace(job, version=replace(job.version, modified=1_700_000_000))

        stored = world.ledger.jobs.register(job)
        found = world.elsewhere().jobs.get(job.id)

        assert stored == found == job
        assert stored.version.modified == found.version.modified == 1_700_000_000

    def test_a_job_without_a_time_gets_the_ledgers(self, world: LedgerUnderTest) -> None:
        before = world.ledger.now()

        stored = world.ledger.jobs.register(unregistered())

        assert before <= stored.created <= world.ledger.now()
        assert world.ledger.jobs.get(stored.id) == stored

    def test_registering_again_returns_the_stored_job_untouched(
        self, world: LedgerUnderTest
    ) -> None:
        running = Scene(world.ledger).job(count=3)

        again = world.elsewhere().jobs.register(
            replace(running, revision=9, state=JobState.PLANNING, created=5.0)
        )

        assert again == running
        assert world.ledger.jobs.get(running.id) == running

    def test_versions_with_a_version_id_survive(self, world: LedgerUnderTest) -> None:
        job = unregistered()
        job = replace(job, version=replace(job.version, version_id="v1", key="a/ü %2B+ .txt"))

        world.ledger.jobs.register(job)

        assert world.ledger.jobs.get(job.id) == world.ledger.jobs.register(job)
        assert world.ledger.jobs.register(job).version == job.version

    def test_an_unknown_job_is_none(self, world: LedgerUnderTest) -> None:
        assert world.ledger.jobs.get("no-such-job") is None

    def test_jobs_are_listed_newest_first_within_connector_and_state(
        self, world: LedgerUnderTest
    ) -> None:
        connector = fresh("orders")
        old, young, ended = (
            world.ledger.jobs.register(unregistered(connector=connector, created=created))
            for created in (999.5, 1_000.0, 1_001.0)
        )
        world.ledger.jobs.end(ended.id, JobState.CANCELLED, "called off")

        listed = list(world.ledger.jobs.list(connector, JobState.PLANNING))

        assert listed == [young, old]
        assert {job.id for job in world.ledger.jobs.list(connector)} == {old.id, young.id, ended.id}

    def test_jobs_of_all_connectors_are_listed(self, world: LedgerUnderTest) -> None:
        jobs = [
            world.ledger.jobs.register(
                unregistered(connector=fresh("orders"), created=float(created))
            )
            for created in (1, 2, 3)
        ]

        assert {job.id for job in jobs} <= {job.id for job in world.ledger.jobs.list()}
        planning = {job.id for job in world.ledger.jobs.list(state=JobState.PLANNING)}
        assert {job.id for job in jobs} <= planning
        assert not {job.id for job in jobs} & {
            job.id for job in world.ledger.jobs.list(state=JobState.DONE)
        }

    def test_a_connectors_name_is_not_taken_for_a_prefix(self, world: LedgerUnderTest) -> None:
        connector = fresh("orders")
        world.ledger.jobs.register(unregistered(connector=f"{connector}-2"))

        assert list(world.ledger.jobs.list(connector)) == []


class PlanContract:
    def test_the_cursor_moves_forwards(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()

        planned = world.ledger.jobs.plan(job.id, count=2, cursor=200, complete=False)

        assert (planned.state, planned.plan.count, planned.plan.cursor) == (
            JobState.PLANNING,
            2,
            200,
        )
        assert planned.plan.target_bytes == EXTENT_BYTES
        assert world.ledger.jobs.get(job.id) == planned

    def test_a_complete_plan_makes_the_job_running(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()

        planned = world.ledger.jobs.plan(job.id, count=2, cursor=200, complete=True)

        assert planned.state is JobState.RUNNING

    def test_planning_twice_is_planning_once(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()
        planned = world.ledger.jobs.plan(job.id, count=2, cursor=200, complete=True)

        again = world.elsewhere().jobs.plan(job.id, count=2, cursor=200, complete=True)

        assert again == planned

    def test_a_slower_planner_moves_nothing_back(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()
        ahead = world.ledger.jobs.plan(job.id, count=3, cursor=300, complete=False)

        assert world.elsewhere().jobs.plan(job.id, count=2, cursor=200, complete=False) == ahead
        assert world.elsewhere().jobs.plan(job.id, count=2, cursor=200, complete=True) == ahead
        assert world.elsewhere().jobs.plan(job.id, count=3, cursor=200, complete=True) == ahead
        assert world.elsewhere().jobs.plan(job.id, count=2, cursor=300, complete=True) == ahead

    def test_the_first_extents_pin_the_version_that_cut_them(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()

        def plan(count: int, cut_version: int) -> tuple[int, int]:
            stored = world.ledger.jobs.plan(
                job.id, count=count, cursor=100 * count, complete=False, cut_version=cut_version
            )
            assert world.elsewhere().jobs.get(job.id) == stored
            return stored.plan.count, stored.plan.cut_version

        assert plan(1, 7) == (1, 7)
        assert plan(2, 8) == (1, 7)
        assert plan(3, 7) == (3, 7)

    def test_a_job_that_left_planning_keeps_its_plan(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()
        world.ledger.jobs.plan(job.id, count=1, cursor=100, complete=False)
        ended = world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")

        assert world.ledger.jobs.plan(job.id, count=2, cursor=200, complete=True) == ended

    def test_an_unknown_job_cannot_be_planned_ended_or_closed(self, world: LedgerUnderTest) -> None:
        with pytest.raises(Conflict, match="no-such-job"):
            world.ledger.jobs.plan("no-such-job", count=1, cursor=1, complete=True)
        with pytest.raises(Conflict, match="no-such-job"):
            world.ledger.jobs.end("no-such-job", JobState.CANCELLED, "")
        with pytest.raises(Conflict, match="no-such-job"):
            world.ledger.jobs.close("no-such-job")
        with pytest.raises(Conflict, match="no-such-job"):
            world.ledger.jobs.resume("no-such-job")

    def test_a_job_is_done_only_when_its_extents_cover_the_plan(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        for covered, state in ((2 * EXTENT_BYTES, JobState.DONE), (1, JobState.FAILED)):
            job = scene.planning()
            world.ledger.jobs.plan(job.id, count=2, cursor=200, complete=True, covered=covered)
            lease = scene.lease()
            for ordinal in range(2):
                scene.complete(scene.claim(lease, scene.extent(job, ordinal)))

            closed = world.elsewhere().jobs.close(job.id)

            assert closed.state is state
            assert (f"cover {2 * EXTENT_BYTES} bytes instead of 1" in closed.reason) == (
                state is JobState.FAILED
            )

    def test_the_first_partition_of_a_job_stays(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()
        assert job.partition == -1

        first = world.ledger.jobs.pin_partition(job.id, 5)
        later = world.elsewhere().jobs.pin_partition(job.id, 7)

        stored = world.elsewhere().jobs.get(job.id)
        assert stored is not None
        assert first == later == stored.partition == 5


class EndContract:
    @pytest.mark.parametrize("state", [JobState.SUPERSEDED, JobState.CANCELLED, JobState.FAILED])
    def test_an_open_job_ends_at_once(self, world: LedgerUnderTest, state: JobState) -> None:
        scene = Scene(world.ledger)
        planning, running = scene.planning(), scene.job()

        ended = [world.ledger.jobs.end(job.id, state, "why") for job in (planning, running)]

        assert [(job.state, job.reason) for job in ended] == [(state, "why")] * 2
        assert world.ledger.jobs.get(running.id) == ended[1]

    def test_an_ended_job_has_the_time_of_its_end(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        running, empty = scene.job(), scene.job(count=0)
        before = world.ledger.now()

        ended = [
            world.ledger.jobs.end(running.id, JobState.CANCELLED, "why"),
            world.ledger.jobs.close(empty.id),
        ]

        after = world.ledger.now()
        assert all(before <= job.ended <= after for job in ended)
        assert world.ledger.jobs.get(empty.id) == ended[1]
        assert [job.ended for job in (running, empty, world.ledger.jobs.resume(running.id))] == [
            0.0
        ] * 3

    def test_a_final_job_is_returned_as_it_is(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).job()
        ended = world.ledger.jobs.end(job.id, JobState.CANCELLED, "first")

        assert world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "second") == ended

    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
    def test_a_job_that_is_dismissed_is_superseded_and_can_be_replayed(
        self, world: LedgerUnderTest, state: JobState
    ) -> None:
        job = Scene(world.ledger).job()
        ended = world.ledger.jobs.end(job.id, state, "why")

        dismissed = world.ledger.jobs.dismiss(job.id, "it is gone")

        assert world.ledger.jobs.dismiss(job.id, "it is gone") == dismissed
        assert world.ledger.jobs.get(job.id) == dismissed
        assert (dismissed.state, dismissed.reason) == (JobState.SUPERSEDED, "it is gone")
        assert (dismissed.ended, dismissed.published) == (ended.ended, False)
        assert world.ledger.jobs.resume(job.id).state is JobState.RUNNING

    def test_a_job_that_is_open_or_done_is_not_dismissed(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        running, done = scene.job(), world.ledger.jobs.close(scene.job(count=0).id)

        assert [world.ledger.jobs.dismiss(job.id, "why") for job in (running, done)] == [
            running,
            done,
        ]

    @pytest.mark.parametrize("state", [JobState.DONE, JobState.RUNNING, JobState.PLANNING])
    def test_a_job_is_never_ended_as_done_or_open(
        self, world: LedgerUnderTest, state: JobState
    ) -> None:
        job = Scene(world.ledger).job()

        with pytest.raises(ValueError, match=state):
            world.ledger.jobs.end(job.id, state, "")


class CloseContract:
    def test_a_job_is_done_when_every_extent_is(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job(count=2)
        scene.complete(scene.claim(scene.lease(), scene.extent(job, 0)))
        unfinished = world.ledger.jobs.close(job.id)
        scene.complete(scene.claim(scene.lease(), scene.extent(job, 1)))

        assert unfinished.state is JobState.RUNNING
        assert world.ledger.jobs.close(job.id).state is JobState.DONE
        assert world.elsewhere().jobs.close(job.id).state is JobState.DONE

    def test_a_job_without_extents_is_done(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).job(count=0)

        assert world.ledger.jobs.close(job.id).state is JobState.DONE

    def test_a_job_with_a_failed_extent_waits_for_the_others(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job(count=2)
        scene.failed(job)
        waiting = world.ledger.jobs.close(job.id)
        scene.complete(scene.claim(scene.lease(), scene.extent(job, 1)))

        closed = world.ledger.jobs.close(job.id)

        assert waiting.state is JobState.RUNNING
        assert closed.state is JobState.FAILED
        assert closed.reason == "1 of 2 extents failed"

    def test_an_ordered_job_fails_with_its_first_failed_extent(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        job = scene.job(count=5, ordered=True)
        scene.failed(job)

        assert world.ledger.jobs.close(job.id).state is JobState.FAILED

    def test_a_job_that_is_still_planning_is_never_closed(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.planning(ordered=True)
        world.ledger.jobs.plan(job.id, count=1, cursor=100, complete=False)
        scene.failed(job)

        assert world.ledger.jobs.close(job.id).state is JobState.PLANNING

    def test_an_ended_job_is_never_closed(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        claim = scene.claim(scene.lease(), scene.extent(job))
        ended = world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "replaced")
        scene.complete(claim)

        assert world.ledger.jobs.close(job.id) == ended

    def test_a_job_of_which_nothing_is_left_is_not_cancelled(self, world: LedgerUnderTest) -> None:
        """Trap: a stop cancelled a job whose extents had all ended, and whose end was open."""
        scene = Scene(world.ledger)
        job = scene.job()
        scene.complete(scene.claim(scene.lease(), scene.extent(job)))
        failed = scene.job()
        scene.failed(failed)

        assert world.ledger.jobs.end(job.id, JobState.CANCELLED, "stop").state is JobState.DONE
        assert world.ledger.jobs.end(failed.id, JobState.CANCELLED, "stop").state is JobState.FAILED

    def test_a_cancelled_job_is_done_when_its_last_extents_end(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        job = scene.job(count=2)
        claim = scene.claim(scene.lease(), scene.extent(job, 0))
        last = scene.claim(scene.lease(number=2), scene.extent(job, 1))
        cancelled = world.ledger.jobs.end(job.id, JobState.CANCELLED, "stop")
        scene.complete(claim)
        waiting = world.ledger.jobs.close(job.id)
        scene.complete(last)

        assert cancelled.state is waiting.state is JobState.CANCELLED
        assert world.ledger.jobs.close(job.id).state is JobState.DONE

    def test_a_cancelled_job_that_was_not_planned_to_its_end_stays_so(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        job = scene.planning()
        world.ledger.jobs.plan(job.id, count=1, cursor=100, complete=False)
        scene.complete(scene.claim(scene.lease(), scene.extent(job)))
        world.ledger.jobs.end(job.id, JobState.CANCELLED, "stop")

        assert world.ledger.jobs.close(job.id).state is JobState.CANCELLED


class ReplayContract:
    def closed_as_failed(self, scene: Scene, count: int = 1) -> Job:
        job = scene.job(count)
        for ordinal in range(count):
            claim = scene.claim(scene.lease(), scene.extent(job, ordinal))
            scene.advance(claim, 10)
            scene.fail(claim, 40)
        return scene.ledger.jobs.close(job.id)

    def test_a_replayed_extent_is_pending_again_at_its_position(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        job = self.closed_as_failed(scene)
        before = world.ledger.extents.get(job.id, 0)

        assert world.ledger.extents.reopen(job.id, 0)

        assert world.ledger.extents.get(job.id, 0) == replace(
            before, state=ExtentState.PENDING, attempts=0, error=""
        )
        assert before.position == 40

    def test_replay_reopens_the_job_and_takes_the_failure_back(
        self, world: LedgerUnderTest
    ) -> None:
        job = self.closed_as_failed(Scene(world.ledger), count=2)

        world.ledger.extents.reopen(job.id, 1)

        reopened = world.ledger.jobs.get(job.id)
        assert reopened == replace(job, state=JobState.RUNNING, reason="", reopened=1, ended=0.0)
        assert world.ledger.jobs.progress(job.id) == JobProgress(failed=1)

    def test_a_replayed_job_can_complete(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = self.closed_as_failed(scene)
        world.ledger.extents.reopen(job.id, 0)
        scene.complete(scene.claim(scene.lease(), scene.extent(job)))

        assert world.ledger.jobs.close(job.id).state is JobState.DONE
        assert world.ledger.jobs.progress(job.id) == JobProgress(
            done=1, records=100, bad=2, bytes=EXTENT_BYTES
        )

    def test_only_a_failed_extent_is_replayed(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job(count=3)
        scene.complete(scene.claim(scene.lease(), scene.extent(job, 0)))
        scene.claim(scene.lease(), scene.extent(job, 1))

        assert [world.ledger.extents.reopen(job.id, ordinal) for ordinal in range(3)] == [False] * 3
        assert world.ledger.jobs.get(job.id) == job

    def test_a_second_replay_changes_nothing(self, world: LedgerUnderTest) -> None:
        job = self.closed_as_failed(Scene(world.ledger))

        assert world.ledger.extents.reopen(job.id, 0)
        assert not world.elsewhere().extents.reopen(job.id, 0)

        assert world.ledger.jobs.progress(job.id) == JobProgress()

    def test_replay_of_a_superseded_job_runs_it_again(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job(count=2)
        scene.failed(job)
        world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "replaced")

        assert world.ledger.extents.reopen(job.id, 0)

        reopened = world.ledger.jobs.get(job.id)
        assert reopened == replace(job, reopened=1)

    def test_replay_leaves_planning_to_the_planner(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        open_job, ended = scene.planning(), scene.planning()
        for job in (open_job, ended):
            scene.failed(job)
        world.ledger.jobs.end(ended.id, JobState.FAILED, "listing stopped")

        for job in (open_job, ended):
            world.ledger.extents.reopen(job.id, 0)

        states = [
            found.state for job in (open_job, ended) if (found := world.ledger.jobs.get(job.id))
        ]
        assert states == [JobState.PLANNING, JobState.PLANNING]

    def test_an_extent_of_a_cancelled_job_is_not_replayed(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job(count=2)
        scene.failed(job)
        world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")

        with pytest.raises(Conflict, match=job.id):
            world.ledger.extents.reopen(job.id, 0)

    def test_unknown_progress_is_replayed_only_when_duplicates_are_accepted(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        scene.claim(scene.lease(), scene.extent(job))
        world.ledger.slots.settle(scene.lease(), world.ledger.extents.get(job.id, 0), UNKNOWN)

        with pytest.raises(ProgressUnknown, match=job.id):
            world.ledger.extents.reopen(job.id, 0)
        refused = world.ledger.extents.get(job.id, 0)
        accepted = world.ledger.extents.reopen(job.id, 0, accept_duplicates=True)

        assert refused.state is ExtentState.FAILED
        assert accepted
        assert not world.ledger.extents.get(job.id, 0).progress_unknown

    @pytest.mark.parametrize("state", [JobState.SUPERSEDED, JobState.CANCELLED, JobState.FAILED])
    def test_an_ended_job_resumes_where_it_was(
        self, world: LedgerUnderTest, state: JobState
    ) -> None:
        scene = Scene(world.ledger)
        planning, running = scene.planning(), scene.job()
        for job in (planning, running):
            world.ledger.jobs.end(job.id, state, "why")

        resumed = [world.ledger.jobs.resume(job.id) for job in (planning, running)]

        assert resumed == [replace(planning, reopened=1), replace(running, reopened=1)]
        assert world.ledger.jobs.get(running.id) == resumed[1]

    def test_a_job_that_is_open_or_done_is_not_resumed(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        planning, running, empty = scene.planning(), scene.job(), scene.job(count=0)
        done = world.ledger.jobs.close(empty.id)

        assert [world.ledger.jobs.resume(job.id) for job in (planning, running, done)] == [
            planning,
            running,
            done,
        ]

    def test_resuming_leaves_failed_extents_to_replay(self, world: LedgerUnderTest) -> None:
        job = self.closed_as_failed(Scene(world.ledger))

        world.ledger.jobs.resume(job.id)

        assert world.ledger.extents.get(job.id, 0).state is ExtentState.FAILED
        assert world.ledger.jobs.progress(job.id) == JobProgress(failed=1)

    def next_of(self, job: Job) -> Job:
        following = job_id(job.connector, job.version, job.generation + 1)
        return replace(job, id=following, generation=job.generation + 1, created=1_000.0)

    def test_a_job_that_is_followed_is_not_opened_again(self, world: LedgerUnderTest) -> None:
        """Trap: two commands at the same moment opened two generations of an object."""
        jobs, job = world.ledger.jobs, self.closed_as_failed(Scene(world.ledger))
        following = replace(self.next_of(job), state=JobState.PLANNING, plan=Plan(1), reason="")

        begun = jobs.follow(job, following)

        assert begun is not None
        assert begun == jobs.get(following.id)
        assert (begun.generation, begun.state) == (1, JobState.PLANNING)
        assert jobs.get(job.id) == job
        with pytest.raises(Conflict, match="a later job delivers the object since"):
            jobs.resume(job.id)
        with pytest.raises(Conflict, match="a later job delivers the object since"):
            world.ledger.extents.reopen(job.id, 0)
        assert jobs.get(job.id) == job
        assert jobs.resume(job.id, accept_duplicates=True).state is JobState.RUNNING
        assert world.ledger.extents.reopen(job.id, 0, accept_duplicates=True)

    def test_a_job_that_was_opened_again_is_not_followed(self, world: LedgerUnderTest) -> None:
        jobs, job = world.ledger.jobs, self.closed_as_failed(Scene(world.ledger))
        opened = jobs.resume(job.id)

        assert jobs.follow(job, self.next_of(job)) is None
        assert jobs.get(self.next_of(job).id) is None
        assert jobs.get(job.id) == opened

    def test_a_generation_is_registered_once(self, world: LedgerUnderTest) -> None:
        jobs, job = world.ledger.jobs, self.closed_as_failed(Scene(world.ledger))
        first = jobs.follow(job, self.next_of(job))

        assert jobs.follow(job, replace(self.next_of(job), created=2_000.0)) == first


class PublishContract:
    """Jobs whose end is unpublished. Each test uses a connector of its own."""

    def waiting(self, ledger: Ledger, connector: str) -> list[Job]:
        return [job for job in ledger.jobs.unpublished(10_000) if job.connector == connector]

    def jobs(self, ledger: Ledger, count: int = 1) -> list[Job]:
        """Register jobs, each younger than the one before, under a connector of their own."""
        connector = fresh("orders")
        ledger.connectors.put(connector, {})
        return [
            ledger.jobs.register(unregistered(connector=connector, created=1_000.0 + number))
            for number in range(count)
        ]

    @pytest.mark.parametrize("state", [JobState.SUPERSEDED, JobState.CANCELLED, JobState.FAILED])
    def test_the_end_of_an_ended_job_is_unpublished(
        self, world: LedgerUnderTest, state: JobState
    ) -> None:
        (job,) = self.jobs(world.ledger)
        before = self.waiting(world.ledger, job.connector)

        ended = world.ledger.jobs.end(job.id, state, "why")

        assert before == []
        assert self.waiting(world.elsewhere(), job.connector) == [ended]
        assert not ended.published

    def test_the_end_of_a_closed_job_is_unpublished(self, world: LedgerUnderTest) -> None:
        (job,) = self.jobs(world.ledger)
        world.ledger.jobs.plan(job.id, count=0, cursor=0, complete=True)

        done = world.ledger.jobs.close(job.id)

        assert done.state is JobState.DONE
        assert self.waiting(world.ledger, job.connector) == [done]

    def test_a_published_end_is_not_listed(self, world: LedgerUnderTest) -> None:
        first, second = self.jobs(world.ledger, 2)
        ended = [
            world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")
            for job in (first, second)
        ]

        world.ledger.jobs.mark_published(ended[0])

        assert self.waiting(world.ledger, first.connector) == [ended[1]]
        assert world.elsewhere().jobs.get(first.id) == replace(ended[0], published=True)

    def test_marking_twice_is_marking_once(self, world: LedgerUnderTest) -> None:
        (job,) = self.jobs(world.ledger)
        ended = world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")

        world.ledger.jobs.mark_published(ended)
        world.elsewhere().jobs.mark_published(ended)

        assert self.waiting(world.ledger, job.connector) == []
        assert world.ledger.jobs.get(job.id) == replace(ended, published=True)

    def test_a_job_that_ends_again_is_unpublished_again(self, world: LedgerUnderTest) -> None:
        (job,) = self.jobs(world.ledger)
        world.ledger.jobs.mark_published(world.ledger.jobs.end(job.id, JobState.FAILED, "first"))

        resumed = world.ledger.jobs.resume(job.id)
        open_again = self.waiting(world.ledger, job.connector)
        ended = world.ledger.jobs.end(job.id, JobState.FAILED, "second")

        assert not resumed.published
        assert open_again == []
        assert self.waiting(world.ledger, job.connector) == [ended]

    def test_marking_an_end_does_not_mark_the_next_one(self, world: LedgerUnderTest) -> None:
        (job,) = self.jobs(world.ledger)
        first = world.ledger.jobs.end(job.id, JobState.FAILED, "first")
        world.ledger.jobs.resume(job.id)
        second = world.ledger.jobs.end(job.id, JobState.FAILED, "second")

        world.ledger.jobs.mark_published(first)

        assert self.waiting(world.ledger, job.connector) == [second]

    def test_marking_does_not_change_a_reopened_job(self, world: LedgerUnderTest) -> None:
        (job,) = self.jobs(world.ledger)
        ended = world.ledger.jobs.end(job.id, JobState.FAILED, "why")
        resumed = world.ledger.jobs.resume(job.id)

        world.ledger.jobs.mark_published(ended)

        assert world.ledger.jobs.get(job.id) == resumed

    def test_an_open_job_has_no_end_to_publish(self, world: LedgerUnderTest) -> None:
        (job,) = self.jobs(world.ledger)

        with pytest.raises(ValueError, match="PLANNING"):
            world.ledger.jobs.mark_published(job)

    def test_marking_does_not_create_an_unknown_job(self, world: LedgerUnderTest) -> None:
        job = unregistered().in_state(JobState.FAILED)

        world.ledger.jobs.mark_published(job)

        assert world.ledger.jobs.get(job.id) is None

    def test_unpublished_ends_are_limited_and_the_oldest_first(
        self, world: LedgerUnderTest
    ) -> None:
        ledger = world.another_table()
        jobs = self.jobs(ledger, 3)
        ended = [
            ledger.jobs.end(job.id, JobState.CANCELLED, "called off") for job in reversed(jobs)
        ]

        assert list(ledger.jobs.unpublished(2)) == [ended[2], ended[1]]
        assert list(ledger.jobs.unpublished(0)) == []

    def test_ends_of_a_deleted_connector_are_unpublished_too(self, world: LedgerUnderTest) -> None:
        (job,) = self.jobs(world.ledger)
        world.ledger.connectors.delete(job.connector)

        ended = world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")

        assert self.waiting(world.ledger, job.connector) == [ended]

    def test_listings_include_published_and_unpublished_jobs(self, world: LedgerUnderTest) -> None:
        jobs = self.jobs(world.ledger, 4)
        ended = [world.ledger.jobs.end(job.id, JobState.FAILED, "why") for job in jobs[:3]]
        called_off = world.ledger.jobs.end(jobs[3].id, JobState.CANCELLED, "called off")
        world.ledger.jobs.mark_published(ended[1])
        expected = [ended[2], replace(ended[1], published=True), ended[0]]

        connector = jobs[0].connector

        assert list(world.ledger.jobs.list(connector, JobState.FAILED)) == expected
        assert list(world.ledger.jobs.list(connector)) == [*expected, called_off]
        everywhere = [job for job in world.ledger.jobs.list() if job.connector == connector]
        assert everywhere == [*expected, called_off]
        failed = world.ledger.jobs.list(state=JobState.FAILED)
        assert [job for job in failed if job.connector == connector] == expected
