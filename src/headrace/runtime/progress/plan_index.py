"""Index of an epoch plan: its operators by state and by stream, and what drives each stream, computed once for a plan.

A plan of thousands of operators stays the same from epoch to epoch. So an epoch reads here what it needs, and its cost
follows the streams that had rows.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

from headrace.catalog import system_streams
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator
from headrace.operators.families.family import state_name
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.stream_progress import Clock
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.derived_streams import Clocks
from headrace.runtime.plan.union_streams import NOW_OF, UnionInput, bound_of, inputs_of
from headrace.runtime.progress.union_progress import made_of
from headrace.store.logs.committed import CommittedStream
from headrace.time import Duration

_PLANS: Final = 8
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class PlanIndex:
    """The operators and streams of a plan by what they share. Every part is computed when it is first read."""

    plan: EpochPlan

    @cached_property
    def by_state(self) -> Mapping[str, Sequence[Operator]]:
        """State → the operators that are stored there."""
        return _grouped((state_name(operator), operator) for operator in self.plan.operators.values())

    @cached_property
    def _streams(self) -> dict[str, str | None]:
        return {}

    def stream_of(self, state: str) -> str | None:
        """The stream that all operators of a state read; None if they read several."""
        if state not in self._streams:
            streams = {operator.stream for operator in self.by_state[state]}
            self._streams[state] = streams.pop() if len(streams) == 1 else None
        return self._streams[state]

    @cached_property
    def expiring(self) -> Mapping[str, tuple[str, ...]]:
        """The states of which rows expire between two visits, with the sources by which they do."""
        return {
            name: self.clock_of(owners[0].stream).sources
            for name, owners in self.by_state.items()
            if owners[0].expires_unvisited
        }

    @cached_property
    def expiring_by(self) -> frozenset[str]:
        """The sources by which rows expire between two visits."""
        return frozenset[str]().union(*self.expiring.values())

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {state: number for number, state in enumerate(self.by_state)}

    def in_order(self, states: Collection[str]) -> list[str]:
        """Those of the states that the plan has, in its order."""
        return sorted((state for state in states if state in self._order), key=self._order.__getitem__)

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Operator]]:
        """Stream → the operators that read it."""
        return _grouped((operator.stream, operator) for operator in self.plan.operators.values())

    @cached_property
    def sources(self) -> tuple[StreamDefinition, ...]:
        """The streams that are input: neither results of queries nor unions."""
        internal = (derived_streams.USING, union_streams.USING)
        return tuple(stream for stream in self.plan.streams.values() if stream.using not in internal)

    @cached_property
    def system_streams(self) -> frozenset[str]:
        """The built-in streams."""
        return frozenset(stream.name for stream in self.sources if stream.using == system_streams.USING)

    @cached_property
    def system_streams_read(self) -> frozenset[str]:
        """Those that operators read."""
        return frozenset(
            name for name in self.system_streams if name in self.readers or name in self.unions_with
        )

    def follows_system(self, stream: str) -> bool:
        """Whether a stream, or what drives it, is a built-in stream."""
        return not self.system_streams.isdisjoint(self.clock_of(stream).sources)

    @cached_property
    def results_of(self) -> Mapping[str, StreamDefinition]:
        """Operator → the stream of its results, if queries read it."""
        return {
            derived_streams.operator_of(stream): stream
            for stream in self.plan.streams.values()
            if stream.using == derived_streams.USING
        }

    @cached_property
    def results_by_level(self) -> Mapping[int, Mapping[str, StreamDefinition]]:
        """Level → operator → the stream of its results, of the streams of that level."""
        levels = _grouped(
            (self.clock_of(stream.name).level, (id_, stream)) for id_, stream in self.results_of.items()
        )
        return {level: dict(streams) for level, streams in levels.items()}

    @cached_property
    def joins(self) -> Mapping[str, str]:
        """Graph of joins → the shared join of that graph; empty if there are only joins of single queries."""
        signatures: dict[str, str] = {}
        for operator in self.plan.operators.values():
            if operator.join_signature:
                shared = operator.id if derived_streams.is_shared_join(operator.id) else ""
                signatures[operator.join_signature] = shared or signatures.get(operator.join_signature, "")
        return signatures

    @cached_property
    def join_aggregates(self) -> Mapping[str, Sequence[str]]:
        """Graph of joins → the operators that aggregate over a join of that graph without making its pairs."""
        operators = self.plan.operators.values()
        return _grouped(
            (operator.join_signature, operator.id)
            for operator in operators
            if operator.join_signature and not operator.makes_pairs
        )

    @cached_property
    def owned_by(self) -> Mapping[str, Sequence[str]]:
        """The operator of a registered query → the operators of that query."""
        return _grouped((derived_streams.owner_of(id_), id_) for id_ in self.plan.operators)

    @cached_property
    def unions_with(self) -> Mapping[str, Sequence[tuple[str, int, UnionInput]]]:
        """Stream → (union, number, input) for each time it is an input of a union."""
        return _grouped(
            (union_input.stream, (stream.name, number, union_input))
            for stream in self.plan.streams.values()
            if stream.using == union_streams.USING
            for number, union_input in enumerate(inputs_of(stream))
        )

    @cached_property
    def _clocks(self) -> Clocks:
        return derived_streams.clocks_of(self.plan.streams, self.plan.planned)

    def clock_of(self, stream: str) -> Clock:
        """What drives a stream."""
        return self._clocks.of(stream)[0]

    def behind(self, stream: str) -> Duration:
        """How far a stream's punctuation is below that of its sources, at least."""
        return self._clocks.of(stream)[1]

    def is_made(self, stream: str) -> bool:
        """Whether a stream is the results of a query, or a union."""
        derived = (derived_streams.USING, union_streams.USING)
        return stream in self.plan.streams and self.plan.streams[stream].using in derived

    @cached_property
    def _drivers(self) -> tuple[dict[str, int], dict[object, int]]:
        return {}, {}

    def driver_of(self, stream: str) -> int:
        """A number that is equal for streams that follow the same sources in the same way, through whatever operators.

        Their progress is equal, unless operators on the way have progress of their own.
        """
        known, numbers = self._drivers
        number = known.get(stream)
        if number is None:
            kind = self._way_to(self.plan.streams[stream])
            number = known[stream] = numbers.setdefault(kind, len(numbers))
        return number

    def _way_to(self, stream: StreamDefinition) -> object:
        now = tuple(self.driver_of(name) for name in made_of(stream))
        if stream.using == union_streams.USING:
            bound = bound_of(stream)
            terms = tuple((self.driver_of(name), lag) for name, lag in bound.terms)
            return "union", terms, bound.unit, tuple(self.driver_of(name) for name in bound.names), now
        if stream.using != derived_streams.USING:
            return stream.name
        producer = self.plan.operators.get(derived_streams.operator_of(stream))
        if producer is None:
            return stream.name
        return self.driver_of(producer.stream), derived_streams.behind(stream), now

    @cached_property
    def levels(self) -> int:
        """The highest level of a stream that operators read."""
        return max((self.clock_of(stream).level for stream in self.readers), default=0)

    def downstream(self, operators: Iterable[str]) -> set[str]:
        """The streams, and unions with them, whose progress depends on that of these operators' results."""
        names: set[str] = set()
        waiting = [stream.name for id_ in operators if (stream := self.results_of.get(id_)) is not None]
        while waiting:
            name = waiting.pop()
            if name not in names:
                names.add(name)
                waiting += [union for union, _, _ in self.unions_with.get(name, ())]
                readers = (self.results_of.get(reader.id) for reader in self.readers.get(name, ()))
                waiting += [stream.name for stream in readers if stream is not None]
        return names

    def following(self, record: CommittedStream, stream: StreamDefinition) -> CommittedStream:
        """The record of an internal stream whose progress is that of its inputs, or of its producer."""
        now_of = (stream.options[NOW_OF],) if NOW_OF in stream.options else ()
        if stream.using != union_streams.USING:
            behind, producer = derived_streams.behind(stream), derived_streams.operator_of(stream)
            return replace(record, producer=producer, behind=behind, now_of=now_of)
        inputs = tuple(union_input.stream for union_input in inputs_of(stream))
        bound = bound_of(stream)
        return replace(record, inputs=inputs, now_of=now_of or inputs, bound=bound if bound.results else None)


def _grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, Sequence[_Value]]:
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}


_indexes: Final[Recent[int, PlanIndex]] = Recent(_PLANS)
"""By the identity of the plan, which its index keeps alive."""


def index_of(plan: EpochPlan) -> PlanIndex:
    """The index of a plan."""
    index = _indexes.get(id(plan))
    if index is None:
        index = PlanIndex(plan)
        _indexes.put(id(plan), index)
    return index
