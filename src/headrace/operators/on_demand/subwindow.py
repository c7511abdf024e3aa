"""What would a standing query answer, were its window shorter? From the state that its own window needs, when somebody asks.

A window of panes holds every window that begins at one of its slides and ends where it does. A relation over the last d holds that
over the last s <= d at any s: what came since then is taken as if it all came now. Exponential histograms answer both within their
bound, whatever the length (Datar, Gionis, Indyk, Motwani 2001, section 2: any window size up to N from one histogram).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import UserError
from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import Operator, Sections
from headrace.operators.output.output_stage import finish
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.pane_keys import block_key
from headrace.operators.panes.pane_sealing import Sealed
from headrace.operators.panes.panes import HIGHEST, Panes
from headrace.operators.time_windows.pane_extent import SEEN
from headrace.operators.time_windows.window_closing import chunks_of
from headrace.time import BEGINNING, FOREVER, Duration, Instant, render_duration

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


@dataclass(frozen=True, slots=True)
class Subwindows:
    """Of which lengths a window can be asked for: up to `longest`, its own; with `panes` those that begin at one of its slides.

    `answers_empty`: windows without rows answer too, which leave no gaps between them.
    """

    longest: Duration
    panes: Panes | None = None
    answers_empty: bool = False


def full_length(operator: Operator) -> Duration | None:
    """The length of the window of which parts can be asked for; None where none can."""
    asked = operator.subwindows
    return None if asked is None else asked.longest


def check(operator: Operator, length: Duration) -> None:
    """Raises `UserError` where the operator's state does not tell a window of that length."""
    asked = operator.subwindows
    if asked is None:
        raise UserError(
            f"{operator.query} has no window of which a shorter one can be asked",
            remedy="INVOKE q [RANGE d] is for aggregates over [RANGE r], and over [RANGE r SLIDE e] without REVISIONS, ISTREAM or DSTREAM "
            "(where e divides r, when they are approximate).",
        )
    if not 0 < length <= asked.longest:
        raise UserError(
            f"{operator.query} keeps {render_duration(asked.longest)}: a window of {render_duration(length)} cannot be asked of it",
            remedy="Ask for a shorter one, or register a query with a longer window.",
        )
    panes = asked.panes
    if panes is None:
        return
    if asked.answers_empty and shortened(panes, asked.longest - length).has_gaps:
        raise UserError(
            f"{operator.query} with EMIT EMPTY tells no windows that leave gaps between them",
            remedy=f"Ask for {render_duration(panes.slide)} or more.",
        )
    if (asked.longest - length) % panes.slide:
        raise UserError(
            f"{operator.query} slides by {render_duration(panes.slide)}: a window of {render_duration(length)} does not begin at one of its slides",
            remedy=f"Ask for {render_duration(asked.longest)} less a multiple of the slide.",
        )


def shortened(panes: Panes, by: Duration) -> Panes:
    """The panes of windows that end where these do, and are shorter by some slides."""
    assert panes.back is not None
    return replace(panes, back=panes.back - by // panes.slide)


def of_length(operator: PaneAggregate, length: Duration) -> PaneAggregate:
    """The operator as it would be with a window of that length."""
    assert operator.range is not None
    return replace(operator, panes=shortened(operator.panes, operator.range - length), range=length)


def of_panes(
    operator: PaneAggregate, length: Duration, runs: Sequence[Sections], closed: Instant
) -> pa.Table | None:
    """The last window of that length which ends at or before `closed`; None where there is no row."""
    if closed in (BEGINNING, FOREVER):
        return None
    asked = of_length(operator, length)
    asked = asked.together((asked,))
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
    seen = [ints(run[SEEN], KEY) for run in runs if SEEN in run and run[SEEN].num_rows]
    first = min((int(keys.min()) for keys in seen), default=block_key(0, HIGHEST))
    return operator.panes.first_window(first - block_key(0, 0))
