"""Typed entries of a manifest: what an epoch has committed of each stream and of each operator.

A new fact of a stream or of an operator is one field here; what is stored of a field at its default is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from operator import attrgetter
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.time import BEGINNING, FOREVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class KeysFile:
    """A file of keys that later rows may repeat; `whole`: it replaces all earlier ones. `greatest` is an event time."""

    name: str
    rows: int
    greatest: Instant
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """A punctuation that follows from that of streams: the least of them, each less a length of time (`terms`), rounded down
    to a multiple of `unit`.

    With `results` the stream has rows of a join of other streams, which `terms` may name. If that join has not read all
    that they have, rows that it has not made yet are bounded by its results: by their punctuation less the longest of these lengths.
    """

    terms: tuple[tuple[str, Duration], ...]
    unit: Duration = 1
    results: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The streams from whose punctuation it follows."""
        return tuple(
            dict.fromkeys((*((self.results,) if self.results else ()), *(name for name, _ in self.terms)))
        )

    @property
    def lag(self) -> Duration:
        """The longest length."""
        return max(lag for _, lag in self.terms)

    @property
    def of_sources(self) -> bool:
        """Whether it follows from more than the stream's own input: it may be lower later, when a join lags."""
        return bool(self.results) and any(name != self.results for name, _ in self.terms)

    @property
    def of_inputs(self) -> Bound:
        """A bound that is lower or equal, and follows from the stream's inputs alone."""
        return replace(self, terms=((self.results, self.lag),)) if self.of_sources else self

    def value(self, punctuation: Callable[[str], Instant]) -> Instant:
        """The punctuation, by that of streams."""
        bound = self
        if self.of_sources and punctuation(self.results) < min(punctuation(name) for name, _ in self.terms):
            bound = self.of_inputs
        least = min(_less(punctuation(name), lag) for name, lag in bound.terms)
        return least if least in (BEGINNING, FOREVER) else least // self.unit * self.unit

    def as_json(self) -> list[Any]:
        """JSON values."""
        return [[list(term) for term in self.terms], self.unit, self.results]

    @staticmethod
    def from_json(value: Sequence[Any]) -> Bound:
        """The inverse."""
        terms, unit, results = value
        return Bound(tuple((name, lag) for name, lag in terms), unit, results)


def _less(at: Instant, lag: Duration) -> Instant:
    return at if at in (BEGINNING, FOREVER) else at - lag


@dataclass(frozen=True, slots=True)
class CommittedSource:
    """Progress of one source of a stream (PROGRESS PER), and when it last had rows, by the clock.

    `greatest`: the maximum event time. `passed`: that of all rows but the last n, whose event times `tail` holds
    (SLACK n ROWS). `promised`: the punctuation its rows carried.
    """

    greatest: Instant
    passed: Instant
    tail: tuple[Instant, ...]
    promised: Instant
    arrived: Instant

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> CommittedSource:
        """The inverse of `asdict`."""
        return CommittedSource(**{**value, "tail": tuple(value["tail"])})


@dataclass(frozen=True, slots=True)
class CommittedStream:
    """What is committed of a stream. Counts are of rows since the stream was created.

    `next`: the ingest ordinal from which on records are unread. `born`: how many ingest records there were when the
    stream was created. `slack_needed`: how far the latest row was below the punctuation, in microseconds. `arrived`: when
    the stream last had rows, by the clock. `groups`: punctuations of single groups, beyond the stream's. `retained_since`: the
    event time from which on the archive has every row. `until`: of a union of streams, the position of a reader that has
    read the whole archive. `taken`: the epoch that last took rows of it. `created`: the position of its creation in the query
    log; 0 if an earlier version committed it.

    A stream whose progress follows that of others names them, and its own figures are lower bounds (see `Manifest.stream`):
    `inputs` are those of a union, `producer` the operator whose results it is, with a punctuation `behind` microseconds lower;
    `now_of` are the streams whose maximum event time is its own. `bound`: what its punctuation follows from, if not from its inputs
    alone.
    """

    next: int = 0
    rows: int = 0
    late: int = 0
    rejected: int = 0
    keep: float = 1.0
    shed: int = 0
    slack_needed: Duration = 0
    punctuation: Instant = BEGINNING
    greatest: Instant = BEGINNING
    born: int = 0
    arrived: Instant | None = None
    sources: Mapping[str, CommittedSource] = field(default_factory=dict)
    groups: Mapping[str, Instant] = field(default_factory=dict)
    repeated: int = 0
    keys: tuple[KeysFile, ...] = ()
    retained_since: Instant = BEGINNING
    until: int = 0
    created: int = 0
    taken: int = -1
    inputs: tuple[str, ...] = ()
    producer: str = ""
    behind: Duration = 0
    now_of: tuple[str, ...] = ()
    bound: Bound | None = None

    @property
    def follows(self) -> bool:
        """Whether its progress is that of others."""
        return bool(self.inputs or self.producer)

    def as_json(self) -> dict[str, Any]:
        """JSON values, without the optional facts that are not known."""
        facts = zip(_UNKNOWN.items(), _FACTS(self), strict=True)
        value = {name: fact for (name, unknown), fact in facts if fact != unknown or name in _ALWAYS}
        if self.sources:
            value["sources"] = {name: asdict(source) for name, source in self.sources.items()}
        if self.keys:
            value["keys"] = [asdict(file) for file in self.keys]
        if self.bound is not None:
            value["bound"] = self.bound.as_json()
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> CommittedStream:
        """The inverse."""
        stream = dict(value)
        stream["sources"] = {
            name: CommittedSource.from_json(source) for name, source in value.get("sources", {}).items()
        }
        stream["keys"] = tuple(KeysFile(**file) for file in value.get("keys", ()))
        for name in ("inputs", "now_of"):
            stream[name] = tuple(value.get(name, ()))
        if "bound" in stream:
            stream["bound"] = Bound.from_json(stream["bound"])
        return CommittedStream(**stream)


