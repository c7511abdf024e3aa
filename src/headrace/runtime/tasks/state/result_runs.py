"""Runs (files) of results of a state task: one for each retention, named and numbered when it first gets rows, and written
with the facts of its queries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT, Operator
from headrace.operators.families.finishing import ResultsByQuery
from headrace.runtime.home import file_names
from headrace.runtime.home.run_cache import keep_results
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.result_entry import Facts, FactsOfRun
from headrace.runtime.messages.task_messages import ResultsFile, StateMessage
from headrace.runtime.results.time_merge import PIECE
from headrace.runtime.tasks.file_writes import FileWrites
from headrace.store.files.container import Adjacent, parts, streamed
from headrace.store.files.filesystem import Store
from headrace.store.maintenance.retention_classes import RETAIN_ALL
from headrace.time import Instant

_ROWS_AT_ONCE: Final = 1 << 16
"""Rows of several queries that are encoded together."""


class ResultRun(NamedTuple):
    """A run that will be written: its file, and its place among the runs of the process's state tasks in this epoch."""

    file: str
    number: int


@dataclass(slots=True)
class ResultRuns:
    """The runs by retention. `numbers` gives the next run of the process its number."""

    message: StateMessage
    plan: EpochPlan
    numbers: Iterator[int]
    runs: dict[str, ResultRun] = field(default_factory=dict)

    def run_of(self, query: str) -> ResultRun:
        """The run that a query's results go to."""
        retention = self._retention(query)
        return self.runs[retention] if retention in self.runs else self._run(retention)

    def _run(self, retention: str) -> ResultRun:
        if retention not in self.runs:
            name = file_names.results_run(self.message.epoch, self.message.task)
            self.runs[retention] = ResultRun(name, next(self.numbers))
        return self.runs[retention]

    def write(
        self,
        store: Store,
        results: Mapping[str, pa.Table],
        instants: Mapping[str, tuple[Instant, Instant]],
        writes: FileWrites,
        streams: Mapping[str, Iterable[ResultsByQuery]],
    ) -> tuple[ResultsFile, ...]:
        """Write the results by query; a small run stays in memory, and goes to the driver with its receipt: it is read at once.

        `instants` are the first and the last one of results, where they are known. `streams` are results by retention that are made as they are
        written, and may add to `results`.
        """
        files = [
            file
            for retention, portions in streams.items()
            for file in self._write_stream(store, retention, portions, results, instants)
        ]
        for retention, tables in self._by_retention(results).items():
            if retention in streams:
                continue
            name, number = self.run_of(next(iter(tables)))
            content = b""
            if keep_results(store, name, tables):
                content = b"".join(parts(tables, compressed=True, piece=PIECE))
                writes.add(partial(store.write_once, name, [content], durable=False))
            else:
                store.write_once(name, streamed(_portions(tables), piece=PIECE), durable=False)
            facts = FactsOfRun(_facts_of(tables, instants)).as_entry()
            files.append(ResultsFile(name, retention, facts, number, content))
        return tuple(files)

    def retention_of_all(self, queries: Iterable[Operator]) -> str | None:
        """The retention of queries' results, None if they have several."""
        retentions = {self._retention(query.id) for query in queries}
        return retentions.pop() if len(retentions) == 1 else None

    def _write_stream(
        self,
        store: Store,
        retention: str,
        portions: Iterable[ResultsByQuery],
        results: Mapping[str, pa.Table],
        instants: Mapping[str, tuple[Instant, Instant]],
    ) -> Iterator[ResultsFile]:
        """Write results of one retention as they are made, and then those that others have made; no file if there are none."""
        facts = FactsOfRun()

        def taken() -> Iterator[Mapping[str, pa.Table] | Adjacent]:
            for portion in portions:
                facts.add(portion.numbers, portion.rows, portion.first, portion.last)
                yield sections_of(portion)
            tables = self._by_retention(results).get(retention, {})
            facts.named.update(_facts_of(tables, instants))
            yield from _portions(tables)

        made = taken()
        first = next(made, None)
        if first is not None:
            name, number = self._run(retention)
            store.write_once(name, streamed(itertools.chain((first,), made), piece=PIECE), durable=False)
            yield ResultsFile(name, retention, facts.as_entry(), number)

    def _by_retention(self, results: Mapping[str, pa.Table]) -> dict[str, dict[str, pa.Table]]:
        by_retention: dict[str, dict[str, pa.Table]] = {}
        for query, table in results.items():
            by_retention.setdefault(self._retention(query), {})[query] = table
        return by_retention

    def _retention(self, query: str) -> str:
        retention = self.plan.retention_of(query)
        return RETAIN_ALL if retention is None else str(retention)


def _portions(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
    """The results of some queries at a time, which are encoded and written in memory that the next ones use again."""
    portion, rows = dict[str, pa.Table](), 0
    for query, table in tables.items():
        portion[query] = table
        rows += table.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield portion
            portion, rows = {}, 0
    if portion:
        yield portion


def sections_of(portion: ResultsByQuery) -> Adjacent:
    """The results of each query as a section."""
    return Adjacent(portion.table, portion.queries, portion.rows.tolist())


def _facts_of(
    tables: Mapping[str, pa.Table], instants: Mapping[str, tuple[Instant, Instant]]
) -> dict[str, Facts]:
    return {query: _facts(table, instants.get(query)) for query, table in tables.items()}


def _facts(table: pa.Table, instants: tuple[Instant, Instant] | None) -> Facts:
    if instants is not None:
        return table.num_rows, *instants
    at = ints(table, AT)
    return table.num_rows, int(at.min()), int(at.max())
