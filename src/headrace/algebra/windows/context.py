"""Classes of windows by their context, the other rows that determine which windows hold a row: none, earlier ones,
or later ones too.

Backward context is earlier rows, forward context later rows. Source: Li 2008, section 6.1.
"""

from __future__ import annotations

from enum import Enum

from headrace.algebra.windows.window import Delta, Rows, RowsSlide, Session, TupleSlide, Window


class Context(Enum):
    """The class of a window; each class contains the one before it."""

    FREE = "context free"
    """No context: the row alone determines its windows, and operators aggregate it into panes on arrival."""
    FORWARD_FREE = "forward-context free"
    """Earlier rows, as a count per partition: the windows of a row are determined on arrival."""
    FORWARD_AWARE = "forward-context aware"
    """Later rows too: the windows of a row are determined when punctuation has passed it."""


def context_of(window: Window) -> Context:
    """The class of a window, by order of arrival.

    Rows counted in stream order are forward-context aware: a row that arrives later with an earlier time changes the number.
    """
    match window:
        case TupleSlide() | Delta() | Session():
            return Context.FORWARD_AWARE
        case RowsSlide(numbered="row_num"):
            return Context.FORWARD_FREE
        case RowsSlide() | Rows():
            return Context.FORWARD_AWARE
        case _:
            return Context.FREE
