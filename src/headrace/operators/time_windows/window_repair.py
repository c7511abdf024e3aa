"""Operator for time windows WITH SHEDDING (repair): answers from samples are emitted again, as retractions and insertions, once the
archive was read for the rows that were shed.

Partials of rows that represent others are stored separately, by pane. Rows that are read for repair wait by pane too, until
`Damage.since` has passed their pane. Then they become late rows of the exact partials, and the sample of the pane is dropped:
so no partial is ever taken back, which sums of doubles, MIN and MAX do not allow. A window is answered from exact panes where there
are any, and else from exact rows and samples together; it is emitted again at most once, when all of its panes are exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions.shedding_estimates import MORE
from headrace.algebra.query import Revisions
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import merge
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import flat, ints
from headrace.operators.base.operator import (
    SLOT,
    WINDOW,
    Advance,
    EmittedCounts,
    Scanner,
    Sections,
    Step,
    Windows,
)
from headrace.operators.base.wrapper import Around
from headrace.operators.output.output_stage import finish
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.damage import NO_DAMAGE, Damage, closed_at, pane_at
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.operators.panes.late_panes import into_blocks
from headrace.operators.panes.pane_keys import between, block_key, extent
from headrace.operators.panes.pane_sealing import Sealed
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.operators.time_windows.divided_scanner import OPEN_PANES, DividedScanner
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.operators.time_windows.window_revisions import LAST_EMITTED, negated, net, signed, within
from headrace.operators.window_assembly.assemble import closing
from headrace.operators.window_assembly.window_closing import (
    Chunk,
    chunks_of,
    count_open_windows,
    opened_panes,
)
from headrace.time import BEGINNING, FOREVER, Instant

SAMPLED: Final = "sampled"
RESTORED: Final = "restored"
_OWN: Final = (SAMPLED, RESTORED, LAST_EMITTED)


@dataclass(frozen=True, slots=True)
class Repairing(Around):
    """The windows of `inner`, which has one store, with their repairs; all rows are in `slot`.

    With `settles`, for a query that reads it, each window is answered once: its punctuation is at most `Damage.since`.
    """

    inner: PaneAggregate
    slot: int
    settles: bool = False

    @property
    def panes(self) -> Panes:
        """Those of the inner operator."""
        return self.inner.panes

    @property
    def emission_windows(self) -> Panes:
        """Its own: those of the inner operator."""
        return self.panes

    def scanner(self, relations: Mapping[str, pa.Table]) -> Scanner:
        """Folds rows that represent others, and all others, separately."""
        scanners = self.inner.scanner(relations), self.inner.scanner(relations)
        return DividedScanner(*scanners, SAMPLED, _represents_others)

    def emission_limit(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, cap: EmissionCap
    ) -> Instant | None:
        """That of the inner operator over rows and samples."""
        parts = _Parts.of(runs, deltas, advance)
        sampled: list[Sections] = [{OPEN_PANES: table} for table in parts.samples(self.panes)]
        return self.inner.emission_limit([*parts.runs, *sampled], parts.exact, advance, cap)

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """That of the inner operator; the next punctuation while there are samples."""
        parts = _Parts.of(runs, (), advance)
        due = self.inner.due_after(parts.runs, advance)
        return min(due, advance.punctuation + 1, FOREVER) if parts.samples(self.panes) else due

    def display(self) -> Iterator[str]:
        """The repair, then the inner operator's lines."""
        if self.settles:
            yield "windows of which rows were shed are emitted once these were read in the archive"
        else:
            yield "windows answered from samples are emitted again (retractions -1, insertions +1) once their rows were read in the archive"
        yield from self.inner.display()

    @property
    def state_label(self) -> str:
        """The exact panes, and what is stored besides while there are samples."""
        return f"{self.inner.state_label}, samples separately until they are repaired"

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Answer the windows that closed, and again those that are exact now and were not."""
        parts = _Parts.of(runs, deltas, advance)
        closed = _Closed.of(self, parts, advance)
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        counts = EmittedCounts()
        for chunk in closed.chunks():
            counts = counts.plus(len(chunk.windows), chunk.held)
            table, bad = finish(self.inner.finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)
            tables.append(table)
            rejected += bad
        state = {**closed.state, **parts.kept(self)}
        if self.settles:
            answers = pa.concat_tables(tables) if tables else None
            return Step(state, answers, tuple(rejected), closed.open_windows, emitted_counts=counts)
        earlier = [_within(table, closed.again) for table in parts.emitted] if closed.again else []
        changed = [*(negated(table) for table in earlier), *map(signed, tables)]
        changed = [table for table in changed if table.num_rows]
        changes = net(pa.concat_tables(changed)) if changed else None
        if changes is not None:
            emitted = _within(changes, parts.damage.doubtful(self.panes))
            if emitted.num_rows:
                slots = pa.array(np.full(emitted.num_rows, self.slot, np.int16))
                state[f"{LAST_EMITTED}{parts.damage.number}"] = emitted.append_column(SLOT, slots)
        return Step(state, changes, tuple(rejected), closed.open_windows, emitted_counts=counts)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Merge samples and rows that wait for repair; drop those that are repaired, and what was emitted of exact windows."""
        kind = next((name for name in _OWN if section.startswith(name)), None)
        if kind is None:
            return exactly(self.inner, advance).compact(section, tables, advance)
        damage = _damage(advance)
        if damage.is_none or section != f"{kind}{damage.number}":
            return tables[0].slice(0, 0)
        if kind == LAST_EMITTED:
            return _within(pa.concat_tables(tables), damage.doubtful(self.panes))
        waiting = between(tables, block_key(0, pane_at(self.panes, damage.since)), block_key(0, HIGHEST))
        return merge(self.inner.layouts[0], waiting) if waiting else tables[0].slice(0, 0)


