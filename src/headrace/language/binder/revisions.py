"""Binding of WITH REVISIONS: how late a row may be, and a refusal of queries whose results late rows cannot revise."""

from __future__ import annotations

from headrace.algebra.query import Revisions, StreamScan, UnionAll
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    Session,
    TimeSlide,
    Unbounded,
    counts_rows,
)
from headrace.language.binder.sources.from_clause import From
from headrace.language.syntax.ast import Select
from headrace.language.syntax.refusals import refuse


def revisions(select: Select, sources: From, *, grouped: bool) -> Revisions | None:
    """The revisions of a query; without FOR late rows are accepted for the retention of the stream.

    Raises `UnsupportedQuery` for queries that have nothing to revise, or would revise without end.
    """
    if select.revisions is None:
        return None
    reason = _reason(select, sources, grouped=grouped)
    if reason is not None:
        refuse(
            f"WITH REVISIONS is not available {reason}",
            select.revisions.span,
            "Available are windows of time with SLIDE, sessions, and selects over a bare stream.",
        )
    within = select.revisions.within
    return Revisions(sources.retain if within is None else within)


def _reason(select: Select, sources: From, *, grouped: bool) -> str | None:
    """The part of the query that late rows cannot revise, or None."""
    scan, window = sources.stream.scan, sources.stream.window
    if isinstance(scan, UnionAll):
        return "over several streams: what is late in one of them is not late in all"
    if not (isinstance(scan, StreamScan) and scan.channel == "rows"):
        return f"over '{scan.name}': no row of it is late"
    if isinstance(window, TimeSlide | Landmark | Session):
        return "with ISTREAM and DSTREAM of windows" if select.emit in ("istream", "dstream") else None
    if isinstance(window, Delta):
        return "for windows that end where a value leaves them: a late row could change every window after it"
    if isinstance(window, Custom):
        return "for windows of a user's class: which of them a row is in is decided once, when it arrives"
    if window is not None and counts_rows(window):
        return "for windows of rows: a late row would move every window after it"
    streamed = select.emit == "istream" or (select.emit is None and sources.stream.bare)
    whole_answer = grouped or select.distinct or select.order_by or select.limit_span or select.bounds
    if isinstance(window, Unbounded) and streamed and not whole_answer:
        return None
    return "for a relation: it has an answer at every instant, not windows that close"
