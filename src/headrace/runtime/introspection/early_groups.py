"""EXPLAIN's lines on groups that are emitted before their window ends: by what punctuation a query over a join knows that no
later pair is of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.operators.base.operator import Operator
from headrace.planner.joins.pair_progress import TimeBound
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.time import render_duration


def early_group_lines(plan: EpochPlan, operator: Operator) -> Iterator[str]:
    """For an operator that groups the results of a join by times of its rows: when a group is emitted; else nothing."""
    stream = plan.streams.get(operator.stream)
    pairs = None if stream is None else derived_streams.pairs_in(stream)
    if stream is None or pairs is None:
        return
    columns = operator.group_columns(derived_streams.promising(stream).groups)
    heeded = [bounds for bounds in pairs.bounds if {bound.column for bound in bounds} <= {*columns}]
    if heeded:
        yield "  a group is emitted before its window ends, when no later pair is of it:"
        yield from (f"    {_in_words(bounds)}" for bounds in heeded)


def _in_words(bounds: Sequence[TimeBound]) -> str:
    return ", and ".join(f"{bound.column} is below {_punctuation(bound)}" for bound in bounds)


def _punctuation(bound: TimeBound) -> str:
    terms = [
        f"the punctuation of {name or 'all streams'}{f' less {render_duration(lag)}' if lag else ''}"
        for name, lag in bound.terms
    ]
    return " and ".join(terms)
