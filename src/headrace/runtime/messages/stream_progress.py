"""How far each source of a stream has come, as a scan task saw it: what one task tells, and how two tellings join.

A source is what PROGRESS PER tells apart; without it a stream is one source, named by the empty text. The last n event
times of each are kept, since SLACK n ROWS promises by the greatest of all but these (Li 2008, section 8.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.operators.base.group_codes import Ints, group
from headrace.runtime.messages.key_text import named
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class SourceMark:
    """Rows of one source in order of arrival: the greatest event time, that of all but the last n, these n, what was promised."""

    greatest: Instant = BEGINNING
    passed: Instant = BEGINNING
    tail: tuple[Instant, ...] = ()
    promised: Instant = BEGINNING

    def then(self, later: SourceMark, behind: int) -> SourceMark:
        """These rows, then those."""
        joined = self.tail + later.tail
        cut = max(0, len(joined) - behind)
        return SourceMark(
            max(self.greatest, later.greatest),
            max((self.passed, later.passed, *joined[:cut])),
            joined[cut:],
            max(self.promised, later.promised),
        )


def mark_of(at: Ints, behind: int, promised: Instant) -> SourceMark:
    """The mark of a batch's rows (at least one) of one source."""
    cut = max(0, len(at) - behind)
    passed = int(at[:cut].max()) if cut else BEGINNING
    return SourceMark(int(at.max()), passed, tuple(at[cut:].tolist()), promised)


@dataclass(slots=True)
class SourceWatch:
    """Marks of one stream's sources in one scan task."""

    columns: tuple[str, ...]
    behind: int
    marks: dict[str, SourceMark] = field(default_factory=dict)

    def see(
        self, columns: Mapping[str, pa.Array], at: Ints, folder: str | None, holds: np.ndarray | None
    ) -> None:
        """Take in a batch; `holds` marks rows that promise, `folder` names the source where columns do not."""
        for source, rows in self._parts(columns, at, folder):
            promised = BEGINNING
            if holds is not None and holds[rows].any():
                promised = int(at[rows][holds[rows]].max())
            mark = mark_of(at[rows], self.behind, promised)
            known = self.marks.get(source)
            self.marks[source] = mark if known is None else known.then(mark, self.behind)

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
class StreamProgress:
    """A stream's progress before an epoch, and the least punctuation the driver wants after it (idle, sealed)."""

    punctuation: Instant = BEGINNING
    greatest: Instant = BEGINNING
    floor: Instant = BEGINNING
    sources: Mapping[str, SourceMark] = field(default_factory=dict)
    groups: Mapping[str, Instant] = field(default_factory=dict)
    """Groups of which punctuation has come further than the stream's, by name (PUNCTUATED BY … FOR)."""
