"""Input of the queries over queries in an epoch, level by level: the results that it has made or that were left unread, as
the work of further rounds; and whether a level has anything to do.

An epoch runs in rounds, one for each level of queries over queries. A round reads the results of the levels below and
advances the streams of its level; a level for which there are no results, and in which nothing is due, has no round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.home.home import Home
from headrace.runtime.ingest import derived_input
from headrace.runtime.ingest.admission import Pending
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.messages.stream_progress import Clock
from headrace.runtime.messages.task_messages import Participants, Split, StateReceipt
from headrace.runtime.plan import derived_streams
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.store.logs.committed import NEW_STREAM
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant


@dataclass(slots=True)
class Due:
    """From which punctuation of its sources on each clock has something to do, by the last receipts; unknown: at once."""

    known: dict[Clock, Instant] = field(default_factory=dict)
    is_known: bool = False

    def follow(self, receipts: Iterable[StateReceipt]) -> None:
        """Take in the receipts of a round: each task reports all clocks."""
        self.known, self.is_known = {}, True
        for receipt in receipts:
            for clock, at in receipt.due.items():
                self.known[clock] = min(at, self.known.get(clock, FOREVER))

    def has(self, level: int, manifest: Manifest) -> bool:
        """Whether something of a level is due."""
        if not self.is_known:
            return True
        return any(
            at <= min((manifest.stream(source).punctuation for source in clock.sources), default=BEGINNING)
            for clock, at in self.known.items()
            if clock.level == level
        )


@dataclass(frozen=True, slots=True)
class LevelInput:
    """The input of the levels of an epoch: after `began`, `manifest` is that of the rounds so far."""

    home: Home
    index: PlanIndex
    began: Manifest
    manifest: Manifest

    def waiting(self, level: int) -> dict[str, list[Pending]]:
        """Results of this epoch, and all that were not read before, by the streams of a level."""
        waiting = {
            stream.name: derived_input.waiting(self.home, self.manifest, stream)
            for stream in self.unsettled()
            if self.index.clock_of(stream.name).level == level
        }
        first = self.home.list_of(self.began, "results").length
        for position, entry in self.home.list_of(self.manifest, "results").iterate(
            self.home.store.read, first
        ):
            results = answered(entry, self.home.store)
            for operator in results:
                stream = self.index.results_of.get(operator)
                if stream is None or (stream.name in waiting and not self._follows(stream.name)):
                    continue
                if self.index.clock_of(stream.name).level == level and position >= self._next(stream.name):
                    pending = derived_input.pending(stream, position, entry, results[operator][0])
                    waiting.setdefault(stream.name, []).append(pending)
        return waiting

    def unsettled(self) -> Iterator[StreamDefinition]:
        """Streams of results of which not all was read: new ones, and those that an older version has left."""
        for name, record in self.manifest.streams.moving.items():
            stream = self.index.plan.streams.get(name)
            if stream is not None and stream.using == derived_streams.USING and record.punctuation < FOREVER:
                yield stream

    def is_computed(self, work: EpochWork) -> bool:
        """Whether tasks can compute what each level of an epoch reads: all results were read, and no operator lags."""
        lags = work.operators.named or work.punctuations or work.isolated
        return work.operators.followers and not lags and next(self.unsettled(), None) is None

    def work(self, level: int, taking_part: Participants, moved: set[str], due: Due) -> EpochWork | None:
        """The work of a level's round; None without any. `moved` are streams that operators with their own progress move."""
        waiting = self.waiting(level)
        streams = self.index.plan.streams
        here = [name for name in sorted(moved) if self.index.clock_of(name).level == level]
        named = any(
            self.index.clock_of(self.index.plan.operators[name].stream).level == level
            for name in taking_part.named
        )
        if not (waiting or here or named or due.has(level, self.manifest)):
            return None
        read = {*waiting, *(name for name in here if streams[name].using == derived_streams.USING)}
        min_punctuations = {name: self._punctuation(streams[name]) for name in sorted(read)}
        return replace(self._work(waiting, taking_part, min_punctuations), level=level, moved=tuple(here))

    def work_of_all(self, taking_part: Participants, backlog: Mapping[str, Instant]) -> EpochWork:
        """An epoch that reads the unread results of all levels."""
        waiting = {
            stream.name: derived_input.waiting(self.home, self.manifest, stream)
            for stream in self.unsettled()
        }
        work = self._work(waiting, taking_part, self.punctuations())
        return replace(work, punctuations=backlog, level=max(1, self.index.levels))

    def _work(
        self,
        waiting: Mapping[str, Sequence[Pending]],
        taking_part: Participants,
        min_punctuations: Mapping[str, Instant],
    ) -> EpochWork:
        splits = [
            (Split(name, pending.ordinal, record=pending.record), pending.weight)
            for name, results in waiting.items()
            for pending in results
        ]
        return EpochWork(
            "epoch" if splits else "tick",
            tuple(splits),
            taking_part,
            min_punctuations=min_punctuations,
            taken={
                name: tuple(one.ordinal for one in results) for name, results in waiting.items() if results
            },
        )

    def is_unread(self) -> bool:
        """Whether queries have not read all results, or the punctuation, of queries that they read."""
        return bool(self.punctuations()) or any(
            derived_input.waiting(self.home, self.manifest, stream) for stream in self.unsettled()
        )

    def punctuations(self) -> Mapping[str, Instant]:
        """Punctuations of unsettled streams of results once these are read, where they are later than now."""
        later = {stream.name: self._punctuation(stream) for stream in self.unsettled()}
        return {name: at for name, at in later.items() if at > self.manifest.stream(name).punctuation}

    def _punctuation(self, stream: StreamDefinition) -> Instant:
        producer = self.manifest.find_operator(derived_streams.operator_of(stream))
        return derived_streams.result_punctuation(
            stream, BEGINNING if producer is None else producer.emitted_to
        )

    def _follows(self, name: str) -> bool:
        return self.manifest.streams.get(name, NEW_STREAM).follows

    def _next(self, name: str) -> int:
        return self.manifest.streams.get(name, NEW_STREAM).next
