"""Definitions of unions, several streams that the plan has as one: made of a UNION ALL or of the inputs of a join, and from
such a definition its input streams with the names of their columns; and of a stream of which the rows are read at other times.

The plan has a union as a stream, under a name that no user can write. Nothing of it is stored: rows and archives
are its inputs'. Its punctuation is the minimum of theirs (Li 2008, section 8.2: Meld). A join's results at the times of one of its
sides are a union of one input, with the punctuation of those times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from headrace.algebra.query import UnionAll
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.store.logs.committed import Bound

USING: Final = "several"
NOW_OF: Final = "now of"
"""Option of a stream of pairs, or of a relation's changes: the name of the source stream, whose NOW is theirs, since pairs
and rows of a relation expire while no rows arrive."""
_BOUND: Final = "bound"
"""Option of rows at the instants of a column: what their punctuation follows from."""


@dataclass(frozen=True, slots=True)
class UnionInput:
    """An input stream of a union. `columns` are (name in the stream, name in the union); `time` is the column of the stream of which
    the values are the event times in the union, if they are not those of the stream.
    """

    stream: str
    columns: tuple[tuple[str, str], ...]
    time: str = ""

    def input_columns(self, union_columns: frozenset[str]) -> frozenset[str]:
        """The columns of the stream for columns of the union."""
        columns = frozenset(column for column, name in self.columns if name in union_columns)
        return columns | {self.time} if self.time else columns


def union_of(node: UnionAll, streams: Mapping[str, StreamDefinition]) -> StreamDefinition:
    """The stream definition of a UNION ALL."""
    inputs = [
        UnionInput(scan.name, tuple(zip(scan.table.names, node.table.names, strict=True)))
        for scan in node.inputs
    ]
    return union_stream(StreamDefinition(node.name, node.table, USING, time=node.time), inputs, streams)


def union_stream(
    definition: StreamDefinition, inputs: Sequence[UnionInput], streams: Mapping[str, StreamDefinition]
) -> StreamDefinition:
    """The definition of a union of streams; it has an archive if every input has."""
    inputs_text = json.dumps(
        [[part.stream, part.columns, *([part.time] if part.time else [])] for part in inputs]
    )
    expires = any(
        streams[union_input.stream].archive == "none"
        for union_input in inputs
        if union_input.stream in streams
    )
    return replace(
        definition, options={"members": inputs_text}, archive="none" if expires else "in place", slack=0
    )


def inputs_of(stream: StreamDefinition) -> tuple[UnionInput, ...]:
    """The inputs of a union; any other stream is its only input."""
    if stream.using != USING:
        return (UnionInput(stream.name, tuple((name, name) for name in stream.schema.names)),)
    return _inputs(stream.options["members"])


@lru_cache(maxsize=1 << 17)
def _inputs(text: str) -> tuple[UnionInput, ...]:
    return tuple(
        UnionInput(stream, tuple((column, name) for column, name in columns), *time)
        for stream, columns, *time in json.loads(text)
    )


def bound_of(stream: StreamDefinition) -> Bound:
    """What the punctuation of a union follows from: that of its inputs, unless its rows are at other times."""
    if _BOUND not in stream.options:
        return Bound(tuple((part.stream, 0) for part in inputs_of(stream)))
    return _bound(stream.options[_BOUND])


@lru_cache(maxsize=1 << 12)
def _bound(text: str) -> Bound:
    return Bound.from_json(json.loads(text))


def at_times_of(
    results: StreamDefinition, time: str, bound: Bound, streams: Mapping[str, StreamDefinition]
) -> StreamDefinition:
    """A stream's rows at the instants that a column of theirs has, none of which is below the bound later."""
    definition = StreamDefinition(at_times_name(results.name, time), results.schema, USING)
    part = UnionInput(results.name, tuple((name, name) for name in results.schema.names), time)
    united = union_stream(definition, [part], {**streams, results.name: results})
    return replace(united, options={**united.options, _BOUND: json.dumps(bound.as_json())})


def at_times_name(results: str, time: str) -> str:
    """The name of a stream's rows at the instants that a column has; no user can write it."""
    return f"{results} at {time}"
