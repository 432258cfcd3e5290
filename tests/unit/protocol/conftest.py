"""Thousands of schedules would log tens of thousands of lines."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("extentflow")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)
