"""The cost of order in a join whose sources lag behind each other: experiments E11 and E12, joins of unions, by plans of operators.

Li, Window Queries over Data Streams (2008), figures 8-9 and 8-10. Both plans are run: Meld and a join that takes punctuation, emitted each
second; and Merge and the same join, which learn progress with every step. Rows held are counts, the same on every machine, and both
plans find the same pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.baselines.plans.flows import Flow, Rows
from benchmarks.baselines.plans.in_order import Merge
from benchmarks.baselines.plans.out_of_order import Meld
from benchmarks.baselines.plans.plan import Node, Ran, run
from benchmarks.baselines.plans.tumbling_join import TumblingJoin
from benchmarks.baselines.windows import Ints
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

SKEWS, LATE = (0, 10, 20, 40, 60, 80, 100), (0, 2, 4, 6, 8, 10)
_MILLIS, _STEP, _KEYS = 1000, 250, 4000


@dataclass(frozen=True, slots=True)
class Source:
    """Rows in order that come `late` seconds after their time; keys follow from event times, the same in each run."""

    at: Ints
    late: float

    def flows(self, seconds: int, every: int) -> list[Flow]:
        """The rows of each step, with a punctuation each `every` milliseconds, until all has come."""
        late = int(self.late * _MILLIS)
        ends = np.arange(_STEP, (seconds + 110) * _MILLIS + 1, _STEP)
        cuts = [0, *np.searchsorted(self.at, ends - late).tolist()]
        key = self.at * 7919 % _KEYS
        flows, reached_before = list[Flow](), -1
        for (low, high), end in zip(pairwise(cuts), ends.tolist(), strict=True):
            reached = (end - late) // every * every
            bound = reached if reached > max(reached_before, 0) else None
            reached_before = max(reached_before, reached)
            flows.append(Flow(Rows(self.at[low:high], key[low:high], key[low:high]), bound))
        return flows


@dataclass(frozen=True, slots=True)
class _Held:
    """Rows that the plans out of order and in order hold: at their peaks, and on average."""

    peak: tuple[int, int]
    mean: tuple[float, float]


def skewed_joins(rows: int, rounds: int) -> Report:
    """E11: a tumbling join of 10 s between two unions, one source of each late by 0 to 100 s."""
    del rounds
    seconds = 400
    rate = max(10, min(rows // (4 * seconds), 200))
    held_by_skew = {
        skew: rows_held(
            [_source(seconds, rate, 0, 31), _source(seconds, rate, skew, 32)],
            [_source(seconds, rate, 0, 33), _source(seconds, rate, skew, 34)],
            10,
            seconds,
        )
        for skew in SKEWS
    }
    shares = {skew: held.peak[0] / held.peak[1] for skew, held in held_by_skew.items()}
    ratios = [
        Ratio("rows held at most, out of order to in order", max(shares.values()), 1.2, True),
        Ratio("the same below 20 s", max(share for skew, share in shares.items() if skew < 20), 1.1, True),
    ]
    return _plans("skewed-joins", "E11: a join of two unions with skew", "skew", held_by_skew, ratios, rate)


def late_joins(rows: int, rounds: int) -> Report:
    """E12: a tumbling join of a minute between a stream and a union with a thin source that is late by 0 to 10 s."""
    del rounds
    seconds = 400
    rate = max(10, min(rows // (2 * seconds), 400))
    held_by_delay = {
        late: rows_held(
            [_source(seconds, rate, 0, 41)],
            [_source(seconds, rate, 0, 42), _source(seconds, 1, late, 43)],
            60,
            seconds,
        )
        for late in LATE
    }
    out, in_order = (held_by_delay[LATE[-1]].mean[plan] - held_by_delay[0].mean[plan] for plan in (0, 1))
    ratios = [
        Ratio(
            "growth of rows held on average from 0 to 10 s, out of order to in order",
            out / in_order,
            0.99,
            True,
        )
    ]
    return _plans("late-joins", "E12: a join with a thin late source", "delay", held_by_delay, ratios, rate)


def _source(seconds: int, rate: int, late: float, seed: int) -> Source:
    return Source(np.sort(np.random.default_rng(seed).integers(0, seconds * _MILLIS, seconds * rate)), late)


def rows_held(left: list[Source], right: list[Source], window: int, seconds: int) -> _Held:
    """What the plan out of order holds (Meld, OA-Join), and the one in order (Merge, then the same join), while all sources send."""
    out = _run(left, right, window, seconds, ordered=False)
    in_order = _run(left, right, window, seconds, ordered=True)
    if not np.array_equal(_pairs(out), _pairs(in_order)):
        raise WrongAnswer("Expected the same pairs of both plans, found others.")
    moments = slice(0, seconds * _MILLIS // _STEP)
    held = [
        [sum(counts) for counts in zip(*(h[moments] for h in ran.held.values()), strict=True)]
        for ran in (out, in_order)
    ]
    return _Held((max(held[0]), max(held[1])), (float(np.mean(held[0])), float(np.mean(held[1]))))


def _run(left: list[Source], right: list[Source], window: int, seconds: int, *, ordered: bool) -> Ran:
    every = _STEP if ordered else _MILLIS
    sources = {
        f"{side}{number}": source.flows(seconds, every)
        for side, of_side in (("l", left), ("r", right))
        for number, source in enumerate(of_side)
    }
    union = Merge if ordered else Meld
    return run(
        [
            Node("left", union.of(len(left)), tuple(name for name in sources if name[0] == "l")),
            Node("right", union.of(len(right)), tuple(name for name in sources if name[0] == "r")),
            Node("join", TumblingJoin(window * _MILLIS), ("left", "right")),
        ],
        sources,
    )


def _pairs(ran: Ran) -> np.ndarray:
    rows = ran.rows("join")
    columns = np.stack([rows.at, rows.key, rows.value])
    return columns[:, np.lexsort(columns)]


def _plans(
    name: str, title: str, varied: str, held_by_value: dict[int, _Held], ratios: list[Ratio], rate: int
) -> Report:
    table = [
        {
            f"{varied}_s": value,
            "out_of_order_rows": held.peak[0],
            "in_order_rows": held.peak[1],
            "out_of_order_rows_on_average": round(held.mean[0]),
            "in_order_rows_on_average": round(held.mean[1]),
        }
        for value, held in held_by_value.items()
    ]
    x = list(held_by_value)
    drawn = Curves(
        "Rows held on average",
        (f"{varied} in seconds", "rows"),
        [
            Curve("out of order", x, [held.mean[0] for held in held_by_value.values()], "ours"),
            Curve("in order", x, [held.mean[1] for held in held_by_value.values()], "theirs"),
        ],
    )
    notes = [
        f"{rate} rows a second and source; both plans of operators are run. {__doc__.split('.', 2)[2].strip()}"
    ]
    return Report(name, title, table, ratios, [], "", notes, picture=drawn)
