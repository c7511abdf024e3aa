"""Joins of four streams by one key, whose sides probe each other in orders that adapt: against the best orders in hindsight, every
fixed order, and the search in one phase.

Each epoch has five thousand new rows of each stream, and windows hold ten epochs. At any time one stream has few of the keys that the
others have: which one that is changes after every twenty-two epochs. So rows of the others should probe that stream first. In two of them
fifty keys have very many rows, that meet no row of the stream with few keys.
*Counted*: probes of the first phase (with those of samples) and rows that all hops make. What each of the 1,296 fixed orders (six for each
of the four sides) takes is computed from a run in which every row is sampled. *Timed*: homes without a JVM, in turn in one process, by
processor time of the epochs; each has the same answers. *Nothing to gain*: every row has one partner in each stream: processor time, calls
of functions and bytes of the manifest with and without adaptation.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.baselines.one_phase import one_phase
from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.adaptive.filters.order_cost import Order
from headrace.adaptive.filters.ordering import OrderInForce
from headrace.observation import ProbeObservation
from headrace.operators.joins.probing import two_phases
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles
from headrace.runtime.epoch import task_orders
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.tasks.state import state_task

STREAMS = "abcd"
QUERY = "SELECT ISTREAM(a.k, a.v, d.v AS w) FROM a [RANGE 10 SECONDS] " + " ".join(
    f"JOIN {name} [RANGE 10 SECONDS] ON {name}.k = a.k" for name in STREAMS[1:]
)
ROWS, PHASES, EPOCHS_OF_PHASE, IDLE_EPOCHS = 5_000, 4, 22, 60
KEYS = 12_000
FEW = 0.002
"""The share of rows with keys that the others have, of the stream with few of them."""
HOT, HOT_KEYS = 0.02, 50
"""The share of rows with hot keys, in the two streams that have most of the keys."""
_START, _SECOND = 1_700_000_000_000_000, 1_000_000
ORDERS: tuple[Order, ...] = tuple(permutations(range(3)))

Seen = list[dict[int, ProbeObservation]]
"""By epoch and side."""
Choice = Callable[[int], Sequence[Order]]
"""From an epoch to an order of each side."""


def changing(epoch: int) -> dict[str, np.ndarray]:
    """The keys of each stream in an epoch: those of a phase are its own. Keys below 0 are a stream's own."""
    few = epoch // EPOCHS_OF_PHASE % len(STREAMS)
    rng = np.random.default_rng(epoch)
    keys_by_stream = {}
    for number, name in enumerate(STREAMS):
        keys = rng.integers(HOT_KEYS, KEYS, ROWS)
        behind = (number - few) % len(STREAMS)
        if not behind:
            is_own = rng.random(ROWS) >= FEW
            keys[is_own] = -1 - number - len(STREAMS) * rng.integers(0, KEYS, int(is_own.sum()))
        elif behind > 1:
            hot = rng.random(ROWS) < HOT
            keys[hot] = rng.integers(0, HOT_KEYS, int(hot.sum()))
        keys[keys >= 0] += epoch // EPOCHS_OF_PHASE * KEYS
        keys_by_stream[name] = keys
    return keys_by_stream


def matching(epoch: int) -> dict[str, np.ndarray]:
    """Each key once in each stream and epoch, and never again."""
    return dict.fromkeys(STREAMS, np.arange(epoch * ROWS, (epoch + 1) * ROWS))


