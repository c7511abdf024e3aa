"""Joins under windows by the product's operator alone, epoch by epoch with merges as the runtime has them, and the rows and bytes of their
state: three links of a network, and cars on a motorway (Linear Road); with constraints that are declared, or found in the epochs before, and with
rows on disk that constraints have finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.adaptive.constraints.key_promises import KeyPromise
from headrace.adaptive.constraints.partner_delays import UNBOUNDED
from headrace.algebra.expressions.expression import Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.constrained_join import ConstrainedJoin, Reference
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles, probing
from headrace.operators.joins.probing.spilled_rows import are_keys, are_spilled
from headrace.operators.joins.window_join import UNTIL, WindowJoin
from headrace.runtime.messages.task_messages import RunRef
from headrace.runtime.plan.adaptive.join_orders import probe_profiles
from headrace.runtime.plan.adaptive.partner_bounds import JoinEstimates
from headrace.runtime.tasks.state.compaction import due_for_merge, due_for_review, level_after
from headrace.schema import BIGINT, Field, Schema
from headrace.time import BEGINNING, Duration

SECOND = 1_000_000
LIVE_SHARE = 0.6
"""Of reviewed runs, as in state tasks."""
Arrived = tuple[np.ndarray, np.ndarray]
"""The keys and the times of new rows of a side."""
Feed = Iterable[tuple[int, Sequence[Arrived]]]
"""By epoch its end, and the (key, time) of the new rows of each side."""

TIMED_EPOCHS = 16
"""A multiple of the epochs of which one measures delays, and one compares keys."""
FRESH = 1 << 40
BURST, BURST_RANGE = 45, 60 * SECOND
"""Packets from this number on are seen on one link alone."""
LINKS = ("customers", "backbone", "peers")
RATES, SURVIVING, LATENCY, NETWORK_RANGE = (1000, 10_000, 1000), 0.1, 15 * SECOND, 600 * SECOND
CARS, REPORTING, STOPPED, STILL, DETECTED, TICK = 10_000, 30 * SECOND, 0.005, 10, SECOND, SECOND // 4
"""Cars that report every 30 seconds; the share of reports after which a car does not move for so many more; how long after a report
the detection of a stopped car arrives; the length of an epoch.
"""


def join_of(names: Sequence[str], range_: Duration) -> WindowJoin:
    """A join of sides with these names by one key, under windows of one length."""
    sides = []
    for number, name in enumerate(names):
        stored = Schema((Field(f"s{number}.value", BIGINT),) if number == 0 else ())
        key = (Column(f"s{number}.key", BIGINT),)
        sides.append(Side((number,), stored, (), key, range_, None, range_, name=name))
    shown = Schema((Field("s0.value", BIGINT), Field(UNTIL, BIGINT)))
    return WindowJoin(JoinSpec("q.inner", "q", "@sides", tuple(sides), None, shown, 0))


def finding(join: WindowJoin) -> ConstrainedJoin:
    """The join, which drops rows by constraints that it finds."""
    none = ((),) * len(join.spec.sides)
    return ConstrainedJoin(join.spec, promises=none, finds_bounds=True)


def spilling(join: ConstrainedJoin) -> ConstrainedJoin:
    """The join, which keeps rows that constraints finish on disk."""
    return replace(join, spill=UNBOUNDED)


def declared_network() -> ConstrainedJoin:
    """The join of the three links with the constraints that their packets obey."""
    unique = KeyPromise("unique", 0, "UNIQUE (packet)")
    references = [Reference(0, 1, LATENCY, ""), Reference(1, 2, LATENCY, "")]
    references += [Reference(1, 0, 0, ""), Reference(2, 1, 0, "")]
    join = join_of(LINKS, NETWORK_RANGE)
    return ConstrainedJoin(join.spec, promises=((unique,),) * 3, references=tuple(references))


def packets_of_links(seconds: int) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """By second and link (packet, time): a tenth of the customers' packets pass the backbone, a tenth of these the peers' link."""
    rng = np.random.default_rng(1)
    coming: list[list[tuple[np.ndarray, np.ndarray]]] = [[], []]
    fresh = FRESH
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
        yield start + SECOND, by_link


def packets_in_bursts(seconds: int) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """By second (packet, time): 1000 packets enter, numbered in order; one of four passes, in bursts every 45 seconds."""
    for second in range(seconds):
        packets = second * 1000 + np.arange(1000)
        passed = (
            np.arange((second - BURST) * 1000, second * 1000, 4)
            if second and second % BURST == 0
            else packets[:0]
        )
        yield (
            (second + 1) * SECOND,
            [
                (packets, second * SECOND + np.arange(1000) * (SECOND // 1000)),
                (passed, np.full(len(passed), second * SECOND)),
            ],
        )


def packets_delayed(seconds: int) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """By two seconds (packet, time): 2000 packets enter, half of them pass within 5 seconds; from the middle of the time on one of 100 takes 30 to 240."""
    rng = np.random.default_rng(1)
    waiting = (np.empty(0, np.int64), np.empty(0, np.int64))
    for second in range(0, seconds, 2):
        packets, at = second * 1000 + np.arange(2000), second * SECOND + np.arange(2000) * (SECOND // 1000)
        chosen = rng.random(2000) < 0.5
        many = int(chosen.sum())
        is_slow = (rng.random(many) < 0.01) & (2 * second >= seconds)
        delays = np.where(
            is_slow, rng.integers(30 * SECOND, 240 * SECOND, many), rng.integers(0, 5 * SECOND, many)
        )
        later = at[chosen] + delays
        keys, times = np.concatenate([waiting[0], packets[chosen]]), np.concatenate([waiting[1], later])
        now = times < (second + 2) * SECOND
        order = np.argsort(times[now], kind="stable")
        waiting = keys[~now], times[~now]
        yield (second + 2) * SECOND, [(packets, at), (keys[now][order], times[now][order])]


def packets_twice(seconds: int) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """By second (packet, time): packets of random numbers, each on two links, up to 50 seconds before or after; 1000 a second."""
    rng, rows = np.random.default_rng(1), 1000 * seconds
    packets = rng.permutation(rows) * 7919
    first = np.arange(rows) * (SECOND // 1000)
    second = np.clip(first + rng.integers(-50 * SECOND, 50 * SECOND, rows), 0, seconds * SECOND - 1)
    order = np.argsort(second, kind="stable")
    for number in range(seconds):
        at, until = number * SECOND, (number + 1) * SECOND
        low, high = np.searchsorted(second[order], [at, until])
        here, there = slice(number * 1000, number * 1000 + 1000), order[low:high]
        yield until, [(packets[here], first[here]), (packets[there], second[there])]


def reports(seconds: int) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """By epoch the reports of cars, and the detections that a car has stopped (the fourth report of one place, and the ones after it);
    of each (car, time).
    """
    rng = np.random.default_rng(1)
    due = rng.integers(0, REPORTING, CARS)
    still = np.full(CARS, -1)  # reports for which a car goes without moving; -1: it moves
    waiting = (np.empty(0, np.int64), np.empty(0, np.int64))
    for end in range(TICK, seconds * SECOND + 1, TICK):
        cars = np.flatnonzero(due < end)
        cars = cars[np.argsort(due[cars], kind="stable")]
        at = due[cars]
        due[cars] += REPORTING + rng.integers(1, SECOND, len(cars))
        stops = (still[cars] < 0) & (rng.random(len(cars)) < STOPPED)
        still[cars] = np.where(stops, 0, np.where(still[cars] >= 0, still[cars] + 1, -1))
        seen = (
            cars[still[cars] >= 3],
            at[still[cars] >= 3] + rng.integers(0, DETECTED, int((still[cars] >= 3).sum())),
        )
        still[cars[still[cars] >= STILL]] = -1
        keys, times = (np.concatenate(both) for both in zip(waiting, seen, strict=True))
        now = times < end
        order = np.argsort(times[now], kind="stable")
        waiting = keys[~now], times[~now]
        yield end, [(cars, at), (keys[now][order], times[now][order])]


def reports_twice(seconds: int) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """The reports of cars as two sources: their last ones, and which cars are active."""
    for end, (cars, _) in reports(seconds):
        yield end, [cars, cars]


@dataclass(slots=True)
class StateOverTime:
    """After each epoch the rows and the bytes of the state, without those on disk, and the bytes on disk; of all epochs the results, and how many of them
    were made with rows from there.
    """

    rows: list[int]
    sizes: list[int]
    results: int
    on_disk: list[int] = field(default_factory=list)
    from_disk: int = 0


def state_over(join: WindowJoin, feed: Feed) -> StateOverTime:
    """The state of a join after each epoch. A join that finds constraints uses those that were found before the epoch."""
    runs: list[tuple[RunRef, Sections]] = []
    state, estimates = StateOverTime([], [], 0), JoinEstimates()
    advance = Advance(BEGINNING, 0, 0)
    for epoch, (now, sides) in enumerate(feed):
        advance = Advance(
            BEGINNING,
            now,
            now,
            input_punctuations=(now,) * len(sides),
            partner_bounds=advance.partner_bounds,
        )
        deltas = []
        for number, (keys, at) in enumerate(sides):
            scanner = join.scanner({})
            columns = {f"s{number}.key": pa.array(keys), f"s{number}.value": pa.array(keys % 1500)}
            scanner.add(Batch(columns, at, placed(np.arange(len(at)), number)))
            deltas.append(scanner.finish().deltas)
        profiles = ProbeProfiles(measures=join.finds_bounds)
        with probing(profiles):
            step = join.advance([run for _, run in runs], deltas, advance)
        state.results += 0 if step.results is None else step.results.num_rows
        if step.state:
            runs.append((RunRef(str(epoch), 0, 256, 0, _bytes(step.state), epoch), dict(step.state)))
        due = set(due_for_merge([ref for ref, _ in runs]))
        for names in due_for_review([ref for ref, _ in runs], epoch):
            reviewed = [(ref, run) for ref, run in runs if ref.name in names]
            needed = _searched(_compacted(join, reviewed, advance))
            if needed < LIVE_SHARE * sum(_searched(run) for _, run in reviewed):
                due |= set(names)
        if due:
            runs = _merged(join, runs, due, advance, epoch)
        stored = [{name: table for name, table in run.items() if not are_spilled(name)} for _, run in runs]
        state.rows.append(
            sum(table.num_rows for run in stored for name, table in run.items() if not are_keys(name))
        )
        state.sizes.append(sum(map(_bytes, stored)))
        state.on_disk.append(sum(_bytes(run) for _, run in runs) - state.sizes[-1])
        for seen in profiles.delays.values():
            state.from_disk += seen.from_spill
            advance = replace(advance, partner_bounds=estimates.take(seen, join.longest_stored))
    return state


def _compacted(
    join: WindowJoin, merging: Sequence[tuple[RunRef, Sections]], advance: Advance
) -> dict[str, pa.Table]:
    """What is still needed of some runs."""
    sections = {
        name: [run[name] for _, run in merging if name in run]
        for name in dict.fromkeys(name for _, run in merging for name in run)
    }
    ready = join.before_merge(sections, advance)
    tables = {name: join.compact(name, parts, advance) for name, parts in ready.items()}
    return {name: table for name, table in tables.items() if table.num_rows}


def _merged(
    join: WindowJoin, runs: Sequence[tuple[RunRef, Sections]], due: set[str], advance: Advance, epoch: int
) -> list[tuple[RunRef, Sections]]:
    merging = [(ref, run) for ref, run in runs if ref.name in due]
    nonempty = _compacted(join, merging, advance)
    counts = [(ref.level, sum(table.num_rows for table in run.values())) for ref, run in merging]
    level = level_after(counts, sum(table.num_rows for table in nonempty.values()))
    rest = [(ref, run) for ref, run in runs if ref.name not in due]
    return (
        [*rest, (RunRef(f"m{epoch}", 0, 256, level, _bytes(nonempty), epoch), nonempty)] if nonempty else rest
    )


def _searched(sections: Sections) -> int:
    return sum(table.nbytes for name, table in sections.items() if not are_spilled(name))


def _bytes(sections: Sections) -> int:
    return sum(table.nbytes for table in sections.values())


def epoch_time(sides: int, rows: int, *, measures: bool) -> float:
    """Processor seconds of an epoch of a join, its scans and its advance: so many new rows of each side, about a pair for each, under windows
    of six epochs.
    """
    join, rng, runs, spent = (
        join_of(LINKS[:sides], 6 * SECOND),
        np.random.default_rng(1),
        list[Sections](),
        0.0,
    )
    for epoch in range(TIMED_EPOCHS):
        now = (epoch + 1) * SECOND
        advance = Advance(BEGINNING, now, now, input_punctuations=(now,) * sides)
        batches, deltas = list[Batch](), []
        for number in range(sides):
            keys = rng.integers(0, 6 * rows, rows)
            columns = {f"s{number}.key": pa.array(keys), f"s{number}.value": pa.array(keys % 1500)}
            at = np.sort(rng.integers(epoch * SECOND, now, rows))
            batches.append(Batch(columns, at, placed(np.arange(rows), number)))
        started = time.process_time()
        for batch in batches:
            scanner = join.scanner({})
            scanner.add(batch)
            deltas.append(scanner.finish().deltas)
        with probing(probe_profiles({}, epoch) if measures else ProbeProfiles()):
            step = join.advance(runs[-6:], deltas, advance)
        spent += time.process_time() - started
        runs.append(step.state)
    return spent / TIMED_EPOCHS
