"""How many bytes may each synopsis of an operator take, for one group?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headrace.operators.approximate_instants import ApproximateInstants
from headrace.operators.approximate_windows import ApproximateWindows
from headrace.operators.cells import Fed
from headrace.operators.operator import Operator
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.synopsis_partial import Synopsis
from headrace.planner.explain import show
from headrace.synopses.canonical import Form

MANY: Final = 1_000_000
"""For so many rows of a group in a window the size of an exponential histogram is told."""
_CODED: Final = 2
"""Bytes of a bucket at rest, about."""


def synopsis_bytes(operator: Operator) -> dict[str, int]:
    """At most so many bytes a group, by what is kept; sketches have so many in each pane, histograms once."""
    return dict(_found(operator))


def _found(operator: Operator) -> Iterator[tuple[str, int]]:
    if isinstance(operator, PaneAggregate):
        for fed in operator.layouts[0].feds:
            if isinstance(fed.partial, Synopsis):
                yield _name(type(fed.partial.kind).__name__, fed), fed.partial.kind.full_bytes
    elif isinstance(operator, ApproximateWindows | ApproximateInstants):
        yield from _histograms(operator.layout.feds, operator.forms)
    elif isinstance(inner := getattr(operator, "inner", None), PaneAggregate):
        yield from _found(inner)


def _histograms(feds: Sequence[Fed], forms: Sequence[Form | None]) -> Iterator[tuple[str, int]]:
    for fed, form in zip(feds, forms, strict=True):
        if form is not None:
            yield _name(type(fed.partial).__name__, fed), _CODED * form.most_buckets(MANY)


def _name(kind: str, fed: Fed) -> str:
    return f"{kind.lower()}({'*' if fed.expression is None else show(fed.expression)})"
