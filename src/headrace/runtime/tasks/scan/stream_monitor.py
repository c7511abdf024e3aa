"""What a scan task sees of a stream's progress: promises of its rows and groups, its sources, repetitions of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import ALL
from headrace.operators.base.batch import Batch
from headrace.runtime.messages.stream_progress import SourceProgress, SourceWatch
from headrace.runtime.progress.group_progress import bounds_by
from headrace.runtime.progress.punctuators import PatternReader, Punctuator, max_punctuation_by_group
from headrace.runtime.tasks.scan.deduplicate import Repeats
from headrace.runtime.tasks.scan.row_reader import Arrival
from headrace.time import BEGINNING, Instant


@dataclass(slots=True)
class Watch:
    """One stream's share of a scan task, as far as progress goes. When the past is read again it watches nothing."""

    definition: StreamDefinition
    bounds: Mapping[str, Instant]
    rows: Punctuator | None
    of_groups: Punctuator | None
    by_source: SourceWatch | None
    repeats: Repeats | None
    patterns: PatternReader | None = None
    data_punctuation: Instant = BEGINNING
    groups: dict[str, Instant] = field(default_factory=dict)
    repeated: int = 0

    @staticmethod
    def of(
        definition: StreamDefinition, bounds: Mapping[str, Instant], keys: Sequence[pa.Table], replay: bool
    ) -> Watch:
        """`bounds` are the groups' punctuations before the epoch, `keys` what rows may repeat."""
        if replay:
            return Watch(definition, {}, None, None, None, None)
        told, once = definition.progress, definition.deduplicate
        return Watch(
            definition,
            bounds,
            Punctuator.of(definition),
            Punctuator.of_groups(definition),
            SourceWatch(told.per, told.behind or 0) if told.has_sources else None,
            Repeats(once, list(keys)) if once is not None else None,
            PatternReader.of(definition),
        )

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it reads."""
        found = frozenset().union(*(each.columns for each in (self.rows, self.of_groups) if each is not None))
        if self.of_groups is not None or self.definition.progress.patterns:
            found |= frozenset(self.definition.progress.groups)
        if self.patterns is not None:
            found |= {self.patterns.column}
        if self.by_source is not None:
            found |= frozenset(self.by_source.columns)
        return found | frozenset(self.repeats.rule.keys if self.repeats is not None else ())

    @property
    def sources(self) -> dict[str, SourceProgress]:
        """Marks of the sources that had rows."""
        return self.by_source.by_source if self.by_source is not None else {}

    def judge(self, names: Sequence[str], arrival: Arrival) -> Arrival:
        """The rows without promises and repetitions, and those late that break a promise made for their group."""
        if self.patterns is not None:
            arrival = self._taken(self.patterns, names, arrival)
        if not len(arrival.at) or (not self.bounds and self.repeats is None):
            return arrival
        columns = dict(zip(names, arrival.columns, strict=True))
        late = arrival.late
        if self.bounds:
            bounds = bounds_by(self.definition.progress)(columns, len(arrival.at), self.bounds)
            broken = arrival.at < bounds
            late = broken if late is None else late | broken
        late = late if late is not None and late.any() else None
        if self.repeats is None:
            return replace(arrival, late=late)
        keep = self.repeats.first(columns, arrival.at, late)
        self.repeated += int((~keep).sum())
        return _only(replace(arrival, late=late), keep)

    def _taken(self, reader: PatternReader, names: Sequence[str], arrival: Arrival) -> Arrival:
        """The rows that are no promises; the others are taken in, or rejected where they are no pattern."""
        texts = arrival.columns[names.index(reader.column)]
        data = texts.is_null().to_numpy(zero_copy_only=False)
        if data.all():
            return arrival
        told, wrong = reader.promises(texts)
        for name, at in told.items():
            self.promised(name, at)
        refused = [
            (int(arrival.position[row]), text, wrong[text])
            for row in np.flatnonzero(~data).tolist()
            if (text := texts[row].as_py()) in wrong
        ]
        return _only(replace(arrival, rejects=[*arrival.rejects, *refused]), data)

    def promised(self, pattern: str, at: Instant) -> None:
        """No row that matches the pattern of that name is below `at` any more; the pattern of all rows promises for the stream."""
        if pattern == ALL:
            self.data_punctuation = max(self.data_punctuation, at)
        else:
            self.groups[pattern] = max(at, self.groups.get(pattern, BEGINNING))

    def see(self, batch: Batch, uri: str | None) -> None:
        """Take in what rows promise, late ones too: they are as true as others."""
        holds = self.rows.holds(batch) if self.rows is not None else None
        if self.by_source is not None:
            folder = (
                str(PurePath(uri).parent) if uri is not None and self.definition.progress.folder else None
            )
            self.by_source.see(batch.columns, batch.at, folder, holds)
        elif holds is not None and holds.any():
            self.data_punctuation = max(self.data_punctuation, int(batch.at[holds].max()))
        if self.of_groups is not None:
            told = max_punctuation_by_group(
                batch, self.of_groups.holds(batch), self.definition.progress.groups
            )
            for name, at in told.items():
                self.groups[name] = max(at, self.groups.get(name, BEGINNING))

    def new_keys(self, punctuation: Instant) -> tuple[pa.Table, bool] | None:
        """Keys of this task's rows that later ones may repeat, and whether they hold all earlier ones too."""
        return self.repeats.fresh(punctuation) if self.repeats is not None else None


def _only(arrival: Arrival, keep: np.ndarray) -> Arrival:
    """Some of the rows."""
    if keep.all():
        return arrival
    mask = pa.array(keep)
    kept = None if arrival.late is None else arrival.late[keep]
    return replace(
        arrival,
        columns=[column.filter(mask) for column in arrival.columns],
        at=arrival.at[keep],
        position=arrival.position[keep],
        late=kept if kept is not None and kept.any() else None,
    )
