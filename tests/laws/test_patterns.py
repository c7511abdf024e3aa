"""Punctuation by patterns: whatever promises are made and kept, answers are those of the stream without them, each emitted once.

Rows that break a promise are late by the reference's own rule, so that both see the same rows. A group is emitted as soon as a
promise covers it, and nothing is kept of one of which no row can follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.punctuation_patterns import (
    Between,
    OneOf,
    Pattern,
    Test,
    pattern_named,
    rolled_up,
)
from headrace.algebra.query import Query
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN
from headrace.operators.time_windows.group_punctuation import GroupAdvance
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, Promise, RecordedStream, matches, record
from headrace.runtime.progress.pattern_bounds import bounds_of
from headrace.time import BEGINNING, FOREVER, Instant
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import array, batch, described, epochs, plain

COLUMNS = ("k", "g")
Promises = dict[str, Instant]


def of_column(column: str) -> st.SearchStrategy[Test]:
    values = ("a", "b", "c", "", None) if column == "k" else (0, 1, 2, -1, None)
    chosen = st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
    end = st.one_of(st.none(), st.sampled_from([value for value in values if value is not None]))
    return st.one_of(
        st.builds(lambda some_of: OneOf(tuple(some_of)), chosen),
        st.builds(Between, end, end, st.booleans(), st.booleans()),
    )


def patterns() -> st.SearchStrategy[Pattern]:
    def built(k: Test | None, g: Test | None) -> Pattern:
        return Pattern(tuple((name, test) for name, test in (("g", g), ("k", k)) if test is not None))

    maybe = {name: st.one_of(st.none(), of_column(name)) for name in COLUMNS}
    return st.builds(built, maybe["k"], maybe["g"]).filter(lambda pattern: bool(pattern.tests))


def promises() -> st.SearchStrategy[list[Promise]]:
    at = st.one_of(st.just(FOREVER), st.integers(-5, 32).map(lambda tick: tick * some.TICK))
    return st.lists(st.tuples(patterns(), at), max_size=2)


@st.composite
def punctuated(draw: st.DrawFn) -> tuple[RecordedStream, list[list[Promise]]]:
    cut = draw(streams.epochs())
    promises_of = [draw(promises()) for _ in cut]
    return record(cut, "at", draw(st.integers(0, 12)) * some.TICK, promises_of), promises_of


def queries() -> st.SearchStrategy[Query]:
    shape = some.Shape(top=False, distinct=False, emits=False)
    strategy = some.queries(some.time_slides(), shape)
    return strategy.filter(lambda query: not query.emit_empty and bool(alone(query).group_columns(COLUMNS)))


def alone(query: Query) -> Any:
    return lower("q", query, "q").without_family()


class Running:
    """An operator from epoch to epoch, with its stream's promises."""

    def __init__(self, operator: PaneAggregate, history: History) -> None:
        self.operator, self.history = operator, history
        self.columns = operator.group_columns(COLUMNS)
        self.runs: list[Sections] = []
        self.closed: Instant = BEGINNING
        self.greatest: Instant = BEGINNING
        self.known: Promises = {}
        self.results: list[pa.Table] = []
        names = {"id": some.NAMES.field("id").type, "name": some.NAMES.field("name").type}
        rows = history.relations["names"]
        self.relations = {
            "names": pa.table({n: array([row[n] for row in rows], t) for n, t in names.items()})
        }

    def epoch(self, rows: list[Any], now: Instant, promised: list[Promise], final: bool = False) -> None:
        scanner = self.operator.scanner(self.relations)
        scanner.add(batch(rows, some.SCHEMA).only(self.operator.columns))
        if rows:
            self.greatest = max(self.greatest, *(row.at for row in rows))
        before, after = self.known, {**self.known}
        for pattern, at in promised:
            after[pattern.text()] = max(at, after.get(pattern.text(), BEGINNING))
        groups = GroupAdvance(self.columns, before, after, bounds_of)
        advance = Advance(self.closed, now, self.greatest, final)
        step = self.operator.advance_groups(self.runs, [scanner.finish().deltas], advance, groups)
        self.runs += [step.state] if step.state else []
        self.closed, self.known = now, rolled_up(after)
        if step.results is not None:
            self.results.append(step.results)

    def compact(self) -> None:
        advance = Advance(self.closed, self.closed, self.greatest)
        groups = GroupAdvance(self.columns, self.known, self.known, bounds_of)
        names = sorted({name for run in self.runs for name in run})
        tables = {name: [run[name] for run in self.runs if name in run] for name in names}
        merged = {
            name: self.operator.without_done(name, self.operator.compact(name, parts, advance), groups)
            for name, parts in self.operator.before_merge(tables, advance).items()
        }
        self.runs = [{name: table for name, table in merged.items() if table.num_rows}]

    def groups_kept(self) -> list[Mapping[str, Any]]:
        """Key values of the groups in the state."""
        places = {f"k{index}": key.expression.name for index, key in enumerate(self.operator.keys)}
        groups = []
        for run in self.runs:
            for name, table in run.items():
                if name.startswith(("open", "sealed", SPARSE_OPEN)):
                    rows = table.select(list(places)).to_pylist()
                    groups += [{places[key]: value for key, value in row.items()} for row in rows]
        return groups


