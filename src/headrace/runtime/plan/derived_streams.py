"""Streams of results, which other queries read: of registered queries, of SELECTs in FROM and of joins. Their names,
definitions and punctuation, the ids of the operators that make them, and a query with its scans of queries replaced by
scans of such streams.

Rows that a query emits are input of its readers in the same epoch, in a later round. A window result has the event time
window_end - 1 microsecond, any other row its instant. The stream's punctuation is the instant up to which the query has
emitted: no later result has an earlier time, so readers' windows close with the query's own. Windows that end at rows are
emitted after punctuation has passed their end: one that ends at the punctuation is not emitted yet, so their stream's
punctuation is a microsecond lower. Results of a join promise more of the times of its rows, one by one and together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from functools import lru_cache
from typing import Final

from headrace.algebra.expressions.punctuation_patterns import Between, Pattern
from headrace.algebra.query import (
    Join,
    Node,
    Query,
    QueryScan,
    StreamScan,
    UnionAll,
    derived_in,
    find_window,
    per_row_window,
)
from headrace.algebra.windows.window import CHANGE
from headrace.catalog.definitions import Progressing, StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery
from headrace.planner.joins.join_stage import JoinStage
from headrace.planner.joins.pair_progress import PairProgress, TimeBound, pair_progress
from headrace.planner.joins.shared_join import classes_in, with_classes
from headrace.planner.joins.stream_joins import joins_streams
from headrace.runtime.messages.epoch_plan import PlannedOperator, Retention
from headrace.runtime.messages.stream_progress import Clock
from headrace.runtime.plan import union_streams
from headrace.schema import TINYINT, Field, Schema
from headrace.store.logs.committed import Bound
from headrace.time import BEGINNING, DAY, FOREVER, Duration, Instant

USING: Final = "results"
_INNER: Final = ".inner"
_TREE: Final = "~"
_SHARED_JOIN: Final = "j"
_BOUNDS: Final = "pairs"
"""Option of results of a join: what the times of its rows promise."""
_NEVER_BY_ROWS: Final = 20_000_000 * DAY
"""A slack so large that rows do not advance punctuation: only the query's emissions do."""


def name_of(operator: str) -> str:
    """The name of the stream of an operator's results; no user can write it."""
    return f"@{operator}"


def operator_of(stream: StreamDefinition) -> str:
    """The operator whose results the stream is."""
    return stream.options["operator"]


def stream_of(operator: str, query: Query, retention: Retention | None = None) -> StreamDefinition:
    """The results of an operator as a stream: read in place, as long as they are retained."""
    shift = "1" if query.emission == "windows" else "0"
    options = {"operator": operator, "shift": shift, "behind": "1" if _ends_at_rows(query) else "0"}
    progress = pair_progress(query)
    if progress is not None:
        options[_BOUNDS] = json.dumps(asdict(progress))
    return StreamDefinition(
        name_of(operator),
        _result_schema(query),
        USING,
        options,
        slack=_NEVER_BY_ROWS,
        archive="in place",
        retain=None if retention is None else retention.length,
    )


def _result_schema(query: Query) -> Schema:
    """The columns of a query's results; a relation's have the sign of the change."""
    if query.emission != "relation":
        return query.schema
    return Schema((*query.schema.fields, Field(CHANGE, TINYINT)))


def with_their_now(
    streams: Mapping[str, StreamDefinition], planned: Mapping[str, PlannedOperator]
) -> dict[str, StreamDefinition]:
    """The streams, where a relation's changelog has the NOW of the relation's source: changes are emitted later."""
    with_now = dict(streams)
    for name, stream in streams.items():
        if (
            stream.using == USING
            and CHANGE in stream.schema.names
            and union_streams.NOW_OF not in stream.options
        ):
            made_of = planned[operator_of(stream)].operator.stream
            with_now[name] = replace(stream, options={**stream.options, union_streams.NOW_OF: made_of})
    return with_now


def _ends_at_rows(query: Query) -> bool:
    windowed = find_window(query.root) if query.emission == "windows" else None
    return windowed is not None and per_row_window(windowed.window)


def behind(stream: StreamDefinition) -> Duration:
    """How far the punctuation of a query's results is below the instant up to which it has emitted."""
    return int(stream.options.get("behind", "0"))


def result_punctuation(stream: StreamDefinition, emitted_to: Instant) -> Instant:
    """The punctuation of a query's results when it has emitted up to `emitted_to`."""
    return emitted_to if emitted_to in (BEGINNING, FOREVER) else emitted_to - behind(stream)


