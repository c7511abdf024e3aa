"""Several streams read as one: which are they, under whose names do their rows come, and how far have they come?

The plan has such a *meeting* of streams beside the streams themselves, under a name no user can write. Nothing of it is
stored: rows, fates and archives are its members'. It has come as far as the slowest member (Li 2008, section 8.2: Meld).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from headrace.algebra.query import UnionAll
from headrace.catalog.definitions import StreamDefinition

USING: Final = "several"
NOW_OF: Final = "now of"
"""The option of a stream of pairs, or of a relation's changes, that names what they are made of: its NOW is theirs, since pairs end
by themselves, and rows leave a relation when none come."""


@dataclass(frozen=True, slots=True)
class UnionInput:
    """A stream of a meeting. `columns` are (its own name, its name in the meeting)."""

    stream: str
    columns: tuple[tuple[str, str], ...]

    def own(self, wanted: frozenset[str]) -> frozenset[str]:
        """Its own columns for those wanted of the meeting."""
        return frozenset(own for own, among in self.columns if among in wanted)


def union_of(node: UnionAll, streams: Mapping[str, StreamDefinition]) -> StreamDefinition:
    """The meeting that a union reads."""
    inputs = [
        UnionInput(each.name, tuple(zip(each.table.names, node.table.names, strict=True)))
        for each in node.inputs
    ]
    return union_stream(StreamDefinition(node.name, node.table, USING, time=node.time), inputs, streams)


def union_stream(
    definition: StreamDefinition, inputs: Sequence[UnionInput], streams: Mapping[str, StreamDefinition]
) -> StreamDefinition:
    """The definition of a meeting of streams; its past is there where that of every member is."""
    inputs_text = json.dumps([[each.stream, each.columns] for each in inputs])
    expires = any(streams[each.stream].archive == "none" for each in inputs if each.stream in streams)
    return replace(
        definition, options={"members": inputs_text}, archive="none" if expires else "in place", slack=0
    )


def inputs_of(stream: StreamDefinition) -> tuple[UnionInput, ...]:
    """The streams of a meeting; a stream that is none is its own only member."""
    if stream.using != USING:
        return (UnionInput(stream.name, tuple((name, name) for name in stream.schema.names)),)
    return _inputs(stream.options["members"])


@lru_cache(maxsize=1024)
def _inputs(text: str) -> tuple[UnionInput, ...]:
    return tuple(
        UnionInput(stream, tuple((own, among) for own, among in columns))
        for stream, columns in json.loads(text)
    )


def unions_with(streams: Mapping[str, StreamDefinition], name: str) -> Iterator[tuple[str, int, UnionInput]]:
    """(meeting, number, member) for each time a stream is part of one."""
    for stream in streams.values():
        if stream.using == USING:
            for number, union_input in enumerate(inputs_of(stream)):
                if union_input.stream == name:
                    yield stream.name, number, union_input
