"""EXPLAIN ALL, and the part of EXPLAIN QUERY about shared work and its cost, as text: readable for one query and for
ten thousand.

Only the longest work is listed; the rest is summed up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headrace.planner.explain.cost_attribution import RULE
from headrace.planner.explain.plan_graph import (
    Explained,
    QueryCost,
    bytes_of,
    count,
    percent_of,
    ratio_of,
    rows_of,
    time_of,
)

_MOST: Final = {"read": 12, "fold": 8, "state": 6}
"""The maximum number of pieces of work of a kind in a list."""
_QUERIES: Final = 10


def all_lines(graph: Explained) -> Iterator[str]:
    """All work from the streams to the states, then the costliest queries."""
    works = graph.sharing.works
    kinds = {kind: sum(work.kind == kind for work in works) for kind in ("read", "fold", "state")}
    names = set(graph.owners.values())
    yield (
        f"{count(len(names), 'query', 'queries')} over {count(kinds['read'], 'stream', 'streams')}: "
        f"{count(kinds['fold'], 'fold', 'folds')}, {count(kinds['state'], 'state', 'states')}"
    )
    yield _when(graph)
    yield from _level(graph, graph.streams(), 0, set())
    if names:
        yield from _queries(graph)


def query_lines(graph: Explained, name: str) -> Iterator[str]:
    """The work that one query shares, with whom, its cost, and its part of it."""
    operators = [operator for operator, owner in graph.owners.items() if owner == name]
    yield "  who shares its work, in the order of the data:"
    for position in dict.fromkeys(position for item in operators for position in graph.sharing.places[item]):
        work = graph.sharing.works[position]
        others = [item for item in graph.queries_of(work.users) if item != name]
        shown = ", ".join(others[:3]) + (f" and {len(others) - 3:,} more" if len(others) > 3 else "")
        whom = f"shared with {count(len(others), 'query', 'queries')}: {shown}" if others else "its own"
        yield f"    {work.label}: {whom}"
        yield from (f"      {line}" for line in measures(graph, position))
    if graph.seen is not None:
        costs = graph.costs
        rank, cost = next((n, item) for n, item in enumerate(costs, 1) if item.name == name)
        total = sum(item.nanoseconds for item in costs)
        share = cost.nanoseconds / total if total else 0.0
        place_of = f", number {rank:,} of {len(costs):,}" if len(costs) > 1 else ""
        yield f"  cost: {time_of(cost.nanoseconds)} an epoch, {percent_of(share)} of all work{place_of}"
        yield f"    {_query_measures(cost, graph.seen.epochs)}"
    yield f"  {_when(graph)}"


def _when(graph: Explained) -> str:
    seen = graph.seen
    if seen is None:
        return "nothing is measured yet: figures come with the first epoch"
    epochs = f"epoch {seen.last}" if seen.epochs == 1 else f"epochs {seen.first} to {seen.last}"
    per_epoch = "" if seen.epochs == 1 else " an epoch"
    dropped = (
        f"; {time_of(seen.elsewhere / seen.epochs)} for queries that are no more" if seen.elsewhere else ""
    )
    return (
        f"measured in {epochs}: {rows_of(seen.rows / seen.epochs)} rows and "
        f"{time_of(seen.nanoseconds / seen.epochs)} of work{per_epoch}{dropped}"
    )


def _level(graph: Explained, places: Sequence[int], depth: int, seen: set[int]) -> Iterator[str]:
    """Work of one kind with its readers, indented; a state of several aggregations is listed once."""
    margin = "  " * depth
    fresh = [position for position in places if position not in seen]
    seen.update(fresh)
    most = _MOST[graph.sharing.works[fresh[0]].kind] if fresh else 0
    for position in fresh[:most]:
        work = graph.sharing.works[position]
        yield f"{margin}{work.label}  [{graph.shared_with(work.users)}]"
        yield from (f"{margin}    {line}" for line in measures(graph, position))
        yield from _level(graph, graph.below(position), depth + 1, seen)
    rest = fresh[most:]
    if rest:
        kind = graph.sharing.works[rest[0]].kind
        users = [user for position in rest for user in graph.sharing.works[position].users]
        word = {"read": "streams", "fold": "folds", "state": "states"}[kind]
        share = percent_of(sum(graph.share(position) for position in rest))
        cost = "" if graph.seen is None else f", {share} of the work"
        yield f"{margin}and {len(rest):,} more {word} of {count(len(graph.queries_of(users)), 'query', 'queries')}{cost}"


def measures(graph: Explained, position: int) -> Iterator[str]:
    """`50,000 rows in, 1,200 out (2.4 %); a query keeps 1.3 %; state 12.3 MB; 35 ms (70 %)`."""
    seen, work = graph.measured(position), graph.sharing.works[position]
    if seen is None or graph.seen is None:
        return
    epochs = graph.seen.epochs
    out = {"read": "on time", "fold": "cells out", "state": "results out"}[work.kind]
    parts = [
        f"{rows_of(seen.rows_in / epochs)} rows in, {rows_of(seen.rows_out / epochs)} {out}{ratio_of(seen.rows_in, seen.rows_out)}"
    ]
    pass_rate = graph.pass_rate(work)
    if pass_rate is not None:
        parts.append(f"{'a query keeps' if len(work.users) > 1 else 'keeps'} {percent_of(pass_rate)}")
    if work.kind == "state":
        parts.append(f"state {bytes_of(seen.state_bytes)}")
        probes, candidates = graph.probes(work)
        if probes:
            parts.append(f"{rows_of(probes / epochs)} probes, {rows_of(candidates / epochs)} rows compared")
    parts.append(f"{time_of(seen.nanoseconds / epochs)} ({percent_of(graph.share(position))})")
    yield "; ".join(parts)


def _queries(graph: Explained) -> Iterator[str]:
    costs = graph.costs
    if graph.seen is None or len(costs) < 2:
        return
    total = sum(cost.nanoseconds for cost in costs) or 1.0
    first = costs[:_QUERIES]
    yield f"{'queries' if len(costs) == len(first) else 'costliest queries'}: {RULE}"
    width = max(len(cost.name) for cost in first)
    for cost in first:
        share = percent_of(cost.nanoseconds / total)
        yield f"  {cost.name:<{width}}  {time_of(cost.nanoseconds):>8} {share:>6}  {_query_measures(cost, graph.seen.epochs)}"
    rest = costs[_QUERIES:]
    if rest:
        spent = sum(cost.nanoseconds for cost in rest)
        yield (
            f"  and {len(rest):,} more, {time_of(spent / len(rest))} each in the mean, together {percent_of(spent / total)}; "
            "EXPLAIN QUERY name shows one"
        )


def _query_measures(cost: QueryCost, epochs: int) -> str:
    """The measurements of one query alone."""
    selectivity = cost.seen.selectivity
    keeps = "" if selectivity is None else f"keeps {percent_of(selectivity)}, "
    return f"{keeps}{rows_of(cost.seen.results / epochs)} results an epoch, {cost.state_rows:,} rows of state"