def pairs_in(stream: StreamDefinition) -> PairProgress | None:
    """What the times of joined rows in these results promise, if they are rows of a join."""
    return _pairs(stream.options[_BOUNDS]) if _BOUNDS in stream.options else None


@lru_cache(maxsize=1 << 12)
def _pairs(text: str) -> PairProgress:
    read = json.loads(text)
    bounds = tuple(
        tuple(
            TimeBound(item["column"], tuple((name, lag) for name, lag in item["terms"]), item["unit"])
            for item in conjunction
        )
        for conjunction in read["bounds"]
    )
    return PairProgress(tuple(read["streams"]), bounds)


def promising(stream: StreamDefinition) -> Progressing:
    """The clauses of a stream about progress; results of joins promise patterns of the times of their rows."""
    pairs = pairs_in(stream)
    if pairs is None:
        return stream.progress
    columns = dict.fromkeys(bound.column for bounds in pairs.bounds for bound in bounds)
    return Progressing(groups=tuple(columns), patterns=True)


def promises(stream: StreamDefinition, punctuation: Callable[[str], Instant]) -> dict[str, Instant]:
    """The patterns of which no later row follows in these results, by the punctuation of streams (Li 2008, section 7.2).

    There are none while an operator on the way has not read all that its streams have.
    """
    pairs = pairs_in(stream)
    reached = punctuation(stream.name)
    if pairs is None or reached == BEGINNING or reached < min(map(punctuation, pairs.streams)):
        return {}
    patterns: dict[str, Instant] = {}
    for bounds in pairs.bounds:
        tests = sorted((bound.column, _below(bound, stream.name, punctuation)) for bound in bounds)
        if all(BEGINNING < at < FOREVER for _, at in tests):
            ranges = tuple((column, Between(high=at, below=True)) for column, at in tests)
            patterns[Pattern(ranges).text()] = FOREVER
    return patterns


def _below(bound: TimeBound, results: str, punctuation: Callable[[str], Instant]) -> Instant:
    """The instant below which a column has no later values."""
    least = FOREVER
    for name, lag in bound.terms:
        at = punctuation(name or results)
        least = min(least, at if at in (BEGINNING, FOREVER) else at - lag)
    return least if least in (BEGINNING, FOREVER) else least // bound.unit * bound.unit


def at_times_of(
    results: StreamDefinition, time: str, streams: Mapping[str, StreamDefinition]
) -> StreamDefinition:
    """The results of a join at the instants of a column; `UnsupportedQuery` where their progress is not known."""
    pairs = pairs_in(results)
    alone = () if pairs is None else (bounds[0] for bounds in pairs.bounds if len(bounds) == 1)
    known = next((bound for bound in alone if bound.column == time), None)
    if known is None:
        raise UnsupportedQuery(
            f"no window over '{time}' would close: rows of its side are joined without end, or in no window of time",
            remedy="Bound them: FROM a [RANGE 1 HOUR], b [NOW], or WHERE b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR.",
        )
    terms = tuple((name or results.name, lag) for name, lag in known.terms)
    return union_streams.at_times_of(results, time, Bound(terms, known.unit, results.name), streams)


@dataclass(frozen=True, slots=True)
class Clocks:
    """What drives the streams of a plan, and how far the punctuation of each is at least below that of its sources.

    `read_by` gives the stream that an operator reads, None if there is no such operator.
    """

    streams: Mapping[str, StreamDefinition]
    read_by: Callable[[str], str | None]
    _known: dict[str, tuple[Clock, Duration]] = field(default_factory=dict)

    def of(self, stream: str) -> tuple[Clock, Duration]:
        """The clock of a stream, and its distance."""
        known = self._known.get(stream)
        if known is None:
            known = self._known[stream] = self._made_of(self.streams[stream])
        return known

    def _made_of(self, stream: StreamDefinition) -> tuple[Clock, Duration]:
        if stream.using == union_streams.USING:
            clocks = [self.of(part.stream)[0] for part in union_streams.inputs_of(stream)]
            sources = sorted({source for clock in clocks for source in clock.sources})
            distances = [self.of(name)[1] + lag for name, lag in union_streams.bound_of(stream).terms]
            return Clock(max(clock.level for clock in clocks), tuple(sources)), min(distances)
        if stream.using != USING:
            return Clock(0, (stream.name,)), 0
        made_of = self.read_by(operator_of(stream))
        if made_of is None:
            return Clock(1, ()), 0
        clock, distance = self.of(made_of)
        return Clock(clock.level + 1, clock.sources), distance + behind(stream)


def clocks_of(streams: Mapping[str, StreamDefinition], planned: Mapping[str, PlannedOperator]) -> Clocks:
    """The clocks of the streams that these operators read."""

    def read_by(operator: str) -> str | None:
        upstream = planned.get(operator)
        return None if upstream is None else upstream.operator.stream

    return Clocks(streams, read_by)


