"""Several streams read as one: which are they, under whose names do their rows come, and how far have they come?

The plan has such a *meeting* of streams beside the streams themselves, under a name no user can write. Nothing of it is
stored: rows, fates and archives are its members'. It has come as far as the slowest member (Li 2008, section 8.2: Meld).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter_ns
from typing import Final, Protocol

from headrace.algebra.query import UnionAll
from headrace.catalog.definitions import StreamDefinition
from headrace.operators.batch import Batch
from headrace.operators.members import placed
from headrace.runtime.messages import StreamProgress
from headrace.store.committed import NEW_STREAM, CommittedStream
from headrace.time import BEGINNING, Instant

USING: Final = "several"
NOW_OF: Final = "now of"
"""The option of a stream of pairs, or of a relation's changes, that names what they are made of: its NOW is theirs, since pairs end
by themselves, and rows leave a relation when none come."""


@dataclass(frozen=True, slots=True)
class Member:
    """A stream of a meeting. `columns` are (its own name, its name in the meeting)."""

    stream: str
    columns: tuple[tuple[str, str], ...]

    def own(self, wanted: frozenset[str]) -> frozenset[str]:
        """Its own columns for those wanted of the meeting."""
        return frozenset(own for own, among in self.columns if among in wanted)


def union_of(node: UnionAll, streams: Mapping[str, StreamDefinition]) -> StreamDefinition:
    """The meeting that a union reads."""
    members = [
        Member(each.name, tuple(zip(each.table.names, node.table.names, strict=True)))
        for each in node.members
    ]
    return meeting(StreamDefinition(node.name, node.table, USING, time=node.time), members, streams)


def meeting(
    definition: StreamDefinition, members: Sequence[Member], streams: Mapping[str, StreamDefinition]
) -> StreamDefinition:
    """The definition of a meeting of streams; its past is there where that of every member is."""
    told = json.dumps([[each.stream, each.columns] for each in members])
    forgets = any(streams[each.stream].archive == "none" for each in members if each.stream in streams)
    return replace(definition, options={"members": told}, archive="none" if forgets else "in place", slack=0)


def members_of(stream: StreamDefinition) -> tuple[Member, ...]:
    """The streams of a meeting; a stream that is none is its own only member."""
    if stream.using != USING:
        return (Member(stream.name, tuple((name, name) for name in stream.schema.names)),)
    return _members(stream.options["members"])


@lru_cache(maxsize=1024)
def _members(told: str) -> tuple[Member, ...]:
    return tuple(
        Member(stream, tuple((own, among) for own, among in columns)) for stream, columns in json.loads(told)
    )


def meetings_with(streams: Mapping[str, StreamDefinition], name: str) -> Iterator[tuple[str, int, Member]]:
    """(meeting, number, member) for each time a stream is part of one."""
    for stream in streams.values():
        if stream.using == USING:
            for number, member in enumerate(members_of(stream)):
                if member.stream == name:
                    yield stream.name, number, member


class _Takes(Protocol):
    def add(self, batch: Batch) -> None: ...


@dataclass(slots=True)
class Through:
    """Hands rows of one member to those who read the meeting, under the names that columns have there.

    `wanted` are the meeting's columns they read; `adding` is what they took, in nanoseconds.
    """

    member: Member
    number: int
    readers: Sequence[_Takes]
    wanted: frozenset[str]
    adding: int = 0

    def reads(self) -> frozenset[str]:
        """The member's own columns that are needed."""
        return self.member.own(self.wanted)

    def add(self, batch: Batch) -> None:
        """Take in a batch of the member's rows."""
        started = perf_counter_ns()
        columns = {among: batch.columns[own] for own, among in self.member.columns if among in self.wanted}
        renamed = Batch(columns, batch.at, placed(batch.position, self.number))
        for reader in self.readers:
            reader.add(renamed)
        self.adding += perf_counter_ns() - started


def progress(
    stream: StreamDefinition, before: StreamProgress, members: Mapping[str, StreamProgress]
) -> StreamProgress:
    """How far a meeting has come: the least punctuation of its members."""
    known = [members.get(each.stream) for each in members_of(stream)]
    found = [each for each in known if each is not None]
    if len(found) < len(known):
        return before
    promised = min(each.punctuation for each in found)
    return StreamProgress(max(before.punctuation, promised), before.greatest, before.floor)


def nows(
    streams: Mapping[str, StreamDefinition],
    before: Mapping[str, StreamProgress],
    found: Mapping[str, StreamProgress],
) -> dict[str, Instant]:
    """The greatest event time of each stream that was `found`: of a meeting that of its members, of pairs that of what they join.

    Their own rows may lie past it: those that say where pairs and rows of relations go.
    """
    known: dict[str, Instant] = {}

    def now(name: str) -> Instant:
        if name not in known:
            made_of = _made_of(streams[name]) if name in streams else ()
            own = found if not made_of else before
            known[name] = max(own.get(name, StreamProgress()).greatest, *map(now, made_of), BEGINNING)
        return known[name]

    return {name: now(name) for name in found}


def _made_of(stream: StreamDefinition) -> tuple[str, ...]:
    if NOW_OF in stream.options:
        return (stream.options[NOW_OF],)
    return tuple(member.stream for member in members_of(stream)) if stream.using == USING else ()


def bounds(stream: StreamDefinition, members: Mapping[str, StreamProgress]) -> tuple[Instant, ...]:
    """The punctuation of each member; none for a stream that is no meeting."""
    if stream.using != USING:
        return ()
    return tuple(
        members[each.stream].punctuation if each.stream in members else BEGINNING
        for each in members_of(stream)
    )


def known_so_far(
    stream: StreamDefinition, new: CommittedStream, streams: Mapping[str, CommittedStream]
) -> CommittedStream:
    """What is committed of a meeting that is new to a manifest, by what is of the members."""
    known = [streams.get(each.stream, NEW_STREAM) for each in members_of(stream)]
    return replace(
        new,
        punctuation=min(each.punctuation for each in known),
        greatest=max(each.greatest for each in known),
    )
