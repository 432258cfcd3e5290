"""The ledger's contract for what a reconciler asks: which jobs are known, notes, all names."""

from tests.contracts.ledger import LedgerUnderTest, Scene, fresh, unregistered

from extentflow.model import JobState


class KnownContract:
    def test_registered_jobs_are_known_and_others_are_not(self, world: LedgerUnderTest) -> None:
        jobs = [Scene(world.ledger).planning() for _ in range(3)]
        strangers = [unregistered() for _ in range(3)]

        known = world.ledger.jobs.find_registered(job.id for job in jobs + strangers)

        assert known == {job.id for job in jobs}

    def test_more_jobs_than_one_request_asks_for_are_known(self, world: LedgerUnderTest) -> None:
        ids = [unregistered().id for _ in range(250)]
        first, last = (world.ledger.jobs.register(unregistered()).id for _ in range(2))

        assert world.ledger.jobs.find_registered([first, *ids, last]) == {first, last}

    def test_the_same_id_twice_is_asked_once(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()

        assert world.ledger.jobs.find_registered([job.id, job.id]) == {job.id}

    def test_nobody_is_known_among_none(self, world: LedgerUnderTest) -> None:
        assert world.ledger.jobs.find_registered([]) == set()

    def test_a_job_is_known_whatever_it_came_to(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        running, cancelled, failed = scene.job(), scene.planning(), scene.planning()
        world.ledger.jobs.end(cancelled.id, JobState.CANCELLED, "called off")
        world.ledger.jobs.end(failed.id, JobState.FAILED, "not to be read")
        ids = {running.id, cancelled.id, failed.id}

        assert world.ledger.jobs.find_registered(ids) == ids

    def test_a_superseded_job_is_not_known_for_its_version_may_have_come_back(
        self, world: LedgerUnderTest
    ) -> None:
        job = Scene(world.ledger).planning()
        world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "another version")

        assert world.ledger.jobs.find_registered([job.id]) == set()


class NotesContract:
    def test_what_was_remembered_is_recalled(self, world: LedgerUnderTest) -> None:
        name, facts = fresh("note"), {"token": "a/b ü\U0001f600", "empty": ""}

        world.ledger.notes.remember(name, facts)

        assert world.elsewhere().notes.recall(name) == facts

    def test_nothing_was_remembered_under_another_name(self, world: LedgerUnderTest) -> None:
        world.ledger.notes.remember(fresh("note"), {"token": "a"})

        assert world.ledger.notes.recall(fresh("note")) is None

    def test_later_facts_take_the_place_of_earlier_ones(self, world: LedgerUnderTest) -> None:
        name = fresh("note")
        world.ledger.notes.remember(name, {"token": "a", "place": "x"})

        world.elsewhere().notes.remember(name, {"token": "b"})

        assert world.ledger.notes.recall(name) == {"token": "b"}

    def test_no_facts_are_facts_too(self, world: LedgerUnderTest) -> None:
        name = fresh("note")
        world.ledger.notes.remember(name, {"token": "a"})

        world.ledger.notes.remember(name, {})

        assert world.ledger.notes.recall(name) == {}

    def test_a_note_is_forgotten_once_its_time_is_over(self, world: LedgerUnderTest) -> None:
        over, kept = fresh("note"), fresh("note")

        world.ledger.notes.remember(over, {"token": "a"}, keep_seconds=-10)
        world.ledger.notes.remember(kept, {"token": "b"}, keep_seconds=600)

        assert world.ledger.notes.recall(over) is None
        assert world.ledger.notes.recall(kept) == {"token": "b"}

    def test_a_note_that_is_written_again_for_good_expires_no_more(
        self, world: LedgerUnderTest
    ) -> None:
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
