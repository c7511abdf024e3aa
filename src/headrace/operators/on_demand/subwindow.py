"""What would a standing query answer, were its window shorter? From the state that its own window needs, when somebody asks.

A window of panes holds every window that begins at one of its slides and ends where it does. A relation over the last d holds that
over the last s <= d at any s: what came since then is taken as if it all came now. Exponential histograms answer both within their
bound, whatever the length (Datar, Gionis, Indyk, Motwani 2001, section 2: any window size up to N from one histogram).
"""

from __future__ import annotations

from headrace.errors import UserError
from headrace.operators.base.operator import Operator
from headrace.operators.panes.subwindows import shortened
from headrace.time import Duration, render_duration


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
            f"{operator.query} with EMIT EMPTY emits no windows that leave gaps between them",
            remedy=f"Ask for {render_duration(panes.slide)} or more.",
        )
    if (asked.longest - length) % panes.slide:
        raise UserError(
            f"{operator.query} slides by {render_duration(panes.slide)}: a window of {render_duration(length)} does not begin at one of its slides",
            remedy=f"Ask for {render_duration(asked.longest)} less a multiple of the slide.",
        )
