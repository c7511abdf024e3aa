"""The settings of an operator in words: what its rows keep, how long one holds, where windows end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from headrace.algebra.expressions import Expression
from headrace.operators.grouped import Grouped
from headrace.operators.instants import Validity
from headrace.operators.membership import Membership
from headrace.operators.operator import Operator
from headrace.operators.panes import Panes
from headrace.operators.row_steps import Keep, RowStep
from headrace.operators.row_store import RowLayout
from headrace.time import render_duration

_NOT_TOLD: Final = frozenset(
    (
        "id",
        "query",
        "stream",
        "steps",
        "finish",
        "relations",
        "bounds_prefix",
        "window_alias",
        "inner",
        "slot",
        "rule",
    )
)
_TELLING: Final = {
    "changes": "what comes and goes at every instant",
    "log": "what comes and goes at every instant, to the query that reads it",
    "istream": "what comes",
    "dstream": "what goes",
    "rstream": "the whole of it",
}
Show = Callable[[Expression], str]


def settings(operator: Operator, show: Show) -> Iterator[str]:
    """A line for each setting that says something; `show` makes text of expressions. What operators share comes last."""
    spec = getattr(operator, "spec", None)
    for value in (operator, spec):
        for name in getattr(value, "__dataclass_fields__", {}):
            setting = getattr(value, name)
            if name not in _NOT_TOLD and setting not in (None, False, 0, (), spec):
                yield from _told(name, setting, show)


def _told(name: str, value: Any, show: Show) -> Iterator[str]:
    words = name.replace("_", " ")
    match value:
        case RowLayout():
            yield from _rows(value, show)
        case Validity():
            yield f"a row holds {_holds(value)}"
        case Panes():
            yield f"a window ends every {render_duration(value.slide)}"
        case Grouped(keys=keys, aggregates=aggregates):
            yield f"group by {', '.join(show(key.expression) for key in keys) or 'nothing'}"
            calls = (
                f"{a.call.function}({show(a.call.argument) if a.call.argument else '*'})" for a in aggregates
            )
            yield f"aggregates: {', '.join(calls)}"
        case _ if name == "telling":
            yield f"tells {_TELLING.get(value, value)}"
        case _ if name in ("range", "gap"):
            yield f"{words}: {render_duration(value)}"
        case True:
            yield words
        case str() | int() | float():
            yield f"{words}: {value}"


def _holds(validity: Validity) -> str:
    if validity.by_changes:
        return "until an equal one goes"
    if validity.told:
        return "as long as its pair does"
    if validity.length is not None and validity.length <= 1:
        return "at its own instant alone"
    if validity.length is not None:  # the instant at which the range ends is still of it
        return f"for {render_duration(validity.length - 1)}, both ends included"
    if validity.count is not None:
        of = " of its partition" if validity.partitions else ""
        return f"until {validity.count} more rows{of} have come"
    return "for ever"


def _rows(rows: RowLayout, show: Show) -> Iterator[str]:
    yield f"keeps of each row: {', '.join(show(each) for each in rows.values) or 'only that it is there'}"
    for step in (*reversed(rows.above), *reversed(rows.below)):
        yield from _step(step, show)


def _step(step: RowStep, show: Show) -> Iterator[str]:
    if isinstance(step, Keep):
        yield f"keep rows where {show(step.predicate)}"
    elif isinstance(step, Membership):
        yield f"test rows against relation {step.relation} ({step.name})"
    else:
        yield f"{'left join' if step.keep_unmatched else 'join'} relation {step.relation}"
