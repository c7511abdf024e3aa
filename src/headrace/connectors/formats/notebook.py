"""Answers of standing queries in a notebook: as an HTML table, and as one that is renewed with each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from headrace.connectors.formats.rendering import to_html
from headrace.errors import UserError


def show_live(name: str, answer: Callable[[], pa.Table], epochs: Iterable[object]) -> None:
    """Show the current answer of a query below a notebook's cell, and renew it after each epoch, until the cell is interrupted.

    Raises `UserError` outside of notebooks.
    """
    try:
        from IPython.display import HTML, display  # noqa: PLC0415 - a notebook has it
    except ImportError:
        raise UserError(
            "live tables need a notebook (IPython)", remedy="Elsewhere: for batch in query.follow(): …"
        ) from None
    shown = display(HTML(to_html(answer(), name)), display_id=True)
    try:
        for _ in epochs:
            shown.update(HTML(to_html(answer(), name)))
    except KeyboardInterrupt:
        return
