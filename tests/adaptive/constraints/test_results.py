"""Results against a join of everything: any graph, batches and constraints that hold; and what is missing if they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.constraints.constrained_mjoin import ConstrainedMJoin, Constraints
from benchmarks.models.constraints.distances import clustering, join_distances, least_k, scrambling
from benchmarks.models.constraints.join_graph import JoinGraph, ManyOne
from benchmarks.models.constraints.k_estimate import KEstimate
from benchmarks.models.constraints.key_bounds import Clustered, KeyConstraint, Ordered
from benchmarks.models.constraints.synopsis import Arrivals

Row = tuple[str, dict[str, int], bool]
"""(stream, columns, whether the filter holds)."""

GRAPHS = {
    "star": JoinGraph((ManyOne("S1", "S2", "A", "A"), ManyOne("S1", "S3", "B", "B"))),
    "two roots": JoinGraph((ManyOne("S1", "S3", "A", "A"), ManyOne("S2", "S3", "A", "A"))),
    "chain": JoinGraph((ManyOne("S1", "S2", "B", "B"), ManyOne("S2", "S3", "C", "C"))),
    "pair": JoinGraph((ManyOne("S1", "S2", "A", "A"),)),
}


@dataclass(frozen=True)
class Recorded:
    """Rows in the order of their arrival."""

    graph: JoinGraph
    rows: Sequence[Row]

    @property
    def keys(self) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {name: set() for name in self.graph.streams}
        for join in self.graph.joins:
            found[join.parent].add(join.parent_key)
            found[join.child].add(join.child_key)
        return {name: sorted(columns) for name, columns in found.items()}

    def places(self, stream: str) -> np.ndarray:
        return np.array([place for place, row in enumerate(self.rows) if row[0] == stream], np.int64)

    def column(self, stream: str, name: str) -> np.ndarray:
        return np.array([row[1][name] for row in self.rows if row[0] == stream], np.int64)

    def batches(self, cuts: Sequence[int]) -> list[list[Arrivals]]:
        made = []
        for start, stop in zip([0, *cuts], [*cuts, len(self.rows)], strict=True):
            part = []
            for stream in self.graph.streams:
                chosen = [n for n in range(start, stop) if self.rows[n][0] == stream]
                columns = {
                    name: np.array([self.rows[n][1][name] for n in chosen], np.int64)
                    for name in self.keys[stream]
                }
                passes = np.array([self.rows[n][2] for n in chosen], bool)
                part.append(Arrivals(stream, np.array(chosen, np.int64), columns, passes))
            made.append([batch for batch in part if batch.rows])
        return made

    def least(self, join: ManyOne) -> int:
        return least_k(
            join_distances(
                self.column(join.parent, join.parent_key),
                self.places(join.parent),
                self.column(join.child, join.child_key),
                self.places(join.child),
            )
        )

    def all_results(self) -> Counter[tuple[tuple[str, int], ...]]:
        partial: list[dict[str, int]] = [
            {"S1": place} for place, row in enumerate(self.rows) if row[0] == "S1" and row[2]
        ]
        for join, down in self.graph.walk("S1"):
            known, wanted = (join.parent, join.child) if down else (join.child, join.parent)
            key, other = (join.parent_key, join.child_key) if down else (join.child_key, join.parent_key)
            partial = [
                {**found, wanted: place}
                for found in partial
                for place, row in enumerate(self.rows)
                if row[0] == wanted and row[2] and row[1][other] == self.rows[found[known]][1][key]
            ]
        return Counter(tuple(sorted(found.items())) for found in partial)


@st.composite
def recorded(draw: st.DrawFn) -> Recorded:
    graph = GRAPHS[draw(st.sampled_from(sorted(GRAPHS)))]
    plain = Recorded(graph, [])
    rows: list[Row] = []
    taken: dict[str, set[int]] = {join.child: set() for join in graph.joins}
    for _ in range(draw(st.integers(1, 24))):
        stream = draw(st.sampled_from(graph.streams))
        columns = {name: draw(st.integers(0, 7)) for name in plain.keys[stream]}
        key = next((join.child_key for join in graph.above(stream)), None)
        if key is not None:
            if columns[key] in taken[stream]:
                continue  # at most one row of each value
            taken[stream].add(columns[key])
        rows.append((stream, columns, draw(st.booleans()) or draw(st.booleans())))
    return Recorded(graph, rows)


def constraints_of(data: Recorded, chosen: Sequence[str], spoilt: int = 0) -> Constraints:
    """Constraints with the least k that holds, or less."""
    integrity, parents, children = {}, dict[tuple[str, str], list[KeyConstraint]](), {}
    for join in data.graph.joins:
        values = data.column(join.parent, join.parent_key)
        where = (join.parent, join.parent_key)
        if "integrity" in chosen:
            integrity[join] = KEstimate(fixed=max(0, data.least(join) - spoilt))
        if "clustered" in chosen:
            k = least_k(clustering(values))
            parents.setdefault(where, []).append(Clustered(KEstimate(fixed=max(0, k - spoilt))))
        if "order of parents" in chosen:
            k = least_k(scrambling(values))
            parents.setdefault(where, []).append(Ordered(KEstimate(fixed=max(0, k - spoilt))))
        if "order of children" in chosen:
            k = least_k(scrambling(data.column(join.child, join.child_key)))
            children[join.child, join.child_key] = Ordered(KEstimate(fixed=max(0, k - spoilt)))
    return Constraints(integrity, parents, children)


CONSTRAINTS = ("integrity", "clustered", "order of parents", "order of children")


def results(join: ConstrainedMJoin) -> Counter[tuple[tuple[str, int], ...]]:
    return Counter(
        tuple(sorted((name, int(places[n])) for name, places in found.items()))
        for found in join.results
        for n in range(len(found["S1"]))
    )


def run(data: Recorded, cuts: Sequence[int], constraints: Constraints) -> ConstrainedMJoin:
    join = ConstrainedMJoin(data.graph, data.keys, constraints)
    for part in data.batches(cuts):
        join.process(part)
    return join


CUTS = st.lists(st.integers(0, 24), max_size=24)


@given(data=recorded(), cuts=CUTS, chosen=st.sets(st.sampled_from(CONSTRAINTS)))
def test_results_are_those_of_a_join_of_everything_while_constraints_hold(
    data: Recorded, cuts: list[int], chosen: set[str]
) -> None:
    cuts = sorted(min(cut, len(data.rows)) for cut in cuts)
    join = run(data, cuts, constraints_of(data, sorted(chosen)))
    assert results(join) == data.all_results()


@given(data=recorded(), cuts=CUTS, chosen=st.sets(st.sampled_from(CONSTRAINTS), min_size=1))
def test_a_k_that_is_too_small_loses_results_and_invents_none(
    data: Recorded, cuts: list[int], chosen: set[str]
) -> None:
    cuts = sorted(min(cut, len(data.rows)) for cut in cuts)
    constraints = constraints_of(data, sorted(chosen), spoilt=3)
    assert results(run(data, cuts, constraints)) <= data.all_results()


def test_a_child_that_comes_after_k_arrivals_is_missed() -> None:
    rows: list[Row] = [("S1", {"A": 7}, True), ("S2", {"A": 1}, True), ("S2", {"A": 7}, True)]
    data = Recorded(GRAPHS["pair"], rows)
    for k, found in ((1, 0), (2, 1)):
        join = run(data, [1, 2], Constraints(integrity={data.graph.joins[0]: KEstimate(fixed=k)}))
        assert results(join).total() == found


@given(data=recorded(), window=st.integers(1, 6))
def test_windows_of_rows_row_by_row(data: Recorded, window: int) -> None:
    """The relation at each place, from insertions and retractions, against the windows themselves."""
    windows = dict.fromkeys(data.graph.streams, window)
    join = ConstrainedMJoin(data.graph, data.keys, windows=windows, retracts=True)
    now: Counter[tuple[tuple[str, int], ...]] = Counter()
    for place, part in enumerate(data.batches(list(range(1, len(data.rows))))):
        join.results.clear()
        join.retracted.clear()
        join.process(part)
        now += results(join)
        gone = Counter(
            tuple(sorted((name, int(places[n])) for name, places in found.items()))
            for found in join.retracted
            for n in range(len(found["S1"]))
        )
        assert gone <= now
        now -= gone
        held = {name: {n for n in range(place + 1) if data.rows[n][0] == name} for name in data.graph.streams}
        live = {n for places in held.values() for n in sorted(places)[-window:]}
        expected = Counter({found: 1 for found in data.all_results() if all(n in live for _, n in found)})
        assert now == expected


@given(data=recorded(), cuts=CUTS)
def test_batches_of_any_size_insert_the_results_of_windows(data: Recorded, cuts: list[int]) -> None:
    windows = dict.fromkeys(data.graph.streams, 3)
    cuts = sorted(min(cut, len(data.rows)) for cut in cuts)
    found = []
    for each in (list(range(1, len(data.rows))), cuts):
        join = ConstrainedMJoin(data.graph, data.keys, windows=windows)
        for part in data.batches(each):
            join.process(part)
        found.append(results(join))
    assert found[0] == found[1]
