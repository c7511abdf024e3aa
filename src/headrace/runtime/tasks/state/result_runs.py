"""Runs (files) of results of a state task: one for each retention, named and numbered when it first gets rows, and written
with the facts of its queries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT
from headrace.runtime.home import file_names
from headrace.runtime.home.run_cache import remember
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.result_entry import Facts
from headrace.runtime.messages.task_messages import ResultsFile, StateMessage
from headrace.runtime.results.time_merge import PIECE
from headrace.store.files.container import parts
from headrace.store.files.filesystem import Store
from headrace.store.maintenance.retention_classes import RETAIN_ALL


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
        if retention not in self.runs:
            name = file_names.results_run(self.message.epoch, self.message.task)
            self.runs[retention] = ResultRun(name, next(self.numbers))
        return self.runs[retention]

    def write(
        self, store: Store, results: Mapping[str, pa.Table], read: Collection[str]
    ) -> tuple[ResultsFile, ...]:
        """Write the results by query; a small run with some that later rounds have `read` stays in memory."""
        by_retention: dict[str, dict[str, pa.Table]] = {}
        for query, table in results.items():
            by_retention.setdefault(self._retention(query), {})[query] = table
        files = []
        for retention, tables in by_retention.items():
            name, number = self.run_of(next(iter(tables)))
            store.write_once(name, parts(tables, compressed=True, piece=PIECE), durable=False)
            if any(query in read for query in tables):
                remember(store, name, tables)
            facts = {query: _facts(table) for query, table in tables.items()}
            files.append(ResultsFile(name, retention, facts, number))
        return tuple(files)

    def _retention(self, query: str) -> str:
        retention = self.plan.retention_of(query)
        return RETAIN_ALL if retention is None else str(retention)


def _facts(table: pa.Table) -> Facts:
    at = ints(table, AT)
    return table.num_rows, int(at.min()), int(at.max())
