"""Every synopsis that is stored and restored continues as one that never was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.baselines.correlated.correlated import AboveMean, NearMinimum
from benchmarks.baselines.correlated.sliding_correlated import SlidingAboveMean, SlidingNearMinimum
from benchmarks.baselines.histograms.batch_counting import Counting
from benchmarks.baselines.histograms.distinct_window import DistinctWindow
from benchmarks.baselines.histograms.general_histogram import GeneralHistograms
from benchmarks.baselines.histograms.norms import PowerOfNorm, PowerOfSketchedNorm
from benchmarks.baselines.histograms.windowed_tables import WindowedTable
from benchmarks.baselines.rows.samples import KeySample, Reservoir
from benchmarks.baselines.rows.sliding_extremes import Extremes
from benchmarks.baselines.snapshot import SYNOPSES, held_bytes, restore, snapshot
from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.exponential_histogram import Histograms
from headrace.synopses.sketches.rank_summary import Ranks
from headrace.synopses.sketches.stable_sketch import StableSketch

KEYS, ROWS = 5, 600


@dataclass(frozen=True)
class Part:
    """Some rows of a stream."""

    keys: Ints
    times: Ints
    values: np.ndarray

    def of(self, low: int, high: int) -> Part:
        return Part(self.keys[low:high], self.times[low:high], self.values[low:high])


def drawn() -> Part:
    random = np.random.default_rng(8)
    return Part(random.integers(0, KEYS, ROWS), np.arange(ROWS), np.ceil(random.lognormal(3, 2, ROWS)))


def correlated(synopsis: Any, part: Part) -> Any:
    synopsis.add(part.keys, part.values, np.ones(len(part.values)))
    return synopsis


def counted(synopsis: Any, part: Part) -> Any:
    synopsis.add(part.keys, part.times)
    return synopsis


def tabled(synopsis: Any, part: Part) -> Any:
    synopsis.add(part.keys, part.times % 3, part.times)
    return synopsis


def ranked(synopsis: Ranks, part: Part) -> Ranks:
    fresh = Ranks.of(part.keys, part.values, None, KEYS)
    both = Ranks(
        np.r_[synopsis.totals, fresh.totals],
        np.r_[synopsis.offsets, synopsis.offsets[-1] + fresh.offsets[1:]],
        np.r_[synopsis.values, fresh.values],
        np.r_[synopsis.most_below, fresh.most_below],
        np.r_[synopsis.least_upto, fresh.least_upto],
    )
    return both.merged(np.r_[np.arange(KEYS), np.arange(KEYS)], KEYS).thinned(Fraction(1, 20), 20)


def general(synopsis: GeneralHistograms, part: Part) -> GeneralHistograms:
    measure: Any = synopsis.measure
    fresh = measure.rows(part.keys, part.values)
    return synopsis.absorb(part.keys, part.times, fresh).since(int(part.times[-1]) - 300)


Feed = Callable[[Any, Part], Any]
NONE = np.empty(0, np.int64)
CASES: dict[str, tuple[Callable[[], Any], Feed]] = {
    "Histograms": (lambda: Histograms.empty(Form(5, 3), KEYS), lambda s, p: s.absorb(p.keys, p.times)),
    "Counting": (lambda: Counting(Histograms.empty(Form(5, 3), KEYS), 300), counted),
    "Extremes": (lambda: Extremes.empty(KEYS), lambda s, p: s.absorb(p.keys, p.times, p.values)),
    "DistinctWindow": (
        lambda: DistinctWindow.empty(KEYS, 16),
        lambda s, p: s.absorb(p.keys, p.values.astype(np.int64) * 0x9E3779B97F4A7C1, p.times),
    ),
    "GeneralHistograms": (lambda: GeneralHistograms.empty(PowerOfNorm(1.5, KEYS), 6, KEYS), general),
    "GeneralHistograms of sketches": (
        lambda: GeneralHistograms.empty(PowerOfSketchedNorm(StableSketch(9)), 6, KEYS),
        general,
    ),
    "WindowedTable": (lambda: WindowedTable.empty(KEYS, 3, 300, Fraction(1, 5)), tabled),
    "Ranks": (lambda: Ranks.of(NONE, np.empty(0), None, KEYS), ranked),
    "Reservoir": (lambda: Reservoir.empty(9, 3, KEYS), lambda s, p: s.absorb(p.keys, p.times)),
    "KeySample": (lambda: KeySample.empty(9, 3), lambda s, p: s.absorb(p.times * 7919)),
    "NearMinimum": (lambda: NearMinimum.empty(KEYS, 9.0), correlated),
    "AboveMean": (lambda: AboveMean.empty(KEYS), correlated),
    "SlidingNearMinimum": (lambda: SlidingNearMinimum.empty(KEYS, 9.0, 60), correlated),
    "SlidingAboveMean": (lambda: SlidingAboveMean.empty(KEYS, 60), correlated),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_restored_goes_on_as_what_never_was_put_away(name: str) -> None:
    make, feed = CASES[name]
    rows = drawn()
    whole = feed(feed(make(), rows.of(0, 350)), rows.of(350, ROWS))
    stored = snapshot(feed(make(), rows.of(0, 350)))
    assert snapshot(restore(stored)) == stored
    again = feed(restore(stored), rows.of(350, ROWS))
    assert snapshot(again) == snapshot(whole)
    assert 0 < held_bytes(again) == held_bytes(whole) < 2 * len(snapshot(whole))
    assert snapshot(restore(snapshot(make()))) == snapshot(make()), "of no rows"


def test_every_synopsis_has_a_case() -> None:
    parts = {
        "Form",
        "FocusedHistograms",
        "PaneMinima",
        "PowerOfNorm",
        "PowerOfSketchedNorm",
        "RecentRows",
        "StableSketch",
        "Strategy",
    }
    assert {name.partition(" ")[0] for name in CASES} | parts == SYNOPSES.keys()


def test_what_is_no_synopsis_is_not_put_away() -> None:
    with pytest.raises(TypeError, match="not among the synopses"):
        snapshot(Fraction(1, 2))
