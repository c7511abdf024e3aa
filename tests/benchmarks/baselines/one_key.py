"""A synopsis of many keys that is given rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import FocusedHistograms
from benchmarks.baselines.rows.rows_by_key import Doubles
from headrace.synopses.arrays import Ints


class Follows(Protocol):
    """Its answer after each row."""

    def follow(self, keys: Ints, x: Doubles, y: Doubles) -> Doubles: ...


def followed(synopsis: Follows, x: Doubles, y: Doubles | None = None) -> Doubles:
    """Take in rows of key 0, each of weight 1 by default; the answer after each."""
    return synopsis.follow(np.zeros(len(x), np.int64), x, np.ones(len(x)) if y is None else y)


def histogram(weights: Sequence[float]) -> FocusedHistograms:
    """Weights of one key in [0, 1), [1, 2), and so on."""
    return FocusedHistograms(np.arange(len(weights) + 1.0)[None], np.array([weights], float))
