"""Progress of a stream and of each of its sources: how a scan task computes it from batches and two reports are merged, the
progress of the whole stream (punctuation, maximum event time, groups), and the sources that drive a stream (`Clock`).

A source is a value of the columns of PROGRESS PER; without the clause a stream is one source, named by the empty text.
The last n event times of each are stored: SLACK n ROWS promises the maximum of all but these (Li 2008, section 8.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, group
from headrace.runtime.messages.key_text import named
from headrace.runtime.messages.message import Message
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class SourceProgress(Message):
    """Rows of one source in order of arrival.

    `max_event_time` is of all rows, `settled_event_time` of all but the last n, whose times are in `reorder_buffer`;
    `promised` is the punctuation that the rows carried.
    """

    max_event_time: Instant = BEGINNING
    settled_event_time: Instant = BEGINNING
    reorder_buffer: tuple[Instant, ...] = ()
    promised: Instant = BEGINNING

    def then(self, later: SourceProgress, slack_rows: int) -> SourceProgress:
        """The progress after these rows and then those of `later`."""
        joined = self.reorder_buffer + later.reorder_buffer
        cut = max(0, len(joined) - slack_rows)
        return SourceProgress(
            max(self.max_event_time, later.max_event_time),
            max((self.settled_event_time, later.settled_event_time, *joined[:cut])),
            joined[cut:],
            max(self.promised, later.promised),
        )


def source_progress_of(at: Ints, slack_rows: int, promised: Instant) -> SourceProgress:
    """The progress of a batch's rows (at least one) of one source."""
    cut = max(0, len(at) - slack_rows)
    passed = int(at[:cut].max()) if cut else BEGINNING
    return SourceProgress(int(at.max()), passed, tuple(at[cut:].tolist()), promised)


@dataclass(slots=True)
class SourceWatch:
    """Progress of one stream's sources in one scan task."""

    columns: tuple[str, ...]
    slack_rows: int
    by_source: dict[str, SourceProgress] = field(default_factory=dict)

    def see(
        self, columns: Mapping[str, pa.Array], at: Ints, folder: str | None, holds: np.ndarray | None
    ) -> None:
        """Add a batch; `holds` marks rows that promise, `folder` names the source where no columns do."""
        for source, rows in self._parts(columns, at, folder):
            promised = BEGINNING
            if holds is not None and holds[rows].any():
                promised = int(at[rows][holds[rows]].max())
            progress = source_progress_of(at[rows], self.slack_rows, promised)
            previous = self.by_source.get(source)
            self.by_source[source] = (
                progress if previous is None else previous.then(progress, self.slack_rows)
            )

    def _parts(
        self, columns: Mapping[str, pa.Array], at: Ints, folder: str | None
    ) -> Iterator[tuple[str, slice | Ints]]:
        if not self.columns:
            yield folder or "", slice(None)
            return
        groups = group([named([columns[name] for name in self.columns])], len(at))
        order = np.argsort(groups.codes, kind="stable")
        edges = np.searchsorted(groups.codes[order], np.arange(groups.count + 1))
        for code, source in enumerate(groups.keys[0].to_pylist()):
            rows = order[edges[code] : edges[code + 1]]
            if len(rows):
                yield source, rows


@dataclass(frozen=True, slots=True)
class StreamProgress(Message):
    """A stream's progress before an epoch, and the least punctuation that the driver sets after it (idle, sealed)."""

    punctuation: Instant = BEGINNING
    max_event_time: Instant = BEGINNING
    min_punctuation: Instant = BEGINNING
    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    groups: Mapping[str, Instant] = field(default_factory=dict)
    """Punctuation of groups that is beyond the stream's, by name (PUNCTUATED BY … FOR)."""


class Clock(NamedTuple):
    """What drives a stream: its level, and the sources whose punctuation it follows, by name.

    A source has level 0, the results of an operator one more than the stream which that reads, a union the highest level of
    its inputs.
    """

    level: int
    sources: tuple[str, ...]