def _push(hub: Hub, epoch: int, keys: Mapping[str, np.ndarray]) -> None:
    at = _START + epoch * _SECOND + np.arange(ROWS) * (_SECOND // ROWS)
    for name, of_stream in keys.items():
        columns = {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "k": of_stream,
            "v": np.arange(ROWS),
        }
        hub.push(name, pa.table(columns))


def _opened(folder: Path, name: str) -> Hub:
    hub = open_hub(folder / name.replace(" ", "-").replace(",", ""), local=True)
    for stream in STREAMS:
        hub.execute(f"CREATE STREAM {stream} (at TIMESTAMP, k BIGINT, v BIGINT) USING push TIMESTAMP BY at")
    hub.register(QUERY, "q")
    return hub


class _Forced(dict[str, OrderInForce]):
    """Orders by the number of the side, whatever the join."""

    def __init__(self, orders: Sequence[Order], share: float = 0.0) -> None:
        super().__init__()
        self.orders, self.share = tuple(orders), share

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return _Forced, (self.orders, self.share)

    def get(self, name: str, _: object = None) -> OrderInForce:
        return OrderInForce(self.orders[int(name.rpartition("/")[2])], self.share)


@contextmanager
def forced(orders: Sequence[Order], share: float = 0.0) -> Iterator[None]:
    """Inside the block epochs have these orders."""
    original = task_orders.join_orders
    task_orders.join_orders = lambda _: _Forced(orders, share)
    try:
        yield
    finally:
        task_orders.join_orders = original


@contextmanager
def without_adaptation() -> Iterator[None]:
    """Inside the block nothing is measured or chosen: the smallest side is probed first."""
    original = state_task.probe_profiles
    state_task.probe_profiles = lambda *_: ProbeProfiles()
    try:
        yield
    finally:
        state_task.probe_profiles = original


def _seen(hub: Hub) -> dict[int, ProbeObservation]:
    """What was observed in the last epoch, by side."""
    joins: Mapping[str, Mapping[str, Any]] = hub.status()["last_epoch"].get("joins", {})
    return {int(name.rpartition("/")[2]): ProbeObservation.of(fields) for name, fields in joins.items()}


def sampled() -> Seen:
    """A run in which every row is sampled, so that the probes of all orders are known."""
    original, two_phases.SAMPLED = two_phases.SAMPLED, 1 << 40
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-orders-") as name,
            _opened(Path(name), "all") as hub,
        ):
            observations = []
            for epoch in range(PHASES * EPOCHS_OF_PHASE):
                _push(hub, epoch, changing(epoch))
                with forced([ORDERS[0]] * len(STREAMS), 1.0):
                    hub.catch_up()
                observations.append(_seen(hub))
            return observations
    finally:
        two_phases.SAMPLED = original


def probes_of(seen: ProbeObservation, order: Order) -> int:
    """The probes that an order takes, where every row was sampled."""
    probes, alive, tried = 0, seen.rows, 0
    for index in order:
        probes += alive
        tried |= 1 << index
        alive = seen.rows - sum(rows for bits, rows in seen.patterns.items() if bits & tried)
    return probes


def best_orders(seen: Seen) -> list[Order]:
    """For each side the order with fewest probes in some epochs."""
    return [
        min(ORDERS, key=lambda order: sum(probes_of(epoch[side], order) for epoch in seen if side in epoch))
        for side in range(len(STREAMS))
    ]


def _probes(seen: Seen, choice: Choice) -> int:
    return sum(
        probes_of(of_side, choice(epoch)[side])
        for epoch, sides in enumerate(seen)
        for side, of_side in sides.items()
    )


def _run(
    ways: Mapping[str, Callable[[int], AbstractContextManager[None]]],
    epochs: int,
    keys: Callable[[int], dict[str, np.ndarray]],
) -> tuple[dict[str, list[float]], dict[str, Seen]]:
    """Processor seconds of each epoch by way, in homes of their own, and what was observed. Raises `WrongAnswer` when two differ."""
    spent: dict[str, list[float]] = {way: [] for way in ways}
    seen: dict[str, Seen] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="headrace-orders-") as name, ExitStack() as opened:
        hubs = {way: opened.enter_context(_opened(Path(name), way)) for way in ways}
        for epoch in range(epochs):
            of_epoch = keys(epoch)
            turn = epoch % len(hubs)
            for way, hub in [*hubs.items()][turn:] + [*hubs.items()][:turn]:
                _push(hub, epoch, of_epoch)
                with ways[way](epoch):
                    started = time.process_time()
                    hub.catch_up()
                    spent[way].append(time.process_time() - started)
                seen[way].append(_seen(hub))
        answers = {way: sorted(hub.query("q").history().column("w").to_pylist()) for way, hub in hubs.items()}
    for way, answer in answers.items():
        if answer != answers[next(iter(ways))] or not answer:
            raise WrongAnswer(f"the answers of {way} differ")
    return spent, seen


