"""EXPLAIN ALL and the shared half of EXPLAIN QUERY as text: readable for one query and for ten thousand.

What does not fit is summed up: the work that takes longest is told, and how much the rest comes to.
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
"""How many pieces of work of a kind are told below one other."""
_QUERIES: Final = 10


def all_lines(graph: Explained) -> Iterator[str]:
    """All work from the streams to the states, then the costliest queries."""
    works = graph.sharing.works
    kinds = {kind: sum(each.kind == kind for each in works) for kind in ("read", "fold", "state")}
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
    """What one query shares with whom, what it costs, and which part of that is its own."""
    mine = [operator for operator, owner in graph.owners.items() if owner == name]
    yield "  who shares its work, in the order of the data:"
    for place in dict.fromkeys(place for each in mine for place in graph.sharing.places[each]):
        work = graph.sharing.works[place]
        others = [each for each in graph.queries_of(work.users) if each != name]
        shown = ", ".join(others[:3]) + (f" and {len(others) - 3:,} more" if len(others) > 3 else "")
        whom = f"shared with {count(len(others), 'query', 'queries')}: {shown}" if others else "its own"
        yield f"    {work.label}: {whom}"
        yield from (f"      {line}" for line in _measures(graph, place))
    if graph.seen is not None:
        costs = graph.costs
        rank, cost = next((n, each) for n, each in enumerate(costs, 1) if each.name == name)
        total = sum(each.nanoseconds for each in costs)
        share = cost.nanoseconds / total if total else 0.0
        place_of = f", number {rank:,} of {len(costs):,}" if len(costs) > 1 else ""
        yield f"  cost: {time_of(cost.nanoseconds)} an epoch, {percent_of(share)} of all work{place_of}"
        yield f"    {_own(cost, graph.seen.epochs)}"
    yield f"  {_when(graph)}"


def _when(graph: Explained) -> str:
    seen = graph.seen
    if seen is None:
        return "nothing is measured yet: figures come with the first epoch"
    epochs = f"epoch {seen.last}" if seen.epochs == 1 else f"epochs {seen.first} to {seen.last}"
    each = "" if seen.epochs == 1 else " an epoch"
    gone = f"; {time_of(seen.elsewhere / seen.epochs)} for queries that are no more" if seen.elsewhere else ""
    return (
        f"measured in {epochs}: {rows_of(seen.rows / seen.epochs)} rows and "
        f"{time_of(seen.nanoseconds / seen.epochs)} of work{each}{gone}"
    )


def _level(graph: Explained, places: Sequence[int], depth: int, seen: set[int]) -> Iterator[str]:
    """Work of one kind with what takes its rows, indented; a state that several folds feed is told once."""
    margin = "  " * depth
    fresh = [place for place in places if place not in seen]
    seen.update(fresh)
    most = _MOST[graph.sharing.works[fresh[0]].kind] if fresh else 0
    for place in fresh[:most]:
        work = graph.sharing.works[place]
        yield f"{margin}{work.label}  [{graph.shared_with(work.users)}]"
        yield from (f"{margin}    {line}" for line in _measures(graph, place))
        yield from _level(graph, graph.below(place), depth + 1, seen)
    rest = fresh[most:]
    if rest:
        kind = graph.sharing.works[rest[0]].kind
        users = [user for place in rest for user in graph.sharing.works[place].users]
        word = {"read": "streams", "fold": "folds", "state": "states"}[kind]
        share = percent_of(sum(graph.share(place) for place in rest))
        cost = "" if graph.seen is None else f", {share} of the work"
        yield f"{margin}and {len(rest):,} more {word} of {count(len(graph.queries_of(users)), 'query', 'queries')}{cost}"


def _measures(graph: Explained, place: int) -> Iterator[str]:
    """`50,000 rows in, 1,200 out (2.4 %); a query keeps 1.3 %; state 12.3 MB; 35 ms (70 %)`."""
    seen, work = graph.measured(place), graph.sharing.works[place]
    if seen is None or graph.seen is None:
        return
    epochs = graph.seen.epochs
    out = {"read": "on time", "fold": "cells out", "state": "results out"}[work.kind]
    parts = [
        f"{rows_of(seen.rows_in / epochs)} rows in, {rows_of(seen.rows_out / epochs)} {out}{ratio_of(seen.rows_in, seen.rows_out)}"
    ]
    kept = graph.pass_rate(work)
    if kept is not None:
        parts.append(f"{'a query keeps' if len(work.users) > 1 else 'keeps'} {percent_of(kept)}")
    if work.kind == "state":
        parts.append(f"state {bytes_of(seen.state_bytes)}")
    parts.append(f"{time_of(seen.nanoseconds / epochs)} ({percent_of(graph.share(place))})")
    yield "; ".join(parts)


def _queries(graph: Explained) -> Iterator[str]:
    costs = graph.costs
    if graph.seen is None or len(costs) < 2:
        return
    total = sum(each.nanoseconds for each in costs) or 1.0
    first = costs[:_QUERIES]
    yield f"{'queries' if len(costs) == len(first) else 'costliest queries'}: {RULE}"
    width = max(len(each.name) for each in first)
    for each in first:
        share = percent_of(each.nanoseconds / total)
        yield f"  {each.name:<{width}}  {time_of(each.nanoseconds):>8} {share:>6}  {_own(each, graph.seen.epochs)}"
    rest = costs[_QUERIES:]
    if rest:
        spent = sum(each.nanoseconds for each in rest)
        yield (
            f"  and {len(rest):,} more, {time_of(spent / len(rest))} each in the mean, together {percent_of(spent / total)}; "
            "EXPLAIN QUERY name shows one"
        )


def _own(cost: QueryCost, epochs: int) -> str:
    """What is a query's alone."""
    kept = cost.seen.selectivity
    keeps = "" if kept is None else f"keeps {percent_of(kept)}, "
    return f"{keeps}{rows_of(cost.seen.results / epochs)} results an epoch, {cost.state_rows:,} rows of state"
