"""MemoryFolder keeps the contract of folders."""

import pytest
from tests.contracts.folder import FolderContract

from extentflow.storage.folders import Folder
from extentflow.testing.folders import MemoryFolder


class TestMemoryFolder(FolderContract):
    @pytest.fixture(params=[False, True], ids=["moves", "moves by copy"])
    def folder(self, request: pytest.FixtureRequest) -> Folder:
        return MemoryFolder(moves_by_copy=request.param)
