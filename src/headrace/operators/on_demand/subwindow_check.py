"""Check of INVOKE q [RANGE d]: the longest window that a standing query can be asked for, and a `UserError` if its
state cannot answer one of length d. The answer is the operator's own (`answer_subwindow`).

A window of panes contains every window that begins at one of its slides and ends where it does. A relation over the
last d contains that over the last s <= d at any instant: changes since then are applied as if they all arrived now.
Exponential histograms answer both within their bound, whatever the length (Datar, Gionis, Indyk, Motwani 2001, section
2: any window size up to N from one histogram).
"""

from __future__ import annotations

from headrace.errors import UserError
from headrace.operators.base.operator import Operator
from headrace.operators.panes.subwindows import shortened
from headrace.time import Duration, render_duration


def full_length(operator: Operator) -> Duration | None:
    """The length of a window that INVOKE can shorten; None if it cannot."""
    subwindows = operator.subwindows
    return None if subwindows is None else subwindows.longest


def check(operator: Operator, length: Duration) -> None:
    """Raises `UserError` if the operator's state cannot answer a window of that length."""
    subwindows = operator.subwindows
    if subwindows is None:
        raise UserError(
            f"{operator.query} has no window of which a shorter one can be asked",
            remedy="INVOKE q [RANGE d] is for aggregates over [RANGE r], and over [RANGE r SLIDE e] without REVISIONS, ISTREAM or DSTREAM "
            "(where e divides r, when they are approximate).",
        )
    if not 0 < length <= subwindows.longest:
        raise UserError(
            f"{operator.query} keeps {render_duration(subwindows.longest)}: a window of {render_duration(length)} cannot be asked of it",
            remedy="Ask for a shorter one, or register a query with a longer window.",
        )
    panes = subwindows.panes
    if panes is None:
        return
    if subwindows.answers_empty and shortened(panes, subwindows.longest - length).has_gaps:
        raise UserError(
            f"{operator.query} with EMIT EMPTY emits no windows that leave gaps between them",
            remedy=f"Ask for {render_duration(panes.slide)} or more.",
        )
    if (subwindows.longest - length) % panes.slide:
        raise UserError(
            f"{operator.query} slides by {render_duration(panes.slide)}: a window of {render_duration(length)} does not begin at one of its slides",
            remedy=f"Ask for {render_duration(subwindows.longest)} less a multiple of the slide.",
        )
