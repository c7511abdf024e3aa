"""Definitions of unions, several streams that the plan has as one: made of a UNION ALL or of the inputs of a join, and from
such a definition its input streams with the names of their columns.

The plan has a union as a stream, under a name that no user can write. Nothing of it is stored: rows and archives
are its inputs'. Its punctuation is the minimum of theirs (Li 2008, section 8.2: Meld).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from headrace.algebra.query import UnionAll
from headrace.catalog.definitions import StreamDefinition

USING: Final = "several"
NOW_OF: Final = "now of"
"""Option of a stream of pairs, or of a relation's changes: the name of the source stream, whose NOW is theirs, since pairs
and rows of a relation expire while no rows arrive."""


@dataclass(frozen=True, slots=True)
class UnionInput:
    """An input stream of a union. `columns` are (name in the stream, name in the union)."""

    stream: str
    columns: tuple[tuple[str, str], ...]

    def input_columns(self, union_columns: frozenset[str]) -> frozenset[str]:
        """The columns of the stream for columns of the union."""
        return frozenset(column for column, name in self.columns if name in union_columns)


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
    inputs_text = json.dumps([[union_input.stream, union_input.columns] for union_input in inputs])
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
        UnionInput(stream, tuple((column, name) for column, name in columns))
        for stream, columns in json.loads(text)
    )
