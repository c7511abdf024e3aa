"""The frontier of an epoch: the punctuation and maximum event time of every stream, and the instant up to which every
operator has emitted, computed from those of the sources and of operators that lag.

The progress of an internal stream follows: the punctuation of a union is the least of its inputs', that of results what their
operator has emitted up to, and a live operator emits up to that of its stream. It is computed for the streams that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from headrace.dataclass import dataclass
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.progress import union_progress
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Frontier:
    """Progress that is known, of `streams` and (the instant up to which they have emitted) of `operators`; all else follows."""

    index: PlanIndex
    streams: Mapping[str, StreamProgress]
    operators: Mapping[str, Instant]
    _computed: dict[str, Instant] = field(default_factory=dict)
    _by_driver: dict[int, Instant] = field(default_factory=dict)
    """By `PlanIndex.driver_of`: the punctuation of thousands of streams that follow the same sources."""
    _nows: dict[int, Instant] = field(default_factory=dict)
    """The same of their maximum event time."""
    follows: bool = field(init=False)
    """Whether the progress of all results and unions is only that of the sources."""

    def __post_init__(self) -> None:
        follows = not self.operators and not any(map(self.index.is_made, self.streams))
        object.__setattr__(self, "follows", follows)

    def punctuation(self, stream: str) -> Instant:
        """The punctuation of a stream."""
        known = self.streams.get(stream)
        if known is not None:
            return known.punctuation
        computed = self._computed.get(stream)
        if computed is None:
            computed = self._computed[stream] = self._of_driver(stream, self._by_driver, self._followed)
        return computed

    def _of_driver(
        self, stream: str, known: dict[int, Instant], compute: Callable[[str], Instant]
    ) -> Instant:
        """What streams with one driver have in common, if only the progress of sources is given."""
        if not self.follows or not self.index.is_made(stream):
            return compute(stream)
        driver = self.index.driver_of(stream)
        if driver not in known:
            known[driver] = compute(stream)
        return known[driver]

    def _followed(self, name: str) -> Instant:
        stream = self.index.plan.streams.get(name)
        if stream is None:
            return BEGINNING
        if stream.using == union_streams.USING:
            return union_streams.bound_of(stream).value(self.punctuation)
        if stream.using != derived_streams.USING:
            return BEGINNING
        return derived_streams.result_punctuation(
            stream, self.emitted_to(derived_streams.operator_of(stream))
        )

    def emitted_to(self, operator: str) -> Instant:
        """The instant up to which an operator has emitted."""
        known = self.operators.get(operator)
        if known is not None:
            return known
        planned = self.index.plan.operators.get(operator)
        return BEGINNING if planned is None else self.punctuation(planned.stream)

    def now(self, stream: str) -> Instant:
        """The maximum event time of a stream; of a union, and of a relation's changes, that of the streams they are made of."""
        known = self.streams.get(stream)
        if known is not None:
            return known.max_event_time
        return self._of_driver(stream, self._nows, self._now_of_made)

    def _now_of_made(self, stream: str) -> Instant:
        definition = self.index.plan.streams.get(stream)
        made_of = () if definition is None else union_progress.made_of(definition)
        return max(map(self.now, made_of), default=BEGINNING)

    def progress(self, stream: str) -> StreamProgress:
        """The progress of a stream; of one that follows others, its punctuation and NOW."""
        known = self.streams.get(stream)
        return StreamProgress(self.punctuation(stream), self.now(stream)) if known is None else known
