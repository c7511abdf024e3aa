"""Headrace's operator for joins of windows, run by itself as the plans of `baselines/joins.py`: pairs, what is complete, and the
rows that it has to hold after every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from benchmarks.baselines.joins import NONE, Arrived, Joined, Rows
from headrace.algebra.expressions.expression import Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.window_join import UNTIL, WindowJoin
from headrace.schema import BIGINT, Field, Schema
from headrace.time import BEGINNING

_RUNS = 6
"""As many runs are merged into one, as in a home."""


def window_join(steps: Sequence[Arrived], ranges: tuple[int, int]) -> Joined:
    """The pairs of each step, as `Joined` has them."""
    operator, runs = _operator(ranges), list[Sections]()
    joined = Joined([], [], [])
    for step in steps:
        deltas = [_scanned(operator, rows, side) for side, rows in enumerate(step.rows) if len(rows)]
        advance = Advance(BEGINNING, min(step.bounds), max(step.bounds), input_punctuations=step.bounds)
        output = operator.advance(runs, deltas, advance)
        runs += [output.state] if output.state else []
        if len(runs) > _RUNS:
            runs = [_merged(operator, runs, advance)]
        pairs = (NONE.at, NONE.at)
        if output.results is not None:
            pairs = ints(output.results, "x.at"), ints(output.results, "y.at")
        joined.pairs.append(pairs)
        joined.complete.append(min(step.bounds[1] - ranges[0], step.bounds[0]))
        joined.held.append(sum(table.num_rows for table in _merged(operator, runs, advance).values()))
    return joined


def _operator(ranges: tuple[int, int]) -> WindowJoin:
    sides = tuple(
        Side(
            (number,),
            Schema((Field(f"{name}.at", BIGINT),)),
            (),
            (Column(f"{name}.key", BIGINT),),
            range_,
            None,
            range_,
        )
        for number, (name, range_) in enumerate(zip("xy", ranges, strict=True))
    )
    shown = Schema((Field("x.at", BIGINT), Field("y.at", BIGINT), Field(UNTIL, BIGINT)))
    return WindowJoin(JoinSpec("q1.inner", "q", "@met", sides, None, shown, 0))


def _scanned(operator: WindowJoin, rows: Rows, side: int) -> Sections:
    name = "xy"[side]
    columns = {f"{name}.at": pa.array(rows.at), f"{name}.key": pa.array(rows.key)}
    scanner = operator.scanner({})
    scanner.add(Batch(columns, np.asarray(rows.at), placed(np.arange(len(rows)), side)))
    return scanner.finish().deltas


def _merged(operator: WindowJoin, runs: Sequence[Sections], advance: Advance) -> Sections:
    names = sorted({name for run in runs for name in run})
    return {
        name: operator.compact(name, [run[name] for run in runs if name in run], advance) for name in names
    }
