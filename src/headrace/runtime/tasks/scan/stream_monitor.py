"""The monitor of one stream's rows in a scan task, before operators read them: it collects the punctuation that they
promise for the stream, its groups and its sources, marks rows that are late for their group, and removes repeated rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import ALL
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, EventTimes
from headrace.runtime.messages.stream_progress import SourceProgress, SourceWatch
from headrace.runtime.progress.group_progress import bounds_by
from headrace.runtime.progress.punctuators import PatternReader, Punctuator, max_punctuation_by_group
from headrace.runtime.tasks.scan.deduplicate import Repeats
from headrace.runtime.tasks.scan.row_reader import Arrival
from headrace.time import BEGINNING, Instant


@dataclass(slots=True)
class Watch:
    """The progress of one stream in one scan task; in a backfill none is computed."""

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
        """The progress before the first row.

        `bounds` are the groups' punctuations before the epoch, `keys` those that rows may repeat.
        """
        if replay:
            return Watch(definition, {}, None, None, None, None)
        rule, deduplicate = definition.progress, definition.deduplicate
        return Watch(
            definition,
            bounds,
            Punctuator.of(definition),
            Punctuator.of_groups(definition),
            SourceWatch(rule.per, rule.behind or 0) if rule.has_sources else None,
            Repeats(deduplicate, list(keys)) if deduplicate is not None else None,
            PatternReader.of(definition),
        )

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it reads."""
        names = frozenset().union(
            *(punctuator.columns for punctuator in (self.rows, self.of_groups) if punctuator is not None)
        )
        if self.of_groups is not None or self.definition.progress.patterns:
            names |= frozenset(self.definition.progress.groups)
        if self.patterns is not None:
            names |= {self.patterns.column}
        if self.by_source is not None:
            names |= frozenset(self.by_source.columns)
        return names | frozenset(self.repeats.rule.keys if self.repeats is not None else ())

    @property
    def reads_times(self) -> bool:
        """Whether it reads event times of rows, where these are not copied to the archive."""
        promises = (self.rows, self.of_groups, self.by_source)
        return bool(self.bounds) or any(reader is not None for reader in promises)

    @property
    def reads_rows(self) -> bool:
        """Whether it reads anything of the stream's rows."""
        return bool(self.columns) or self.reads_times or self.patterns is not None or self.repeats is not None

    @property
    def sources(self) -> dict[str, SourceProgress]:
        """Progress of the sources that had rows."""
        return self.by_source.by_source if self.by_source is not None else {}

    def judge(self, names: Sequence[str], arrival: Arrival) -> Arrival:
        """The rows without promises and repeated rows; rows below a promise for their group are late."""
        if self.patterns is not None:
            arrival = self._taken(self.patterns, names, arrival)
        if not arrival.rows or (not self.bounds and self.repeats is None):
            return arrival
        columns = dict(zip(names, arrival.columns, strict=True))
        late = arrival.late
        if self.bounds:
            bounds = bounds_by(self.definition.progress)(columns, arrival.rows, self.bounds)
            broken = arrival.at < bounds
            late = broken if late is None else late | broken
        late = late if late is not None and late.any() else None
        if self.repeats is None:
            return replace(arrival, late=late)
        is_first = self.repeats.first(columns, arrival.at, late)
        self.repeated += int((~is_first).sum())
        return _only(replace(arrival, late=late), is_first)

    def _taken(self, reader: PatternReader, names: Sequence[str], arrival: Arrival) -> Arrival:
        """The rows that are no promises; the promises are added, or rejected where they are no pattern."""
        texts = arrival.columns[names.index(reader.column)]
        is_data = texts.is_null().to_numpy(zero_copy_only=False)
        if is_data.all():
            return arrival
        promises, reasons = reader.promises(texts)
        for name, at in promises.items():
            self.promised(name, at)
        rejects = [
            (int(arrival.position[row]), text, reasons[text])
            for row in np.flatnonzero(~is_data).tolist()
            if (text := texts[row].as_py()) in reasons
        ]
        return _only(replace(arrival, rejects=[*arrival.rejects, *rejects]), is_data)

    def promised(self, pattern: str, at: Instant) -> None:
        """Add a promise that no later row matching the pattern is below `at`; for all rows it is the stream's punctuation."""
        if pattern == ALL:
            self.data_punctuation = max(self.data_punctuation, at)
        else:
            self.groups[pattern] = max(at, self.groups.get(pattern, BEGINNING))

    def see(self, batch: Batch, uri: str | None) -> None:
        """Add the promises of rows; those of late rows hold too."""
        holds = self.rows.holds(batch) if self.rows is not None else None
        if self.by_source is not None:
            folder = (
                str(PurePath(uri).parent) if uri is not None and self.definition.progress.folder else None
            )
            self.by_source.see(batch.columns, batch.at, folder, holds)
        elif holds is not None and holds.any():
            self.data_punctuation = max(self.data_punctuation, int(batch.at[holds].max()))
        if self.of_groups is not None:
            promises = max_punctuation_by_group(
                batch, self.of_groups.holds(batch), self.definition.progress.groups
            )
            for name, at in promises.items():
                self.groups[name] = max(at, self.groups.get(name, BEGINNING))

    def new_keys(self, punctuation: Instant) -> tuple[pa.Table, bool] | None:
        """Keys of this task's rows that later ones may repeat, and whether all earlier keys are among them."""
        return self.repeats.fresh(punctuation) if self.repeats is not None else None


def _only(arrival: Arrival, chosen: np.ndarray) -> Arrival:
    """The rows of a mask."""
    if chosen.all():
        return arrival
    mask = pa.array(chosen)
    late = None if arrival.late is None else arrival.late[chosen]
    return replace(
        arrival,
        columns=[column.filter(mask) for column in arrival.columns],
        times=EventTimes.of(arrival.at[chosen]),
        position=arrival.position[chosen],
        late=late if late is not None and late.any() else None,
    )