NEW_STREAM: Final = CommittedStream()
"""A stream of which nothing was read."""
_ALWAYS: Final = frozenset(fact.name for fact in fields(CommittedStream)[:9])
_UNKNOWN: Final[Mapping[str, Any]] = asdict(NEW_STREAM)
_FACTS: Final = attrgetter(*_UNKNOWN)


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """An operator's position between archive and live rows.

    `emitted_to`: the punctuation up to which it has emitted. `replayed`: how many entries of its stream's archive it has
    read; it is live when that is all of them. `slices`: how many slices it has read of the next entry. `since`: the first entry
    it has seen. `group_punctuations`: groups for which it has emitted beyond `emitted_to`, by name. `complete_since`: it misses no row with this event time or a later one.
    `backfilled_from`: what its window was backfilled from, where it was changed at run time. `follows`: the stream whose
    progress is its own, while it is live and has emitted all; then `emitted_to` and `replayed` are not stored.
    """

    emitted_to: Instant = BEGINNING
    replayed: int = 0
    since: int = 0
    group_punctuations: Mapping[str, Instant] = field(default_factory=dict)
    complete_since: Instant = BEGINNING
    backfilled_from: str = ""
    follows: str = ""
    slices: int = 0

    def as_json(self) -> dict[str, Any]:
        """JSON values, without the optional facts that are not known."""
        value: dict[str, Any] = {"since": self.since}
        if self.follows:
            value["follows"] = self.follows
        else:
            value |= {"closed": self.emitted_to, "replayed": self.replayed}
        if self.group_punctuations:
            value["ahead"] = dict(self.group_punctuations)
        if self.complete_since != BEGINNING:
            value["complete_since"] = self.complete_since
        if self.backfilled_from:
            value["filled"] = self.backfilled_from
        if self.slices:
            value["slices"] = self.slices
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> OperatorProgress:
        """The inverse."""
        return OperatorProgress(
            value.get("closed", BEGINNING),
            value.get("replayed", 0),
            value["since"],
            value.get("ahead", {}),
            value.get("complete_since", BEGINNING),
            value.get("filled", ""),
            value.get("follows", ""),
            value.get("slices", 0),
        )


def operators_to_json(operators: Mapping[str, OperatorProgress]) -> dict[str, Any]:
    """JSON values by operator. Thousands share one record, which is written out once."""
    written: dict[int, dict[str, Any]] = {}
    for progress in operators.values():
        if id(progress) not in written:
            written[id(progress)] = progress.as_json()
    return {name: written[id(progress)] for name, progress in operators.items()}


def operators_from_json(values: Mapping[str, Mapping[str, Any]]) -> dict[str, OperatorProgress]:
    """The inverse: operators at the same position share one record."""
    shared: dict[Iterable[Any], OperatorProgress] = {}
    operators = {}
    for name, value in values.items():
        if "ahead" in value:
            operators[name] = OperatorProgress.from_json(value)
            continue
        key = tuple(value.items())
        operators[name] = (
            shared[key] if key in shared else shared.setdefault(key, OperatorProgress.from_json(value))
        )
    return operators
