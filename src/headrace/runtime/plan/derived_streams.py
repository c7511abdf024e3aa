"""Queries over queries: the results of a standing query as a stream of its own.

What a query committed in one epoch is input for its readers in the next. A window result's event time is window_end - 1
microsecond, any other row's its instant. The stream's punctuation is how far the query has answered: no later result has
an earlier time, so readers' windows close as soon as the query's own have. Windows that end at rows are told once
punctuation has passed their end, so one that ends at the punctuation is still to come, with a time a microsecond before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headrace.algebra.query import (
    Join,
    Node,
    Query,
    QueryScan,
    StreamScan,
    UnionAll,
    children,
    derived_in,
    find_window,
    per_row_window,
)
from headrace.algebra.windows.window import CHANGE
from headrace.catalog.definitions import StreamDefinition
from headrace.planner.joins.stream_joins import JoinStage, joins_streams
from headrace.runtime.messages.epoch_plan import PlannedOperator, Retention
from headrace.runtime.plan import union_streams
from headrace.schema import TINYINT, Field, Schema
from headrace.time import BEGINNING, DAY, FOREVER, Instant

USING: Final = "results"
_INNER: Final = ".inner"
_NEVER_BY_ROWS: Final = 20_000_000 * DAY
"""A slack so great that rows alone never move punctuation: only the query's own answers do."""


def name_of(operator: str) -> str:
    """The name of the stream of an operator's results; no user can write it."""
    return f"@{operator}"


def operator_of(stream: StreamDefinition) -> str:
    """The operator whose results the stream is."""
    return stream.options["operator"]


def stream_of(operator: str, query: Query, kept: Retention | None = None) -> StreamDefinition:
    """The results of an operator as a stream: read in place, for as long as they are kept anyway."""
    shift = "1" if query.emission == "windows" else "0"
    options = {"operator": operator, "shift": shift, "behind": "1" if _ends_at_rows(query) else "0"}
    return StreamDefinition(
        name_of(operator),
        _result_schema(query),
        USING,
        options,
        slack=_NEVER_BY_ROWS,
        archive="in place",
        retain=None if kept is None else kept.length,
    )


def _result_schema(query: Query) -> Schema:
    """The columns of a query's results: of a relation with what says whether a row comes or goes."""
    if query.emission != "relation":
        return query.schema
    return Schema((*query.schema.fields, Field(CHANGE, TINYINT)))


def with_their_now(
    streams: Mapping[str, StreamDefinition], planned: Mapping[str, PlannedOperator]
) -> dict[str, StreamDefinition]:
    """The streams, where those of a relation's changes have the NOW of what the relation is made of: changes come later."""
    found = dict(streams)
    for name, stream in streams.items():
        if (
            stream.using == USING
            and CHANGE in stream.schema.names
            and union_streams.NOW_OF not in stream.options
        ):
            made_of = planned[operator_of(stream)].operator.stream
            found[name] = replace(stream, options={**stream.options, union_streams.NOW_OF: made_of})
    return found


def _ends_at_rows(query: Query) -> bool:
    windowed = find_window(query.root) if query.emission == "windows" else None
    return windowed is not None and per_row_window(windowed.window)


def result_punctuation(stream: StreamDefinition, emitted_to: Instant) -> Instant:
    """The punctuation of a query's results when it has answered up to `closed`."""
    return (
        emitted_to
        if emitted_to in (BEGINNING, FOREVER)
        else emitted_to - int(stream.options.get("behind", "0"))
    )


def of_pairs(join_stage: JoinStage, streams: Mapping[str, StreamDefinition]) -> dict[str, StreamDefinition]:
    """The streams that a join reads together, and its pairs as a stream; by name."""
    met, operator = join_stage.union, join_stage.operator
    members = [union_streams.UnionInput(stream, columns) for stream, columns in met.inputs]
    together = union_streams.union_stream(
        StreamDefinition(met.name, met.schema, union_streams.USING), members, streams
    )
    options = {"operator": operator.id, "shift": "0", union_streams.NOW_OF: met.name}
    pairs = StreamDefinition(
        name_of(operator.id),
        operator.spec.shown,
        USING,
        options,
        slack=_NEVER_BY_ROWS,
        archive="in place",
        retain=0,
    )
    return {together.name: together, pairs.name: pairs}


def inner_of(operator: str, place: int = 0) -> str:
    """An operator below an operator's query: of its pairs or of the one SELECT in its FROM, else of SELECT number `place`."""
    return f"{operator}{_INNER}{place or ''}"


def inner_queries(operator: str, query: Query) -> dict[str, tuple[str, Query]]:
    """The queries that stand in the FROM of an operator's query, by alias, each with the operator that it has."""
    scans = derived_in(query)
    single = len(scans) == 1 and scans[0][1].emission != "relation" and not joins_streams(query)
    return {
        scan.alias: (inner_of(operator, 0 if single else place), inner)
        for place, (scan, inner) in enumerate(scans, start=1)
    }


def owner_of(operator: str) -> str:
    """The operator of the query that was registered, for one of a SELECT in its FROM."""
    return operator.partition(_INNER)[0]


def over_streams(query: Query, inner: Mapping[str, str], operators: Mapping[str, str]) -> Query:
    """A query with scans of queries replaced by scans of their streams.

    `inner` are the operators of queries in its FROM by alias, `operators` those of registered ones by lower-case name.
    """
    return replace(query, root=_replaced(query.root, inner, operators))


def _replaced(node: Node, inner: Mapping[str, str], operators: Mapping[str, str]) -> Node:
    if isinstance(node, QueryScan):
        if node.query is None:
            return StreamScan(name_of(operators[node.name.lower()]), node.alias, node.table, None)
        return StreamScan(name_of(inner[node.alias]), node.alias, _result_schema(node.query), None)
    if not children(node):
        return node
    if isinstance(node, UnionAll):
        replaced = [_replaced(member, inner, operators) for member in node.inputs]
        members = tuple(each for each in replaced if isinstance(each, StreamScan))
        told = tuple(each for each in members[0].table if each.name == CHANGE)
        return replace(node, inputs=members, table=Schema((*node.table.fields, *told)))
    if isinstance(node, Join):
        left, right = (_replaced(side, inner, operators) for side in (node.left, node.right))
        return replace(node, left=left, right=right)
    return replace(node, source=_replaced(children(node)[0], inner, operators))  # type: ignore[arg-type]
