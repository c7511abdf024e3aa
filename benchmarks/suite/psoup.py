"""PSoup's experiments again: Figures 7 (equality and interval predicates) and 8 (two attributes in a factor), Table 2, Figure 9.

Three modes of one query: nothing kept (the paper's NoMat), which rows pass (PSoup-P), the answer itself (PSoup-C). Constants
and widths are drawn as in the paper; rows have four attributes in 0..255. Figure 8 has its factors, `a RELOP b ± c`, and its small
windows, but one stream instead of two (a query that joins streams keeps its answer, and nothing less), so that what NoMat evaluates grows with
the window and not with its square, and over a few hundred rows takes about as long as reading their bits. Counted is what an INVOKE does: factors evaluated, bits
read, rows returned. The order of the modes must hold by these counters everywhere, and by time where the paper's ratio
exceeds 3. Times are medians of medians; the paper's own are of one tuple at a time, ours of columns, so that scanning costs
us far less, and what is kept of a selection pays where it spares reading, not evaluating.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import queries_data as data
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.suite.invoke import COLUMNS, rows_of, window
from benchmarks.thresholds import Ratio
from headrace.operators.base.batch import Batch
from headrace.operators.on_demand.selection import Selection
from headrace.operators.on_demand.shared_selections import SharedSelections
from headrace.operators.rows.row_pipeline import RowPipeline
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.deferred_window import Invocation

MODES = ("none", "partial", "complete")
PAPER = {"none": "NoMat", "partial": "PSoup-P", "complete": "PSoup-C"}
WINDOWS = (1 << 7, 1 << 10, 1 << 13, 1 << 15)
NEAR = (64, 128, 256, 384, 576)
"""Windows of Figure 8."""
FACTORS = (1, 2, 4)
QUERIES = 3
TIMES = 5


@dataclass(frozen=True, slots=True)
class Point:
    """One kind of predicate, so many of them, over a window of so many rows."""

    kind: str
    factors: int
    rows: int


def figure_7(rows: int, rounds: int) -> Report:
    """Invocation by window, predicates and mode, and Table 2 out of it; `rows` has no effect."""
    del rows
    points = [Point(kind, n, size) for kind in ("equal", "interval") for n in FACTORS for size in WINDOWS]
    points += [Point("columns", 1, size) for size in NEAR]
    spent: dict[tuple[Point, str], list[float]] = {}
    counted: dict[tuple[Point, str], list[tuple[int, int, int]]] = {}
    with _home() as hub:
        names = _registered(hub, points)
        for _ in range(rounds):
            for (point, mode), queries in names.items():
                for name in queries:
                    spent.setdefault((point, mode), []).append(
                        _median(lambda name=name: hub.query(name).invoke())
                    )
        for (point, mode), queries in names.items():
            counted[point, mode] = [_counted(hub, name) for name in queries]
        for point in points:
            _same(hub, names, point)
    median = {case: statistics.median(times) for case, times in spent.items()}
    table = [_row(point, mode, median[point, mode], counted[point, mode]) for point, mode in names]
    return Report(
        "psoup",
        "INVOKE by window, predicates and what is kept (PSoup, Figures 7 and 8, Table 2)",
        table,
        _ratios(median, counted),
        [],
        "ms",
        [_doc()],
        picture=_picture(median),
    )


def _doc() -> str:
    assert __doc__ is not None
    return __doc__.strip()


def _registered(hub: Hub, points: list[Point]) -> dict[tuple[Point, str], list[str]]:
    names: dict[tuple[Point, str], list[str]] = {}
    script = []
    for at, point in enumerate(points):
        kind = ("interval", "equal", "columns").index(point.kind)
        rng = np.random.default_rng([data.SEED, FACTORS.index(point.factors), kind])
        for number in range(QUERIES):
            where = _where(rng, point)
            for mode in MODES:
                name = f"{mode}_{at}_{number}"
                script.append(
                    f"CREATE QUERY {name} OPTIONS (materialize '{mode}') AS"
                    f" SELECT key, v FROM s WHERE {where} {window(point.rows)};"
                )
                names.setdefault((point, mode), []).append(name)
    hub.execute("".join(script))
    for index in range(2):
        hub.push("s", rows_of(index, max(WINDOWS)))
        hub.catch_up()
    return names


def _where(rng: np.random.Generator, point: Point) -> str:
    """Conjuncts on so many attributes, or one between two of them; a constant in five is a multiple of 32."""
    if point.kind == "columns":
        constant = int(rng.integers(0, 8)) * 32 if rng.random() < 0.2 else int(rng.integers(0, data.VALUES))
        return f"a {rng.choice(['<', '<=', '>=', '>'])} b {rng.choice(['+', '-'])} {constant}"
    factors = []
    for name in data.ATTRIBUTES[: point.factors]:
        low = int(rng.integers(0, 8)) * 32 if rng.random() < 0.2 else int(rng.integers(0, data.VALUES))
        width = int(rng.integers(0, data.VALUES))
        factors.append(
            f"{name} = {low}" if point.kind == "equal" else f"{name} >= {low} AND {name} <= {low + width}"
        )
    return " AND ".join(factors)


def _median(ask: Callable[[], Any]) -> float:
    spent = []
    for _ in range(TIMES):
        started = time.perf_counter()
        ask()
        spent.append((time.perf_counter() - started) * 1000)
    return statistics.median(spent)


def _counted(hub: Hub, name: str) -> tuple[int, int, int]:
    """Factors evaluated, bits read, rows fetched; an answer that is kept whole is only returned."""
    operator, _ = hub.operator_and_query(name)
    if not isinstance(operator, Selection):
        return 0, 0, hub.query(name).invoke().num_rows
    call = Invocation(hub.home, hub.home.latest(), operator)
    call.answer()
    return call.effort.factors, call.effort.bits, call.effort.rows


def _same(hub: Hub, names: dict[tuple[Point, str], list[str]], point: Point) -> None:
    for queries in zip(*(names[point, mode] for mode in MODES), strict=True):
        one, *others = (hub.query(name).invoke() for name in queries)
        if not all(one.equals(other) for other in others):
            raise WrongAnswer(f"{queries} differ")


def _row(point: Point, mode: str, median: float, counted: list[tuple[int, int, int]]) -> dict[str, Any]:
    factors, bits, rows = (round(statistics.mean(column)) for column in zip(*counted, strict=True))
    return {
        "predicates": f"{point.factors} {point.kind}",
        "window": point.rows,
        "kept": f"{mode} ({PAPER[mode]})",
        "median_ms": round(median, 3),
        "factors_evaluated": factors,
        "bits_looked_at": bits,
        "rows_handed_over": rows,
    }


def _ratios(
    median: dict[tuple[Point, str], float], counted: dict[tuple[Point, str], list[tuple[int, int, int]]]
) -> list[Ratio]:
    largest = max(WINDOWS)
    ratios = _counters(counted)
    for n in FACTORS:
        equal = Point("equal", n, largest)
        ratios += [_order("Figure 7a", median, equal, "none", "partial")]
        ratios += [_order("Figure 7a", median, equal, "partial", "complete")]
    for n in FACTORS:
        interval = Point("interval", n, largest)
        ratios += [_order("Table 2", median, interval, "none", mode) for mode in ("partial", "complete")]
    ratios += [_order("Table 2", median, Point("interval", 4, largest), "partial", "complete")]
    return [*ratios, _order("Figure 8", median, Point("columns", 1, max(NEAR)), "none", "complete")]


def _counters(counted: dict[tuple[Point, str], list[tuple[int, int, int]]]) -> list[Ratio]:
    """What holds whatever the machine: which mode evaluates, which reads bits, which touches the answer alone."""
    evaluated = sum(
        n for (_, mode), invocations in counted.items() if mode != "none" for n, _, _ in invocations
    )
    off = sum(
        abs(bits - point.rows)
        for (point, mode), invocations in counted.items()
        if mode == "partial"
        for _, bits, _ in invocations
        if bits
    )
    beside = sum(
        abs(mine[2] - theirs[2])
        for (point, mode), invocations in counted.items()
        if mode != "complete"
        for mine, theirs in zip(invocations, counted[point, "complete"], strict=True)
    )
    factors = {
        point: statistics.mean(n for n, _, _ in invocations)
        for (point, mode), invocations in counted.items()
        if mode == "none"
    }
    off_of_window = sum(
        abs(factors[point] - point.factors * point.rows * (1 + (point.kind == "interval")))
        for point in factors
    )
    return [
        Ratio("factors evaluated by an INVOKE of what is kept", evaluated, 0, at_most=True),
        Ratio("bits that PSoup-P reads besides those of the window", off, 0, at_most=True),
        Ratio("rows that any mode returns besides the answer", beside, 0, at_most=True),
        Ratio(
            "factors that NoMat evaluates besides each one on each row of the window",
            off_of_window,
            0,
            at_most=True,
        ),
    ]


def _order(what: str, median: dict[tuple[Point, str], float], point: Point, slow: str, quick: str) -> Ratio:
    """The paper's ratio exceeds 3 here, so the order must hold by time."""
    name = f"{what}, {point.factors} {point.kind}: {PAPER[slow]} to {PAPER[quick]}, by time"
    return Ratio(name, median[point, slow] / median[point, quick], 1)


