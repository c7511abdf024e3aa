"""INVOKE of a query that materializes none or part of its answer: the window's ends, its rows, and the answer from them.

Conditions are not evaluated on rows for which the query has bitmaps. Rows that it has not seen (during a backfill, or when
it materializes none) are tested here, so that an answer is always that of the whole committed prefix: rows of archive
entries below `replayed` by bitmap, the others by their values, each entry by one of the two.
Source: PSoup, sections 3.3 and 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import conjuncts
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.families.numbering import number_of
from headrace.operators.on_demand.row_bitmaps import BITMAP, CHUNK_BYTES, Bytes, Containers
from headrace.operators.on_demand.selection import Selection
from headrace.operators.on_demand.shared_selections import BITS
from headrace.operators.rows.row_pipeline import RowPipeline, columns_read
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.backfill.archive_entries import Piece
from headrace.runtime.backfill.archive_reader import ArchivedRun, archive_list_of
from headrace.runtime.home.deadline import require_time
from headrace.runtime.home.home import Home
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.invoke.answer_caveats import AnswerCaveats
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


@dataclass(slots=True)
class Effort:
    """Counted work of an INVOKE: rows on which a factor was evaluated (once a factor), bits read, rows fetched, runs opened."""

    factors: int = 0
    bits: int = 0
    rows: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class _Index:
    """A state run's containers in order of their owners: those of owner o are `order[low:high]`, by binary search."""

    containers: Containers
    order: Ints
    owners: Ints

    def of(self, owner: int) -> Ints:
        low, high = np.searchsorted(self.owners, [owner, owner + 1])
        return self.order[low:high]


_indexes: Final[Recent[tuple[str, str, str], _Index | None]] = Recent(256)


