"""`window(…)` and `session_window(…)` where GROUP BY has the same: names of its window."""

from __future__ import annotations

from headrace.errors import UserError
from headrace.language.parser.windows import length_of
from headrace.language.syntax.ast import Expr, FunctionCall, Name, SessionWindow, StartingWindow
from headrace.language.syntax.refusals import fail


def window_of_group(call: FunctionCall, window: StartingWindow | SessionWindow) -> Name:
    """`window`, or the bound of it that is read, where the call means the window of GROUP BY.

    Raises `UserError` for any other window.
    """
    if not _is_same(call, window):
        kind = "session_window" if isinstance(window, SessionWindow) else "window"
        fail(
            f"this {call.name.lower()}(…) is not the one in GROUP BY",
            call.span,
            f"Repeat that one, or write {kind}.start and {kind}.end.",
        )
    name = call.name.lower()
    return Name((name,) if call.field is None else (name, call.field), call.span)


def _is_same(call: FunctionCall, window: StartingWindow | SessionWindow) -> bool:
    attribute, *lengths = call.arguments or (None,)
    if (
        not isinstance(attribute, Name)
        or window.attribute is None
        or not _is_column(attribute, window.attribute)
    ):
        return False
    spans = [_length(item) for item in lengths]
    if isinstance(window, SessionWindow):
        return call.name.lower() == "session_window" and spans == [window.gap]
    size, slide, origin = (*spans, *(None, spans[0] if spans else None, 0)[len(spans) :])[:3]
    return call.name.lower() == "window" and (size, slide, origin) == (
        window.range,
        window.slide,
        window.origin,
    )


def _is_column(one: Name, other: Name) -> bool:
    """Whether two names are of one column; without a qualifier a name is of any source."""
    first, second = ([part.lower() for part in reversed(name.parts)] for name in (one, other))
    return all(a == b for a, b in zip(first, second, strict=False))


def _length(item: Expr) -> int | None:
    try:
        return length_of(item)
    except UserError:
        return None
