"""Aggregates by sketches (`approx_distinct`, `approx_percentile`, `approx_top_k`, `l2_norm` within a bound, comparisons
with the row's own group): the sketches of each call, and (but for comparisons) its value or error bound. It is
imported with the first such call; which calls they are: `synopsis_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Call, Case, Expression, Literal
from headrace.operators.aggregates.synopsis_calls import as_json
from headrace.operators.partials.encoding import Encoding, PartialColumn, synopsis_partial
from headrace.operators.partials.partial import Column
from headrace.operators.partials.synopsis_partial import Synopsis
from headrace.schema import BIGINT, BOOLEAN
from headrace.synopses.sketches.distinct_sketch import DistinctSketch
from headrace.synopses.sketches.frequent_sketch import FrequentSketch
from headrace.synopses.sketches.rank_sketch import Ranking, decode
from headrace.synopses.sketches.sampled_ranks import SampledRanking
from headrace.synopses.sketches.sketch_kind import Kind
from headrace.synopses.sketches.stable_sketch import StableSketch


def synopses_of(call: AggregateCall, argument: Expression) -> tuple[PartialColumn, ...]:
    """The synopses of a call; the argument includes the FILTER condition."""
    within = call.within
    assert within is not None
    if not call.against and call.weight is not None:
        of_sample = SampledRanking(Ranking(within / 2))
        return (synopsis_partial(of_sample, argument, "double", call.weight),)
    if not call.against:
        kind = _kind(call).coarser(call.doubled) if call.doubled else _kind(call)
        return (synopsis_partial(kind, argument, _ENCODINGS[call.function]),)
    sides = {operator[0] for operator, _ in call.against}
    kind = Ranking(within / (2 if sides - {"<"} and sides - {">"} else 1))
    if call.weight is None:
        return (synopsis_partial(kind, argument, "double"),)
    weights = [_positive(call.weight), _positive(Call("negate", (call.weight,), call.weight.type))]
    if call.function == "avg":
        weights.append(_present(call.weight))
    return tuple(synopsis_partial(kind, argument, "double", weight) for weight in weights)


_ENCODINGS: Final[Mapping[str, Encoding]] = {
    "approx_distinct": "hash",
    "approx_percentile": "double",
    "approx_top_k": "text",
    "l2_norm": "hash",
}


def _positive(weight: Expression) -> Expression:
    """The weight where it is above zero; else NULL."""
    above = Call(
        ">",
        (weight, Literal(0, weight.type) if weight.type.is_integer else Literal(0.0, weight.type)),
        BOOLEAN,
    )
    return Case(((above, weight),), Literal(None, weight.type), weight.type)


def _present(weight: Expression) -> Expression:
    """1 where there is a weight; else NULL."""
    there = Call("isnotnull", (weight,), BOOLEAN)
    return Case(((there, Literal(1, BIGINT)),), Literal(None, BIGINT), BIGINT)


def _kind(call: AggregateCall) -> Kind:
    assert call.within is not None
    match call.function:
        case "approx_distinct":
            return DistinctSketch.within(call.within)
        case "approx_top_k":
            return FrequentSketch.within(call.within)
        case "l2_norm":
            return StableSketch.within(call.within)
        case _:
            return Ranking(call.within / 2)


def lower_synopsis(call: AggregateCall, partial_column: PartialColumn, blobs: Column) -> pa.Array:
    """Values of a call, or their bounds."""
    assert isinstance(partial_column.partial, Synopsis)
    kind, nothing = partial_column.partial.kind, blobs == b""
    if isinstance(kind, DistinctSketch):
        return pa.array(kind.estimates(blobs)[call.part == "bound"])
    if isinstance(kind, FrequentSketch):
        items, bounds = kind.most(blobs, call.most or 0)
        return pa.array(bounds) if call.part == "bound" else as_json(items)
    if isinstance(kind, StableSketch):
        return pa.array(kind.estimates(blobs)[call.part == "bound"], mask=nothing)
    assert call.share is not None
    if isinstance(kind, SampledRanking):
        values = kind.quantile(blobs, call.share)[call.part == "bound"]
        nothing = nothing | (np.isnan(values) & (call.part == "bound"))
    else:
        values = decode(blobs).quantile(call.share)[call.part == "bound"]
    return pa.array(np.where(nothing, 0.0, values), mask=nothing)
