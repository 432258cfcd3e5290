"""Settings of all tests."""

import gc
import os
from collections.abc import Generator, Iterator
from functools import lru_cache

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import HealthCheck, settings
from tests.support.golden import (
    golden,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_sessionfinish,
)

__all__ = [
    "golden",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_sessionfinish",
]

_read = JSONFileLoader.load_file


@lru_cache(maxsize=256)
def _description(path: str) -> object:
    return _read(JSONFileLoader(), path)


# Hundreds of tests make a session of boto3, and each would parse the same descriptions of services.
pytest.MonkeyPatch().setattr(JSONFileLoader, "load_file", lambda _self, path: _description(path))

# How long an example takes says how busy the machine is.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, a third of the time: what collection makes stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    # What is frozen would be reported as a leak.
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep commands without settings away from the user's own ledger and running servers."""
    ours = {
        "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state")),
        "EXTENTFLOW_LOCAL_STACK": "off",
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    yield
    for name, text in before.items():
        if text is None:
            del os.environ[name]
        else:
            os.environ[name] = text
