"""State that k-constraints save: rows held by joins on generated arrivals (the thesis' experiments 6.1 to 6.9), and bytes held by the
product's joins of three links of a network and of cars on a motorway: with constraints that are declared, or found, and without.

All but the time is counted; the table is the same in every run. *Arrivals*: joins of many-one graphs under windows of 10,000 rows, with k of 0 to
4000 (a fifth of the thesis' sizes), against the rows of whole windows, and against the time that the same join takes for whole windows (table 6.1). *Monitors*: k is found, while it is constant, rises and falls. *Network*: packets
pass three links, 1000, 10,000 and 1000 a second under windows of ten minutes; one of ten that enter is seen on the next link
within 15 seconds. *Linear Road*: 10,000 cars report every 30 seconds; AccSeg joins their last reports (CurCarSeg) with those that have
stopped, detected within a second of a report; CurCarSeg joins last reports with active cars. *Keys*: packets are delivered in bursts every 45 seconds,
or are on two links up to 50 seconds before or after, under windows of a minute. The thesis prints no more of CarExitStr and NegTollStr
than their names. *Of a hub*: the network and AccSeg as queries with the option, in one process. *On disk*: packets pass a link within 5 seconds, and suddenly one of 100 takes minutes, under windows of ten, so the bound that was found breaks; and the
network with declared constraints; with the rows that are finished on disk. The join's operator runs by itself, epoch by epoch, with merges as the runtime has them. *Nothing gained*: what the
measurement of delays costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from benchmarks.charts import Bar
from benchmarks.constrained_hubs import states_in_hubs
from benchmarks.constrained_joins import (
    BURST,
    BURST_RANGE,
    FRESH,
    LINKS,
    NETWORK_RANGE,
    RATES,
    REPORTING,
    SECOND,
    declared_network,
    epoch_time,
    finding,
    join_of,
    packets_delayed,
    packets_in_bursts,
    packets_of_links,
    packets_twice,
    reports,
    reports_twice,
    spilling,
    state_over,
)
from benchmarks.constraint_traces import (
    GRAPH_A,
    GRAPH_C,
    Trace,
    clustered_and_late,
    dangling_and_clustered,
    late_children,
    replayed,
    scattered_children,
    scattered_parents,
)
from benchmarks.expected import WrongAnswer
from benchmarks.models.constraints.constrained_mjoin import Constraints
from benchmarks.models.constraints.k_estimate import KEstimate
from benchmarks.models.constraints.key_bounds import Clustered, Ordered
from benchmarks.models.constraints.whole_windows import WholeWindows
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

WINDOW, UNITS, BATCH = 10_000, 12_000, 1_400
KS = (0, 1_000, 2_000, 4_000)
INTEGRITY_KS = (100, 400, 1_600, 4_000)
TIMED = 3
"""Runs of which the least time counts."""
Found = dict[tuple[str, int], float]


def _fixed(k: int) -> KEstimate:
    return KEstimate(fixed=k)


def _integrity(trace: Trace) -> Constraints:
    return Constraints(integrity={join: _fixed(trace.integrity(join)) for join in GRAPH_A.joins})


def _clustered(trace: Trace) -> Constraints:
    names = ("S1", "S2")
    return Constraints(
        of_parent={(name, "A"): [Clustered(_fixed(trace.clustered(name, "A")))] for name in names}
    )


def _ordered(trace: Trace) -> Constraints:
    names = ("S1", "S2")
    return Constraints(of_parent={(name, "A"): [Ordered(_fixed(trace.ordered(name, "A")))] for name in names})


def _ordered_children(trace: Trace) -> Constraints:
    return Constraints(of_child={("S2", "A"): Ordered(_fixed(trace.ordered("S2", "A")))})


EXPERIMENTS: Mapping[str, tuple[Callable[..., Trace], Callable[[Trace], Constraints]]] = {
    "6.1 integrity, graph (a)": (late_children, _integrity),
    "6.3 clustered, graph (b)": (scattered_parents, _clustered),
    "6.5 ordered parents, graph (b)": (scattered_parents, _ordered),
    "6.7 ordered children, graph (c)": (scattered_children, _ordered_children),
}


def _settled(trace: Trace, constraints: Constraints) -> tuple[float, int, float]:
    """Rows and stored numbers in the last third; results; microseconds of the processor an arrival."""
    started = time.process_time()
    replay = replayed(trace, constraints, dict.fromkeys(trace.graph.streams, WINDOW), BATCH)
    spent = time.process_time() - started
    third = 2 * len(replay.rows) // 3
    return (
        float((replay.rows + replay.entries)[third:].mean()),
        int(replay.results.sum()),
        spent / trace.rows * 1e6,
    )


def _of_whole_windows(trace: Trace) -> int:
    windows = WholeWindows(dict.fromkeys(trace.graph.streams, WINDOW))
    for part in trace.batches(BATCH):
        windows.process(part)
    return windows.rows_held


def _row(measured: str, conditions: str, way: str, value: float) -> dict[str, object]:
    return {"measured": measured, "conditions": conditions, "way": way, "value": float(f"{value:.4g}")}


def on_arrivals() -> tuple[list[dict[str, object]], Found]:
    """The rows held, by experiment and k; -1 is for whole windows. And the time of an arrival in parts of that with whole windows."""
    table, figures = [], Found()
    for name, (make, constraints) in EXPERIMENTS.items():
        for k in KS:
            trace = make(UNITS, k, np.random.default_rng(1))
            runs = [
                (_settled(trace, constraints(trace)), _settled(trace, Constraints())) for _ in range(TIMED)
            ]
            (held, results, _), (_, expected, _) = runs[0]
            if results != expected:
                raise WrongAnswer(f"{name}, k = {k}: {results} results in place of {expected}")
            figures[name, k] = held
            table.append(_row("rows and numbers held", name, f"k = {k:,}", held))
            spent, plain = (min(run[way][2] for run in runs) for way in (0, 1))
            figures[f"{name}: time", k] = spent / plain
            for way, microseconds in (
                (f"k = {k:,}", spent),
                (f"whole windows, arrivals of k = {k:,}", plain),
            ):
                table.append(_row("microseconds an arrival", name, way, microseconds))
        figures[name, -1] = _of_whole_windows(trace)
        table.append(_row("rows and numbers held", name, "whole windows", figures[name, -1]))
    return table, figures


def combined() -> tuple[list[dict[str, object]], Found]:
    """Two constraints at once: more is freed (6.8), or rows stay longer (6.9)."""
    table, figures = [], Found()
    trace = dangling_and_clustered(UNITS, 1_000, np.random.default_rng(1))
    order = trace.ordered("S3", "B")
    for way in ("clustered", "ordered", "both"):
        parents = {("S1", "A"): [Clustered(_fixed(0))]} if way != "ordered" else {}
        children = {("S3", "B"): Ordered(_fixed(order))} if way != "clustered" else {}
        figures[way, 0] = _settled(trace, Constraints(of_parent=parents, of_child=children))[0]
        table.append(_row("rows and numbers held", "6.8, graph (a)", way, figures[way, 0]))
    for k in INTEGRITY_KS:
        trace = clustered_and_late(UNITS, 1_000, k, np.random.default_rng(1))
        width = trace.clustered("S1", "A")
        by = {GRAPH_C.joins[0]: _fixed(trace.integrity(GRAPH_C.joins[0]))}
        for way in ("clustered alone", "with integrity"):
            parents = {("S1", "A"): [Clustered(_fixed(width))]}
            held = _settled(trace, Constraints(by if way != "clustered alone" else {}, parents))[0]
            figures[way, k] = held
            table.append(_row("rows and numbers held", f"6.9, graph (c), integrity k = {k:,}", way, held))
    return table, figures


def monitored() -> tuple[list[dict[str, object]], Found]:
    """The largest share of results that is lost in 4200 arrivals, where k is found by the monitor (6.2)."""
    table, figures = [], Found()
    for first, last in ((400, 400), (800, 100), (100, 800)):
        third = UNITS // 3
        way = np.concatenate(
            [np.full(third, first), np.linspace(first, last, third).astype(np.int64), np.full(third, last)]
        )
        trace = late_children(UNITS, way, np.random.default_rng(1))
        estimate = KEstimate(window=500, reach=1.0)
        windows = dict.fromkeys(trace.graph.streams, WINDOW)
        seen = replayed(trace, Constraints(integrity={GRAPH_A.joins[0]: estimate}), windows, 700)
        every = replayed(trace, Constraints(), windows, 700)
        lost = np.add.reduceat(every.results - seen.results, np.arange(0, len(seen.results), 6))
        share = float(lost.max()) / (6 * float(every.results.mean()))
        figures["lost", last - first] = share
        figures["k at the end", last - first] = float(seen.k[-1]) / last
        conditions = f"6.2, k from {first:,} to {last:,}"
        table.append(
            _row("largest loss in 4200 arrivals (%)", conditions, "found by the monitor", 100 * share)
        )
        table.append(_row("k found at the end", conditions, "found by the monitor", float(seen.k[-1])))
    return table, figures


# ------------------------------------------------------------------------------------------------ the network, and the motorway

ROW_BYTES = 10
"""Of the thesis' packets; the bytes of this engine's rows are in the table too."""
FOUND_SECONDS, MOTORWAY_SECONDS, DELAYED_SECONDS, WATCHED_ROWS = 660, 360, 480, 20_000
BURSTS = 12
"""Bursts of which the mean counts: what is stored after one depends on when its runs are merged, from a third to twice the mean."""


def network() -> tuple[list[dict[str, object]], Found]:
    """Bytes of the state with constraints, declared or found, and of the whole windows, at the end of ten minutes."""
    state = state_over(declared_network(), packets_of_links(60))
    plain = state_over(join_of(LINKS, NETWORK_RANGE), packets_of_links(60))
    found = state_over(finding(join_of(LINKS, NETWORK_RANGE)), packets_of_links(FOUND_SECONDS))
    passed = sum(int((links[2][0] < FRESH).sum()) for _, links in packets_of_links(FOUND_SECONDS))
    for results, expected in ((state.results, plain.results), (found.results, passed)):
        if results != expected:
            raise WrongAnswer(f"{results} results with constraints, {expected} without")
    whole = sum(RATES) * NETWORK_RANGE // SECOND
    figures = {
        ("windows", 0): whole * ROW_BYTES,
        ("constrained", 0): max(state.rows[30:]) * ROW_BYTES,
        ("engine", 0): max(state.sizes[30:]),
        ("found", 0): max(found.rows[-60:]) * ROW_BYTES,
        ("before", 0): max(found.rows) * ROW_BYTES,
    }
    ways = {
        "whole windows": figures["windows", 0],
        "declared constraints": figures["constrained", 0],
        "found constraints, last minute of eleven": figures["found", 0],
        "found constraints, at most until they are found": figures["before", 0],
    }
    table = [
        _row("bytes, of 10 a row", "three links, ten minutes", way, value) for way, value in ways.items()
    ]
    table.append(
        _row("bytes in memory", "three links, ten minutes", "declared constraints", figures["engine", 0])
    )
    return table, figures


def motorway() -> tuple[list[dict[str, object]], Found]:
    """Rows stored for Linear Road's AccSeg and CurCarSeg with constraints that the joins find, and without."""
    table, figures = [], Found()
    feeds = {
        "AccSeg": (("CurCarSeg", "AccCars"), reports),
        "CurCarSeg": (("LastRep", "CurActiveCars"), reports_twice),
    }
    for name, (sides, feed) in feeds.items():
        plain = state_over(join_of(sides, REPORTING), feed(MOTORWAY_SECONDS))
        found = state_over(finding(join_of(sides, REPORTING)), feed(MOTORWAY_SECONDS))
        if plain.results != found.results or not plain.results:
            raise WrongAnswer(f"{found.results} results of {name} with constraints, {plain.results} without")
        for way, state in (("whole windows", plain), ("found constraints", found)):
            held = float(np.mean(state.rows[-len(state.rows) // 4 :]))
            figures[f"{name}, {way}", 0] = held
            table.append(_row("rows in the state of a join", f"Linear Road, {name}", way, held))
        figures[name, 0] = figures[f"{name}, found constraints", 0] / figures[f"{name}, whole windows", 0]
    return table, figures


def by_key() -> tuple[list[dict[str, object]], Found]:
    """Rows stored where delays are nearly as long as the window, with constraints of each stream's keys that the join finds, and without."""
    table, figures = [], Found()
    feeds = {"packets in bursts": packets_in_bursts, "packets on both links in any order": packets_twice}
    for name, feed in feeds.items():
        join = join_of(LINKS[:2], BURST_RANGE)
        plain, found = (
            state_over(one, feed(FOUND_SECONDS + BURSTS * BURST)) for one in (join, finding(join))
        )
        if plain.results != found.results or not plain.results:
            raise WrongAnswer(f"{found.results} results of {name} with constraints, {plain.results} without")
        held = [float(np.mean(state.rows[-BURSTS * BURST :])) for state in (plain, found)]
        figures[name, 0] = held[1] / held[0]
        for way, rows in zip(("whole windows", "found constraints"), held, strict=True):
            table.append(_row("rows in the state of a join", name, way, rows))
    return table, figures


def in_hubs() -> tuple[list[dict[str, object]], Found]:
    """The network and AccSeg as queries of a hub, with constraints that their joins find, and without."""
    table, figures = [], Found()
    find, sides = "OPTIONS (constraints 'find')", ("CurCarSeg", "AccCars")
    links = list(packets_of_links(FOUND_SECONDS))
    (network,) = states_in_hubs(LINKS, NETWORK_RANGE, links, [find])
    until = min(int(at.max()) for _, at in links[-1][1])
    passed = [packets[(packets < FRESH) & (at < until)] for _, (*_, (packets, at)) in links]
    plain, found = states_in_hubs(sides, REPORTING, reports(MOTORWAY_SECONDS), ["", find])
    for keys, expected in ((network.keys, np.sort(np.concatenate(passed))), (found.keys, plain.keys)):
        if not len(expected) or not np.array_equal(keys, expected):
            raise WrongAnswer(f"{len(keys)} results of a hub with constraints, {len(expected)} without")
    figures["network", 0] = max(network.rows[-60:])
    figures["AccSeg time", 0] = found.seconds / plain.seconds
    what = "rows in the state of a join"
    conditions = "a hub's query, three links, at most in the last minute"
    table.append(_row(what, conditions, "found constraints", figures["network", 0]))
    for way, state in (("whole windows", plain), ("found constraints", found)):
        figures[f"AccSeg, {way}", 0] = float(np.mean(state.rows[-len(state.rows) // 4 :]))
        conditions = "a hub's query, Linear Road, AccSeg"
        table.append(_row(what, conditions, way, figures[f"AccSeg, {way}", 0]))
        table.append(_row("milliseconds an epoch", conditions, way, 1e3 * state.seconds / len(state.rows)))
    return table, figures


def on_disk() -> tuple[list[dict[str, object]], Found]:
    """Bytes in the state and on disk, and results, where a bound that was found breaks, and of the network."""
    table, figures = [], Found()
    plain_join = join_of(LINKS[:2], NETWORK_RANGE)
    joins = {
        "whole windows": plain_join,
        "found constraints": finding(plain_join),
        "found constraints, rows on disk": spilling(finding(plain_join)),
    }
    states = {name: state_over(join, packets_delayed(DELAYED_SECONDS)) for name, join in joins.items()}
    states["declared constraints, rows on disk"] = state_over(
        spilling(declared_network()), packets_of_links(60)
    )
    plain, found, kept, network_kept = states.values()
    expected = state_over(declared_network(), packets_of_links(60)).results
    if kept.results != plain.results or network_kept.results != expected:
        raise WrongAnswer(f"{kept.results} results with rows on disk, {plain.results} without constraints")
    for name, state in states.items():
        conditions = "three links, a minute" if "declared" in name else "packets that are suddenly slow"
        half = len(state.rows) // 2
        table.append(_row("megabytes in the state, halfway", conditions, name, state.sizes[half - 1] / 1e6))
        table.append(_row("megabytes on disk, at the end", conditions, name, state.on_disk[-1] / 1e6))
        table.append(_row("results", conditions, name, state.results))
    table.append(
        _row(
            "results made with rows from disk",
            "packets that are suddenly slow",
            "found constraints, rows on disk",
            kept.from_disk,
        )
    )
    figures["lost without", 0] = 1 - found.results / plain.results
    figures["kept", 0] = kept.results / plain.results
    figures["memory", 0] = kept.sizes[len(kept.sizes) // 2 - 1] / plain.sizes[len(plain.sizes) // 2 - 1]
    figures["network", 0] = network_kept.sizes[-1] / (network_kept.sizes[-1] + network_kept.on_disk[-1])
    return table, figures


def watched(rounds: int) -> tuple[list[dict[str, object]], Found]:
    """Processor time of a join of 20,000 rows an epoch and side that measures delays, and of one that does not; in turn, the least of each."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for measures in (True, False) * max(rounds, 15):
        spent[measures].append(epoch_time(2, WATCHED_ROWS, measures=measures))
    figures: Found = {("ratio", 0): min(spent[True]) / min(spent[False])}
    ways = {"delays measured": min(spent[True]), "not measured": min(spent[False])}
    conditions = f"two sides, {WATCHED_ROWS:,} rows of each an epoch, nothing gained"
    return [
        _row("milliseconds an epoch", conditions, way, 1e3 * value) for way, value in ways.items()
    ], figures


def _of_arrivals(
    held: Found,
    both: Found,
    monitor: Found,
) -> list[Ratio]:
    """Of the thesis' arrivals: by k, of two constraints together, and while k changes."""
    ratios = [
        Ratio(
            f"{name}, k = {k:,}: rows held to those of k = {smaller:,}",
            held[name, k] / held[name, smaller],
            1,
        )
        for name in EXPERIMENTS
        for smaller, k in pairwise(KS)
    ]
    ratios += [
        Ratio(
            f"{name}, k = {KS[-1]:,}: rows held to whole windows",
            held[name, KS[-1]] / held[name, -1],
            1,
            True,
        )
        for name in EXPERIMENTS
    ]
    ratios += [
        Ratio(f"{name}, k = 0: whole windows to rows held", held[name, -1] / held[name, 0], 5)
        for name in EXPERIMENTS
        if "graph (b)" in name
    ]
    ratios += [
        Ratio(
            f"{name}: time of an arrival to that with whole windows, most of all k",
            max(held[f"{name}: time", k] for k in KS),
            1.65 if "integrity" in name else 1.25,
            at_most=True,
        )
        for name in EXPERIMENTS
    ]
    least = min(both["clustered", 0], both["ordered", 0])
    ratios += [
        Ratio("6.8: both constraints to the better one alone", both["both", 0] / least, 1, at_most=True),
        Ratio(
            "6.9, integrity k = 100: with integrity to clustered alone",
            both["with integrity", 100] / both["clustered alone", 100],
            1,
            at_most=True,
        ),
        Ratio(
            "6.9, integrity k = 4,000: with integrity to clustered alone",
            both["with integrity", 4_000] / both["clustered alone", 4_000],
            1,
        ),
    ]
    ratios += [
        Ratio(f"6.2, k changes by {change:,}: largest share lost", share, 0.03 if change > 0 else 0.001, True)
        for (what, change), share in monitor.items()
        if what == "lost"
    ]
    return ratios


def _of_streams(
    links: Found,
    cars: Found,
    keys: Found,
    hubs: Found,
) -> list[Ratio]:
    """Of the network's links, of Linear Road, of the order of keys, and of queries of a hub."""
    bars = {"packets in bursts": 0.7, "packets on both links in any order": 0.95}
    return [
        *(
            Ratio(f"{name}, constraints found: rows to whole windows", keys[name, 0], bar, at_most=True)
            for name, bar in bars.items()
        ),
        Ratio(
            "network: whole windows to rows with constraints",
            links["windows", 0] / links["constrained", 0],
            72,
        ),
        Ratio("network: megabytes of rows of 10 bytes", links["constrained", 0] / 1e6, 1, at_most=True),
        Ratio(
            "network, constraints found: megabytes of rows of 10 bytes",
            links["found", 0] / 1e6,
            1,
            at_most=True,
        ),
        Ratio(
            "Linear Road, AccSeg, constraints found: rows to whole windows",
            cars["AccSeg", 0],
            0.15,
            at_most=True,
        ),
        Ratio(
            "Linear Road, CurCarSeg, constraints found: rows to whole windows",
            cars["CurCarSeg", 0],
            0.12,
            at_most=True,
        ),
        Ratio(
            "a hub's query, network, constraints found: megabytes of rows of 10 bytes",
            hubs["network", 0] * ROW_BYTES / 1e6,
            1,
            at_most=True,
        ),
        Ratio(
            "a hub's query, AccSeg, constraints found: rows to whole windows",
            hubs["AccSeg, found constraints", 0] / hubs["AccSeg, whole windows", 0],
            0.15,
            at_most=True,
        ),
        Ratio(
            "a hub's query, AccSeg, constraints found: processor time to whole windows",
            hubs["AccSeg time", 0],
            1.05,
            at_most=True,
        ),
    ]


def _of_disk(disk: Found, watch: Found) -> list[Ratio]:
    """Of rows on disk, and where nothing is gained."""
    return [
        Ratio("packets that are suddenly slow, rows on disk: results to whole windows", disk["kept", 0], 1),
        Ratio(
            "packets that are suddenly slow, rows dropped: share of the results lost",
            disk["lost without", 0],
            0.001,
        ),
        Ratio(
            "packets that are suddenly slow, rows on disk: bytes in the state to whole windows",
            disk["memory", 0],
            0.4,
            True,
        ),
        Ratio("network, rows on disk: bytes in the state to all", disk["network", 0], 0.4, at_most=True),
        Ratio(
            "nothing gained: time of a join that measures delays to one that does not",
            watch["ratio", 0],
            1.03,
            at_most=True,
        ),
    ]


def constraints(rows: int, rounds: int) -> Report:
    """`rows` changes nothing, and `rounds` only the timing."""
    del rows
    parts = [
        on_arrivals(),
        combined(),
        monitored(),
        network(),
        motorway(),
        by_key(),
        in_hubs(),
        on_disk(),
        watched(rounds),
    ]
    table = [row for part_rows, _ in parts for row in part_rows]
    held, both, monitor, links, cars, keys, hubs, disk, watch = (figures for _, figures in parts)
    ratios = [
        *_of_arrivals(held, both, monitor),
        *_of_streams(links, cars, keys, hubs),
        *_of_disk(disk, watch),
    ]
    drawn = [
        Bar(
            f"{row['conditions']}: {row['way']}",
            float(str(row["value"])),
            "yardstick" if "whole" in str(row["way"]) else "ours",
        )
        for row in table
        if row["measured"] == "rows and numbers held"
    ]
    return Report(
        "constraints",
        "State of joins whose streams obey constraints",
        table,
        ratios,
        drawn,
        "rows",
        [
            "Counted, but for the time: every run has the same figures. Arrivals are those of the thesis' graphs; windows have 10,000 rows, a fifth of those printed."
        ],
    )