@given(data=st.data())
def test_promises_change_when_groups_are_emitted_but_not_what(data: st.DataObject) -> None:
    query = data.draw(queries(), "query")
    stream, promised = data.draw(punctuated(), "stream")
    history = History({"s": stream}, {"names": ()})
    running = Running(alone(query), history)
    merges = data.draw(st.sets(st.integers(0, max(len(promised) - 1, 0))), "compacted after")
    for number, rows in enumerate(epochs(stream)):
        running.epoch(rows, stream.punctuations[number], promised[number])
        if number in merges:
            running.compact()
            done = [pattern_named(text) for text, at in running.known.items() if at == FOREVER]
            for group in running.groups_kept():
                assert not any(covered(pattern, group) for pattern in done), described(query)
    early = emitted_so_far(running, query)
    wanted = [item for item in answer(query, history) if item[0] <= reach(query, item, stream, running.known)]
    assert canonical(early) == canonical(wanted), "as soon as a promise covers the group, and no sooner"
    running.epoch([], FOREVER, [], final=True)
    assert canonical(emitted_so_far(running, query)) == canonical(answer(query, history))


def answer(query: Query, history: History) -> list[Any]:
    return windows_answer(query, history, history.punctuation(query), final=True)


def emitted_so_far(running: Running, query: Query) -> list[Any]:
    return plain(pa.concat_tables(running.results) if running.results else None, query)


def keys_of(query: Query) -> tuple[str, ...]:
    return tuple(name for name in query.schema.names if name in COLUMNS)


def covered(pattern: Pattern, group: Mapping[str, Any]) -> bool:
    named = {name.removeprefix("s."): value for name, value in group.items()}
    return all(name in named for name in pattern.columns) and matches(pattern, named)


def reach(query: Query, item: Any, stream: RecordedStream, known: Promises) -> Instant:
    """How far the group of an answer's row is promised."""
    group = {name: item[1][name] for name in keys_of(query)}
    bounds = [at for text, at in known.items() if covered(pattern_named(text), group)]
    return max([stream.punctuation, *bounds])


@given(made=st.lists(st.tuples(patterns(), st.sampled_from((3, 7, FOREVER))), max_size=6))
def test_promises_rolled_up_say_the_same_of_every_group_and_no_more_often(made: list[Promise]) -> None:
    plainly: Promises = {}
    for pattern, at in made:
        plainly[pattern.text()] = max(at, plainly.get(pattern.text(), BEGINNING))
    fewer = rolled_up(plainly)
    assert len(fewer) <= len(plainly)
    pairs = [(k, g) for k in ("a", "b", "c", "", None, "z") for g in (0, 1, 2, -1, None, 9)]
    columns = {
        "k": pa.array([k for k, _ in pairs]),
        "g": pa.array([g for _, g in pairs], pa.int32()),
    }
    bounds = bounds_of(columns, len(pairs), fewer)
    assert np.array_equal(bounds, bounds_of(columns, len(pairs), plainly))
    for index, (k, g) in enumerate(pairs):
        own = [at for pattern, at in made if matches(pattern, {"k": k, "g": g})]
        assert bounds[index] == max(own, default=BEGINNING)


def test_constants_of_one_column_become_one_list() -> None:
    promised = {Pattern((("g", OneOf((number,))),)).text(): FOREVER for number in range(100)}
    promised[Pattern((("g", Between(50)),)).text()] = FOREVER
    fewer = rolled_up(promised)
    assert set(fewer) == {
        Pattern((("g", OneOf(tuple(range(50)))),)).text(),
        Pattern((("g", Between(50)),)).text(),
    }
