"""`--output DIR`: one file per query with its answers so far, replaced after each epoch that changes them.

Windows and streams: every row emitted in the life of the home, and the provisional ones; revised windows in their current
form; relations and BEGIN … END: the answer of INVOKE. A file is replaced whole, so a reader sees one epoch or the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.algebra.query import Bounds, Query, walk
from headrace.connectors.formats.rendering import rendered
from headrace.dataclass import dataclass
from headrace.errors import StoreError, UserError
from headrace.operators.base.operator import Operator
from headrace.operators.base.query_failures import of_query
from headrace.runtime.delivery.output_record import RECORD, Exports
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.home.file_names import file_name
from headrace.runtime.home.home import Home
from headrace.runtime.invoke import current_answer
from headrace.runtime.invoke.answer_caveats import AnswerCaveats
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.results import result_log
from headrace.runtime.results.result_log import visible
from headrace.store.files.disk import Disk
from headrace.store.logs.committed import NEW_STREAM
from headrace.store.logs.manifest import Manifest


def emitted_rows(
    home: Home, manifest: Manifest, operator: Operator, query: Query, provisional: pa.Table | None = None
) -> pa.Table:
    """All that a query has emitted, in the order of the contract; only the selected columns.

    `provisional` are the rows it would emit beyond that if the streams ended here.
    """
    if is_answer(query):
        table = current_answer.answer_at(home, manifest, operator, query, provisional)
    else:
        parts = [part.table for part in result_log.epochs_of(home, manifest, operator.id)]
        parts += [provisional] if provisional is not None else []
        table = result_log.net_rows(pa.concat_tables(parts)) if parts else result_log.empty(query)
    return visible(result_log.ordered(table, operator.sort, query.schema.names), query)


def is_answer(query: Query) -> bool:
    """True for queries whose file holds the answer of INVOKE, not the emitted rows."""
    return query.emission == "relation" or any(isinstance(node, Bounds) for node in walk(query.root))


@dataclass(slots=True)
class Exporter:
    """Writes the files of all queries in one format."""

    pipeline: Pipeline
    folder: Path
    style: str
    disk: Disk = field(default_factory=Disk)
    _seen: int = 0
    _written: dict[str, Any] = field(default_factory=dict)
    """Of each query's file, what its answer depended on."""
    _exports: Exports = field(init=False)

    def __post_init__(self) -> None:
        """Make the folder now: a mistake in its name must not cost a run."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make the folder {self.folder}: {error.strerror}",
                remedy="Name another with --output.",
            ) from error
        self._exports = Exports(self.pipeline.path / RECORD, self.folder)

    def refresh(self) -> list[str]:
        """Replace the files of queries whose answers have changed; their names."""
        manifest, changed = self.pipeline.home.latest(), []
        emitting, queries = self._newly_emitted(manifest), self._queries()
        self._written = {name: mark for name, mark in self._written.items() if name in queries}
        for name, (operator, query) in queries.items():
            stream = manifest.stream(operator.stream) if is_answer(query) else NEW_STREAM
            mark = (operator.id, stream.greatest, stream.rows)
            if operator.id in emitting or self._written.get(name) != mark:
                try:
                    self._replace(name, emitted_rows(self.pipeline.home, manifest, operator, query))
                    changed.append(name)
                    self.pipeline.closing_failures.pop(name, None)
                except Exception as failure:  # noqa: BLE001 - of any kind: it is this answer's
                    self.pipeline.closing_failures[name] = of_query(failure)
                self._written[name] = mark
        self._settle()
        return changed

    def finish(self, provisional: Mapping[str, pa.Table]) -> list[str]:
        """Write every file, with the rows that the queries would give if the streams ended here; the answers' caveats."""
        manifest, caveats = self.pipeline.home.latest(), list[str]()
        for name, (operator, query) in self._queries().items():
            try:
                table = emitted_rows(self.pipeline.home, manifest, operator, query, provisional.get(name))
                self._replace(name, table)
            except Exception as failure:  # noqa: BLE001 - of any kind: it is this answer's
                self.pipeline.closing_failures[name] = of_query(failure)
                continue
            caveats += AnswerCaveats.of(table).sentences(name)
        self._settle()
        return caveats

    def _settle(self) -> None:
        """Delete the files that this exporter wrote for queries that were dropped or renamed."""
        try:
            self._exports.settle({query.definition.name for query in self.pipeline.catalog.queries.values()})
        except OSError as error:
            raise StoreError(f"cannot tidy {self.folder}: {error.strerror}") from error

    def _queries(self) -> dict[str, tuple[Operator, Query]]:
        names = [query.definition.name for query in self.pipeline.catalog.queries.values()]
        return {name: self.pipeline.operator_and_query(name) for name in names}

    def _newly_emitted(self, manifest: Manifest) -> set[str]:
        """Operators with result rows since the last call."""
        home, operators = self.pipeline.home, set()
        log = home.list_of(manifest, "results")
        for _, entry in log.iterate(home.store.read, self._seen):
            operators |= set(answered(entry, home.store))
        self._seen = log.length
        return operators

    def _replace(self, name: str, table: pa.Table) -> None:
        """Not synced: these files are derived, and the next run writes all of them again."""
        path = self.folder / f"{file_name(name)}.{self.style}"
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            if unfinished.exists():  # of a run that was killed
                self.disk.unlink(str(unfinished))
            descriptor = self.disk.create(str(unfinished))
            try:
                for part in rendered(table, self.style):
                    self.disk.write(descriptor, [part])
            finally:
                self.disk.close(descriptor)
            self.disk.rename(str(unfinished), str(path))
            self._exports.wrote(path, name)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