@dataclass(slots=True)
class Invocation:
    """One INVOKE of a selection as of a manifest."""

    home: Home
    manifest: Manifest
    operator: Selection
    effort: Effort = field(default_factory=Effort)
    failed: list[Rejected] = field(default_factory=list)
    """Rows that are not in the answer because an expression failed on them."""

    def answer(self) -> pa.Table | None:
        """The answer with its system columns and its caveats; None when the stream has had no row."""
        operator, archive = self.operator, archive_list_of(self.home, self.manifest, self.operator.stream)
        committed = self.manifest.stream(operator.stream)
        if committed.greatest == BEGINNING:
            return None
        now = committed.greatest
        start, stop, bitmapped = self._archive_bounds()
        if not archive.rows(start, stop):
            return None
        begin, end = operator.window.at(now)
        batches = []
        with registered(callable_by_name(self.home.catalog.functions)):
            for index, entry in archive.between(begin, end, start, stop):
                require_time()
                for piece in entry.pieces:
                    rows = self._rows(piece, begin, end, by_bits=index < bitmapped)
                    if rows is not None and rows.rows:
                        batches.append(rows)
            table, rejected = operator.answer.of(self._whole(batches), now)
        self.failed += rejected
        complete_since = archive.complete_since(start)
        return self._caveats(complete_since if begin < complete_since else BEGINNING).on(table)

    def _caveats(self, complete_since: Instant) -> AnswerCaveats:
        reasons = [reason for rejected in self.failed for reason in rejected.reasons]
        return AnswerCaveats(complete_since, failed=len(reasons), reason=reasons[0] if reasons else "")

    def _archive_bounds(self) -> tuple[int, int, int]:
        """The archive entries [start, stop) that count; those below the third number are read by bitmap."""
        listed = self.home.list_of(self.manifest, f"archive:{self.operator.stream}")
        query = self.home.catalog.query(self.operator.query)
        progress = self.manifest.find_operator(self.operator.id)
        if progress is None:  # it was in no epoch yet
            first = listed.length if query is None or query.definition.from_now else listed.start
            progress = OperatorProgress(replayed=first, since=first)
        paused = query is not None and query.definition.paused
        stop = progress.replayed if paused else listed.length
        return (
            max(progress.since, listed.start),
            stop,
            progress.replayed if self.operator.materialize == "partial" else 0,
        )

    def _rows(self, piece: Piece, begin: Instant, end: Instant, *, by_bits: bool) -> Batch | None:
        """The rows of a run that are in the window and pass the conditions, with the columns of the answer."""
        stream = self.home.catalog.stream(self.operator.stream)
        assert stream is not None
        run = ArchivedRun(self.home.store, piece, stream)
        keys = run.keys
        self.effort.runs += 1
        inside = keys.within(begin, end)
        count = inside.stop - inside.start if isinstance(inside, slice) else len(inside)
        if not count:
            return None
        if not by_bits:
            return self._tested(run, inside)
        selected = self._bits(keys.chunks)
        if selected is None:
            return None
        self.effort.bits += count
        if isinstance(inside, slice) and keys.from_bit is not None:
            first = keys.from_bit
            rows = np.flatnonzero(selected[first + inside.start : first + inside.stop]) + inside.start
        else:
            rows = np.arange(len(keys.at))[inside]
            rows = rows[selected[keys.bit[rows]] != 0]
        return self._fetched(run, rows)

    def _tested(self, run: ArchivedRun, inside: slice | Ints) -> Batch:
        keys, operator = run.keys, self.operator
        rows = np.arange(len(keys.at))[inside]
        if keys.accepted is not None:
            rows = rows[keys.accepted[rows]]
        pipeline = RowPipeline.of(operator.steps, {})
        read = sorted(operator.fetched | columns_read(operator.steps))
        picked = pa.array(rows)
        batch = Batch(
            {name: run.column(name).take(picked) for name in read}, keys.at[rows], keys.position[rows]
        )
        self.effort.factors += len(rows) * sum(len(conjuncts(step.predicate)) for step in operator.steps)
        passed = pipeline.apply(batch)
        self.failed += pipeline.rejected
        self.effort.rows += passed.rows
        return passed.only(operator.fetched)

    def _fetched(self, run: ArchivedRun, rows: Ints) -> Batch:
        self.effort.rows += len(rows)
        picked, keys = pa.array(rows), run.keys
        columns = {name: run.column(name).take(picked) for name in sorted(self.operator.fetched)}
        return Batch(columns, keys.at[rows], keys.position[rows])

    def _bits(self, chunks: Ints) -> Bytes | None:
        """For each position of these chunks whether the query selects it; None when it selects none."""
        packed: Bytes | None = None
        owner = number_of(self.operator.id)
        for index in self._containers():
            rows = index.of(owner)
            if len(rows):
                chunks_of_rows = index.containers.chunk[rows]
                rows = rows[
                    chunks[np.minimum(np.searchsorted(chunks, chunks_of_rows), len(chunks) - 1)]
                    == chunks_of_rows
                ]
            if not len(rows):
                continue
            if packed is None:
                packed = np.zeros(len(chunks) * CHUNK_BYTES, np.uint8)
            _set(packed, index.containers, rows, chunks)
        return None if packed is None else np.unpackbits(packed, bitorder="little")

    def _containers(self) -> Iterator[_Index]:
        section = f"{self.operator.family_key}/{BITS}"
        for run in self.manifest.state:
            key = str(self.home.store.root), run.name, section
            index = _indexes.get(key)
            if index is None:
                table = open_run(self.home.store, run.name).get(section)
                if table is None or not table.num_rows:
                    continue
                containers = Containers.of(table.combine_chunks())
                order = np.argsort(containers.owner, kind="stable")
                index = _Index(containers, order, containers.owner[order])
                _indexes.put(key, index)
            yield index

    def _whole(self, batches: Sequence[Batch]) -> Batch:
        """All rows in the order of the stream."""
        if not batches:
            return self._nothing()
        if len(batches) == 1:
            batch = batches[0]
        else:
            columns = {
                name: pa.concat_arrays([part.columns[name] for part in batches])
                for name in batches[0].columns
            }
            at, position = (
                np.concatenate([getattr(part, name) for part in batches]) for name in ("at", "position")
            )
            batch = Batch(columns, at, position)
        later = np.diff(batch.at)
        if ((later < 0) | ((later == 0) & (np.diff(batch.position) < 0))).any():
            batch = batch.take(np.lexsort([batch.position, batch.at]))
        return batch

    def _nothing(self) -> Batch:
        stream = self.home.catalog.stream(self.operator.stream)
        assert stream is not None
        fields = stream.schema.arrow()
        columns = {name: pa.nulls(0, fields.field(name).type) for name in sorted(self.operator.fetched)}
        return Batch(columns, np.empty(0, np.int64), np.empty(0, np.int64))


def _set(packed: Bytes, containers: Containers, rows: Ints, chunks: Ints) -> None:
    """Set the bits of some containers; of bitmaps by byte, of lists bit by bit."""
    for row in rows[containers.form[rows] == BITMAP].tolist():  # one or two a run
        base = int(np.searchsorted(chunks, containers.chunk[row])) * CHUNK_BYTES + int(containers.first[row])
        data = containers.data[containers.starts[row] : containers.starts[row + 1]]
        packed[base : base + len(data)] |= data
    listed = rows[containers.form[rows] != BITMAP]
    if len(listed):
        container, byte, value = containers.spread(listed)
        base = np.searchsorted(chunks, containers.chunk[listed]) * CHUNK_BYTES
        np.bitwise_or.at(packed, base[container] + byte, value)
