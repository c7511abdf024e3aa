"""Finishing of rows of several queries: those with an equal plan are finished together, by query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import QUERY_NUMBER
from headrace.operators.output.output_stage import Finish
from headrace.schema import BIGINT

NUMBER: Final = Named(QUERY_NUMBER, Column(QUERY_NUMBER, BIGINT))
"""The query's number, as a group key and as a result column."""


def plans_of(plans: Sequence[Finish]) -> dict[Finish, list[int]]:
    """The places of equal plans."""
    same: dict[int, tuple[Finish, list[int]]] = {}  # thousands share one object, so hash its id
    for index, plan in enumerate(plans):
        same.setdefault(id(plan), (plan, []))[1].append(index)
    places: dict[Finish, list[int]] = {}
    for plan, indices in same.values():
        places.setdefault(plan, []).extend(indices)
    return places


def by_query(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each query in their order, without the column of its index."""
    if not table.num_rows:
        return
    indices = ints(table, QUERY_NUMBER)
    plain = table.drop_columns([QUERY_NUMBER])
    if (np.diff(indices) < 0).any():
        order = np.argsort(indices, kind="stable")
        plain, indices = plain.take(pa.array(order)), indices[order]
    starts = np.flatnonzero(np.r_[True, indices[1:] != indices[:-1]])
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(indices)], strict=True):
        yield int(indices[start]), plain.slice(start, stop - start)
