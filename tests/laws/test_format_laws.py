"""Every format keeps every law; see laws.py for what they say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import laws
from tests.laws.laws import FormatCase, Sample

WINDOWS = st.integers(1_000, 200_000)
BATCHES = st.integers(50, 5_000)
# Of cuts and faults per sample, `make test` tries few, `make soak` all that are worth trying.
MANY = pytest.mark.soak


def _ends(case: FormatCase, sample: Sample) -> range:
    """Return where a sample may be cut in two."""
    return range(1, len(sample.body)) if case.format().splittable else range(0)


def test_the_whole_object_is_what_others_read_in_it(case: FormatCase, small: Sample) -> None:
    result = laws.whole(case, small)

    assert result.locations == sorted(set(result.locations))


@pytest.mark.parametrize("most", [15, pytest.param(40, marks=MANY)])
def test_every_cut_yields_everything_once(case: FormatCase, small: Sample, most: int) -> None:
    for cut in laws.some(_ends(case, small), most):
        laws.any_partition_yields_everything_once(case, small, (cut,), 7, 2)


def test_cuts_at_every_byte_at_once_yield_everything_once(case: FormatCase, small: Sample) -> None:
    sizes = {(window, case.batches[0]) for window in case.windows}
    sizes |= {(case.windows[0], batch) for batch in case.batches}
    sizes.add((case.windows[-1], case.batches[-1]))
    for window, batch in sorted(sizes):
        laws.any_partition_yields_everything_once(case, small, _ends(case, small), window, batch)


def test_every_window_and_batch_size_yields_everything_once(
    case: FormatCase, small: Sample
) -> None:
    for window in (*case.windows, len(small.body), len(small.body) + 1):
        for batch in range(1, len(small.rows) + 2):
            laws.any_partition_yields_everything_once(case, small, (), max(2, window), batch)


def test_decoding_resumes_at_every_position(case: FormatCase, small: Sample) -> None:
    size = len(small.body)
    middles = {0, 1, size // 2, size - 1} if _ends(case, small) else {0}
    for start in sorted(middle for middle in middles if 0 <= middle < size):
        laws.decoding_resumes_at_every_position(case, small, (start, size), (2, 1), (5, 3))
        laws.decoding_resumes_at_every_position(case, small, (start, size), (9, 2), (3, 1))
        # Several batches of one window: each begins within what was read at once.
        laws.decoding_resumes_at_every_position(case, small, (start, size), (1 << 16, 1), (64, 2))


def test_every_row_is_a_position(case: FormatCase, small: Sample) -> None:
    laws.every_row_is_a_position(case, small)


def test_stated_columns_are_those_of_every_chunk(case: FormatCase, small: Sample) -> None:
    laws.stated_columns_are_decoded(case, small)


def test_a_plan_is_a_partition(case: FormatCase, small: Sample) -> None:
    size = len(small.body)
    for target in sorted({1, 2, 7, max(1, size - 1), max(1, size), size + 1, 1 << 40}):
        laws.a_plan_is_a_partition(case, small, target)


@pytest.mark.parametrize(("most", "cuts"), [(6, 2), pytest.param(12, 5, marks=MANY)])
def test_a_fault_in_any_read_surfaces(
    case: FormatCase, small: Sample, most: int, cuts: int
) -> None:
    size = len(small.body)
    assert laws.every_fault_surfaces(case, small, (0, size), (2, 1), most=most) > 0
    assert laws.every_fault_surfaces(case, small, (0, size), (64, 2), most=most) > 0
    for location in laws.some(_ends(case, small), cuts):
        laws.every_fault_surfaces(case, small, (0, location), (4, 2), most=cuts)
        laws.every_fault_surfaces(case, small, (location, size), (4, 2), most=cuts)


@pytest.mark.parametrize("most", [25, pytest.param(60, marks=MANY)])
def test_a_stream_that_just_ends_is_an_error(case: FormatCase, small: Sample, most: int) -> None:
    size = len(small.body)
    for stop in laws.some(range(size), most):
        laws.a_silent_end_is_an_error(case, small, (0, size), stop)


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=3, deadline=None)
def test_random_cuts_of_large_objects_yield_everything_once(
    case: FormatCase, large: Sample, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(large.body) - 1), max_size=8))
    kept = sorted(cuts) if case.format().splittable else ()

    laws.any_partition_yields_everything_once(
        case, large, kept, data.draw(WINDOWS), data.draw(BATCHES)
    )


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_large_objects_resume_anywhere(
    case: FormatCase, large: Sample, data: st.DataObject
) -> None:
    size = len(large.body)
    start = data.draw(st.integers(0, size - 1)) if case.format().splittable else 0
    sizes = (data.draw(WINDOWS), data.draw(BATCHES))
    others = (data.draw(WINDOWS), data.draw(BATCHES))

    laws.decoding_resumes_at_every_position(
        case, large, (start, size), sizes, others, most=data.draw(st.integers(1, 6))
    )
