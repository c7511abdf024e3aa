"""The worked examples of the thesis on caches (5.1.1 to 5.4.4, 5.5.1, 5.5.2), with its misprint in 5.4.2 corrected."""

from __future__ import annotations

import pytest

from benchmarks.models.caches.global_caches import GlobalSegment, global_candidates, within_quota
from benchmarks.models.caches.traced_join import TracedJoin, row_of
from headrace.adaptive.caches.segments import Segment, candidates, children, is_prefix_invariant, key_of

ORDERS = tuple(
    tuple(window - 1 for window in order)
    for order in (
        (2, 3, 4, 5, 6),
        (1, 3, 5, 4, 6),
        (2, 1, 4, 5, 6),
        (5, 1, 2, 3, 6),
        (4, 2, 3, 1, 6),
        (2, 1, 4, 5, 3),
    )
)
EQUALITIES = (((0, "A"), (1, "A")), ((1, "B"), (2, "B")))
"""R1(A) joined with R2(A, B) on A, and R2 with R3(B) on B."""


def named(segment: Segment) -> tuple[int, str]:
    """The pipeline and the windows, numbered from one."""
    return segment.pipeline + 1, "".join(str(window + 1) for window in segment.windows)


def test_the_candidates_of_six_windows_are_the_ten_that_keep_the_prefix_invariant() -> None:
    assert {named(segment) for segment in candidates(ORDERS)} == {
        *((pipeline, "45") for pipeline in (1, 2, 3, 6)),
        *((pipeline, "12") for pipeline in (3, 4, 6)),
        *((pipeline, "123") for pipeline in (4, 5)),
        (6, "12345"),
    }
    assert len(candidates(ORDERS)) == 10


def test_candidates_of_a_pipeline_nest_or_are_disjoint() -> None:
    found = children(candidates(ORDERS))
    (whole,) = [segment for segment in found[None] if segment.pipeline == 5]
    assert [named(segment) for segment in found[whole]] == [(6, "12"), (6, "45")]
    (three,) = [segment for segment in found[None] if segment.pipeline == 3]
    assert [named(segment) for segment in found[three]] == [(4, "12")]


def test_without_the_prefix_invariant_a_cache_is_kept_by_a_larger_set() -> None:
    """With R6 probing R2, R3, R4, R5, R1: {R2, R3} is not a candidate, but (R2 ⋈ R3) ⋉ R1 can be kept."""
    orders = (*ORDERS[:5], (1, 2, 3, 4, 0))
    assert not is_prefix_invariant(orders, (1, 2))
    kept = {
        named(one.segment): one.seen_with for one in global_candidates(orders) if one.segment.pipeline == 5
    }
    assert kept[6, "23"] == (0, 1, 2, 3, 4, 5)
    assert is_prefix_invariant(orders, (0, 1, 2))


def test_the_quota_is_filled_with_the_largest_segments() -> None:
    orders = ((1, 2, 3), (2, 3, 0), (3, 0, 1), (0, 1, 2))
    own, more = within_quota(orders, 6)
    assert own == ()
    assert [len(one.segment.windows) for one in more] == [3, 3, 3, 3, 2, 2]
    assert all(one.seen_with == (0, 1, 2, 3) for one in more)
    assert within_quota(ORDERS, 6)[1] == ()


def test_the_key_of_a_cache_is_what_joins_the_segment_with_what_is_before_it() -> None:
    orders = ((1, 2), (2, 0), (1, 0))
    assert key_of(Segment(0, 0, 1, (1, 2)), orders, EQUALITIES) == ((1, "A"),)


@pytest.fixture
def join() -> TracedJoin:
    join = TracedJoin(EQUALITIES, ((1, 2), (2, 0), (1, 0)))
    for a, b in ((1, 2), (1, 3), (2, 3)):
        join.change(1, row_of(A=a, B=b), 1)
    join.change(2, row_of(B=2), 1)
    return join


def test_an_insertion_runs_through_its_pipeline(join: TracedJoin) -> None:
    before = join.counts.made
    (result,) = join.change(0, row_of(A=1), 1)
    assert result == ((0, row_of(A=1)), (1, row_of(A=1, B=2)), (2, row_of(B=2)))
    assert join.counts.made - before == 3  # ⟨1,1,2⟩, ⟨1,1,3⟩ and the result


def test_a_cache_is_filled_by_a_miss_and_kept_by_the_changes_that_pass(join: TracedJoin) -> None:
    segment = Segment(0, 0, 1, (1, 2))
    join.use(segment)
    entries = join.used[segment].entries.entries
    first, second = row_of(A=1, B=2), row_of(A=1, B=3)
    join.change(0, row_of(A=1), 1)
    assert (join.counts.lookups, join.counts.hits) == (1, 0)
    assert dict(entries[1,]) == {((1, first), (2, row_of(B=2))): 1}
    made = join.counts.made
    join.change(0, row_of(A=1), 1)
    assert (join.counts.lookups, join.counts.hits, join.counts.made) == (2, 1, made)
    join.change(2, row_of(B=3), 1)  # ⟨1,3,3⟩ is added, ⟨2,3,3⟩ ignored: there is no key 2
    assert set(entries) == {(1,)}
    found = join.change(0, row_of(A=1), 1)
    assert {rows for _, *rows in map(tuple, found) for rows in [tuple(rows)]} == {
        ((1, first), (2, row_of(B=2))),
        ((1, second), (2, row_of(B=3))),
    }


def test_a_cache_of_the_windows_2_and_1_in_the_pipeline_of_3_is_refused(join: TracedJoin) -> None:
    with pytest.raises(ValueError, match="prefix invariant"):
        join.use(Segment(2, 0, 1, (0, 1)))
    join.use(GlobalSegment(Segment(2, 0, 1, (0, 1)), (0, 1, 2)))
