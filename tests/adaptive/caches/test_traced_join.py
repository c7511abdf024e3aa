"""The laws of caches, row by row: whatever caches are added and dropped and however orders change, answers are those of nested loops, and every
entry has what its invariant promises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.caches.global_caches import GlobalSegment, global_candidates
from benchmarks.models.caches.traced_join import Combination, Row, TracedJoin, row_of
from headrace.adaptive.caches.segments import Orders, Segment, candidates


def orders_of(windows: int) -> st.SearchStrategy[Orders]:
    others = [[other for other in range(windows) if other != window] for window in range(windows)]
    return st.tuples(*(st.permutations(one).map(tuple) for one in others))


def loops(join: TracedJoin, windows: list[list[Row]], among: tuple[int, ...]) -> Iterator[Combination]:
    """The combinations of the rows of some windows that all conditions between them allow."""
    inside = [pair for pair in join.equalities if {pair[0][0], pair[1][0]} <= set(among)]
    for rows in product(*(windows[window] for window in among)):
        by_window = {window: dict(row) for window, row in zip(among, rows, strict=True)}
        if all(by_window[w][c] == by_window[v][d] for (w, c), (v, d) in inside):
            yield tuple(zip(among, rows, strict=True))


def check_entries(join: TracedJoin, windows: list[list[Row]]) -> None:
    """Each entry: the segment's join for its key, or, globally consistent, at least what is part of an answer and no more."""
    for used in join.used.values():
        inside = Counter(loops(join, windows, used.segment.windows))
        whole = {used.part(one) for one in loops(join, windows, tuple(range(len(windows))))}
        for key, entry in used.entries.entries.items():
            of_key = Counter({part: n for part, n in inside.items() if used.key_of_part(part) == key})
            if used.is_global:
                assert {part for part in of_key if part in whole} <= entry.keys() <= of_key.keys()
                assert all(count > 0 for count in entry.values())
            else:
                assert entry == of_key


@given(data=st.data(), count=st.integers(3, 4), chain=st.booleans(), globally=st.booleans())
def test_caches_and_orders_that_change_at_any_row_never_change_an_answer(
    data: st.DataObject, count: int, chain: bool, globally: bool
) -> None:
    pairs = [(w, v) for w in range(count) for v in range(w)]
    equalities = (
        [((w, "B"), (w + 1, "A")) for w in range(count - 1)]
        if chain
        else [((w, "A"), (v, "A")) for w, v in pairs]
    )
    join = TracedJoin(equalities, data.draw(orders_of(count), "orders"))
    windows: list[list[Row]] = [[] for _ in range(count)]
    for step in range(data.draw(st.integers(1, 25), "steps")):
        action = 2 if not step else data.draw(st.integers(0, 9), "action")
        if action == 0:
            join.reorder(data.draw(orders_of(count), "orders"))
        elif action == 1 and join.used:
            join.drop(data.draw(st.sampled_from(sorted(join.used)), "dropped"))
        elif action == 2:
            own = [GlobalSegment(one, one.windows) for one in candidates(join.orders)]
            possible = own + (global_candidates(join.orders) if globally and not chain else [])
            for one in data.draw(st.permutations(possible), "caches"):
                if not any(one.segment.overlaps(other) for other in join.used):
                    try:
                        join.use(one)
                    except ValueError:
                        continue  # a hit would leave out its changes
        window = data.draw(st.integers(0, count - 1), "window")
        if windows[window] and data.draw(st.integers(0, 2), "leaves") == 0:
            row = windows[window].pop(data.draw(st.integers(0, len(windows[window]) - 1), "which"))
            sign = -1
        else:
            row, sign = row_of(A=data.draw(st.integers(0, 2)), B=data.draw(st.integers(0, 1))), 1
        found = Counter(join.change(window, row, sign))
        alone = [one if other != window else [row] for other, one in enumerate(windows)]
        assert found == Counter(loops(join, alone, tuple(range(count))))
        if sign > 0:
            windows[window].append(row)
        check_entries(join, windows)


def test_an_order_that_changes_drops_the_caches_of_other_pipelines_that_lose_their_changes() -> None:
    """Of R1, R2, R3 by one key: the cache of R2 and R3 needs R2 to probe R3 first; then R2 probes R1 first."""
    join = TracedJoin([((w, "A"), (v, "A")) for w in range(3) for v in range(w)], ((1, 2), (2, 0), (1, 0)))
    (segment,) = [one for one in candidates(join.orders) if one.pipeline == 0]
    join.use(segment)
    join.reorder(((1, 2), (0, 2), (1, 0)))
    assert not join.used
    for window in (1, 2, 0, 0):
        found = join.change(window, row_of(A=1), 1)
    assert len(found) == 1


# Globally consistent caches: R, S, T (and U) by one key; R looks up S and T, whose rows probe R first, so no cache has their changes alone.

ONE, TWO = row_of(A=1, B=1), row_of(A=1, B=2)


def looking_up(windows: int) -> TracedJoin:
    """A join in which the new rows of R look up (S ⋈ T) ⋉ the others."""
    equalities = [((w, "A"), (v, "A")) for w in range(windows) for v in range(w)]
    orders = tuple(tuple(other for other in range(windows) if other != one) for one in range(windows))
    join = TracedJoin(equalities, orders)
    join.use(GlobalSegment(Segment(0, 0, 1, (1, 2)), tuple(range(windows))))
    return join


def test_a_row_stays_in_a_globally_consistent_cache_while_one_of_its_partners_is_there() -> None:
    join = looking_up(3)
    for window, row in ((1, ONE), (2, ONE), (0, ONE), (0, TWO)):
        join.change(window, row, 1)
    join.change(0, ONE, -1)
    assert len(join.change(0, ONE, 1)) == 1
    assert join.counts.hits == 3


def test_a_miss_stores_only_rows_that_have_partners_in_all_windows() -> None:
    """Without a row of U, S ⋈ T is not stored; its row of S leaves unseen, and must not be found when U has one."""
    join = looking_up(4)
    for window in (1, 2, 0):
        join.change(window, ONE, 1)
    join.change(1, ONE, -1)
    join.change(3, ONE, 1)
    assert join.change(0, TWO, 1) == []


def test_a_key_that_no_row_can_ask_for_is_evicted_since_its_changes_are_not_seen() -> None:
    join = looking_up(3)
    for window in (1, 2, 0):
        join.change(window, ONE, 1)
    join.change(0, ONE, -1)
    join.change(1, TWO, 1)
    assert len(join.change(0, ONE, 1)) == 2


def test_a_key_that_was_added_for_a_row_is_not_looked_up_for_it_again() -> None:
    """R probes S, then looks up T and U, for each of two rows of S: none has a partner among the rows of R before it."""
    equalities = [((w, "A"), (v, "A")) for w in range(4) for v in range(w)]
    join = TracedJoin(equalities, ((1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)))
    join.use(GlobalSegment(Segment(0, 1, 2, (2, 3)), (0, 1, 2, 3)))
    for window, row in ((1, ONE), (1, TWO), (2, ONE), (3, ONE)):
        join.change(window, row, 1)
    assert len(join.change(0, ONE, 1)) == 2
