"""Families for the laws: queries that differ in extent and condition, and a driver that advances them as the runtime does.

The driver is the state task without files: cohorts by advance, rows by slot, runs merged by their owners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Expression
from headrace.algebra.query import Filter, Join, Node, Query, Windowed
from headrace.algebra.windows.window import Window
from headrace.operators.base.group_codes import SLOTS, ints
from headrace.operators.base.operator import SLOT, Advance, Operator, Sections, Step
from headrace.operators.families.cohort import cohorts
from headrace.operators.families.family import QueryRowCounts, state_name
from headrace.operators.families.scan_output import ScanOutput, gathered
from headrace.operators.sharing.scan_sharing import scan_groups
from headrace.planner.lowering.lower import lower
from headrace.reference.history import History, StreamRow
from headrace.runtime.tasks.state.compaction import before_merge, compacted
from headrace.runtime.tasks.state.result_runs import sections_of
from headrace.schema import Schema
from headrace.time import BEGINNING, FOREVER, Instant
from tests.laws.driving import batch, epochs, table


def other_window(node: Node, window: Window, condition: Expression | None) -> Node:
    """The same tree over another window, and under one more condition."""
    if isinstance(node, Windowed):
        windowed = replace(node, window=window)
        return windowed if condition is None else Filter(windowed, condition)
    if isinstance(node, Join):
        return replace(node, left=other_window(node.left, window, condition))
    return replace(node, source=other_window(node.source, window, condition))  # type: ignore[union-attr, call-arg]


@dataclass
class Registered:
    """A query of the law: it is registered before the epoch `since` and dropped before the epoch `until`."""

    query: Query
    operator: Operator
    since: int
    until: int
    emitted_to: Instant = BEGINNING
    results: list[pa.Table] = field(default_factory=list)
    state_rows: int = 0


@dataclass
class Families:
    """The state of all families, and the answers of their queries."""

    queries: list[Registered]
    history: History
    schemas: Mapping[str, Schema]
    runs: list[dict[str, pa.Table]] = field(default_factory=list)
    max_event_time: Instant = BEGINNING
    stores_rows: bool = False
    """Whether panes store rows of small groups, where their queries scan by themselves."""
    takes_portions: bool = False
    """Whether results are taken some queries at a time, where the family makes them so."""

    def run(
        self, cuts: Sequence[Sequence[Sequence[StreamRow]]], tasks: Sequence[int], merges: Mapping[int, int]
    ) -> None:
        """All epochs of the stream `s`, cut into splits; `merges` gives after which epochs how many runs are merged."""
        stream = self.history.streams["s"]
        seen: list[StreamRow] = []
        punctuation = BEGINNING
        for number, splits in enumerate(cuts):
            late = [query for query in self.queries if query.since == number]
            if number and late:
                self._step(late, [seen], punctuation, tasks[number])
            live = [query for query in self.queries if query.since <= number < query.until]
            seen += [row for split in splits for row in split]
            punctuation = stream.punctuations[number]
            self._step(live, splits, punctuation, tasks[number])
            if number in merges:
                self._merge(merges[number], tasks[number], live)

    def merge_all(self) -> None:
        """All runs as one, with the rows that the queries that are left need."""
        last = len(self.history.streams["s"].punctuations)
        self._merge(len(self.runs), 1, [query for query in self.queries if query.until > last])

    def end(self) -> None:
        """The end of the stream, for the queries that are left."""
        left = [query for query in self.queries if query.until > len(self.history.streams["s"].punctuations)]
        self._step(left, [], FOREVER, 1, final=True)

    def _step(
        self,
        queries: Sequence[Registered],
        splits: Sequence[Sequence[StreamRow]],
        punctuation: Instant,
        tasks: int,
        *,
        final: bool = False,
    ) -> None:
        deltas = [self._scanned(queries, split).sections for split in splits]
        for split in splits:
            self.max_event_time = max([self.max_event_time, *(row.at for row in split)])
        by_state: dict[str, list[Registered]] = {}
        for query in queries:
            by_state.setdefault(state_name(query.operator), []).append(query)
        for low, high in _slots(tasks):
            new_sections: dict[str, list[pa.Table]] = {}
            for name, sharers in by_state.items():
                self._advance(name, sharers, deltas, (low, high), punctuation, new_sections, final=final)
            run = {section: gathered(tables) for section, tables in new_sections.items()}
            self.runs += [run] if run else []
        for query in queries:
            query.emitted_to = punctuation

    def _scanned(self, queries: Sequence[Registered], split: Sequence[StreamRow]) -> ScanOutput:
        relations = {name: table(rows, self.schemas[name]) for name, rows in self.history.relations.items()}
        output = ScanOutput()
        operators = [query.operator for query in queries]
        states = {state_name(operator) for operator in operators} if self.stores_rows else ()
        for group in scan_groups(operators, relations, states):
            group.add(batch(split, self.schemas["s"]))
            output.join(group.finish())
        return output

    def _advance(
        self,
        name: str,
        queries: Sequence[Registered],
        deltas: Sequence[Mapping[str, Sequence[pa.Table]]],
        slots: tuple[int, int],
        punctuation: Instant,
        new_sections: dict[str, list[pa.Table]],
        *,
        final: bool,
    ) -> None:
        def advance_of(query: Registered) -> Advance:
            return Advance(query.emitted_to, punctuation, self.max_event_time, final)

        by_id = {query.operator.id: query for query in queries}
        operators = [query.operator for query in queries]
        if operators[0].family_key is None:
            step = operators[0].advance(
                [_of(run, name, slots) for run in self.runs],
                [_of({s: gathered(t) for s, t in delta.items()}, name, slots) for delta in deltas],
                advance_of(queries[0]),
            )
            steps, state = {operators[0].id: step}, step.state
            self._collect(name, by_id, steps, state, new_sections)
            return
        for cohort, advance in cohorts(operators, {id_: advance_of(query) for id_, query in by_id.items()}):

            def own(sections: Sections) -> Sections:
                rows = {s: cohort.only(t, QueryRowCounts.of(t)) for s, t in sections.items()}  # noqa: B023
                return {section: part for section, part in rows.items() if part.num_rows}

            given = (
                [own(_of(run, name, slots)) for run in self.runs],
                [own(_of({s: gathered(t) for s, t in delta.items()}, name, slots)) for delta in deltas],
                advance,
            )
            stream = cohort.stream(*given) if self.takes_portions else None
            if stream is None:
                family = cohort.advance(*given)
                self._collect(name, by_id, family.steps, family.state, new_sections)
                continue
            self._collect(name, by_id, {}, stream.state, new_sections)
            taken = set[str]()
            for portion in stream.portions():
                results = sections_of(portion).tables()
                assert not taken & results.keys(), "each query's results are in one portion"
                taken |= results.keys()
                made = {id_: Step(results=rows) for id_, rows in results.items()}
                self._collect(name, by_id, made, {}, new_sections)
            steps = stream.steps()
            assert all(steps[id_].results is None for id_ in taken)
            self._collect(name, by_id, steps, {}, new_sections)

    def _collect(
        self,
        name: str,
        by_id: Mapping[str, Registered],
        steps: Mapping[str, Any],
        state: Sections,
        new_sections: dict[str, list[pa.Table]],
    ) -> None:
        for id_, step in steps.items():
            by_id[id_].results += [step.results] if step.results is not None else []
        for section, rows in state.items():
            if rows.num_rows:
                new_sections.setdefault(f"{name}/{section}", []).append(rows)

    def _merge(self, newest: int, tasks: int, queries: Sequence[Registered]) -> None:
        cut = max(0, len(self.runs) - newest)
        older, chosen = self.runs[:cut], self.runs[cut:]
        by_state: dict[str, list[Registered]] = {}
        for query in queries:
            by_state.setdefault(state_name(query.operator), []).append(query)
        merged: list[dict[str, pa.Table]] = []
        for slots in _slots(tasks):
            run: dict[str, pa.Table] = {}
            for name, sharers in by_state.items():
                to = {query.operator.id: query.emitted_to for query in sharers}
                owners = sharers[0].operator.owners(
                    [query.operator for query in sharers],
                    lambda operator, to=to: Advance(  # type: ignore[misc]
                        to[operator.id], to[operator.id], self.max_event_time
                    ),
                )
                sections: dict[str, list[pa.Table]] = {}
                for chosen_run in chosen:
                    for section, rows in _of(chosen_run, name, slots).items():
                        if rows.num_rows:
                            sections.setdefault(section, []).append(rows)
                for section, rows in compacted(owners, before_merge(owners, sections)):
                    if rows.num_rows:
                        run[f"{name}/{section}"] = rows
            merged += [run] if run else []
        self.runs = [*older, *merged]


def _slots(tasks: int) -> list[tuple[int, int]]:
    bounds = [SLOTS * task // tasks for task in range(tasks + 1)]
    return list(pairwise(bounds))


def _of(run: Mapping[str, pa.Table], state: str, slots: tuple[int, int]) -> dict[str, pa.Table]:
    """A state's rows in some slots."""
    prefix, parts = f"{state}/", dict[str, pa.Table]()
    for name, rows in run.items():
        if name.startswith(prefix):
            at = ints(rows, SLOT)
            part = rows.filter(pa.array((at >= slots[0]) & (at < slots[1])))
            if part.num_rows:
                parts[name.removeprefix(prefix)] = part
    return parts


@st.composite
def families(
    draw: st.DrawFn,
    base: st.SearchStrategy[Query],
    windows: st.SearchStrategy[Window],
    conditions: st.SearchStrategy[Expression | None],
    last: int,
) -> list[Registered]:
    """A drawn query and two or three others over windows of the same kind, registered before some epoch up to `last`."""
    first = draw(base)
    registered = []
    for number in range(draw(st.integers(3, 4))):
        root = other_window(first.root, draw(windows), draw(conditions)) if number else first.root
        query = replace(first, root=root)
        since = draw(st.integers(0, last)) if number else 0
        until = draw(st.sampled_from((1 << 30, 1 << 30, since + 1)))
        registered.append(Registered(query, lower(f"q{number}", query, f"q{number}"), since, until))
    return registered


def cuts_of(history: History, draw_splits: Any) -> list[Any]:
    """The splits of each epoch."""
    return [draw_splits(rows) for rows in epochs(history.streams["s"])]