def _picture(median: dict[tuple[Point, str], float]) -> Curves:
    drawn = [
        Curve(
            f"{PAPER[mode]}, {kind}",
            list(WINDOWS),
            [median[Point(kind, 2, size), mode] for size in WINDOWS],
            "ours" if mode == "partial" else "theirs",
        )
        for mode in MODES
        for kind in ("equal", "interval")
    ]
    return Curves("INVOKE, two predicates", ("rows in the window", "ms"), drawn, logarithmic=(True, True))


# ---------------------------------------------------------------------------------------------------------- Figure 9

MANY = (1 << 7, 1 << 9, 1 << 10, 1 << 12)
ARRIVING = 1000


def figure_9(rows: int, rounds: int) -> Report:
    """Arrival rate by the number of inequality queries over a window of 1000 rows; `rows` has no effect."""
    del rows
    ways = {"PSoup-P, index": _shared, "PSoup-P, each alone": _alone, "PSoup-C, index": _lists}
    rate: dict[tuple[str, int], float] = {}
    for many in MANY:
        members, batches = _selections(many), [_batch(index) for index in range(4)]
        for name, way in ways.items():
            rates = []
            for _ in range(rounds):
                take = way(members)
                take(batches[0])
                started = time.perf_counter()
                for batch in batches[1:]:
                    take(batch)
                rates.append(3 * ARRIVING / (time.perf_counter() - started))
            rate[name, many] = statistics.median(rates)
    table = [
        {"way": name, "queries": many, "median_rows_per_second": round(rate[name, many])}
        for name in ways
        for many in MANY
    ]
    ratios = [
        Ratio(
            f"PSoup-P with the index to each alone, {many} queries",
            rate["PSoup-P, index", many] / rate["PSoup-P, each alone", many],
            bound,
        )
        for many, bound in ((MANY[0], 5), (MANY[-1], 10))
    ]
    ratios += [
        Ratio(
            f"PSoup-P to PSoup-C, {many} queries",
            rate["PSoup-P, index", many] / rate["PSoup-C, index", many],
            1,
        )
        for many in MANY
    ]
    drawn = [
        Curve(name, list(MANY), [rate[name, many] for many in MANY], "ours" if "P, i" in name else "theirs")
        for name in ways
    ]
    picture = Curves(
        "Rows a second by standing queries", ("queries", "rows/s"), drawn, logarithmic=(True, True)
    )
    return Report(
        "psoup-rate",
        "Arrival rate by standing queries (PSoup, Figure 9)",
        table,
        ratios,
        [],
        "rows/s",
        [_NINE],
        picture=picture,
    )


