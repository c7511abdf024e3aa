"""EXPLAIN lines that operators have in common: settings, row steps, aggregation when a window closes, keys, and the
size of exponential histograms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from headrace.algebra.expressions.correlated import levels
from headrace.algebra.expressions.expression import Named
from headrace.algebra.expressions.expression_text import show
from headrace.operators.output.output_stage import Finish
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.rows.row_pipeline import RowStep
from headrace.time import render_duration

if TYPE_CHECKING:
    from headrace.synopses.histograms.canonical_form import Form

MANY: Final = 1_000_000
"""The rows of a group in a window for which the size of an exponential histogram is shown."""
_CODED: Final = 2
"""Approximate stored bytes of a bucket."""

_ELSEWHERE: Final = frozenset(
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
        "spec",
    )
)
"""Fields that other lines show, or none."""
SHARES_STATE: Final = (
    "stores its state with queries that differ only in conditions, columns and the window's extent"
)
_EMIT_MODES: Final = {
    "changes": "insertions and retractions at each instant",
    "log": "insertions and retractions at each instant, for the query that reads it",
    "istream": "insertions",
    "dstream": "retractions",
    "rstream": "the whole relation",
}


@runtime_checkable
class Displayed(Protocol):
    """A setting that defines its own lines."""

    def display(self) -> Iterator[str]:
        """Its lines."""
        ...


def settings(record: Any) -> Iterator[str]:
    """A line for each field of an operator, or of a record it shares, that is set."""
    for field in fields(record):
        name, value = field.name, getattr(record, field.name)
        if name not in _ELSEWHERE and value not in (None, False, 0, ()):
            yield from _setting(name, value)


def _setting(name: str, value: Any) -> Iterator[str]:
    words = name.replace("_", " ")
    match value:
        case Displayed():
            yield from value.display()
        case _ if name == "emit_mode":
            yield f"emits {_EMIT_MODES.get(value, value)}"
        case _ if name == "family":
            yield SHARES_STATE
        case _ if name in ("range", "gap"):
            yield f"{words}: {render_duration(value)}"
        case True:
            yield words
        case str() | int() | float():
            yield f"{words}: {value}"


def steps_up(steps: Sequence[RowStep]) -> Iterator[str]:
    """A line for each step, the last one first."""
    return (step.display() for step in reversed(steps))


def regrouping(finish: Finish) -> Iterator[str]:
    """Aggregates that are computed over the rows of a window when it closes."""
    if finish.regroup is not None:
        level = levels(finish.regroup.aggregates)
        shown = ", ".join(
            f"{item.call.function} (level {level[item.name]})" for item in finish.regroup.aggregates
        )
        yield f"  rows of a window are grouped when it closes, level by level: {shown}"


def keys(named: Iterable[Named]) -> str:
    """`auction, bidder`, or `nothing`."""
    return ", ".join(show(key.expression) for key in named) or "nothing"


def argument(partial_column: PartialColumn) -> str:
    """The input of a partial: `price`, or `*` for rows."""
    return "*" if partial_column.expression is None else show(partial_column.expression)


def histograms(stored: Iterable[tuple[PartialColumn, Form]], instead: str) -> Iterator[str]:
    """A line for each number in a histogram: buckets and bytes; `instead` is what exact numbers would take."""
    for partial_column, form in stored:
        buckets = form.most_buckets(MANY)
        yield (
            f"{type(partial_column.partial).__name__.lower()}({argument(partial_column)}) in an exponential histogram, k = {form.first}: for {MANY:,} "
            f"at most {buckets} buckets, about {2 * buckets:,} bytes a group ({instead})"
        )


def histogram_bytes(partial_columns: Sequence[PartialColumn], forms: Sequence[Form | None]) -> dict[str, int]:
    """Maximum bytes of the histogram of each partial, for one group."""
    return {
        f"{type(partial_column.partial).__name__.lower()}({argument(partial_column)})": _CODED
        * form.most_buckets(MANY)
        for partial_column, form in zip(partial_columns, forms, strict=True)
        if form is not None
    }