def of_pairs(join_stage: JoinStage, streams: Mapping[str, StreamDefinition]) -> dict[str, StreamDefinition]:
    """The union of the streams that a join reads, and its pairs as a stream if it emits them; by name."""
    union, operator = join_stage.union, join_stage.operator
    inputs = [union_streams.UnionInput(stream, columns) for stream, columns in union.inputs]
    union_definition = union_streams.union_stream(
        StreamDefinition(union.name, union.schema, union_streams.USING), inputs, streams
    )
    if operator.spec.grows:
        return {union_definition.name: union_definition}
    options = {"operator": operator.id, "shift": "0", union_streams.NOW_OF: union.name}
    pairs = StreamDefinition(
        name_of(operator.id),
        operator.spec.shown,
        USING,
        options,
        slack=_NEVER_BY_ROWS,
        archive="in place",
        retain=_retain_of(union_definition, streams) if is_shared_join(operator.id) else 0,
    )
    return {union_definition.name: union_definition, pairs.name: pairs}


def _retain_of(union: StreamDefinition, streams: Mapping[str, StreamDefinition]) -> Duration | None:
    """How long combinations of a shared join are kept: as long as a row of any of its streams."""
    retained = [streams[source.stream].retain for source in union_streams.inputs_of(union)]
    return None if None in retained else max(length for length in retained if length is not None)


def inner_of(operator: str, number: int = 0) -> str:
    """An operator below an operator's query: of its pairs or of the one SELECT in its FROM, else of SELECT number `number`."""
    return f"{operator}{_INNER}{number or ''}"


def joins_of_tree(operator: str, number: int) -> Callable[[str], str]:
    """`inner_of` for the joins below an operator, by the number of their tree; that of the registration has none."""
    if not number:
        return inner_of
    return lambda above: f"{above}{_INNER}{_TREE}{number}" if above == operator else inner_of(above)


def tree_of(operator: str) -> int:
    """The number of the tree that a join belongs to."""
    number = operator.partition(_TREE)[2].partition(".")[0]
    return int(number or 0)


def inner_queries(operator: str, query: Query) -> dict[str, tuple[str, Query]]:
    """The queries in the FROM of an operator's query with the ids of their operators, by alias."""
    scans = derived_in(query)
    single = len(scans) == 1 and scans[0][1].emission != "relation" and not joins_streams(query)
    return {
        scan.alias: (inner_of(operator, 0 if single else number), inner)
        for number, (scan, inner) in enumerate(scans, start=1)
    }


def shared_join_of(founder: str, signature: str) -> str:
    """A name for a shared join with the size classes of a signature, unique if that of its founder is."""
    name = _SHARED_JOIN + hashlib.blake2b(founder.encode(), digest_size=9).hexdigest()
    return with_classes(name, classes_in(signature))


def is_shared_join(operator: str) -> bool:
    """Whether an operator is a shared join, which belongs to no single query."""
    return operator.startswith(_SHARED_JOIN)


def owner_of(operator: str) -> str:
    """The operator of the registered query to which an operator of a SELECT in FROM belongs."""
    return operator.partition(_INNER)[0]


def over_streams(query: Query, inner: Mapping[str, str], operators: Mapping[str, str]) -> Query:
    """A query with scans of queries replaced by scans of their streams.

    `inner` are the operators of queries in its FROM by alias, `operators` those of registered ones by lower-case name.
    """
    return replace(query, root=_replaced(query.root, inner, operators))


def _replaced(node: Node, inner: Mapping[str, str], operators: Mapping[str, str]) -> Node:
    if isinstance(node, QueryScan):
        if node.query is None:
            source, table = name_of(operators[node.name.lower()]), node.table
        else:
            source, table = name_of(inner[node.alias]), _result_schema(node.query)
        name = source if node.time is None else union_streams.at_times_name(source, node.time)
        return StreamScan(name, node.alias, table, None)
    if not node.children:
        return node
    if isinstance(node, UnionAll):
        replaced = [_replaced(scan, inner, operators) for scan in node.inputs]
        inputs = tuple(scan for scan in replaced if isinstance(scan, StreamScan))
        change = tuple(column for column in inputs[0].table if column.name == CHANGE)
        return replace(node, inputs=inputs, table=Schema((*node.table.fields, *change)))
    if isinstance(node, Join):
        left, right = (_replaced(side, inner, operators) for side in (node.left, node.right))
        return replace(node, left=left, right=right)
    return replace(node, source=_replaced(node.children[0], inner, operators))  # type: ignore[arg-type]
