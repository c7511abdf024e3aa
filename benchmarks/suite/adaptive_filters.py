"""Conjunctions of costly filters, in orders that adapt: against the best order in hindsight, the best fixed order, and no adaptation.

*Counted*: traces of correlated filters (pairs agree on 80 % of the rows), eight of cost 1 or four of cost 1 and four of cost 100, in
stable conditions and with pass rates permuted after every 100,000 or 1,000,000 rows; the unit is the cost of one evaluation, and the
evaluations that profiling adds are counted too. *Timed*: one query with six terms (functions of Python and regular expressions) over
a web log, in epochs of 20,000 rows without a JVM; which function drops nearly all rows changes after every sixty epochs: an epoch is evaluated in the order
that the one before it has chosen, so one epoch in sixty is evaluated in the wrong one. The
homes run in turn in one process: with adapting orders, with the best order in hindsight of each phase, and with the best fixed order of
all, by the measured costs. *Nothing to gain*: the same query over rows of which every term passes all, with and without adaptation.
*Parts of the time*: A-Greedy over lookups in ten thousand values, epochs of 20,000 rows: filters on rows and on profiled rows, window, view and corrections.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.filter_traces import Bools, correlated, permuted
from benchmarks.models.filters.independent import Independent
from benchmarks.models.filters.local_swaps import LocalSwaps
from benchmarks.models.filters.sweep import Sweep
from benchmarks.models.filters.trace_replay import bernoulli, hindsight, replayed
from benchmarks.overhead_breakdown import breakdowns
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.order_cost import Floats, Ints, Order, best_order, evaluations, expected_cost
from headrace.adaptive.filters.ordering import UNSETTLED_SHARE, FilterOrdering, OrderInForce
from headrace.adaptive.filters.thinned_sample import cheap, thinned
from headrace.observation import FilterObservation
from headrace.operators.rows import ordered_filter, row_pipeline
from headrace.operators.rows.filter_profiles import Tally
from headrace.runtime.epoch import task_orders
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.plan.adaptive.filter_orders import FilterOrders

PASS_RATES = (0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8, 0.8)
"""Of pairs of filters that agree on four rows of five."""
COSTS = {"equal": (1.0,) * 8, "1 and 100": (1.0, 100.0) * 4}
ALGORITHMS: Mapping[str, tuple[Callable[..., FilterOrdering], float]] = {
    "A-Greedy": (AGreedy, 0.01),
    "Sweep": (Sweep, 0.01),
    "Independent": (Independent, 0.005),
    "LocalSwaps": (LocalSwaps, 0.01),
}
"""With the share of dropped rows that each profiles (table 4.1)."""
TRACE_ROWS = 2_000_000


def counted() -> tuple[list[dict[str, object]], dict[tuple[str, str, str], float]]:
    """The cost of a row by condition, costs of filters and algorithm, with that of the best orders."""
    table, costs_of = [], dict[tuple[str, str, str], float]()
    rng = np.random.default_rng(1)
    stable = correlated(TRACE_ROWS, PASS_RATES, 2, rng)
    for condition, period in (
        ("stable", TRACE_ROWS),
        ("each 1,000,000", 1_000_000),
        ("each 100,000", 100_000),
    ):
        dropped, phases = permuted(stable, period, np.random.default_rng(2))
        for label, row in COSTS.items():
            costs = np.asarray(row)
            ways = {
                "best in hindsight": hindsight(dropped, costs, phases) / TRACE_ROWS,
                "best fixed order": expected_cost(dropped, best_order(dropped, costs), costs),
            }
            ways["Headrace"] = _as_in_the_engine(dropped, costs) / TRACE_ROWS
            for name, (algorithm, share) in ALGORITHMS.items():
                run = replayed(dropped, costs, algorithm(tuple(range(8)), costs), bernoulli(share, 3))
                ways[name] = run.total / TRACE_ROWS
                costs_of[condition, label, f"{name} profiling"] = float(run.profiling.sum()) / run.total
            for way, cost in ways.items():
                costs_of[condition, label, way] = cost
                table.append(
                    {
                        "measured": "cost of a row",
                        "conditions": condition,
                        "filters": label,
                        "way": way,
                        "value": float(f"{cost:.4g}"),
                    }
                )
    return table, costs_of


def _as_in_the_engine(dropped: Bools, costs: Floats) -> float:
    """The cost of all rows with the decisions of the runtime after each epoch: A-Greedy, with as much profiling as is needed."""
    orders, chosen, total = FilterOrders(), OrderInForce(tuple(range(dropped.shape[1])), UNSETTLED_SHARE), 0.0
    rng = np.random.default_rng(4)
    for start in range(0, len(dropped), BATCH):
        rows = dropped[start : start + BATCH]
        evaluated = evaluations(rows, chosen.order)
        first = rows[:, chosen.order].argmax(axis=1)[rows.any(axis=1)]
        drops = np.bincount(first, minlength=len(costs))
        by_term = np.empty((2, len(costs)), np.int64)
        by_term[:, list(chosen.order)] = evaluated, drops
        sample = rows[rng.random(len(rows)) < chosen.share][: ordered_filter.MOST_SAMPLED]
        tally = Tally(chosen.order, [])
        evaluations_of_sample = _profiled(tally, sample, costs)
        total += float((by_term[0] + evaluations_of_sample) @ costs)
        nanoseconds = tuple((by_term[0] * costs).tolist())
        of_sample = tuple(tally.spent_on_sample)
        seen = FilterObservation(
            chosen.order,
            len(rows),
            tuple(by_term[0].tolist()),
            tuple(by_term[1].tolist()),
            nanoseconds,
            len(sample),
            of_sample,
            tally.patterns,
            tuple(tally.evaluated_in_sample),
        )
        chosen = orders.chosen("trace", seen)
    return total


def _profiled(tally: Tally, sample: Bools, costs: Floats) -> Ints:
    """Add a sample to a tally as a task does; how often each filter is evaluated for it."""
    is_cheap, chosen, weights = cheap(costs), np.arange(len(sample)), np.ones(len(sample), np.int64)
    if is_cheap.any() and len(sample):
        chosen, weights = thinned(sample[:, is_cheap])
    evaluated = np.where(is_cheap, len(sample), len(chosen))
    spent = (evaluated * costs).astype(np.int64)
    tally.add_sample(sample[chosen], spent.tolist(), weights, evaluated.tolist())
    return evaluated


# ------------------------------------------------------------------------------------------------ in the engine

BATCH, EPOCHS_OF_PHASE, PHASES, IDLE_EPOCHS = 20_000, 60, 4, 30
"""Rows of an epoch, epochs of a phase, phases; epochs with nothing to gain."""
PASSING = 0.05
"""The share of rows that pass the function of the phase; the others pass nineteen of twenty."""
_STREAM = (
    "CREATE STREAM requests (at TIMESTAMP, line STRING, a INT, b INT, c INT, d INT) USING push"
    " OPTIONS (archive 'none') TIMESTAMP BY at"
)
_QUERY = (
    "SELECT COUNT(*) AS n FROM requests [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE allowed_a(a) AND allowed_b(b)"
    " AND allowed_c(c) AND allowed_d(d) AND line RLIKE '^GET /shop/[a-m]' AND line RLIKE 'Firefox/1[0-9]{2}'"
)


def _allowed(value: int) -> bool:
    """A function that users write: true below 5000, found in some digits."""
    return int(f"{value:06d}"[2:]) < 5000


def _requests(epoch: int, passing: Sequence[float]) -> tuple[pa.Table, Bools]:
    """Rows whose numbers pass with these probabilities, and what each term drops; the two regular expressions agree on most rows."""
    rng = np.random.default_rng(epoch)
    dropped = np.zeros((BATCH, 6), bool)
    dropped[:, :4] = rng.random((BATCH, 4)) >= np.asarray(passing[:4])
    if passing[4] < 1:
        dropped[:, 4:] = correlated(BATCH, passing[4:], 2, rng)
    numbers = np.where(dropped[:, :4], 5000, 0) + rng.integers(0, 5000, (BATCH, 4))
    columns = {name: pa.array(numbers[:, index], pa.int32()) for index, name in enumerate("abcd")}
    pages, agents = np.where(dropped[:, 4], "z", "c"), np.where(dropped[:, 5], "99", "121")
    users = rng.integers(0, 1 << 30, BATCH).tolist()
    lines = [
        f"GET /shop/{page}{user % 97}/item?user={user} HTTP/1.1 200 Mozilla/5.0 (X11; Linux) Firefox/{agent}"
        for page, agent, user in zip(pages.tolist(), agents.tolist(), users, strict=True)
    ]
    at = 1_700_000_000_000_000 + (epoch * BATCH + np.arange(BATCH)) * 500
    return pa.table(
        {"at": pa.array(at).cast(pa.timestamp("us", tz="UTC")), "line": lines, **columns}
    ), dropped


def _passing(phase: int) -> tuple[float, ...]:
    """The function of the phase drops nearly all rows, the others few."""
    return (*(PASSING if number == phase % 4 else 1 - PASSING for number in range(4)), 0.7, 0.7)


@contextmanager
def _hub(folder: Path, name: str) -> Iterator[Hub]:
    with open_hub(folder / name, local=True) as hub:
        hub.execute(_STREAM)
        for letter in "abcd":
            hub.register_function(f"allowed_{letter}", _allowed, ["INT"], "BOOLEAN")
        hub.register(_QUERY, "q")
        yield hub


@contextmanager
def _forced(way: Order | str) -> Iterator[None]:
    """While this lasts: conjunctions in this order, without profiles; without terms ("at once"); or as they are ("adaptive")."""
    before = task_orders.filter_orders, ordered_filter.MOST_SAMPLED, row_pipeline.conjunctions_of
    try:
        if way == "at once":
            row_pipeline.conjunctions_of = lambda _: {}
        elif not isinstance(way, str):
            ordered_filter.MOST_SAMPLED = 0
            forced = OrderInForce(way, 0.0)
            task_orders.filter_orders = lambda _: _Everywhere(forced)
        yield
    finally:
        task_orders.filter_orders, ordered_filter.MOST_SAMPLED, row_pipeline.conjunctions_of = before


class _Everywhere(dict[str, OrderInForce]):
    """One order for all conjunctions; pickled as a plain dictionary with the only one there is."""

    def __init__(self, order: OrderInForce) -> None:
        super().__init__()
        self.order = order

    def __reduce__(self) -> tuple[type, tuple[OrderInForce]]:
        return _Everywhere, (self.order,)

    def get(self, _: str, __: object = None) -> OrderInForce:
        return self.order


def _run(
    ways: Mapping[str, Callable[[int], Order | str]], epochs: Sequence[Sequence[float]]
) -> dict[str, list[float]]:
    """Processor seconds of each epoch by way, in homes of their own. Raises `WrongAnswer` when two answer differently."""
    spent: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="headrace-filters-") as name, ExitStack() as opened:
        hubs = {way: opened.enter_context(_hub(Path(name), way.replace(" ", "-"))) for way in ways}
        for epoch, passing in enumerate(epochs):
            table, _ = _requests(epoch, passing)
            for way, choice in ways.items():
                hubs[way].push("requests", table)
                with _forced(choice(epoch)):
                    started = time.process_time()
                    hubs[way].catch_up()
                    spent[way].append(time.process_time() - started)
        answers = {way: hub.query("q").history().to_pylist() for way, hub in hubs.items()}
    for way, answer in answers.items():
        if answer != answers[next(iter(ways))]:
            raise WrongAnswer(f"the answers of {way} differ")
    return spent


def _costs() -> Floats:
    """Nanoseconds a row of each term, measured in a run of its own."""
    with tempfile.TemporaryDirectory(prefix="headrace-filters-") as name, _hub(Path(name), "costs") as hub:
        for epoch in range(4):
            hub.push("requests", _requests(epoch, (1.0,) * 6)[0])
            hub.catch_up()
        seen = [
            FilterObservation.of(fields)
            for line in last_lines(Path(name) / "costs", 10)
            for fields in line.get("filters", {}).values()
        ]
    return np.min([one.costs(256) for one in seen], axis=0)


def timed() -> tuple[list[dict[str, object]], dict[str, float]]:
    """The changing log with and without adaptation."""
    costs = _costs()
    samples = [_requests(phase, _passing(phase))[1] for phase in range(PHASES)]
    best = [best_order(sample, costs) for sample in samples]
    fixed = best_order(np.concatenate(samples), costs)
    epochs = [_passing(epoch // EPOCHS_OF_PHASE) for epoch in range(PHASES * EPOCHS_OF_PHASE)]
    spent = _run(
        {
            "adaptive": lambda _: "adaptive",
            "best in hindsight": lambda epoch: best[epoch // EPOCHS_OF_PHASE],
            "best fixed order": lambda _: fixed,
            "all terms on all rows": lambda _: "at once",
        },
        epochs,
    )
    idle = _run(
        {"adaptive": lambda _: "adaptive", "all terms on all rows": lambda _: "at once"},
        [(1.0,) * 6] * IDLE_EPOCHS,
    )
    total = {way: sum(times) for way, times in spent.items()}
    total |= {f"nothing to gain: {way}": statistics.median(times) * len(times) for way, times in idle.items()}
    rows = BATCH * len(epochs)
    table: list[dict[str, object]] = [
        {
            "measured": "processor time of a row (us)",
            "conditions": f"each {BATCH * EPOCHS_OF_PHASE:,}" if way in spent else "stable",
            "filters": "functions and regular expressions",
            "way": way,
            "value": float(f"{seconds / (rows if way in spent else BATCH * IDLE_EPOCHS) * 1e6:.3g}"),
        }
        for way, seconds in total.items()
    ]
    return table, total


def _counted_bars(cost: Mapping[tuple[str, str, str], float]) -> list[Ratio]:
    """Of the evaluations that are counted, by what they cost."""
    ratios = []
    for label in COSTS:
        stable, slow, fast = (
            {
                way: value
                for (when, filters, way), value in cost.items()
                if (when, filters) == (condition, label)
            }
            for condition in ("stable", "each 1,000,000", "each 100,000")
        )
        hindsight_to = {"stable": stable, "each 1,000,000 rows": slow}
        ratios += [
            Ratio(
                f"costs {label}, {when}: best in hindsight to Headrace",
                ways["best in hindsight"] / ways["Headrace"],
                0.95,
            )
            for when, ways in hindsight_to.items()
        ]
        ratios += [
            Ratio(
                f"costs {label}, stable: A-Greedy without profiling to the best order",
                stable["A-Greedy"] * (1 - stable["A-Greedy profiling"]) / stable["best in hindsight"],
                1.03,
                at_most=True,
            ),
            Ratio(
                f"costs {label}, each 100,000 rows: Sweep to A-Greedy", fast["Sweep"] / fast["A-Greedy"], 1
            ),
            Ratio(
                f"costs {label}, each 1,000,000 rows: A-Greedy to Sweep", slow["A-Greedy"] / slow["Sweep"], 1
            ),
            Ratio(
                f"costs {label}, each 1,000,000 rows: A-Greedy to Headrace",
                slow["A-Greedy"] / slow["Headrace"],
                1,
            ),
        ]
    return ratios


def _timed_bars(spent: Mapping[str, float]) -> list[Ratio]:
    """Of the times, by way."""
    return [
        Ratio(
            "time, the log that changes: best in hindsight to adaptive",
            spent["best in hindsight"] / spent["adaptive"],
            0.95,
        ),
        Ratio(
            "time, the log that changes: best fixed order to adaptive",
            spent["best fixed order"] / spent["adaptive"],
            1.5,
        ),
        Ratio(
            "time, the log that changes: all terms on all rows to adaptive",
            spent["all terms on all rows"] / spent["adaptive"],
            2,
        ),
        Ratio(
            "time, nothing to gain: adaptive to all terms on all rows",
            spent["nothing to gain: adaptive"] / spent["nothing to gain: all terms on all rows"],
            1.03,
            at_most=True,
        ),
    ]


def adaptive_filters(rows: int, rounds: int) -> Report:
    """The page; `rows` and `rounds` have no effect."""
    del rows, rounds
    table, cost = counted()
    rows_of_time, spent = timed()
    shares = breakdowns()
    largest = [max(list(parts)[1:], key=lambda part, parts=parts: parts[part]) for parts in shares.values()]
    ratios = [
        *_counted_bars(cost),
        *_timed_bars(spent),
        Ratio(
            "points at which profiled rows take most of A-Greedy's own time",
            largest.count("profiled rows"),
            len(shares),
        ),
    ]
    rows_of_time += [
        {
            "measured": "part of the time of A-Greedy (%)",
            "conditions": "stable",
            "filters": f"{filters}, {share:.0%} profiled",
            "way": part,
            "value": float(f"{100 * value:.3g}"),
        }
        for (filters, share), parts in shares.items()
        for part, value in parts.items()
    ]
    drawn = [
        Bar(
            f"{row['conditions']} · {row['filters']}, {row['way']}",
            1 / float(str(row["value"])),
            "ours" if row["way"] in ("A-Greedy", "adaptive") else "yardstick",
        )
        for row in (*table, *rows_of_time)
        if row["filters"] != "equal" and "part" not in str(row["measured"])
    ]
    assert __doc__ is not None
    return Report(
        "adaptive-filters",
        "Orders of filters that adapt",
        [*table, *rows_of_time],
        ratios,
        drawn,
        "rows per unit of cost, or us",
        [__doc__.strip()],
    )
