"""INVOKE of a query whose window waits to be asked for: the window's ends, the rows within, what is made of them.

No condition is tested on rows of which the query's bitmaps tell. Those that it has not seen yet (it is being filled from the
past, or keeps nothing) are tested here, so that an answer is that of the whole committed prefix whenever it is asked:
rows of archive entries below `replayed` by bitmap, the others by their values, each entry by one of the two.
Source: PSoup, sections 3.3 and 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import conjuncts
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.families.family import number_of
from headrace.operators.on_demand.row_bitmaps import BITMAP, CHUNK_BYTES, Bytes, Containers
from headrace.operators.on_demand.selection import Selection
from headrace.operators.on_demand.shared_selections import BITS
from headrace.operators.rows.row_pipeline import RowPipeline, columns_read
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.backfill.archive_reader import ArchivedRun, archive_list_of
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
    """What an INVOKE took, counted: rows on which a factor was evaluated (once a factor), bits looked at, rows fetched."""

    factors: int = 0
    bits: int = 0
    rows: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class _Index:
    """A state run's containers in order of their owners: those of owner o are `order[low:high]`, found by search."""

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
    """Rows that are in no answer because an expression failed on them while this one was made."""

    def answer(self) -> pa.Table | None:
        """The answer with its system columns and its remarks; None when the stream has had no row."""
        operator, past = self.operator, archive_list_of(self.home, self.manifest, self.operator.stream)
        known = self.manifest.stream(operator.stream)
        if known.greatest == BEGINNING:
            return None
        now = known.greatest
        start, stop, bitmapped = self._archive_bounds()
        if not past.rows(start, stop):
            return None
        begin, end = operator.window.at(now)
        found = []
        with registered(callable_by_name(self.home.catalog.functions)):
            for index, entry in past.between(begin, end, start, stop):
                for name in entry.files:
                    part = self._rows(name, begin, end, by_bits=index < bitmapped)
                    if part is not None and part.rows:
                        found.append(part)
            table, rejected = operator.answer.of(self._whole(found), now)
        self.failed += rejected
        known_from = past.complete_since(start)
        return self._caveats(known_from if begin < known_from else BEGINNING).on(table)

    def _caveats(self, complete_since: Instant) -> AnswerCaveats:
        reasons = [reason for each in self.failed for reason in each.reasons]
        return AnswerCaveats(complete_since, failed=len(reasons), reason=reasons[0] if reasons else "")

    def _archive_bounds(self) -> tuple[int, int, int]:
        """Archive entries [start, stop) count; those below the third number by bitmap."""
        listed = self.home.list_of(self.manifest, f"archive:{self.operator.stream}")
        query = self.home.catalog.query(self.operator.query)
        place = self.manifest.operators.get(self.operator.id)
        if place is None:  # no epoch has known it yet
            first = listed.length if query is None or query.definition.from_now else listed.start
            place = OperatorProgress(replayed=first, since=first)
        paused = query is not None and query.definition.paused
        stop = place.replayed if paused else listed.length
        return (
            max(place.since, listed.start),
            stop,
            place.replayed if self.operator.materialize == "partial" else 0,
        )

    def _rows(self, name: str, begin: Instant, end: Instant, *, by_bits: bool) -> Batch | None:
        """The rows of a run that are in the window and pass the conditions, with the columns that answers read."""
        stream = self.home.catalog.stream(self.operator.stream)
        assert stream is not None
        run = ArchivedRun(self.home.store, name, stream)
        keys = run.keys
        self.effort.runs += 1
        inside = keys.within(begin, end)
        count = inside.stop - inside.start if isinstance(inside, slice) else len(inside)
        if not count:
            return None
        if not by_bits:
            return self._tested(run, inside)
        wanted = self._bits(keys.chunks)
        if wanted is None:
            return None
        self.effort.bits += count
        if isinstance(inside, slice) and keys.from_bit is not None:
            first = keys.from_bit
            rows = np.flatnonzero(wanted[first + inside.start : first + inside.stop]) + inside.start
        else:
            rows = np.arange(len(keys.at))[inside]
            rows = rows[wanted[keys.bit[rows]] != 0]
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
        """For each position of these chunks whether the query wants it; None when it wants none."""
        packed: Bytes | None = None
        owner = number_of(self.operator.id)
        for index in self._containers():
            rows = index.of(owner)
            if len(rows):
                mine = index.containers.chunk[rows]
                rows = rows[chunks[np.minimum(np.searchsorted(chunks, mine), len(chunks) - 1)] == mine]
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
                held = Containers.of(table.combine_chunks())
                order = np.argsort(held.owner, kind="stable")
                index = _Index(held, order, held.owner[order])
                _indexes.put(key, index)
            yield index

    def _whole(self, found: Sequence[Batch]) -> Batch:
        """All rows in the order of the stream."""
        if not found:
            return self._nothing()
        if len(found) == 1:
            whole = found[0]
        else:
            columns = {
                name: pa.concat_arrays([part.columns[name] for part in found]) for name in found[0].columns
            }
            at, position = (
                np.concatenate([getattr(part, name) for part in found]) for name in ("at", "position")
            )
            whole = Batch(columns, at, position)
        later = np.diff(whole.at)
        if ((later < 0) | ((later == 0) & (np.diff(whole.position) < 0))).any():
            whole = whole.take(np.lexsort([whole.position, whole.at]))
        return whole

    def _nothing(self) -> Batch:
        stream = self.home.catalog.stream(self.operator.stream)
        assert stream is not None
        fields = stream.schema.arrow()
        columns = {name: pa.nulls(0, fields.field(name).type) for name in sorted(self.operator.fetched)}
        return Batch(columns, np.empty(0, np.int64), np.empty(0, np.int64))


def _set(packed: Bytes, held: Containers, rows: Ints, chunks: Ints) -> None:
    """Set the bits of some containers; bitmaps as they lie, lists bit by bit."""
    for row in rows[held.form[rows] == BITMAP].tolist():  # one or two a run
        base = int(np.searchsorted(chunks, held.chunk[row])) * CHUNK_BYTES + int(held.first[row])
        data = held.data[held.starts[row] : held.starts[row + 1]]
        packed[base : base + len(data)] |= data
    listed = rows[held.form[rows] != BITMAP]
    if len(listed):
        whose, byte, value = held.spread(listed)
        base = np.searchsorted(chunks, held.chunk[listed]) * CHUNK_BYTES
        np.bitwise_or.at(packed, base[whose] + byte, value)
