"""An n-way many-one join over batches of arrivals that holds only rows which may still be in a result: by Yes, No and Unknown,
and by the k-constraints it is given.

Batches are cut anywhere: results are those of one row at a time, while every k holds. A row is Yes when it passes its filter and
all rows that it joins below are Yes, No when it never will be, Unknown until that is known. Discarding happens at the end of a batch.
Sources: Babu (2005), chapter 6; errors of the text are corrected as in its sections 6.3 and 6.7: a root that is Yes is stored where
results are retracted, and a retraction is made by any row that leaves Yes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Final

import numpy as np

from benchmarks.models.constraints.join_graph import JoinGraph, ManyOne
from benchmarks.models.constraints.k_estimate import KEstimate
from benchmarks.models.constraints.key_bounds import KeyConstraint
from benchmarks.models.constraints.synopsis import (
    NO,
    SHADOW,
    UNKNOWN,
    YES,
    Arrivals,
    Bools,
    Ints,
    Synopsis,
)
from headrace.dataclass import dataclass

_SPREAD: Final = 0x9E3779B97F4A7C1
_SHARES: Final = 1 << 20
"""A row is sampled by a hash of its place, so that the same rows are when it is run again."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """By join the estimate of referential integrity (RIDS); by (stream, attribute) constraints on values: of a parent's attribute
    (CA, OAP) and of a child's (OAC). `most`: none is used whose k is above it.
    """

    integrity: Mapping[ManyOne, KEstimate] = field(default_factory=dict)
    of_parent: Mapping[tuple[str, str], Sequence[KeyConstraint]] = field(default_factory=dict)
    of_child: Mapping[tuple[str, str], KeyConstraint] = field(default_factory=dict)
    most: float = float("inf")

    def is_used(self, estimate: KEstimate) -> bool:
        """Whether a constraint's k is known and small enough."""
        return estimate.is_used and estimate.k <= self.most


