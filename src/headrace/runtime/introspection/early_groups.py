"""EXPLAIN's lines on groups that are emitted before their window ends, and on windows over the time of one side: by what punctuation a
query over a join knows that no later pair is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.catalog.definitions import StreamDefinition
from headrace.operators.base.operator import Operator
from headrace.planner.joins.pair_progress import TimeBound
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams, union_streams
from headrace.time import render_duration


def early_group_lines(plan: EpochPlan, operator: Operator) -> Iterator[str]:
    """For an operator that groups the results of a join by times of its rows: when a group is emitted; else nothing."""
    stream = plan.streams.get(operator.stream)
    if stream is not None and stream.using == union_streams.USING:
        yield from _at_times_of_side(stream)
    pairs = None if stream is None else derived_streams.pairs_in(stream)
    if stream is None or pairs is None:
        return
    columns = operator.group_columns(derived_streams.promising(stream).groups)
    heeded = [bounds for bounds in pairs.bounds if {bound.column for bound in bounds} <= {*columns}]
    if heeded:
        yield "  a group is emitted before its window ends, when no later pair is of it:"
        yield from (f"    {_in_words(bounds)}" for bounds in heeded)


def _at_times_of_side(stream: StreamDefinition) -> Iterator[str]:
    """For rows that are read at the times of one side of their join: when windows over it close."""
    (part, *_), bound = union_streams.inputs_of(stream), union_streams.bound_of(stream)
    if part.time:
        terms = tuple(("" if name == part.stream else name, lag) for name, lag in bound.terms)
        passed = f"{_punctuation(TimeBound(part.time, terms))} {'has' if len(terms) == 1 else 'have'} passed its end"
        yield f"  a window over {part.time} is emitted once {passed}"


def _in_words(bounds: Sequence[TimeBound]) -> str:
    return ", and ".join(f"{bound.column} is below {_punctuation(bound)}" for bound in bounds)


def _punctuation(bound: TimeBound) -> str:
    terms = [
        f"the punctuation of {name or 'all streams'}{f' less {render_duration(lag)}' if lag else ''}"
        for name, lag in bound.terms
    ]
    return " and ".join(terms)