def _calls_and_bytes(way: Callable[[], AbstractContextManager[None]]) -> tuple[int, int]:
    """Calls of functions of an epoch with nothing to gain, and bytes of its manifest, after ten such epochs."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with (
        tempfile.TemporaryDirectory(prefix="headrace-orders-") as name,
        _opened(Path(name), "calls") as hub,
        way(),
    ):
        for epoch in range(12):
            _push(hub, epoch, matching(epoch))
            if epoch < 11:
                hub.catch_up()
        sys.setprofile(count)
        try:
            hub.catch_up()
        finally:
            sys.setprofile(None)
        newest = max((Path(name) / "calls" / "manifests").iterdir(), key=lambda file: file.name)
        return calls, newest.stat().st_size


def join_orders(rows: int, rounds: int) -> Report:
    """`rows` and `rounds` are not used."""
    del rows, rounds
    every = sampled()
    phases = [every[start : start + EPOCHS_OF_PHASE] for start in range(0, len(every), EPOCHS_OF_PHASE)]
    of_phase, fixed = [best_orders(phase) for phase in phases], best_orders(every)

    def hindsight(epoch: int) -> Sequence[Order]:
        return of_phase[epoch // EPOCHS_OF_PHASE]

    ways: dict[str, Callable[[int], AbstractContextManager[None]]] = {
        "adaptive": lambda _: nullcontext(),
        "best in hindsight": lambda epoch: forced(hindsight(epoch)),
        "best fixed orders": lambda _: forced(fixed),
        "smallest side first": lambda _: without_adaptation(),
        "smallest side first, one phase": lambda _: _one_phase_smallest(),
        "best in hindsight, one phase": lambda epoch: _one_phase(hindsight(epoch)),
    }
    spent, seen = _run(ways, len(every), changing)
    seconds = {way: sum(times) for way, times in spent.items()}
    table, ratios = _changing_report(
        seconds, seen, _probes(every, hindsight), _probes(every, lambda _: fixed)
    )
    of_idle, idle_ratios = _idle_report()
    drawn = [Bar(way, took, "ours" if way == "adaptive" else "yardstick") for way, took in seconds.items()]
    assert __doc__ is not None
    return Report(
        "join-orders",
        "Orders of joins that adapt",
        [*table, *of_idle],
        [*ratios, *idle_ratios],
        drawn,
        "seconds",
        [__doc__.strip()],
    )


def _changing_report(
    seconds: Mapping[str, float], seen: Mapping[str, Seen], in_hindsight: int, of_fixed: int
) -> tuple[list[dict[str, object]], list[Ratio]]:
    """Of data that change: by way the probes, rows made and time; and the probes of the best orders, by phase and fixed."""
    probes = {
        way: sum(sum(of_side.probed) + of_side.profiled for sides in epochs for of_side in sides.values())
        for way, epochs in seen.items()
    }
    made = {
        way: sum(of_side.made for sides in epochs for of_side in sides.values())
        for way, epochs in seen.items()
    }
    table: list[dict[str, object]] = [
        {"measured": what, "way": way, "value": value}
        for what, by_way in (("probes", probes), ("rows made", made))
        for way, value in by_way.items()
        if value
    ]
    table += [
        {"measured": "processor time (s)", "way": way, "value": round(took, 3)}
        for way, took in seconds.items()
    ]
    adaptive, one_phase_ = "adaptive", "smallest side first, one phase"
    ratios = [
        Ratio("probes: best in hindsight to adaptive", in_hindsight / probes[adaptive], 0.9),
        Ratio("probes: best of all 1,296 fixed orders to adaptive", of_fixed / probes[adaptive], 1),
        Ratio(
            "rows made: smallest side first in one phase to adaptive", made[one_phase_] / made[adaptive], 1
        ),
    ]
    for what, way, bar in (
        ("best in hindsight", "best in hindsight", 0.9),
        ("best fixed orders", "best fixed orders", 1),
        ("smallest side first", "smallest side first", 1),
        ("smallest side first in one phase", one_phase_, 1),
    ):
        ratios.append(Ratio(f"time: {what} to adaptive", seconds[way] / seconds[adaptive], bar))
    return table, ratios


def _idle_report() -> tuple[list[dict[str, object]], list[Ratio]]:
    """Of data of which every row has partners, so that there is nothing to gain: time, calls and bytes with adaptation and without."""
    spent, _ = _run(
        {"adaptive": lambda _: nullcontext(), "without": lambda _: without_adaptation()},
        IDLE_EPOCHS,
        matching,
    )
    with_, without = _calls_and_bytes(nullcontext), _calls_and_bytes(without_adaptation)
    table: list[dict[str, object]] = [
        {"measured": f"{what}, nothing to gain", "way": way, "value": measured[index]}
        for index, what in enumerate(("calls in an epoch", "bytes of a manifest"))
        for way, measured in (("adaptive", with_), ("without", without))
    ]
    first_quarters = [statistics.quantiles(spent[way])[0] for way in ("adaptive", "without")]
    return table, [
        Ratio(
            "time, nothing to gain: with adaptation to without",
            first_quarters[0] / first_quarters[1],
            1.03,
            at_most=True,
        ),
        Ratio(
            "calls, nothing to gain: with adaptation to without", with_[0] / without[0], 1.03, at_most=True
        ),
    ]


@contextmanager
def _one_phase(orders: Sequence[Order]) -> Iterator[None]:
    with one_phase(), forced(orders):
        yield


@contextmanager
def _one_phase_smallest() -> Iterator[None]:
    """As before decision 49; measured all the same, so that its rows are counted."""
    original = state_task.probe_profiles
    state_task.probe_profiles = lambda *_: ProbeProfiles(measures=True)
    try:
        with one_phase():
            yield
    finally:
        state_task.probe_profiles = original
