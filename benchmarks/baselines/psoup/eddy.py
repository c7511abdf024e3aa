"""An eddy, one tuple at a time: data and queries are structs that visit SteMs by an interest list, until a result is complete.

A hybrid struct has tuples of some streams and the rest of a query's predicate: a factor between two streams, once one of them is
there, is a factor on the other with a constant in its place (substitution). The eddy reads interest lists alone, never what a
struct is. New structs wait in one pool, and those under way are in another, which is emptied first: so stored results are always those
of a prefix of arrivals. With `single_pool` it is an eddy as before PSoup, which cannot promise that.
Source: Chandrasekaran and Franklin, PSoup (2002), sections 3 and 4; Figures 4 and 5.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

COMPARE: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_TURNED: Final = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}
QUERIES: Final = "queries"
"""The name of the SteM of queries in interest lists."""


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of one attribute; its id is its time."""

    stream: str
    id: int
    value: int


@dataclass(frozen=True, slots=True)
class Factor:
    """`stream RELOP constant`."""

    stream: str
    relop: str
    constant: int


@dataclass(frozen=True, slots=True)
class JoinFactor:
    """`left RELOP right + offset`."""

    left: str
    relop: str
    right: str
    offset: int = 0

    def substituted(self, rows: Mapping[str, Tuple]) -> Factor | None:
        """The factor on the stream that is missing, where the tuple of the other one is there."""
        if self.left in rows and self.right not in rows:
            return Factor(self.right, _TURNED[self.relop], rows[self.left].value - self.offset)
        if self.right in rows and self.left not in rows:
            return Factor(self.left, self.relop, rows[self.right].value + self.offset)
        return None


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunction over streams."""

    id: int
    streams: frozenset[str]
    factors: tuple[Factor, ...] = ()
    joins: tuple[JoinFactor, ...] = ()


@dataclass(frozen=True, slots=True)
class Struct:
    """Tuples by stream and a query, of which either may be missing; the SteMs still to visit; where it is stored, if it is new."""

    rows: Mapping[str, Tuple]
    query: Query | None
    interest: frozenset[str]
    home: str = ""


class Stem(Protocol):
    """What the eddy knows of a SteM."""

    def insert(self, struct: Struct) -> None:
        """Store a new struct."""

    def probe(self, struct: Struct) -> Iterator[Struct]:
        """The struct extended by each match, with what is then left to visit."""
        ...


@dataclass(slots=True)
class Counts:
    """Evaluations of factors of one stream, and of substituted factors; hybrid structs that were made."""

    own: int = 0
    substituted: int = 0
    structs: int = 0

    def holds(self, factor: Factor, value: int, *, substituted: bool) -> bool:
        """Whether a factor holds of a value, counted."""
        if substituted:
            self.substituted += 1
        else:
            self.own += 1
        return COMPARE[factor.relop](value, factor.constant)


@dataclass(slots=True)
class DataStem:
    """The tuples of one stream."""

    stream: str
    counts: Counts
    tuples: list[Tuple] = field(default_factory=list)

    def insert(self, struct: Struct) -> None:
        self.tuples.append(struct.rows[self.stream])

    def probe(self, struct: Struct) -> Iterator[Struct]:
        assert struct.query is not None
        own_factors = [factor for factor in struct.query.factors if factor.stream == self.stream]
        meeting = [
            factor
            for join in struct.query.joins
            if (factor := join.substituted(struct.rows)) is not None and factor.stream == self.stream
        ]
        for row in self.tuples:
            if all(self.counts.holds(factor, row.value, substituted=False) for factor in own_factors) and all(
                self.counts.holds(factor, row.value, substituted=True) for factor in meeting
            ):
                self.counts.structs += 1
                rows = {**struct.rows, self.stream: row}
                yield Struct(rows, struct.query, struct.interest - {self.stream})


@dataclass(slots=True)
class QueryStem:
    """All queries of the system."""

    counts: Counts
    queries: list[Query] = field(default_factory=list)

    def insert(self, struct: Struct) -> None:
        assert struct.query is not None
        self.queries.append(struct.query)

    def probe(self, struct: Struct) -> Iterator[Struct]:
        for query in self.queries:
            if not struct.rows.keys() <= query.streams:
                continue
            evaluable = [factor for factor in query.factors if factor.stream in struct.rows]
            if all(
                self.counts.holds(factor, struct.rows[factor.stream].value, substituted=False)
                for factor in evaluable
            ):
                self.counts.structs += 1
                yield Struct(struct.rows, query, query.streams - struct.rows.keys())


Result = tuple[int, tuple[tuple[str, int], ...]]
"""A query, and the ids of a combination by stream."""


@dataclass(slots=True)
class Eddy:
    """`results` are those of structs that were taken completely; `policy` chooses the next SteM of an interest list."""

    streams: Sequence[str]
    policy: Callable[[frozenset[str]], str] = min
    single_pool: bool = False
    counts: Counts = field(default_factory=Counts)
    results: set[Result] = field(default_factory=set)
    marked: int = 0
    """How often a result was marked."""
    stems: dict[str, Stem] = field(init=False)
    new: deque[Struct] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.stems = {stream: DataStem(stream, self.counts) for stream in self.streams}
        self.stems[QUERIES] = QueryStem(self.counts)

    def arrive(self, row: Tuple) -> None:
        """A tuple of a stream."""
        self.new.append(Struct({row.stream: row}, None, frozenset({QUERIES}), row.stream))

    def register(self, query: Query) -> None:
        """A query: a struct without tuples, which visits the SteMs of its streams."""
        self.new.append(Struct({}, query, query.streams, QUERIES))

    def run(self) -> Iterator[None]:
        """Take all that has arrived; after each yield `results` may be read."""
        pool: deque[Struct] = self.new if self.single_pool else deque()
        while self.new or pool:
            struct = (pool or self.new).popleft()
            if struct.home:
                self.stems[struct.home].insert(struct)
            if not struct.interest:
                self._complete(struct)
            else:
                pool.extend(self.stems[self.policy(struct.interest)].probe(struct))
            if self.single_pool or not pool:
                yield

    def drain(self) -> None:
        """Take all that has arrived."""
        for _ in self.run():
            pass

    def _complete(self, struct: Struct) -> None:
        assert struct.query is not None
        self.marked += 1
        ids = tuple(sorted((stream, row.id) for stream, row in struct.rows.items()))
        self.results.add((struct.query.id, ids))

    def window(self, query: int, begin: int, end: int) -> set[tuple[tuple[str, int], ...]]:
        """The results of a query whose earliest and latest tuples are in [begin, end]."""
        return {
            ids
            for number, ids in self.results
            if number == query and min(i for _, i in ids) >= begin and max(i for _, i in ids) <= end
        }


def by_loops(arrived: Sequence[Tuple | Query]) -> set[Result]:
    """The results of a prefix of arrivals, by loops over all combinations."""
    results: set[Result] = set()
    for query in (arrival for arrival in arrived if isinstance(arrival, Query)):
        combinations: list[dict[str, Tuple]] = [{}]
        for stream in sorted(query.streams):
            rows = [arrival for arrival in arrived if isinstance(arrival, Tuple) and arrival.stream == stream]
            combinations = [{**combination, stream: row} for combination in combinations for row in rows]
        for rows_of in combinations:
            values = {stream: row.value for stream, row in rows_of.items()}
            if all(COMPARE[f.relop](values[f.stream], f.constant) for f in query.factors) and all(
                COMPARE[j.relop](values[j.left], values[j.right] + j.offset) for j in query.joins
            ):
                results.add((query.id, tuple(sorted((stream, row.id) for stream, row in rows_of.items()))))
    return results
