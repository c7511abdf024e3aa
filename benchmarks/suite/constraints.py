"""State that k-constraints save: rows held by joins on generated arrivals (the thesis' experiments 6.1 to 6.9), and bytes held by the
product's join of three links of a network, with CONSTRAINT and without.

All is counted; the table is the same in every run. *Arrivals*: joins of many-one graphs under windows of 10,000 rows, with k of 0 to
4000 (a fifth of the thesis' sizes), against the rows of whole windows. *Monitors*: k is found, while it is constant, rises and falls. *Network*: packets
pass three links, 1000, 10,000 and 1000 a second under windows of ten minutes; one of ten that enter is seen on the next link
within 15 seconds. The join's operator runs by itself, epoch by epoch, with merges as the runtime has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
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
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.adaptive.constraints.constrained_mjoin import Constraints
from headrace.adaptive.constraints.k_estimate import KEstimate
from headrace.adaptive.constraints.key_bounds import Clustered, Ordered
from headrace.adaptive.constraints.key_promises import KeyPromise
from headrace.adaptive.constraints.whole_windows import WholeWindows
from headrace.algebra.expressions.expression import Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.constrained_join import ConstrainedJoin, Reference
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.window_join import UNTIL, WindowJoin
from headrace.runtime.messages.task_messages import RunRef
from headrace.runtime.tasks.state.compaction import due_for_merge, level_after
from headrace.schema import BIGINT, Field, Schema
from headrace.time import BEGINNING

WINDOW, UNITS, BATCH = 10_000, 12_000, 1_400
KS = (0, 1_000, 2_000, 4_000)
INTEGRITY_KS = (100, 400, 1_600, 4_000)
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
    """The rows held, by experiment and k; -1 is for whole windows."""
    table, figures = [], Found()
    for name, (make, constraints) in EXPERIMENTS.items():
        for k in KS:
            trace = make(UNITS, k, np.random.default_rng(1))
            held, results, _ = _settled(trace, constraints(trace))
            _, expected, _ = _settled(trace, Constraints())
            if results != expected:
                raise WrongAnswer(f"{name}, k = {k}: {results} results in place of {expected}")
            figures[name, k] = held
            table.append(_row("rows and numbers held", name, f"k = {k:,}", held))
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


# ------------------------------------------------------------------------------------------------ the network

SECOND, LINKS = 1_000_000, ("customers", "backbone", "peers")
RATES, SURVIVING, LATENCY, NETWORK_RANGE = (1000, 10_000, 1000), 0.1, 15 * SECOND, 600 * SECOND
ROW_BYTES = 10
"""Of the thesis' packets; the bytes of this engine's rows are in the table too."""


def _network_join(*, constrained: bool) -> WindowJoin:
    sides = []
    for number in range(3):
        key = (Column(f"s{number}.pid", BIGINT),)
        stored = Schema((Field(f"s{number}.size", BIGINT),) if number == 0 else ())
        sides.append(Side((number,), stored, (), key, NETWORK_RANGE, None, NETWORK_RANGE, name=LINKS[number]))
    shown = Schema((Field("s0.size", BIGINT), Field(UNTIL, BIGINT)))
    spec = JoinSpec("q.inner", "q", "@links", tuple(sides), None, shown, 0)
    if not constrained:
        return WindowJoin(spec)
    unique = KeyPromise("unique", 0, "UNIQUE (pid)")
    references = [Reference(0, 1, LATENCY, ""), Reference(1, 2, LATENCY, "")]
    references += [Reference(1, 0, 0, ""), Reference(2, 1, 0, "")]
    return ConstrainedJoin(spec, promises=((unique,),) * 3, references=tuple(references), values=("",) * 3)


def _packets(seconds: int) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """By second and link (packet, time): a tenth of the customers' packets pass the backbone, a tenth of these the peers' link."""
    rng = np.random.default_rng(1)
    coming: list[list[tuple[np.ndarray, np.ndarray]]] = [[], []]
    fresh = 1 << 40
    for second in range(seconds):
        start = second * SECOND
        at = start + np.sort(rng.integers(0, SECOND, RATES[0]))
        packets = second * RATES[0] + np.arange(RATES[0])
        by_link = [(packets, at)]
        for link in (1, 2):
            passed = rng.random(len(packets)) < SURVIVING
            coming[link - 1].append((packets[passed], at[passed] + rng.integers(0, LATENCY, passed.sum())))
            ids, times = (np.concatenate(parts) for parts in zip(*coming[link - 1], strict=True))
            now = times < start + SECOND
            coming[link - 1] = [(ids[~now], times[~now])]
            others = max(0, RATES[link] - int(now.sum()))
            other_times = start + rng.integers(0, SECOND, others)
            packets, at = ids[now], times[now]
            whole = np.concatenate([packets, fresh + np.arange(others)]), np.concatenate([at, other_times])
            fresh += others
            by_link.append(whole)
        yield by_link


def _state(join: WindowJoin, seconds: int) -> tuple[list[int], list[int], int]:
    """Rows and bytes in the state after each epoch of a second, and the number of results."""
    runs: list[tuple[RunRef, Sections]] = []
    rows, sizes, results = [], [], 0
    for epoch, links in enumerate(_packets(seconds)):
        now = (epoch + 1) * SECOND
        advance = Advance(BEGINNING, now, now, input_punctuations=(now,) * 3)
        deltas = []
        for number, (packets, at) in enumerate(links):
            scanner = join.scanner({})
            columns = {f"s{number}.pid": pa.array(packets), f"s{number}.size": pa.array(packets % 1500)}
            scanner.add(Batch(columns, at, placed(np.arange(len(at)), number)))
            deltas.append(scanner.finish().deltas)
        step = join.advance([run for _, run in runs], deltas, advance)
        results += 0 if step.results is None else step.results.num_rows
        if step.state:
            runs.append((RunRef(str(epoch), 0, 256, 0, _bytes(step.state), epoch), dict(step.state)))
        due = set(due_for_merge([ref for ref, _ in runs]))
        if due:
            runs = _merged(join, runs, due, advance, epoch)
        rows.append(sum(table.num_rows for _, run in runs for table in run.values()))
        sizes.append(sum(_bytes(run) for _, run in runs))
    return rows, sizes, results


def _merged(
    join: WindowJoin, runs: Sequence[tuple[RunRef, Sections]], due: set[str], advance: Advance, epoch: int
) -> list[tuple[RunRef, Sections]]:
    merging = [(ref, run) for ref, run in runs if ref.name in due]
    sections = {
        name: [run[name] for _, run in merging if name in run]
        for name in join.sections
        if any(name in run for _, run in merging)
    }
    ready = join.before_merge(sections, advance)
    tables = {name: join.compact(name, parts, advance) for name, parts in ready.items()}
    nonempty = {name: table for name, table in tables.items() if table.num_rows}
    counts = [(ref.level, sum(table.num_rows for table in run.values())) for ref, run in merging]
    level = level_after(counts, sum(table.num_rows for table in nonempty.values()))
    rest = [(ref, run) for ref, run in runs if ref.name not in due]
    return (
        [*rest, (RunRef(f"m{epoch}", 0, 256, level, _bytes(nonempty), epoch), nonempty)] if nonempty else rest
    )


def _bytes(sections: Sections) -> int:
    return sum(table.nbytes for table in sections.values())


def network() -> tuple[list[dict[str, object]], Found]:
    """Bytes of the state with constraints, and of the whole windows, at the end of ten minutes."""
    rows, sizes, results = _state(_network_join(constrained=True), 60)
    _, _, expected = _state(_network_join(constrained=False), 60)
    if results != expected:
        raise WrongAnswer(f"{results} results with constraints, {expected} without")
    whole = sum(RATES) * NETWORK_RANGE // SECOND
    most, size = max(rows[30:]), max(sizes[30:])
    figures = {("windows", 0): whole * ROW_BYTES, ("constrained", 0): most * ROW_BYTES, ("engine", 0): size}
    ways = {"whole windows": figures["windows", 0], "with constraints": figures["constrained", 0]}
    table = [
        _row("bytes, of 10 a row", "three links, ten minutes", way, value) for way, value in ways.items()
    ]
    table.append(_row("bytes in memory", "three links, ten minutes", "with constraints", size))
    return table, figures


def constraints(rows: int, rounds: int) -> Report:
    """`rows` and `rounds` change nothing."""
    del rows, rounds
    parts = [on_arrivals(), combined(), monitored(), network()]
    table = [row for part_rows, _ in parts for row in part_rows]
    held, both, monitor, links = (figures for _, figures in parts)
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
    ratios += [
        Ratio(
            "network: whole windows to rows with constraints",
            links["windows", 0] / links["constrained", 0],
            72,
        ),
        Ratio("network: megabytes of rows of 10 bytes", links["constrained", 0] / 1e6, 1, at_most=True),
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
            "Counted: every run has the same figures. Arrivals are those of the thesis' graphs; windows have 10,000 rows, a fifth of those printed."
        ],
    )