def exactly(inner: PaneAggregate, advance: Advance) -> PaneAggregate:
    """The operator of exact panes: as long as windows may be emitted again, it keeps the panes of these."""
    damage = _damage(advance)
    if damage.is_none:
        return inner
    since = min(damage.since, advance.punctuation)
    return replace(inner, revisions=Revisions(advance.punctuation - since))


@dataclass(frozen=True, slots=True)
class _Parts:
    """State and deltas by what they are: those of exact panes, samples, rows that wait for repair, and what was emitted."""

    damage: Damage
    runs: Sequence[Sections]
    exact: Sequence[Sections]
    stored_samples: Sequence[pa.Table]
    new_samples: Sequence[pa.Table]
    stored_restored: Sequence[pa.Table]
    new_restored: Sequence[pa.Table]
    emitted: Sequence[pa.Table]

    @staticmethod
    def of(runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> _Parts:
        """The parts, without what belongs to damage that was repaired before."""
        damage = _damage(advance)
        names = {kind: f"{kind}{damage.number}" for kind in _OWN}
        stored: dict[str, list[pa.Table]] = {
            kind: [run[name] for run in runs if name in run and not damage.is_none]
            for kind, name in names.items()
        }
        exact = [{name: table for name, table in delta.items() if name != SAMPLED} for delta in deltas]
        restored = [delta[OPEN_PANES] for delta in exact if OPEN_PANES in delta] if damage.is_repair else []
        return _Parts(
            damage,
            [_of_inner(run) for run in runs],
            [] if damage.is_repair else exact,
            stored[SAMPLED],
            [delta[SAMPLED] for delta in deltas if SAMPLED in delta],
            stored[RESTORED],
            restored,
            [table.drop_columns([SLOT]) for table in stored[LAST_EMITTED]],
        )

    def samples(self, panes: Panes) -> list[pa.Table]:
        """The samples that are not repaired after the epoch."""
        since = block_key(0, pane_at(panes, self.damage.since))
        return between([*self.stored_samples, *self.new_samples], since, block_key(0, HIGHEST))

    def settled(self, panes: Panes) -> list[pa.Table]:
        """The partials that become exact ones in this epoch: restored rows, and for panes that are lost their samples."""
        low, high, lost = (
            block_key(0, pane_at(panes, at))
            for at in (self.damage.before, self.damage.since, self.damage.lost_to)
        )
        if self.damage.lost_to != BEGINNING:
            lost += 1
        samples = [*self.stored_samples, *self.new_samples]
        restored = [*self.stored_restored, *self.new_restored]
        given_up = between(samples, low, min(high, lost)) if low < min(high, lost) else []
        return given_up + (between(restored, max(low, lost), high) if max(low, lost) < high else [])

    def kept(self, operator: Repairing) -> dict[str, pa.Table]:
        """The new samples and rows read for repair that wait for others of their panes."""
        since = block_key(0, pane_at(operator.panes, self.damage.since))
        state = {}
        for kind, tables in ((SAMPLED, self.new_samples), (RESTORED, self.new_restored)):
            waiting = between(tables, since, block_key(0, HIGHEST))
            if waiting:
                state[f"{kind}{self.damage.number}"] = merge(operator.inner.layouts[0], waiting)
        return state


@dataclass(frozen=True, slots=True)
class _Closed:
    """Panes after an epoch, the windows that closed in it (`due`), and those that are exact now and were not (`again`)."""

    inner: PaneAggregate
    panes: ClosedPanes
    state: Sections
    due: range
    again: Windows
    open_windows: int

    @staticmethod
    def of(operator: Repairing, parts: _Parts, advance: Advance) -> _Closed:
        """Seal exact panes, to which the settled ones are added as late rows are, and put samples over them."""
        inner, panes = exactly(operator.inner, advance), operator.panes
        layout = inner.layouts[0]
        settled = parts.settled(panes)
        deltas = [*parts.exact, {OPEN_PANES: merge(layout, settled)}] if settled else parts.exact
        sealed = inner.store.seal(layout, 0, parts.runs, deltas, advance)
        edge = HIGHEST if advance.final else pane_at(panes, advance.punctuation)
        samples = between(parts.samples(panes), block_key(0, LOWEST), block_key(0, edge))
        over = [merge(layout, samples)] if samples else []
        over += into_blocks(layout, over, edge, inner.top_level)
        closed = ClosedPanes([*sealed.closed.lasting, *over], sealed.closed.expired, sealed.closed.ended)
        present = extent(closed.panes)
        waiting = opened_panes((*parts.runs, *deltas))
        still_open = count_open_windows(inner, present, waiting, advance.punctuation)
        if advance.punctuation == BEGINNING or present is None:
            return _Closed(inner, closed, sealed.sections, range(0), (), still_open)
        emitted, ended = closed_at(panes, advance.emission_start), closed_at(panes, advance.punctuation)
        last, first = panes.last_window(present[1]), panes.first_window(present[0])
        if last is None and advance.final:  # a landmark's last window
            ended = last = panes.first_window(panes.of_instant(advance.max_event_time))
        due = closing(panes, emitted, ended, present)
        again = () if operator.settles else parts.damage.repaired(panes, advance.emission_start)
        again = tuple(
            range(max(part.start, first), part.stop if last is None else min(part.stop, last + 1))
            for part in again
        )
        return _Closed(inner, closed, sealed.sections, due, again, still_open)

    def chunks(self) -> Iterator[Chunk]:
        """The windows, a chunk at a time."""
        stores = [Sealed((), self.panes, {})]
        return itertools.chain.from_iterable(
            chunks_of(self.inner, stores, windows) for windows in (*self.again, self.due) if windows
        )


def _represents_others(batch: Batch) -> npt.NDArray[np.bool_]:
    represents: npt.NDArray[np.bool_] = flat(batch.columns[MORE]).to_numpy(zero_copy_only=False) > 0
    return represents


def _damage(advance: Advance) -> Damage:
    return NO_DAMAGE if advance.damage is None else advance.damage


def _of_inner(run: Sections) -> Sections:
    return {name: table for name, table in run.items() if not name.startswith(_OWN)}


def _within(table: pa.Table, windows: Windows) -> pa.Table:
    """The rows of some windows."""
    return table.filter(pa.array(within(ints(table, WINDOW), windows))) if windows else table.slice(0, 0)
