"""What would a standing query answer, were its window shorter? From the state that its own window needs, when somebody asks.

A window of panes holds every window that begins at one of its slides and ends where it does. A relation over the last d holds that
over the last s <= d at any s: what came since then is taken as if it all came now. Exponential histograms answer both within their
bound, whatever the length (Datar, Gionis, Indyk, Motwani 2001, section 2: any window size up to N from one histogram).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import UserError
from headrace.operators.approximate_instants import ApproximateInstants
from headrace.operators.approximate_windows import ApproximateWindows, answer_of
from headrace.operators.closed_panes import ClosedPanes
from headrace.operators.family import family_of, together
from headrace.operators.finish import finish
from headrace.operators.grouping import flat
from headrace.operators.instant_aggregate import CELLS, FIRST, InstantAggregate
from headrace.operators.operator import Operator, Sections, Turn
from headrace.operators.pane_aggregate import PaneAggregate, chunks_of
from headrace.operators.pane_reach import SEEN
from headrace.operators.pane_store import KEY, block_key, merge
from headrace.operators.panes import Panes
from headrace.operators.sealing import Sealed
from headrace.time import BEGINNING, FOREVER, Duration, Instant, render_duration

_HIGHEST: Final = 1 << 55


def full_length(operator: Operator) -> Duration | None:
    """The length of the window of which parts can be asked for; None where none can."""
    if isinstance(operator, ApproximateWindows):
        return None if operator.exactly.panes.cut else operator.exactly.range
    if isinstance(operator, PaneAggregate):
        return operator.range if operator.revisions is None else None
    if isinstance(operator, ApproximateInstants):
        operator = operator.exactly
    if isinstance(operator, InstantAggregate) and operator.telling == "changes" and operator.folds:
        holds = operator.validity.length  # rows are there at both ends of the range
        return None if holds is None else holds - 1
    return None


def check(operator: Operator, length: Duration) -> None:
    """Raises `UserError` where the operator's state does not tell a window of that length."""
    whole = full_length(operator)
    if whole is None:
        raise UserError(
            f"{operator.query} has no window of which a shorter one can be asked",
            remedy="INVOKE q [RANGE d] is for aggregates over [RANGE r], and over [RANGE r SLIDE e] without REVISIONS, ISTREAM or DSTREAM "
            "(where e divides r, when they are approximate).",
        )
    if not 0 < length <= whole:
        raise UserError(
            f"{operator.query} keeps {render_duration(whole)}: a window of {render_duration(length)} cannot be asked of it",
            remedy="Ask for a shorter one, or register a query with a longer window.",
        )
    panes = _panes(operator)
    if (
        isinstance(operator, PaneAggregate)
        and operator.answers_empty
        and _shortened(operator, length).has_gaps
    ):
        raise UserError(
            f"{operator.query} with EMIT EMPTY tells no windows that leave gaps between them",
            remedy=f"Ask for {render_duration(operator.panes.slide)} or more.",
        )
    if panes is not None and (whole - length) % panes.slide:
        raise UserError(
            f"{operator.query} slides by {render_duration(panes.slide)}: a window of {render_duration(length)} does not begin at one of its slides",
            remedy=f"Ask for {render_duration(whole)} less a multiple of the slide.",
        )


def _panes(operator: Operator) -> Panes | None:
    if isinstance(operator, ApproximateWindows):
        operator = operator.exactly
    return operator.panes if isinstance(operator, PaneAggregate) else None


def shorter(
    operator: Operator, length: Duration, runs: Sequence[Sections], closed: Instant, now: Instant
) -> pa.Table | None:
    """What the operator would answer, from its state's sections: the last window that `closed`, or the changes that make R(now).

    None where there is no row. `length` is below the full one; `check` has passed it.
    """
    if isinstance(operator, ApproximateInstants):
        return _at_now(operator.exactly, operator.cells_since(runs, closed, now - length), length, now)
    if isinstance(operator, InstantAggregate):
        return _at_now(operator, runs, length, now)
    if closed in (BEGINNING, FOREVER):
        return None
    if isinstance(operator, ApproximateWindows):
        whole = operator.exactly
        asked = replace(whole, panes=_shortened(whole, length), range=length)
        return answer_of(replace(operator, exactly=asked), runs, closed)
    assert isinstance(operator, PaneAggregate)
    return _of_panes(operator, length, runs, closed)


def _shortened(operator: PaneAggregate, length: Duration) -> Panes:
    assert operator.range is not None
    assert operator.panes.back is not None
    return replace(
        operator.panes, back=operator.panes.back - (operator.range - length) // operator.panes.slide
    )


def _of_panes(
    operator: PaneAggregate, length: Duration, runs: Sequence[Sections], closed: Instant
) -> pa.Table | None:
    asked = replace(operator, panes=_shortened(operator, length), range=length)
    asked = together((asked,)) if family_of(operator) is not None else asked
    stores = [
        Sealed((), ClosedPanes(asked.store.closed(runs, place)), {}) for place, _ in enumerate(asked.layouts)
    ]
    window = asked.panes.last_closed(closed)
    if asked.answers_empty and window < _first_window(asked, runs):
        return None
    tables = [
        finish(operator.finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)[0]
        for chunk in chunks_of(asked, stores, range(window, window + 1))
    ]
    return pa.concat_tables(tables) if tables else None


def _first_window(operator: PaneAggregate, runs: Sequence[Sections]) -> int:
    """The first window with a row: from then on, empty ones answer too."""
    seen = [flat(run[SEEN].column(KEY)).to_numpy() for run in runs if SEEN in run and run[SEEN].num_rows]
    first = min((int(keys.min()) for keys in seen), default=block_key(0, _HIGHEST))
    return operator.panes.first_window(first - block_key(0, 0))


def _at_now(
    operator: InstantAggregate, runs: Sequence[Sections], length: Duration, now: Instant
) -> pa.Table | None:
    """R(now), as changes: all cells in the window as if they came now, into an operator that knows nothing yet."""
    asked = replace(operator, validity=replace(operator.validity, length=length + 1))
    came: dict[str, pa.Table] = {}
    for place, layout in enumerate(operator.grouped.layouts):
        name = f"{CELLS}{place}"
        held = [_moved(run[name], now - length, now) for run in runs if name in run]
        if sum(table.num_rows for table in held):
            came[name] = merge(layout, held)
    first = next((run[FIRST] for run in runs if FIRST in run and run[FIRST].num_rows), None)
    if first is not None:
        came[FIRST] = _moved(first.slice(0, 1), BEGINNING, now)
    if not came:
        return None
    return asked.advance((), (came,), Turn(BEGINNING, now + 1, now)).results


def _moved(table: pa.Table, start: Instant, now: Instant) -> pa.Table:
    """The rows since `start`, at `now`."""
    keys = flat(table.column(KEY)).to_numpy(zero_copy_only=False)
    kept = table.filter(pa.array((keys >= start) & (keys <= now)))
    return kept.set_column(kept.column_names.index(KEY), KEY, pa.array(np.full(kept.num_rows, now)))
