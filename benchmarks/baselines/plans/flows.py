"""What moves along an edge of a plan, a step at a time, and the two promises that an edge can break.

Source: Li, Window Queries over Data Streams (2008), sections 3.6 and 8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.baselines.windows import Ints

NEVER = np.iinfo(np.int64).min // 4


def _nothing() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Event times, keys, and a value each: of the same length, in order of arrival."""

    at: Ints = field(default_factory=_nothing)
    key: Ints = field(default_factory=_nothing)
    value: Ints = field(default_factory=_nothing)

    def __len__(self) -> int:
        return len(self.at)

    def where(self, chosen: np.ndarray) -> Rows:
        """The rows of a mask or of positions."""
        return Rows(self.at[chosen], self.key[chosen], self.value[chosen])

    def sorted(self) -> Rows:
        """By event time; equal ones in order of arrival."""
        return self.where(np.argsort(self.at, kind="stable"))

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of all parts, one part after the other."""
        return cls(
            np.concatenate([_nothing(), *(part.at for part in parts)]),
            np.concatenate([_nothing(), *(part.key for part in parts)]),
            np.concatenate([_nothing(), *(part.value for part in parts)]),
        )


@dataclass(frozen=True, slots=True)
class Flow:
    """One step of one edge: rows, and then at most one punctuation, below which no row follows."""

    rows: Rows = Rows()
    bound: int | None = None


def is_grammatical(edge: Sequence[Flow]) -> bool:
    """Whether no row comes below a punctuation before it, and no punctuation repeats or goes back."""
    bound = NEVER
    for flow in edge:
        if len(flow.rows) and int(flow.rows.at.min()) < bound:
            return False
        if flow.bound is not None:
            if flow.bound <= bound:
                return False
            bound = flow.bound
    return True


def is_in_order(edge: Sequence[Flow]) -> bool:
    """Whether event times never fall."""
    at = Rows.of([flow.rows for flow in edge]).at
    return bool((np.diff(at) >= 0).all())
