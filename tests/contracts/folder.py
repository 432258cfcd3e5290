"""What every Folder must do; run over MemoryFolder, LocalFolder and S3.

A suite subclasses `FolderContract` and provides the fixture `folder`, which is empty.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from extentflow.errors import Conflict, ObjectGone
from extentflow.storage.folders import Folder


def publish(folder: Folder, name: str, *parts: bytes) -> None:
    spool = folder.spool()
    try:
        for part in parts:
            spool.write(memoryview(part))
        spool.publish(name)
    finally:
        spool.close()
        spool.close()


def put_all(folder: Folder, names: Iterable[str]) -> None:
    for name in names:
        folder.put(name, name.encode())


class FolderContract:
    @pytest.fixture
    def folder(self) -> Folder:
        raise NotImplementedError

    # -- creating ----------------------------------------------------------------------------------

    def test_a_name_is_created_once_and_a_repeated_request_is_harmless(
        self, folder: Folder
    ) -> None:
        created = [folder.create("log/1", content) for content in (b"first", b"second", b"first")]

        assert created == [True, False, True]
        assert folder.read("log/1") == b"first"

    def test_one_of_several_callers_creates_a_name(self, folder: Folder) -> None:
        contents = [b"%d" % number for number in range(8)]

        with ThreadPoolExecutor(len(contents)) as threads:
            created = list(threads.map(lambda content: folder.create("log/1", content), contents))

        assert created.count(True) == 1
        assert folder.read("log/1") == contents[created.index(True)]

    def test_names_are_created_once_here(self, folder: Folder) -> None:
        assert folder.creates_once()
        assert list(folder.names()) == []

    # -- writing and reading -----------------------------------------------------------------------

    def test_put_takes_the_place_of_a_file(self, folder: Folder) -> None:
        folder.put("day=1/a", b"first")
        folder.put("day=1/a", b"second")

        assert folder.read("day=1/a") == b"second"

    def test_a_file_that_is_not_there_is_gone_and_deleting_it_has_no_effect(
        self, folder: Folder
    ) -> None:
        folder.put("a", b"")
        folder.delete("a")
        folder.delete("a")

        with pytest.raises(ObjectGone):
            folder.read("a")
        assert list(folder.names()) == []

    # -- spooling ----------------------------------------------------------------------------------

    def test_a_file_is_visible_when_it_is_published_and_not_before(self, folder: Folder) -> None:
        spool = folder.spool()
        spool.write(b"one ")
        spool.write(memoryview(b"two"))
        before = list(folder.names())
        spool.publish("a")
        spool.close()

        assert before == []
        assert list(folder.names()) == ["a"]
        assert folder.read("a") == b"one two"

    def test_a_file_is_never_published_over_another_one(self, folder: Folder) -> None:
        publish(folder, "a", b"first")
        publish(folder, "a", b"fir", b"st")
        with pytest.raises(Conflict, match="exists with other bytes"):
            publish(folder, "a", b"other")

        assert folder.read("a") == b"first"

    def test_what_is_not_published_leaves_nothing(self, folder: Folder) -> None:
        spool = folder.spool()
        spool.write(b"half of")
        spool.close()

        assert list(folder.names()) == []

    def test_cleaning_leaves_published_files_and_open_ones(self, folder: Folder) -> None:
        publish(folder, "a", b"a")
        spool = folder.spool()

        folder.clean()

        spool.write(b"b")
        spool.publish("b")
        spool.close()
        assert list(folder.names()) == ["a", "b"]

    # -- listing -----------------------------------------------------------------------------------

    def test_names_are_sorted_below_the_prefix_from_a_name_on(self, folder: Folder) -> None:
        put_all(folder, ("b/2", "b/1", ".next", "c/1", "b/x/0", "bc"))

        assert list(folder.names()) == [".next", "b/1", "b/2", "b/x/0", "bc", "c/1"]
        assert list(folder.names("b/")) == ["b/1", "b/2", "b/x/0"]
        assert list(folder.names("b/", "b/2")) == ["b/2", "b/x/0"]
        assert list(folder.names(start="b/x")) == ["b/x/0", "bc", "c/1"]
        assert list(folder.names("none/")) == []

    def test_a_folder_below_has_its_own_names(self, folder: Folder) -> None:
        below = folder.below("orders/0")
        publish(below, "1", b"1")
        folder.put("orders/1/1", b"")

        assert list(below.names()) == ["1"]
        assert list(folder.names("orders/0/")) == ["orders/0/1"]
        assert below.uri("1") == folder.uri("orders/0/1")

    # -- moving ------------------------------------------------------------------------------------

    def test_a_move_may_be_repeated(self, folder: Folder) -> None:
        folder.put("staged/a", b"a")

        folder.move("staged/a", "day=1/a")
        folder.move("staged/a", "day=1/a")

        assert list(folder.names()) == ["day=1/a"]
        assert folder.read("day=1/a") == b"a"

    def test_a_move_of_nothing_is_an_error(self, folder: Folder) -> None:
        with pytest.raises(ObjectGone):
            folder.move("staged/a", "day=1/a")
