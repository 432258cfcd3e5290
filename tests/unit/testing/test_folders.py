"""MemoryFolder keeps the contract of folders."""

import pytest
from tests.contracts.folder import FolderContract

from extentflow.storage.folders import Folder
from extentflow.testing.folders import MemoryFolder


class TestMemoryFolder(FolderContract):
    @pytest.fixture
    def folder(self) -> Folder:
        return MemoryFolder()
