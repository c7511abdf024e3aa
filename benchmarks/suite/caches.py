"""Caches of subjoins in a join of several streams: counted row by row as in the thesis, then timed in the operator and in a hub.

*Counted*: probes, rows compared, combinations made, look-ups and changes of caches, one unit each, over recorded updates of windows of
200 rows; MJoin is the join without caches, with the same orders. E5.1 to E5.5 force the cache of R ⋈ S for the new rows of T. *Points*: a
join of four windows by one key at the eight points of table 5.2; M is MJoin, X the best tree of binary joins with their results stored, P the best
set of caches with the prefix invariant, G the best of those and of globally consistent ones, up to six candidates. *Timed in the operator*:
processor time of the same epochs with and without a cache in turn in one process; T has twenty rows of a key in an epoch, windows of R and
S have several rows of each key. `indexed`: every combination is an answer; `not indexed`: R and S are also equal in a column that is no key, which
one combination in as many as a window has rows of a key is. *In a hub*: the same query, pushed epochs, with caches as they are
chosen, and without; one combination in 200 is an answer at the expensive end. In these counts G is as good as X at D1, D3, D5 and D7, and up to a
fifth worse at the others, where it is printed as better: the fitted distributions make few combinations of three. Vectors take much of what the thesis saves: one search finds the partners of many rows, and equal keys are neighbours.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.join_traces import (
    POINTS,
    Plan,
    TreeCost,
    Update,
    counted,
    distributions,
    drawn,
    in_turn,
    trees,
    updates,
)
from benchmarks.models.caches.global_caches import GlobalSegment, within_quota
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.adaptive.caches.page_pool import PagePool
from headrace.adaptive.caches.segments import Equality, Orders, Segment
from headrace.algebra.expressions.expression import Call, Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.caches.caching import PAGES, Caching, JoinMemory, caching
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.window_join import UNTIL, WindowJoin
from headrace.runtime.epoch import task_orders
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.schema import BIGINT, BOOLEAN, Field, Schema

_Table = list[dict[str, object]]
SIZE, ARRIVALS = 200, 3000
"""Rows of a window, and arrivals of a trace."""
ORDERS: Orders = ((1, 2), (0, 2), (1, 0))
CHAIN: tuple[Equality, ...] = (((0, "A"), (1, "A")), ((1, "B"), (2, "B")))
CACHE = GlobalSegment(Segment(2, 0, 1, (0, 1)), (0, 1))
"""R ⋈ S for the new rows of T."""


def _chain(
    multiplicities: Sequence[int], rates: Sequence[float], sizes: Sequence[int] = (SIZE,) * 3
) -> list[Update]:
    """R(A) ⋈ S(A, B) ⋈ T(B) with values in turn."""
    columns = ("A",), ("A", "B"), ("B",)
    draws = [
        in_turn(SIZE, multiplicity, names)
        for multiplicity, names in zip(multiplicities, columns, strict=True)
    ]
    return list(updates(draws, lambda _: rates, sizes, ARRIVALS, np.random.default_rng(5)))


def _by_one_key(windows: int) -> list[Update]:
    """So many windows joined by A, of which the later half has each value five times."""
    rates = [1 if window < windows // 2 else 5 for window in range(windows)]
    draws = [in_turn(SIZE, one, ("A",)) for one in rates]
    sizes, rng = (SIZE,) * windows, np.random.default_rng(5)
    return list(updates(draws, lambda _: rates, sizes, ARRIVALS // 3, rng))


def counted_sweeps() -> tuple[_Table, dict[str, list[float]]]:
    """E5.1 to E5.5: the cost of an update without and with the cache, by point."""
    table, gains = list[dict[str, object]](), dict[str, list[float]]()

    def add(
        what: str,
        point: object,
        trace: list[Update],
        orders: Orders,
        equalities: Sequence[Equality],
        cache: GlobalSegment,
        unindexed: frozenset[tuple[int, str]] = frozenset(),
    ) -> None:
        plain = counted(trace, equalities, Plan(orders, (), unindexed))
        cached = counted(trace, equalities, Plan(orders, (cache,), unindexed))
        gain = plain.counts.cost / cached.counts.cost
        gains.setdefault(what, []).append(gain)
        hits = cached.counts.hits / max(1, cached.counts.lookups)
        table.append(
            {
                "measured": what,
                "point": point,
                "MJoin": round(plain.counts.cost / ARRIVALS / 2, 2),
                "cached": round(cached.counts.cost / ARRIVALS / 2, 2),
                "hits": f"{hits:.0%}",
                "MJoin to cached": round(gain, 2),
            }
        )

    for multiplicity in (1, 2, 5, 10):
        trace = _chain((1, 1, multiplicity), (1, 1, multiplicity))
        add("E5.1 rows of T with one value", multiplicity, trace, ORDERS, CHAIN, CACHE)
    for fan in (1, 2, 5, 10):
        add("E5.2 rows of R ⋈ S for one of T", fan, _chain((fan, 1, 5), (1, 1, 5)), ORDERS, CHAIN, CACHE)
    for ratio in (0.2, 1, 2, 5):
        add(
            "E5.3 updates of R and S for one of T",
            ratio,
            _chain((1, 1, 5), (ratio, ratio, 1)),
            ORDERS,
            CHAIN,
            CACHE,
        )
    for windows in (3, 4, 5, 6, 7):
        equalities = [((one, "A"), (other, "A")) for one, other in combinations(range(windows), 2)]
        orders = tuple(tuple(other for other in range(windows) if other != one) for one in range(windows))
        last = windows - 1
        cache = Segment(last, 0, last - 1, tuple(range(last)))
        of_all = GlobalSegment(cache, cache.windows)
        add("E5.4 windows joined by one key", windows, _by_one_key(windows), orders, equalities, of_all)
    for size in (50, 100, 200, 400):
        trace = _chain((1, 1, 5), (1, 1, 5), (SIZE, size, SIZE))
        add("E5.5 rows of S, no index on S.B", size, trace, ORDERS, CHAIN, CACHE, frozenset({(1, "B")}))
    return table, gains


def counted_points() -> tuple[_Table, dict[str, dict[str, float]]]:
    """D1 to D8: the cost of an update by the best plan of each kind."""
    table, costs_by_point = list[dict[str, object]](), dict[str, dict[str, float]]()
    equalities = [((one, "A"), (other, "A")) for one, other in combinations(range(4), 2)]
    for name, (rates, selectivities) in POINTS.items():
        rng, by_stream = np.random.default_rng(6), distributions(selectivities)
        draws = [drawn(one, 10**6 * (number + 1), rng) for number, one in enumerate(by_stream)]
        trace = list(updates(draws, lambda _, rates=rates: rates, (SIZE,) * 4, ARRIVALS // 4, rng))
        orders = _greedy_orders(selectivities)
        segments, more = within_quota(orders, 6)
        prefix = [GlobalSegment(segment, segment.windows) for segment in segments]
        costs = {
            "M": float(counted(trace, equalities, Plan(orders)).counts.cost),
            "X": float(min(TreeCost(tree).run(trace) for tree in trees(range(4)))),
            "P": _best(trace, equalities, orders, prefix),
            "G": _best(trace, equalities, orders, [*prefix, *more]),
        }
        costs_by_point[name] = costs
        table.append(
            {
                "measured": "table 5.2",
                "point": name,
                **{kind: round(cost / ARRIVALS, 2) for kind, cost in costs.items()},
            }
        )
    return table, costs_by_point


def _greedy_orders(selectivities: Sequence[float]) -> Orders:
    """Each stream probes the least selective pair first."""
    of_pair = dict(zip(combinations(range(4), 2), selectivities, strict=True))
    return tuple(
        tuple(
            sorted(
                (other for other in range(4) if other != one),
                key=lambda other, one=one: of_pair[min(one, other), max(one, other)],
            )
        )
        for one in range(4)
    )


def _best(
    trace: Sequence[Update],
    equalities: Sequence[Equality],
    orders: Orders,
    candidates: Sequence[GlobalSegment],
) -> float:
    """The least cost over all sets of candidates that can be used together."""
    best = float("inf")
    for count in range(len(candidates) + 1):
        for chosen in combinations(candidates, count):
            try:
                best = min(best, counted(trace, equalities, Plan(orders, chosen)).counts.cost)
            except ValueError:
                continue  # they overlap
    return best


# ------------------------------------------------------------------------------------------------- in the operator

EPOCHS, WARM, RANGE = 14, 6, 8
"""Epochs of a run, of which the first are not counted while windows fill; epochs that a row of R or S holds."""
_EPOCH = 1_000_000


@dataclass
class Way:
    """A join that is run epoch by epoch, with or without a cache."""

    join: WindowJoin
    chosen: Mapping[int, tuple[int, ...]]
    memories: dict[str, JoinMemory] = field(default_factory=dict)
    runs: list[Sections] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    observed: Caching = field(default_factory=Caching)

    def epoch(self, number: int, rows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
        """New rows (key, value, time) of each side."""
        deltas = []
        for side, (keys, values, at) in enumerate(rows):
            scanner = self.join.scanner({})
            columns = {f"s{side}.k": pa.array(keys), f"s{side}.v": pa.array(values)}
            scanner.add(Batch(columns, at, placed(np.arange(len(at)), side)))
            deltas.append(scanner.finish().deltas)
        bound = number * _EPOCH
        advance = Advance(
            bound, bound + _EPOCH, bound + _EPOCH, input_punctuations=(bound + _EPOCH,) * len(rows)
        )
        self.observed = Caching({self.join.id: self.chosen}, self.memories, measures=True)
        started = time.process_time()
        with caching(self.observed):
            step = self.join.advance(self.runs, deltas, advance)
        self.spent.append(time.process_time() - started)
        self.runs.append(step.state)
        if len(self.runs) > 4:
            names = sorted({name for run in self.runs for name in run})
            self.runs = [
                {
                    name: self.join.compact(name, [run[name] for run in self.runs if name in run], advance)
                    for name in names
                }
            ]
        table = step.results
        total = (
            0
            if table is None
            else int(np.sum([table.column(f"s{side}.v").to_numpy().sum() for side in range(len(rows))]))
        )
        self.answers.append((0 if table is None else table.num_rows, total))


def _join(sides: int, *, equal: bool) -> WindowJoin:
    of_side = []
    for number in range(sides):
        stored = Schema((Field(f"s{number}.k", BIGINT), Field(f"s{number}.v", BIGINT)))
        lasting = _EPOCH - 1 if number == sides - 1 else RANGE * _EPOCH
        key = (Column(f"s{number}.k", BIGINT),)
        of_side.append(Side((number,), stored, (), key, lasting, None, lasting, name=f"s{number}"))
    condition = Call("=", (Column("s0.v", BIGINT), Column("s1.v", BIGINT)), BOOLEAN) if equal else None
    shown = Schema((*(Field(f"s{number}.v", BIGINT) for number in range(sides)), Field(UNTIL, BIGINT)))
    return WindowJoin(JoinSpec("join", "q", "@joined", tuple(of_side), condition, shown, 0))


def _rows(
    number: int, rows: int, fan: int, repeats: int, sides: int = 3, values: int | None = None
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """An epoch: of the last side each of some keys `repeats` times, of others as many as make `fan` rows of a key in a window, with one
    of so many values, as many as rows if it is not given.
    """
    keys = max(10, rows // 20)
    rng, side_rows = np.random.default_rng(number), []
    for side in range(sides):
        count = rows if side == sides - 1 else max(1, keys * fan // RANGE)
        drawn_keys = rng.integers(0, keys, count)
        if side == sides - 1:
            drawn_keys = np.repeat(rng.integers(0, keys, max(1, rows // repeats)), repeats)[:count]
        at = number * _EPOCH + np.sort(rng.integers(0, _EPOCH, count))
        side_rows.append((drawn_keys, rng.integers(0, values or fan, count), at))
    return side_rows


def timed_sweeps(rows: int) -> tuple[_Table, dict[str, list[float]]]:
    """Processor time of epochs with and without a cache."""
    table, gains = list[dict[str, object]](), dict[str, list[float]]()

    def add(
        what: str, point: object, fan: int, repeats: int, *, equal: bool, sides: int = 3, pages: int = PAGES
    ) -> None:
        others = tuple(range(sides - 1))
        ways = [Way(_join(sides, equal=equal), chosen) for chosen in ({}, {sides - 1: others})]
        ways[1].memories["join"] = JoinMemory(pool=PagePool(pages))
        for number in range(EPOCHS):
            new = _rows(number, rows, fan, repeats, sides)
            for way in ways:
                way.epoch(number, new)
        plain, cached = ways
        if plain.answers != cached.answers:
            raise WrongAnswer(f"{what}, {point}: answers with a cache differ")
        gain = median(plain.spent[WARM:]) / median(cached.spent[WARM:])
        gains.setdefault(what, []).append(gain)
        seen = cached.observed.observed[f"join/{sides - 1}"]
        table.append(
            {
                "measured": f"time, {what}",
                "point": point,
                "MJoin": f"{1000 * median(plain.spent[WARM:]):.1f} ms",
                "cached": f"{1000 * median(cached.spent[WARM:]):.1f} ms",
                "hits": f"{seen.hits / max(1, seen.lookups):.0%}",
                "MJoin to cached": round(gain, 2),
            }
        )

    for fan in (1, 2, 5, 10, 20):
        add("not indexed, rows of a key in R and S", fan, fan, 20, equal=True)
    for fan in (1, 2, 5):
        add("indexed, rows of a key in R and S", fan, fan, 20, equal=False)
    for repeats in (1, 5, 20, 100):
        add("not indexed, rows of T with one key", repeats, 5, repeats, equal=True)
    for pages in (0, 16, 64, 256):
        add("not indexed, pages of memory", pages, 5, 5, equal=True, pages=pages)
    for sides in (3, 4, 5):
        add("indexed, streams joined by one key", sides, 1, 20, equal=False, sides=sides)
    return table, gains


# ------------------------------------------------------------------------------------------------------- in a hub

_QUERY = (
    "SELECT t.v AS v, r.v AS w FROM t [RANGE 1 SECOND] JOIN r [RANGE 8 SECONDS] ON r.k = t.k"
    " JOIN s [RANGE 8 SECONDS] ON s.k = r.k AND s.v = r.v"
)


@contextmanager
def _without(way: str) -> Iterator[None]:
    """While this lasts no cache is looked up, unless the way is to choose."""
    original = task_orders.join_caches
    try:
        if way != "as chosen":
            task_orders.join_caches = lambda _: {}
        yield
    finally:
        task_orders.join_caches = original


def in_hub(rows: int, fan: int, repeats: int, values: int) -> tuple[dict[str, float], bool]:
    """Processor seconds of an epoch by way, and whether a cache was chosen at last."""
    spent: dict[str, list[float]] = {"without": [], "as chosen": []}
    with tempfile.TemporaryDirectory(prefix="headrace-caches-") as name:
        hubs = {way: open_hub(Path(name) / way.replace(" ", "-"), local=True) for way in spent}
        for hub in hubs.values():
            for stream in "rst":
                hub.execute(
                    f"CREATE STREAM {stream} (at TIMESTAMP, k BIGINT, v BIGINT) USING push"
                    " OPTIONS (archive 'none') TIMESTAMP BY at"
                )
            hub.register(_QUERY, "q")
        for number in range(EPOCHS):
            new = _rows(number, rows, fan, repeats, values=values)
            for way, hub in hubs.items():
                _push(hub, new)
                with _without(way):
                    started = time.process_time()
                    hub.catch_up()
                    spent[way].append(time.process_time() - started)
        answers = [hub.query("q").history().num_rows for hub in hubs.values()]
        chosen = "look up the combinations" in hubs["as chosen"].execute("EXPLAIN ADAPTIVE q")[0].message
        for hub in hubs.values():
            hub.close()
    if answers[0] != answers[1]:
        raise WrongAnswer(f"answers with caches as chosen differ: {answers}")
    return {way: median(seconds[WARM:]) for way, seconds in spent.items()}, chosen


def _push(hub: Hub, new: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    for stream, (keys, values, at) in zip("rst", new, strict=True):
        stamps = pa.array(1_700_000_000_000_000 + at).cast(pa.timestamp("us", tz="UTC"))
        hub.push(stream, pa.table({"at": stamps, "k": keys, "v": values}))


def caches(rows: int, rounds: int) -> Report:
    """`rows` of T in an epoch, at most 20,000; epochs are the rounds."""
    del rounds
    rows = min(rows, 20_000)
    table, counted_gains = counted_sweeps()
    points, by_point = counted_points()
    timed, gains = timed_sweeps(rows)
    ratios = [
        Ratio(f"counted, {what}: least gain of the cache", min(sweep_gains), 0.9)
        for what, sweep_gains in counted_gains.items()
    ]
    most = max(counted_gains["E5.5 rows of S, no index on S.B"])
    ratios.append(Ratio("counted, E5.5: MJoin to cached at the expensive end", most, 10))
    ratios += [
        Ratio(
            f"counted, {name}: best set with the prefix invariant to MJoin", costs["P"] / costs["M"], 1, True
        )
        for name, costs in by_point.items()
    ]
    ratios += [
        Ratio(
            f"counted, {name}: globally consistent caches to the best tree",
            costs["G"] / costs["X"],
            1.2,
            True,
        )
        for name, costs in by_point.items()
    ]
    expensive = "not indexed, rows of a key in R and S"
    ratios.append(Ratio("time, expensive end: MJoin to cached", gains[expensive][-1], 1.9))
    hub_rows: _Table = []
    for what, fan, repeats, values in (("expensive", 20, 20, 200), ("nothing to gain", 1, 1, 1)):
        spent, chosen = in_hub(rows, fan, repeats, values)
        gain = spent["without"] / spent["as chosen"]
        hub_rows.append(
            {
                "measured": "time, in a hub",
                "point": f"{what}, cache {'chosen' if chosen else 'not chosen'}",
                "MJoin": f"{1000 * spent['without']:.1f} ms",
                "cached": f"{1000 * spent['as chosen']:.1f} ms",
                "MJoin to cached": round(gain, 2),
            }
        )
        ratios.append(
            Ratio("time, in a hub, expensive: without to as chosen", gain, 1.9)
            if fan > 1
            else Ratio("time, in a hub, nothing to gain: as chosen to without", 1 / gain, 1.03, True)
        )
    whole = [*table, *points, *timed, *hub_rows]
    drawn_bars = [
        Bar(f"{row['measured']}: {row['point']}", float(str(row["MJoin to cached"])), "ours")
        for row in (*table, *timed, *hub_rows)
    ]
    assert __doc__ is not None
    return Report("caches", "Caches of subjoins", whole, ratios, drawn_bars, "times MJoin", [__doc__.strip()])