_NINE = (
    "Kernels alone, in one process: batches of 1000 rows against inequality predicates on four attributes. PSoup-C also keeps a list of "
    "the rows of each query's present window, appended to and expired batch by batch."
)


def _selections(many: int) -> tuple[Selection, ...]:
    rng = np.random.default_rng([data.SEED, 9])
    with _home() as hub:
        texts = {}
        for number in range(many):
            operator, name = rng.choice(["<", "<=", ">=", ">"]), rng.choice(data.ATTRIBUTES)
            low = int(rng.integers(0, 8)) * 32 if rng.random() < 0.2 else int(rng.integers(0, data.VALUES))
            texts[f"q{number}"] = f"SELECT key, v FROM s WHERE {name} {operator} {low} {window(ARRIVING)}"
        hub.register_many(texts)
        operators = [hub.operator_and_query(name)[0] for name in texts]
    return tuple(shared for shared in operators if isinstance(shared, Selection))


def _batch(index: int) -> Batch:
    rows = rows_of(index, ARRIVING)
    columns = {name: rows[name].combine_chunks() for name in data.ATTRIBUTES}
    at = rows["at"].cast("int64").to_numpy()
    return Batch(columns, at, (index << 32) + np.arange(ARRIVING))


def _shared(selections: tuple[Selection, ...]) -> Callable[[Batch], None]:
    return SharedSelections.of(selections).add


def _alone(selections: tuple[Selection, ...]) -> Callable[[Batch], None]:
    pipelines = [RowPipeline.of(selection.steps, {}) for selection in selections]

    def take(batch: Batch) -> None:
        for pipeline in pipelines:
            pipeline.apply(batch)

    return take


def _lists(selections: tuple[Selection, ...]) -> Callable[[Batch], None]:
    from headrace.operators.query_index.matching.match import match  # noqa: PLC0415

    plan = SharedSelections.of(selections).plan
    lists: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in selections]

    def take(batch: Batch) -> None:
        matched = match(plan.index, batch.columns, batch.rows)
        passed = int(batch.at[-1]) - ARRIVING * data.STEP_US
        for index, slot in enumerate(plan.slots.tolist()):
            rows = np.flatnonzero(matched.rows_of(slot))
            lists[index].append((batch.at[rows], batch.position[rows]))
            lists[index] = [
                (at[at > passed], where[at > passed])
                for at, where in lists[index]
                if len(at) and at[-1] > passed
            ]

    return take


@contextmanager
def _home() -> Iterator[Hub]:
    with (
        tempfile.TemporaryDirectory(prefix="headrace-psoup-") as folder,
        open_hub(Path(folder), local=True) as hub,
    ):
        hub.execute(
            f"CREATE STREAM s (at TIMESTAMP, key INT, v BIGINT, {COLUMNS}) USING push TIMESTAMP BY at"
        )
        yield hub
