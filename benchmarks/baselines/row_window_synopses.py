"""SWJ: a join of windows of the last rows whose synopses store no row that fails its stream's filter; such rows leave placeholders, so that
the window of the others stays as long as it is. It knows nothing of many-one joins or of how the streams are clustered.

Babu 2005, chapter 6, of which it is the baseline. Rows are given in order of arrival; keys are joined with those of each other stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.baselines.windows import Ints


@dataclass(slots=True)
class RowsSynopsis:
    """The last `window` rows of a stream: the keys of those that pass, and for each row whether it passes."""

    window: int
    keys: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    passes: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))

    @property
    def stored(self) -> int:
        """Rows that are stored."""
        return len(self.keys)

    @property
    def placeholders(self) -> int:
        """Rows of the window that are not."""
        return len(self.passes) - len(self.keys)

    def add(self, keys: Ints, passes: np.ndarray) -> None:
        """Add rows; the oldest leave, stored or not."""
        left = max(0, len(self.passes) + len(passes) - self.window)
        every = np.concatenate([self.passes, passes])
        stored = np.concatenate([self.keys, keys[passes]])
        self.keys, self.passes = stored[int(every[:left].sum()) :], every[left:]

    def matches(self, keys: Ints) -> Ints:
        """For each key how many stored rows have it."""
        ordered = np.sort(self.keys)
        counts: Ints = np.searchsorted(ordered, keys, "right") - np.searchsorted(ordered, keys, "left")
        return counts


@dataclass(slots=True)
class Swj:
    """A star: stream 0 is joined with each other one by a key of its own."""

    windows: tuple[int, ...]
    synopses: list[RowsSynopsis] = field(init=False)
    roots: list[Ints] = field(init=False)
    """Of stream 0: the keys for each other stream, of its window's rows."""

    def __post_init__(self) -> None:
        self.synopses = [RowsSynopsis(window) for window in self.windows]
        self.roots = [np.zeros(0, np.int64) for _ in self.windows[1:]]

    @property
    def stored(self) -> tuple[int, int]:
        """Rows and placeholders of all synopses."""
        return sum(synopsis.stored for synopsis in self.synopses), sum(
            synopsis.placeholders for synopsis in self.synopses
        )

    def arrive(self, stream: int, keys: list[Ints], passes: np.ndarray) -> int:
        """Take rows of a stream, one after the other in its window; the number of new results, as an MJoin finds them.

        `keys` of stream 0 has a key for each other stream, in their order; of others one.
        """
        self.synopses[stream].add(keys[0], passes)
        if stream == 0:
            every = [
                np.concatenate([known, new[passes]]) for known, new in zip(self.roots, keys, strict=True)
            ]
            self.roots = [known[len(known) - self.synopses[0].stored :] for known in every]
            met = np.ones(int(passes.sum()), np.int64)
            for other, new in zip(self.synopses[1:], keys, strict=True):
                met *= other.matches(new[passes])
            return int(met.sum())
        results = 0
        for key in keys[0][passes].tolist():
            roots = self.roots[stream - 1] == key
            met = np.ones(int(roots.sum()), np.int64)
            for other_stream, (other, known) in enumerate(zip(self.synopses[1:], self.roots, strict=True), 1):
                met *= 1 if other_stream == stream else other.matches(known[roots])
            results += int(met.sum())
        return results
