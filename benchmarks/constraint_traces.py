"""Generators of arrivals on streams that obey k-constraints, with the k that holds exactly; and their replay in batches.

The graphs are those of the thesis (figure 6.9): (a) S1 joins S2 and S3, (b) S1 and S2 join S3, (c) S1 joins S2. A filter on each
child passes a share of its rows; each child is joined by several parents. k may change during a trace.
Source: Babu (2005), sections 6.5 to 6.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.models.constraints.constrained_mjoin import ConstrainedMJoin, Constraints
from benchmarks.models.constraints.distances import clustering, join_distances, least_k, scrambling
from benchmarks.models.constraints.join_graph import JoinGraph, ManyOne
from benchmarks.models.constraints.synopsis import Arrivals

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
GRAPH_A = JoinGraph((ManyOne("S1", "S2", "A", "A"), ManyOne("S1", "S3", "B", "B")))
GRAPH_B = JoinGraph((ManyOne("S1", "S3", "A", "A"), ManyOne("S2", "S3", "A", "A")))
GRAPH_C = JoinGraph((ManyOne("S1", "S2", "A", "A"),))
MULTIPLICITY = 5


@dataclass(frozen=True)
class Trace:
    """Arrivals by stream: their places in the order of all, their columns, and whether they pass the filter."""

    graph: JoinGraph
    places: Mapping[str, Ints]
    columns: Mapping[str, Mapping[str, Ints]]
    passes: Mapping[str, Bools]

    @property
    def rows(self) -> int:
        """Of all streams."""
        return sum(map(len, self.places.values()))

    @property
    def keys(self) -> dict[str, Sequence[str]]:
        return {name: tuple(columns) for name, columns in self.columns.items()}

    def batches(self, size: int) -> Iterator[list[Arrivals]]:
        """So many rows at a time."""
        for start in range(0, self.rows, size):
            parts = []
            for name, places in self.places.items():
                low, high = np.searchsorted(places, [start, start + size]).tolist()
                if low < high:
                    columns = {column: values[low:high] for column, values in self.columns[name].items()}
                    parts.append(Arrivals(name, places[low:high], columns, self.passes[name][low:high]))
            yield parts

    def integrity(self, join: ManyOne) -> int:
        """The least k of referential integrity."""
        return least_k(
            join_distances(
                self.columns[join.parent][join.parent_key],
                self.places[join.parent],
                self.columns[join.child][join.child_key],
                self.places[join.child],
            )
        )

    def clustered(self, stream: str, column: str) -> int:
        """The least k of clustered arrival."""
        return least_k(clustering(self.columns[stream][column]))

    def ordered(self, stream: str, column: str) -> int:
        """The least k of ordered arrival."""
        return least_k(scrambling(self.columns[stream][column]))


@dataclass(frozen=True, slots=True)
class Replayed:
    """By batch the rows held and the numbers that constraints store; the number of results, by batch."""

    rows: Ints
    entries: Ints
    results: Ints
    k: npt.NDArray[np.float64]
    """Of the first estimate."""


def replayed(
    trace: Trace, constraints: Constraints, windows: Mapping[str, int] | None = None, batch: int = 700
) -> Replayed:
    """A trace through the join, which holds as little as its constraints allow."""
    join = ConstrainedMJoin(trace.graph, trace.keys, constraints, windows or {})
    estimates = [
        *constraints.integrity.values(),
        *(item.estimate for items in constraints.of_parent.values() for item in items),
        *(item.estimate for item in constraints.of_child.values()),
    ]
    rows, entries, results, k = [], [], [], []
    for part in trace.batches(batch):
        join.process(part)
        rows.append(join.rows_held)
        entries.append(join.entries)
        results.append(sum(len(result["S1"]) for result in join.results))
        join.results.clear()
        k.append(estimates[0].k if estimates else np.inf)
    return Replayed(np.array(rows), np.array(entries), np.array(results), np.array(k))


def _woven(shares: Mapping[str, int], units: int) -> dict[str, Ints]:
    """The places of arrivals that come in units of so many rows of each stream, in this order."""
    size = sum(shares.values())
    places, first = dict[str, Ints](), 0
    for name, share in shares.items():
        places[name] = (np.arange(units)[:, None] * size + first + np.arange(share)).ravel()
        first += share
    return places


def _passing(rows: int, share: float, rng: np.random.Generator) -> Bools:
    return rng.random(rows) < share


def late_children(units: int, k: int | Ints, rng: np.random.Generator, *, passing: float = 0.5) -> Trace:
    """Graph (a): each row of S1 comes 0 to k arrivals before its child in S2, and in S3; k may be given by unit."""
    places = _woven({"S2": 1, "S3": 1, "S1": MULTIPLICITY}, units)
    unit = np.repeat(np.arange(units), MULTIPLICITY)
    most = np.broadcast_to(np.asarray(k), units)[unit]
    columns = {
        "S2": {"A": np.arange(units)},
        "S3": {"B": np.arange(units)},
        "S1": {name: unit + rng.integers(0, most + 1) for name in "AB"},
    }
    passes = {"S1": np.ones(len(unit), bool)} | {name: _passing(units, passing, rng) for name in ("S2", "S3")}
    return Trace(GRAPH_A, places, columns, passes)


def _scattered(values: Ints, spread: int | Ints, rng: np.random.Generator) -> Ints:
    """Ascending values, each delayed by up to `spread` places."""
    most = np.broadcast_to(np.asarray(spread), len(values))
    return values[np.argsort(np.arange(len(values)) + rng.integers(0, most + 1), kind="stable")]


def scattered_parents(
    units: int, spread: int | Ints, rng: np.random.Generator, *, passing: float = 0.5
) -> Trace:
    """Graph (b): the values of S1 and S2 are nearly clustered and nearly in order; their child in S3 came before."""
    ahead = int(np.max(spread)) // MULTIPLICITY + 2
    places = _woven({"S3": 1, "S1": MULTIPLICITY, "S2": MULTIPLICITY}, units + ahead)
    parent_places = {name: places[name][ahead * MULTIPLICITY :] for name in ("S1", "S2")}
    joined = np.repeat(np.arange(units), MULTIPLICITY)
    wide = spread if np.ndim(spread) == 0 else np.repeat(np.asarray(spread), MULTIPLICITY)
    columns = {"S3": {"A": np.arange(units + ahead)}} | {
        name: {"A": _scattered(joined, wide, rng)} for name in parent_places
    }
    passes = {"S3": _passing(units + ahead, passing, rng)} | {
        name: np.ones(len(joined), bool) for name in parent_places
    }
    return Trace(GRAPH_B, {"S3": places["S3"], **parent_places}, columns, passes)


def scattered_children(units: int, spread: int, rng: np.random.Generator, *, passing: float = 0.5) -> Trace:
    """Graph (c): S2 is nearly in order; rows of S1 join one of its newest rows."""
    places = _woven({"S2": 1, "S1": MULTIPLICITY}, units)
    children = _scattered(np.arange(units), spread, rng)
    unit = np.repeat(np.arange(units), MULTIPLICITY)
    parents = children[np.maximum(unit - rng.integers(0, 100, len(unit)), 0)]
    passes = {"S2": _passing(units, passing, rng), "S1": np.ones(len(unit), bool)}
    return Trace(GRAPH_C, places, {"S2": {"A": children}, "S1": {"A": parents}}, passes)


def clustered_and_late(
    units: int, spread: int, k: int, rng: np.random.Generator, *, passing: float = 0.1, multiplicity: int = 2
) -> Trace:
    """Graph (c): S1 is nearly clustered, and each child comes up to k arrivals after the first parent."""
    places = _woven({"S2": 1, "S1": multiplicity}, units)
    parents = _scattered(np.repeat(np.arange(units), multiplicity), spread, rng)
    late = np.arange(units) + rng.integers(0, k + 1, units)
    children = np.argsort(late, kind="stable")
    passes = {"S2": _passing(units, passing, rng), "S1": np.ones(len(parents), bool)}
    return Trace(GRAPH_C, places, {"S2": {"A": children}, "S1": {"A": parents}}, passes)


def dangling_and_clustered(
    units: int, spread: int, rng: np.random.Generator, *, missing: float = 0.25
) -> Trace:
    """Graph (a): S1.A is strictly clustered; a share of S1 has no child in S3, which is nearly in order."""
    places = _woven({"S2": 1, "S3": 1, "S1": MULTIPLICITY}, units)
    unit = np.repeat(np.arange(units), MULTIPLICITY)
    seconds = np.arange(units)
    thirds = 2 * _scattered(np.arange(units), spread, rng)
    of_s3 = thirds[np.maximum(unit - rng.integers(0, 100, len(unit)), 0)]
    of_s3 = of_s3 + (rng.random(len(unit)) < missing)  # odd values have no row
    columns = {"S2": {"A": seconds}, "S3": {"B": thirds}, "S1": {"A": unit, "B": of_s3}}
    return Trace(
        GRAPH_A, places, columns, {name: np.ones(len(where), bool) for name, where in places.items()}
    )
