"""The error tree: its drawing and its classes."""

import pickle
import re
from collections.abc import Iterator

import pytest
from tests.support.golden import Golden

from extentflow import errors
from extentflow.errors import (
    BucketGone,
    ExtentflowError,
    Misconfigured,
    ObjectChanged,
    ObjectGone,
)


def drawn() -> Iterator[tuple[str, str]]:
    """Yield each class of the docstring's drawing with its parent."""
    for line in (errors.__doc__ or "").splitlines():
        if found := re.fullmatch(r"    [├└]── (\w+)  .*", line):
            branch = found[1]
            yield branch, ExtentflowError.__name__
        elif found := re.fullmatch(r"    [│ ]     (\w.*)", line):
            for name, children in re.findall(r"(\w+)(?: \(([\w, ]+)\))?", found[1]):
                yield name, branch
                for child in re.findall(r"\w+", children):
                    yield child, name


def defined(parent: type[ExtentflowError] = ExtentflowError) -> Iterator[tuple[str, str]]:
    """Yield each error class of the module with its parent."""
    for one in parent.__subclasses__():
        if one.__module__ == errors.__name__:
            yield one.__name__, parent.__name__
            yield from defined(one)


def test_the_drawing_shows_every_error_class_below_its_parent() -> None:
    assert sorted(drawn()) == sorted(defined())


def test_misconfigured_keeps_its_problems_when_pickled() -> None:
    copy = pickle.loads(pickle.dumps(Misconfigured(["one", "two"])))  # noqa: S301 - its own bytes

    assert copy.problems == ("one", "two")


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        (ObjectGone("s3://b/k:\n  404"), "object gone: s3://b/k: 404"),
        (BucketGone("s3://b: no such bucket"), "s3://b: no such bucket"),
        (ObjectChanged("s3://b/k:\n  412"), "s3://b/k: 412"),
    ],
)
def test_a_stored_reason_is_one_line(error: ExtentflowError, stored: str) -> None:
    assert errors.reason(error) == stored


def test_a_defect_names_its_object_and_keeps_its_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
    golden: Golden,
) -> None:
    with pytest.raises(errors.Defect) as caught, errors.contain_defects("s3://b/k"):
        raise ZeroDivisionError("oh")

    golden(caught.value)
    assert "s3://b/k" in str(caught.value)
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("error", [ObjectGone("gone"), KeyboardInterrupt()])
def test_errors_of_the_tree_and_interrupts_are_no_defects(error: BaseException) -> None:
    with pytest.raises(type(error)), errors.contain_defects("s3://b/k"):
        raise error
