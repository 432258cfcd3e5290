"""The ledger's contract for notes, registered jobs and names of connectors."""

from tests.contracts.ledger import LedgerUnderTest, Scene, fresh, unregistered

from extentflow.model import JobState


class FindRegisteredContract:
    def test_only_registered_jobs_are_found(self, world: LedgerUnderTest) -> None:
        jobs = [Scene(world.ledger).planning() for _ in range(3)]
        strangers = [unregistered() for _ in range(3)]

        known = world.ledger.jobs.find_registered(job.id for job in jobs + strangers)

        assert known == {job.id for job in jobs}

    def test_jobs_are_found_beyond_one_request(self, world: LedgerUnderTest) -> None:
        ids = [unregistered().id for _ in range(250)]
        first, last = (world.ledger.jobs.register(unregistered()).id for _ in range(2))

        assert world.ledger.jobs.find_registered([first, *ids, last]) == {first, last}

    def test_a_repeated_id_is_read_once(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()

        assert world.ledger.jobs.find_registered([job.id, job.id]) == {job.id}

    def test_no_ids_find_no_jobs(self, world: LedgerUnderTest) -> None:
        assert world.ledger.jobs.find_registered([]) == set()

    def test_jobs_are_found_in_every_state_but_superseded(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        running, cancelled, failed = scene.job(), scene.planning(), scene.planning()
        world.ledger.jobs.end(cancelled.id, JobState.CANCELLED, "called off")
        world.ledger.jobs.end(failed.id, JobState.FAILED, "not to be read")
        ids = {running.id, cancelled.id, failed.id}

        assert world.ledger.jobs.find_registered(ids) == ids

    def test_a_superseded_job_is_not_found(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()
        world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "another version")

        assert world.ledger.jobs.find_registered([job.id]) == set()


class ManyJobsContract:
    """Many jobs, their counters and extents, in few requests."""

    def test_jobs_are_read_beyond_one_request(self, world: LedgerUnderTest) -> None:
        strangers = [unregistered().id for _ in range(250)]
        jobs = [Scene(world.ledger).planning() for _ in range(2)]
        first, last = (job.id for job in jobs)

        found = world.ledger.jobs.get_many([first, *strangers, last, first])

        assert sorted(found, key=lambda job: job.id) == sorted(jobs, key=lambda job: job.id)

    def test_counters_of_jobs_are_those_of_each(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        done, failed, fresh_one = scene.job(20), scene.job(2), scene.planning()
        for number in (0, 17):
            scene.complete(scene.claim(scene.lease(number), scene.extent(done, number)))
        scene.fail(scene.claim(scene.lease(1), scene.extent(failed, 1)))
        jobs = [done, failed, fresh_one]

        found = world.ledger.jobs.progress_of(jobs)

        assert found == {job.id: world.ledger.jobs.progress(job.id) for job in jobs}
        assert (found[done.id].done, found[failed.id].failed) == (2, 1)

    def test_extents_of_jobs_are_those_of_each(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        few, many, none = scene.job(2), scene.job(101), scene.planning()
        scene.claim(scene.lease(0), scene.extent(few, 1))
        scene.fail(scene.claim(scene.lease(1), scene.extent(few, 0)))
        scene.complete(scene.claim(scene.lease(2), scene.extent(many, 100)))
        jobs = [few, many, none]

        found = world.ledger.extents.list_many(jobs)

        assert found == {job.id: [*world.ledger.extents.list(job.id)] for job in jobs}
        assert [len(found[job.id]) for job in jobs] == [2, 1, 0]


class NotesContract:
    def test_a_note_is_read_as_written(self, world: LedgerUnderTest) -> None:
        name, facts = fresh("note"), {"token": "a/b ü\U0001f600", "empty": ""}

        world.ledger.notes.remember(name, facts)

        assert world.elsewhere().notes.recall(name) == facts

    def test_another_name_has_no_note(self, world: LedgerUnderTest) -> None:
        world.ledger.notes.remember(fresh("note"), {"token": "a"})

        assert world.ledger.notes.recall(fresh("note")) is None

    def test_a_later_note_replaces_an_earlier_one(self, world: LedgerUnderTest) -> None:
        name = fresh("note")
        world.ledger.notes.remember(name, {"token": "a", "place": "x"})

        world.elsewhere().notes.remember(name, {"token": "b"})

        assert world.ledger.notes.recall(name) == {"token": "b"}

    def test_an_empty_note_is_a_note(self, world: LedgerUnderTest) -> None:
        name = fresh("note")
        world.ledger.notes.remember(name, {"token": "a"})

        world.ledger.notes.remember(name, {})

        assert world.ledger.notes.recall(name) == {}

    def test_an_expired_note_is_not_returned(self, world: LedgerUnderTest) -> None:
        over, kept = fresh("note"), fresh("note")

        world.ledger.notes.remember(over, {"token": "a"}, keep_seconds=-10)
        world.ledger.notes.remember(kept, {"token": "b"}, keep_seconds=600)

        assert world.ledger.notes.recall(over) is None
        assert world.ledger.notes.recall(kept) == {"token": "b"}

    def test_a_note_rewritten_without_expiry_stays(self, world: LedgerUnderTest) -> None:
        name = fresh("note")
        world.ledger.notes.remember(name, {"token": "a"}, keep_seconds=-10)

        world.ledger.notes.remember(name, {"token": "b"})

        assert world.ledger.notes.recall(name) == {"token": "b"}


class NamesContract:
    def test_deleted_connectors_keep_their_names(self, world: LedgerUnderTest) -> None:
        shown, deleted = fresh("orders"), fresh("orders")
        for name in (shown, deleted):
            world.ledger.connectors.put(name, {"format": "text"})
        world.ledger.connectors.delete(deleted)

        assert {shown, deleted} <= set(world.elsewhere().connectors.names())