@dataclass(slots=True)
class ConstrainedMJoin:
    """The join. `retracts`: results are a relation, whose rows leave it when one of their windows does; `keeps_no`: rows that
    failed are kept for those that join them later, which else wait until they expire.
    """

    graph: JoinGraph
    keys: Mapping[str, Sequence[str]]
    constraints: Constraints = field(default_factory=Constraints)
    windows: Mapping[str, int] = field(default_factory=dict)
    retracts: bool = False
    keeps_no: bool = True
    synopses: dict[str, Synopsis] = field(init=False)
    results: list[dict[str, Ints]] = field(default_factory=list)
    """Places of the rows of new results, by stream."""
    retracted: list[dict[str, Ints]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.synopses = {
            name: Synopsis(
                self.keys[name],
                [join.child for join in self.graph.below(name)],
                self.windows.get(name),
            )
            for name in self.graph.streams
        }

    def process(self, batches: Sequence[Arrivals]) -> None:
        """Take in the next arrivals of all streams, one batch a stream at most."""
        by_stream = {batch.stream: batch for batch in batches}
        self._arrive(by_stream)
        before = {name: synopsis.status == YES for name, synopsis in self.synopses.items()}
        self._observe_integrity(by_stream)
        self._classify()
        self.results += self._new_results(before)
        if self.windows:
            self._expire(by_stream)
        doomed = self._doomed()
        for name in self.graph.streams:
            self._collect(name, doomed[name])
        self._drop_values()

    @property
    def rows_held(self) -> int:
        """All rows, shadows too."""
        return sum(map(len, self.synopses.values()))

    @property
    def entries(self) -> int:
        """Numbers that the constraints store besides rows."""
        return sum(constraint.entries for constraint in self._key_constraints().values())

    def _key_constraints(self) -> dict[int, KeyConstraint]:
        every = [item for items in self.constraints.of_parent.values() for item in items]
        return {id(item): item for item in (*every, *self.constraints.of_child.values())}

    def _arrive(self, batches: Mapping[str, Arrivals]) -> None:
        came = {name: synopsis.arrived for name, synopsis in self.synopses.items()}
        places = {name: batch.place for name, batch in batches.items()}
        for name, batch in batches.items():
            since = {
                join.child: came[join.child]
                + np.searchsorted(places.get(join.child, batch.place[:0]), batch.place)
                for join in self.graph.below(name)
            }
            self.synopses[name].add(batch, since)
        shared = self._key_constraints()
        named = [
            *((where, item) for where, items in self.constraints.of_parent.items() for item in items),
            *self.constraints.of_child.items(),
        ]
        for (stream, attribute), constraint in named:
            if stream in batches and shared.pop(id(constraint), None) is not None:
                constraint.arrive(batches[stream].columns[attribute])

    def _observe_integrity(self, batches: Mapping[str, Arrivals]) -> None:
        """The join distance of each new child row: the largest of the rows that waited for it, shadows included."""
        for join, estimate in self.constraints.integrity.items():
            new = batches.get(join.child)
            if new is None:
                continue
            parents, children = self.synopses[join.parent], self.synopses[join.child]
            first = len(children) - new.rows
            index, row = parents.pairs_of(
                join.parent_key, new.columns[join.child_key], np.ones(len(parents), bool)
            )
            distance = np.zeros(new.rows, np.int64)
            np.maximum.at(distance, index, children.number[first + index] - parents.since[join.child][row])
            estimate.observe(distance)

    def _classify(self) -> None:
        """The status of all rows, from the leaves to the roots."""
        for name in self.graph.streams:
            synopsis = self.synopses[name]
            is_open, below = (synopsis.status == UNKNOWN) | (synopsis.status == YES), self.graph.below(name)
            open_rows = synopsis.in_order(below[0].parent_key, is_open) if below else np.flatnonzero(is_open)
            fails, waits = np.zeros(len(open_rows), bool), np.zeros(len(open_rows), bool)
            for join in below:
                child = self.synopses[join.child]
                values = synopsis.columns[join.parent_key][open_rows]
                child_rows = child.row_of(join.child_key, values, child.status != SHADOW)
                is_absent = child_rows < 0
                status = np.where(is_absent, UNKNOWN, child.status[child_rows] if len(child) else UNKNOWN)
                fails |= status == NO
                late = is_absent & self._will_not_come(join, values, synopsis.since[join.child][open_rows])
                synopsis.given_up[open_rows[late]] = True
                fails |= late
                waits |= status == UNKNOWN
            synopsis.status[open_rows] = np.where(fails, NO, np.where(waits, UNKNOWN, YES))

    def _will_not_come(self, join: ManyOne, values: Ints, since: Ints) -> Bools:
        """Whether the missing child of rows will not come any more, by referential integrity or by the order of children."""
        late = np.zeros(len(values), bool)
        estimate = self.constraints.integrity.get(join)
        if estimate is not None and self.constraints.is_used(estimate):
            late |= self.synopses[join.child].arrived - since >= estimate.k
        order = self.constraints.of_child.get((join.child, join.child_key))
        if order is not None and self.constraints.is_used(order.estimate):
            late |= order.finished(values)
        return late

    def _new_results(self, before: Mapping[str, Bools]) -> Iterator[dict[str, Ints]]:
        """Combinations with a root that is Yes and was not before."""
        now = {name: synopsis.status == YES for name, synopsis in self.synopses.items()}
        for number, root in enumerate(self.graph.roots):
            among = dict(now)
            for earlier in self.graph.roots[:number]:
                among[earlier] = now[earlier] & before[earlier]
            yield from self._combined(root, now[root] & ~before[root], among)

    def _combined(self, root: str, chosen: Bools, among: Mapping[str, Bools]) -> Iterator[dict[str, Ints]]:
        """The combinations of some rows of a root with rows of all other streams, as places."""
        rows = {root: np.flatnonzero(chosen)}
        for join, goes_down in self.graph.walk(root):
            known, wanted = (join.parent, join.child) if goes_down else (join.child, join.parent)
            key, other_key = (
                (join.parent_key, join.child_key) if goes_down else (join.child_key, join.parent_key)
            )
            values = self.synopses[known].columns[key][rows[known]]
            index, partners = self.synopses[wanted].pairs_of(other_key, values, among[wanted])
            rows = {name: numbers[index] for name, numbers in rows.items()} | {wanted: partners}
        begins = reduce(np.maximum, (self.synopses[name].place[item] for name, item in rows.items()))
        ends = reduce(np.minimum, (self.synopses[name].dies[item] for name, item in rows.items()))
        live = begins < ends
        if live.any():
            yield {name: self.synopses[name].place[numbers[live]] for name, numbers in rows.items()}

    def _expire(self, batches: Mapping[str, Arrivals]) -> None:
        """Rows whose window has passed are No, with all rows above that join them; results that end are retracted."""
        last = max((int(batch.place[-1]) for batch in batches.values() if batch.rows), default=-1)
        was = {name: synopsis.status == YES for name, synopsis in self.synopses.items()}
        for synopsis in self.synopses.values():
            synopsis.status[(synopsis.dies <= last) & (synopsis.status != SHADOW)] = NO
        self._classify()
        if not self.retracts:
            return
        for number, root in enumerate(self.graph.roots):
            among = dict(was)
            for earlier in self.graph.roots[:number]:
                among[earlier] = was[earlier] & (self.synopses[earlier].status == YES)
            gone = was[root] & (self.synopses[root].status != YES)
            self.retracted += self._combined(root, gone, among)

    def _doomed(self) -> dict[str, Bools]:
        """By theorem 6.7.1 the rows of which no result comes: their value is finished on all roots, and no root row waits for it;
        with the root rows that join them.
        """
        doomed = {name: np.zeros(len(synopsis), bool) for name, synopsis in self.synopses.items()}
        for name in self.graph.streams:
            joins = self.graph.above(name)
            if {join.parent for join in joins} != set(self.graph.roots):
                continue
            synopsis, done = self.synopses[name], np.ones(len(self.synopses[name]), bool)
            for join in joins:
                done &= self._is_done(join, synopsis.columns[join.child_key])
            if not done.any():
                continue
            doomed[name] |= done & (synopsis.status != SHADOW)
            for join in joins:
                parents = self.synopses[join.parent]
                values = synopsis.columns[join.child_key][done]
                _, rows = parents.pairs_of(join.parent_key, values, np.ones(len(parents), bool))
                doomed[join.parent][rows] = True
        return doomed

    def _drop_values(self) -> None:
        """Let the constraints drop the finished values that no held row has."""
        for (stream, attribute), constraints in self.constraints.of_parent.items():
            parents = self.synopses[stream]
            held = [parents.columns[attribute][parents.status == UNKNOWN]]
            held += [
                self.synopses[join.child].columns[join.child_key]
                for join in self.graph.below(stream)
                if join.parent_key == attribute
            ]
            for constraint in constraints:
                constraint.drop_but(np.concatenate(held))

    def _is_done(self, join: ManyOne, values: Ints) -> Bools:
        """Whether no row of a root comes with these values, and none waits that has one."""
        finished = np.zeros(len(values), bool)
        for constraint in self.constraints.of_parent.get((join.parent, join.parent_key), ()):
            if self.constraints.is_used(constraint.estimate):
                finished |= constraint.finished(values)
        if not finished.any():
            return finished
        parents = self.synopses[join.parent]
        waiting = parents.columns[join.parent_key][parents.status == UNKNOWN]
        return finished & ~np.isin(values, waiting)

    def _collect(self, name: str, doomed: Bools) -> None:
        """Drop the rows of a stream that are in no later result; keep shadows of those that an estimate discarded."""
        synopsis = self.synopses[name]
        is_root = name in self.graph.roots
        drops, over = doomed.copy(), np.zeros(len(synopsis), bool)
        if synopsis.window is not None:
            over = synopsis.number + synopsis.window <= synopsis.arrived
        if is_root or not self.keeps_no or self._drops_no(name):
            drops |= synopsis.status == NO
        if self.graph.roots == (name,) and not self.retracts:
            drops |= synopsis.status == YES
        watched = self._watched(name)
        synopsis.status[watched] = SHADOW
        synopsis.keep((~(drops | synopsis.given_up) | watched) & ~over)

    def _drops_no(self, name: str) -> bool:
        """Whether rows above do not need the No rows of a stream: their own constraint shows it."""
        above = self.graph.above(name)
        used = [self.constraints.integrity.get(join) for join in above]
        by_integrity = all(item is not None and self.constraints.is_used(item) for item in used)
        orders = [self.constraints.of_child.get((name, join.child_key)) for join in above]
        by_order = all(item is not None and self.constraints.is_used(item.estimate) for item in orders)
        return bool(above) and (by_integrity or by_order)

    def _watched(self, name: str) -> Bools:
        """The rows to keep as shadows: given up for a missing child by an estimate that may be too small."""
        synopsis = self.synopses[name]
        watched = np.zeros(len(synopsis), bool)
        for join in self.graph.below(name):
            estimate = self.constraints.integrity.get(join)
            if estimate is None or estimate.fixed is not None or not synopsis.given_up.any():
                continue
            child = self.synopses[join.child]
            values = synopsis.columns[join.parent_key]
            missing = child.row_of(join.child_key, values, np.ones(len(child), bool)) < 0
            waited = child.arrived - synopsis.since[join.child]
            sampled = (synopsis.place * _SPREAD >> 8) % _SHARES < estimate.sample * _SHARES
            watched |= synopsis.given_up & missing & ((waited < estimate.seen_to) | sampled)
        return watched
