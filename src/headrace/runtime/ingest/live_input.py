"""The input of an epoch of new rows: the next records of every source, as many as are admitted, and punctuation by the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.ingest.admission import Admission, Pending, gathered_at
from headrace.runtime.ingest.appends import Append
from headrace.runtime.ingest.clock_punctuation import clock_punctuations
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.messages.task_messages import Split
from headrace.store.logs.manifest import Manifest
from headrace.time import FOREVER, Clock, Instant

_FEW_ROWS: Final = 100_000
"""An epoch of more reads nothing ahead of the log: if the append failed, too much would have been computed for nothing."""


@dataclass(frozen=True, slots=True)
class LiveInput:
    """The splits with their weights, the ordinals of their records by stream, and later punctuations of streams.

    The rows may wait for others until they are `due`.
    """

    splits: tuple[tuple[Split, int], ...]
    ordinals: Mapping[str, tuple[int, ...]]
    min_punctuations: Mapping[str, Instant]
    due: Instant

    @staticmethod
    def of(
        intake: Intake,
        sources: Sequence[StreamDefinition],
        manifest: Manifest,
        limits: Callable[[str, Sequence[Pending]], Admission],
        clock: Clock,
        append: Append | None,
    ) -> LiveInput:
        """What waits of these sources within the `limits` of each, and what an `append` is about to make wait."""
        splits, ordinals, due = list[tuple[Split, int]](), dict[str, tuple[int, ...]](), FOREVER
        for definition in sources:
            name = definition.name
            waiting = intake.available(definition, append, manifest.stream(name).next)
            chosen = limits(name, waiting).take(waiting, definition)
            if chosen:
                due = min(due, gathered_at(definition, waiting, chosen, clock()))
                splits += [(Split(name, one.ordinal, record=one.record), one.weight) for one in chosen]
                ordinals[name] = tuple(one.ordinal for one in chosen)
        if append is not None and sum(weight for _, weight in splits) > _FEW_ROWS:
            return LiveInput.of(intake, sources, manifest, limits, clock, None)
        by_clock = clock_punctuations(intake, sources, manifest, ordinals, clock())
        later = {name: at for name, at in by_clock.items() if at > manifest.stream(name).punctuation}
        return LiveInput(tuple(splits), ordinals, later, due)
