"""The join of windows with constraints against nested loops: any arrival, cut, tasks and merges; what it stores and rejects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.key_promises import KeyPromise
from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.algebra.expressions.expression import Column
from headrace.observation import NO_DELAY
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.caches.caching import Caching, caching
from headrace.operators.joins.constrained_join import ConstrainedJoin, Reference
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.probing import key_monitor
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles, probing
from headrace.operators.joins.window_join import UNTIL
from headrace.schema import BIGINT, Field, Schema
from headrace.time import BEGINNING
from tests.operators.local_driver import _of, _owners

Row = tuple[int | None, int, int]
"""(key, value, time)."""
RANGE = 30


def join(
    sides: int, promises: Sequence[Sequence[KeyPromise]] = (), references: Sequence[Reference] = ()
) -> ConstrainedJoin:
    made = []
    for number in range(sides):
        stored = Schema((Field(f"s{number}.k", BIGINT), Field(f"s{number}.v", BIGINT)))
        key = (Column(f"s{number}.k", BIGINT),)
        made.append(Side((number,), stored, (), key, RANGE, None, RANGE, name=f"s{number}"))
    shown = Schema((*(Field(f"s{number}.v", BIGINT) for number in range(sides)), Field(UNTIL, BIGINT)))
    return ConstrainedJoin(
        JoinSpec("q1.inner", "q", "@met", tuple(made), None, shown, 3),
        promises=tuple(map(tuple, promises)) or ((),) * sides,
        references=tuple(references),
    )


@dataclass
class Driven:
    """A join with its runs, what it has emitted, and the reasons of rejects."""

    operator: ConstrainedJoin
    runs: list[Sections] = field(default_factory=list)
    emitted: Counter[tuple[int, ...]] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    bounds: tuple[int, ...] = ()
    found: tuple[PartnerBound, ...] = ()
    """The bounds on delays that are in force."""

    @property
    def sides(self) -> int:
        return len(self.operator.spec.sides)

    def epoch(self, rows: Sequence[Sequence[Row]], bounds: Sequence[int], tasks: int = 1) -> None:
        deltas, self.bounds = [], tuple(bounds)
        for side, own in enumerate(rows):
            if own:
                scanner = self.operator.scanner({})
                columns = {
                    f"s{side}.k": pa.array([row[0] for row in own], pa.int64()),
                    f"s{side}.v": pa.array([row[1] for row in own], pa.int64()),
                }
                times = np.array([row[2] for row in own], np.int64)
                scanner.add(Batch(columns, times, placed(np.arange(len(own)), side)))
                deltas.append(scanner.finish().deltas)
        made = list[Sections]()
        for owned in _owners(tasks):
            step = self.operator.advance(_of(self.runs, owned), _of(deltas, owned), self.advance)
            for part in step.rejected:
                self.rejected.update(part.reasons)
            if step.results is not None:
                names = [f"s{number}.v" for number in range(self.sides)]
                self.emitted.update(
                    zip(*(step.results.column(name).to_pylist() for name in names), strict=True)
                )
            made += [step.state] if step.state else []
        self.runs += made

    @property
    def advance(self) -> Advance:
        return Advance(
            BEGINNING,
            min(self.bounds),
            max(self.bounds),
            input_punctuations=self.bounds,
            partner_bounds=self.found,
        )

    def merge(self, which: Sequence[int]) -> None:
        """Merge some of the runs."""
        merging = [self.runs[number] for number in which]
        names = sorted({name for run in merging for name in run})
        sections = {name: [run[name] for run in merging if name in run] for name in names}
        ready = self.operator.before_merge(sections, self.advance)
        merged = {name: self.operator.compact(name, tables, self.advance) for name, tables in ready.items()}
        self.runs = [run for number, run in enumerate(self.runs) if number not in which]
        self.runs += [merged] if any(table.num_rows for table in merged.values()) else []

    def kept(self) -> list[list[int]]:
        """The values of the stored rows of each side."""
        return [
            sorted(
                value
                for run in self.runs
                if name in run
                for value in run[name].column(f"s{side}.v").to_pylist()
            )
            for side, name in enumerate(self.operator.sections)
        ]


def loops(every: Sequence[Sequence[Row]]) -> list[tuple[Row, ...]]:
    """All combinations of rows of one key whose windows overlap."""
    return [
        rows
        for rows in product(*every)
        if rows[0][0] is not None
        and len({row[0] for row in rows}) == 1
        and max(row[2] for row in rows) <= min(row[2] for row in rows) + RANGE
    ]


def held(every: Sequence[Sequence[Row]], data: st.DataObject) -> ConstrainedJoin:
    """A join with some of the constraints that the rows obey, as narrow as they are."""
    promises = []
    for rows in every:
        known = [row for row in rows if row[0] is not None]
        pairs = list(product(known, known))
        apart = max((b[2] - a[2] for a, b in pairs if a[0] == b[0]), default=0)
        inverted = max((b[2] - a[2] for a, b in pairs if a[2] < b[2] and b[0] < a[0]), default=0)
        found = [KeyPromise("clustered", apart, "CLUSTERED"), KeyPromise("ordered", inverted, "ORDERED")]
        if len({row[0] for row in known}) == len(known):
            found.append(KeyPromise("unique", 0, "UNIQUE"))
        promises.append([promise for promise in found if data.draw(st.booleans())])
    references = []
    combined = loops(every)
    for parent, child in product(range(len(every)), repeat=2):
        if parent != child and data.draw(st.booleans()):
            late = max((rows[child][2] - rows[parent][2] for rows in combined), default=0)
            references.append(Reference(parent, child, max(late, 0), "REFERENCES"))
    return join(len(every), promises, references)


@given(data=st.data(), sides=st.integers(2, 3))
def test_answers_are_those_without_constraints_while_these_hold(data: st.DataObject, sides: int) -> None:
    epochs = data.draw(st.integers(1, 5), "epochs")
    plan: list[tuple[list[list[Row]], list[int]]] = []
    bounds, value = [0] * sides, 0
    for _ in range(epochs):
        rows: list[list[Row]] = []
        for side in range(sides):
            own = []
            for key, later in data.draw(
                st.lists(st.tuples(st.sampled_from((None, 0, 1, 2, 3)), st.integers(0, 15)), max_size=5)
            ):
                own.append((key, value, bounds[side] + later))
                value += 1
            rows.append(own)
        bounds = [bound + data.draw(st.integers(0, 15)) for bound in bounds]
        plan.append((rows, list(bounds)))
    every = [[row for rows, _ in plan for row in rows[side]] for side in range(sides)]
    driven = Driven(held(every, data))
    for rows, bounds in plan:
        driven.epoch(rows, bounds, data.draw(st.integers(1, 3)))
        if driven.runs:
            which = data.draw(st.sets(st.integers(0, len(driven.runs) - 1)))
            driven.merge(sorted(which))
    expected = Counter(tuple(row[1] for row in rows) for rows in loops(every))
    assert driven.emitted == expected
    assert not driven.rejected


UNIQUE = KeyPromise("unique", 0, "UNIQUE (k)")


def test_referenced_rows_are_waited_for_no_longer_than_declared() -> None:
    driven = Driven(join(2, (), [Reference(0, 1, 5, "(k) REFERENCES s1 (k)")]))
    driven.epoch([[(1, 10, 0), (2, 11, 4)], []], (5, 5))
    assert driven.kept() == [[10, 11], []]
    driven.epoch([[], []], (6, 6))
    driven.merge([0])
    assert driven.kept() == [[11], []]
    driven.epoch([[], [(2, 20, 9)]], (9, 9))
    assert driven.emitted == {(11, 20): 1}


def test_a_pair_beyond_a_reference_is_rejected_though_its_row_is_still_stored() -> None:
    for merged in (False, True):
        driven = Driven(join(2, (), [Reference(0, 1, 5, "(k) REFERENCES s1 (k)")]))
        driven.epoch([[(1, 10, 0)], []], (0, 0))
        driven.epoch([[], [(1, 20, 6), (1, 21, 5)]], (5, 0))
        if merged:
            driven.merge([0, 1])
        assert driven.emitted == {(10, 21): 1}
        assert driven.rejected == {"the pair breaks CONSTRAINT (k) REFERENCES s1 (k)": 1}


def test_references_are_followed_over_several_sides() -> None:
    driven = Driven(join(3, (), [Reference(0, 1, 5, "first"), Reference(1, 2, 5, "second")]))
    driven.epoch([[(1, 10, 0)], [(1, 20, 5)], []], (10, 10, 10))
    assert driven.kept() == [[10], [20], []]
    driven.epoch([[], [], []], (11, 11, 11))
    driven.merge([0])
    assert driven.kept()[0] == []


def test_rows_that_had_to_find_a_partner_are_not_stored_without_one() -> None:
    chain = [Reference(1, 0, 0, "first"), Reference(0, 1, 20, "second"), Reference(1, 2, 20, "third")]
    driven = Driven(join(3, (), chain))
    driven.epoch([[(1, 10, 0)], [(1, 20, 3), (2, 21, 3)], []], (9, 9, 9))
    assert driven.kept() == [[10], [20], []]
    driven.epoch([[], [], [(1, 30, 9)]], (9, 9, 9))
    assert driven.emitted == {(10, 20, 30): 1}


def test_both_rows_of_a_pair_go_when_their_values_are_unique() -> None:
    driven = Driven(join(2, [[UNIQUE], [UNIQUE]]))
    driven.epoch([[(1, 10, 0), (2, 11, 0)], [(1, 20, 1)]], (1, 1))
    assert driven.kept() == [[10, 11], [20]]
    driven.merge([0])
    assert driven.kept() == [[11], []]
    driven.epoch([[], [(2, 21, 2)]], (2, 2))
    assert driven.emitted == {(10, 20): 1, (11, 21): 1}


def test_a_row_that_shows_that_a_value_is_finished_stays_as_long_as_rows_wait_for_it() -> None:
    """The parent has its only child; that it came shows when the child is finished."""
    driven = Driven(join(2, [[KeyPromise("clustered", 4, "c")], [UNIQUE]]))
    driven.epoch([[(1, 10, 0), (1, 11, 1)], [(1, 20, 0)]], (2, 2))
    driven.merge([0])
    assert driven.kept() == [[10], [20]]
    driven.epoch([[], []], (4, 4))
    driven.merge(range(len(driven.runs)))
    assert driven.kept() == [[10], [20]], "a row at 4 may still come"
    driven.epoch([[(1, 12, 4)], []], (4, 4))
    driven.epoch([[], []], (5, 5))
    driven.merge(range(len(driven.runs)))
    assert driven.kept() == [[], []]
    assert driven.emitted == {(10, 20): 1, (11, 20): 1, (12, 20): 1}


@pytest.mark.parametrize("kind", ["clustered", "ordered"])
def test_a_stream_of_which_nothing_is_known_finishes_nothing(kind: Literal["clustered", "ordered"]) -> None:
    driven = Driven(join(2, [[KeyPromise(kind, 9, "c")], []], [Reference(1, 0, 9, "r")]))
    driven.epoch([[(1, 10, 0)], [(0, 20, 0), (1, 21, 0)]], (BEGINNING, 5))
    driven.merge([0])
    assert driven.kept()[1] == [20, 21]


def test_an_order_finishes_values_that_never_came() -> None:
    driven = Driven(join(2, [[KeyPromise("ordered", 2, "o")], []]))
    driven.epoch([[(2, 12, 6)], [(key, 20 + key, 0) for key in range(4)]], (8, 8))
    driven.merge([0])
    assert driven.kept()[1] == [20, 21, 22, 23], "a row 2 before the punctuation says nothing yet"
    driven.epoch([[], []], (9, 9))
    driven.merge([0])
    assert driven.kept()[1] == [22, 23]


@pytest.mark.parametrize(
    ("promise", "rows", "broken"),
    [
        (UNIQUE, [(1, 1, 0), (2, 2, 0), (1, 3, 9)], 1),
        (KeyPromise("clustered", 8, "c"), [(1, 1, 0), (1, 2, 8), (1, 3, 9)], 1),
        (KeyPromise("ordered", 8, "o"), [(0, 1, 1), (0, 2, 9), (-1, 4, 9), (-2, 5, 10)], 1),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_rows_that_break_a_promise_are_counted(
    promise: KeyPromise, rows: list[Row], broken: int, together: bool
) -> None:
    driven = Driven(join(2, [[promise], []]))
    for part in [rows] if together else [[row] for row in rows]:
        driven.epoch([part, []], (0, 0))
    assert driven.rejected.total() == broken


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("later", "broken"), [(8, 0), (9, 1)])
def test_a_value_below_an_older_one_is_out_of_order(together: bool, later: int, broken: int) -> None:
    driven = Driven(join(2, [[KeyPromise("ordered", 8, "o")], []]))
    rows = [(1, 1, 0), (0, 2, later)]
    for part in [rows] if together else [[row] for row in rows]:
        driven.epoch([part, []], (0, 0))
    assert driven.rejected.total() == broken


def test_no_cache_has_the_rows_that_constraints_let_the_state_drop() -> None:
    seen = Caching({"q1.inner": {0: (1, 2)}}, {}, measures=True)
    driven = Driven(join(3, references=[Reference(0, 1, 5, "REFERENCES"), Reference(0, 2, 5, "REFERENCES")]))
    with caching(seen):
        for epoch in range(3):
            rows = [[(1, epoch, 10 * epoch)]] * 3
            driven.epoch(rows, [10 * epoch] * 3)
    assert driven.emitted
    assert seen.memories == {}
    assert seen.observed == {}


# ------------------------------------------------------------------------------------------------ bounds that were found

Plan = list[tuple[list[list[Row]], tuple[int, ...], dict[tuple[int, int], PartnerBound]]]
"""By epoch the new rows of each side, the punctuations after it, and the bounds in force."""


def finding(sides: int) -> Driven:
    return Driven(replace(join(sides), finds_bounds=True))


def planned(data: st.DataObject, sides: int, withins: st.SearchStrategy[int | None]) -> Plan:
    """Epochs of which each may have other bounds; rows that a shorter one may have dropped stay bound by it."""
    plan: Plan = []
    bounds, value = (0,) * sides, 0
    force = {pair: PartnerBound(*pair) for pair in permutations(range(sides), 2)}
    for _ in range(data.draw(st.integers(1, 6), "epochs")):
        rows: list[list[Row]] = []
        for side in range(sides):
            drawn = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 15)), max_size=5))
            rows.append([(key, value + n, bounds[side] + later) for n, (key, later) in enumerate(drawn)])
            value += len(drawn)
        bounds = tuple(bound + data.draw(st.integers(0, 15)) for bound in bounds)
        plan.append((rows, bounds, dict(force)))
        for pair, old in force.items():
            within = data.draw(withins)
            former = old.former
            if old.within is not None and (within is None or within > old.within):
                former = (*former, (bounds[pair[1]] - old.within, old.within))
            force[pair] = PartnerBound(*pair, within, within, former)
    return plan


def run(plan: Plan, data: st.DataObject, sides: int) -> Driven:
    """The plan in any number of tasks, with any merges."""
    driven = finding(sides)
    for rows, bounds, force in plan:
        driven.found = tuple(bound for bound in force.values() if bound.within is not None or bound.former)
        driven.epoch(rows, bounds, data.draw(st.integers(1, 3)))
        if driven.runs:
            driven.merge(sorted(data.draw(st.sets(st.integers(0, len(driven.runs) - 1)))))
    return driven


def values_of(combinations: Iterable[tuple[Row, ...]]) -> Counter[tuple[int, ...]]:
    return Counter(tuple(row[1] for row in rows) for rows in combinations)


@given(data=st.data(), share=st.sampled_from((1 / 512, 0.5, 1.0)))
def test_a_pair_is_an_answer_if_no_bound_of_its_epoch_excludes_it_however_runs_are_merged(
    data: st.DataObject, share: float
) -> None:
    plan = planned(data, 2, st.one_of(st.none(), st.integers(0, 20)))
    every = [[row for rows, _, _ in plan for row in rows[side]] for side in range(2)]
    came = {row[1]: epoch for epoch, (rows, _, _) in enumerate(plan) for of_side in rows for row in of_side}

    def is_answer(pair: tuple[Row, ...]) -> bool:
        force = plan[max(came[row[1]] for row in pair)][2]
        return all(
            pair[child][2] <= pair[parent][2] + force[parent, child].limits(np.array([pair[parent][2]]))[0]
            for parent, child in permutations(range(2))
        )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_monitor, "SHADOWS", share)
        driven = run(plan, data, 2)
    assert driven.emitted == values_of(filter(is_answer, loops(every)))
    if share == 1:
        assert driven.rejected.total() == len(loops(every)) - driven.emitted.total()


@given(data=st.data(), sides=st.integers(2, 3), holds=st.booleans())
def test_bounds_that_hold_lose_nothing_and_others_lose_a_part(
    data: st.DataObject, sides: int, holds: bool
) -> None:
    least = RANGE if holds else 0
    plan = planned(data, sides, st.one_of(st.none(), st.integers(least, RANGE + 5)))
    expected = values_of(loops([[row for rows, _, _ in plan for row in rows[side]] for side in range(sides)]))
    driven = run(plan, data, sides)
    if holds:
        assert driven.emitted == expected
        assert not driven.rejected
    assert driven.emitted <= expected


def test_rows_wait_as_long_as_bounds_allow_but_for_a_sample_of_the_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = finding(2)
    driven.found = (PartnerBound(0, 1, 5, 5),)
    driven.epoch([[(1, 10, 0), (2, 11, 4)], []], (5, 5))
    driven.epoch([[], []], (6, 6))
    driven.merge([0])
    assert driven.kept() == [[11], []]
    monkeypatch.setattr(key_monitor, "SHADOWS", 1.0)
    driven.epoch([[], []], (40, 20))
    driven.merge([0])
    assert driven.kept() == [[11], []]
    driven.epoch([[], [(2, 20, 20)]], (40, 34))
    assert not driven.emitted
    assert driven.rejected.total() == 1
    driven.epoch([[], []], (40, 35))
    driven.merge([0])
    assert driven.kept()[0] == [], "the window has ended"


def test_rows_whose_partner_always_came_before_are_not_stored_without_one() -> None:
    driven = finding(3)
    driven.found = tuple(
        PartnerBound(*pair, within, within) for pair, within in {(1, 0): 0, (0, 1): 20}.items()
    )
    driven.epoch([[(1, 10, 0)], [(1, 20, 3), (2, 21, 3)], []], (9, 9, 9))
    assert driven.kept() == [[10], [20], []]


@pytest.mark.parametrize("every", [True, False])
def test_delays_are_measured_of_all_pairs_also_of_those_left_out(every: bool) -> None:
    profiles = ProbeProfiles(measures=True)
    driven = finding(2) if every else Driven(join(2))
    driven.found = (PartnerBound(0, 1, 5, 5),) if every else ()
    with probing(profiles):
        driven.epoch([[(1, 10, 3), (2, 11, 4)], []], (4, 4))
        driven.epoch([[(3, 12, 5)], [(1, 20, 4), (2, 21, 10), (3, 22, 4)]], (5, 10))
    (seen,) = profiles.delays.values()
    assert (seen.pairs, seen.delays, seen.latest) == (3, (NO_DELAY, 6, 1, NO_DELAY), 10)
    assert (seen.rows, seen.stored, seen.punctuations) == ((3, 3), (2, 0), (5, 10))
    assert (seen.uses, seen.left_out) == (every, int(every))
    assert seen.bounds == (None, 5 if every else None, None, None, None, None)


def test_of_many_pairs_a_sample_is_measured_unless_rows_are_dropped_by_it() -> None:
    measured = []
    for driven in (finding(2), Driven(join(2))):
        profiles = ProbeProfiles(measures=True)
        with probing(profiles):
            driven.epoch([[(1, n, 0) for n in range(50)], [(1, n, n % 7) for n in range(50)]], (9, 9))
        (seen,) = profiles.delays.values()
        measured.append(seen.pairs)
        assert seen.delays[1] == 6
    assert measured[0] == 2500
    assert 200 < measured[1] <= 256
