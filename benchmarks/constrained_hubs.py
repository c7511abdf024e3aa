"""Joins whose constraints are found, as queries of a hub in one process: the rows of their state epoch by epoch, and the keys of their results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.constrained_joins import Arrived, Feed
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import Duration, render_duration


@dataclass(frozen=True, slots=True)
class HubState:
    """In each epoch the rows in the state of the joins; the keys of all results, ascending; and the processor time of all epochs."""

    rows: list[int]
    keys: npt.NDArray[np.int64]
    seconds: float


def states_in_hubs(names: Sequence[str], range_: Duration, feed: Feed, ways: Sequence[str]) -> list[HubState]:
    """A join of streams by one key, under windows of one length, as a query with each of some options, in a hub of its own: the hubs run each epoch
    in turn, so that none of them has the files, the memory and the machine of another time.
    """
    with ExitStack() as stack:
        hubs = [stack.enter_context(_hub(names, range_, options)) for options in ways]
        rows, spent = [list[int]() for _ in hubs], [0.0] * len(hubs)
        for epoch, (_, sides) in enumerate(feed):
            for index in range(len(hubs))[:: -1 if epoch % 2 else 1]:
                seconds, stored = _epoch(hubs[index], names, sides)
                spent[index] += seconds
                rows[index].append(stored)
        keys = [np.sort(hub.query("q").history()["k"].to_numpy()) for hub in hubs]
    return [HubState(*state) for state in zip(rows, keys, spent, strict=True)]


@contextmanager
def _hub(names: Sequence[str], range_: Duration, options: str) -> Iterator[Hub]:
    window = f"[RANGE {render_duration(range_)}]"
    sources = ", ".join(f"{name} {window}" for name in names)
    keys = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    with TemporaryDirectory() as folder, Hub(Path(folder) / "home", LocalExecutor(), tasks=1) as hub:
        for name in names:
            hub.execute(
                f"CREATE STREAM {name} (k BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at OPTIONS (archive 'none')"
            )
        hub.execute(
            f"CREATE QUERY q FROM NOW {options} AS SELECT ISTREAM({names[0]}.k) FROM {sources} WHERE {keys}"
        )
        yield hub


def _epoch(hub: Hub, names: Sequence[str], sides: Sequence[Arrived]) -> tuple[float, int]:
    """The processor time of an epoch with these rows, and the rows in the state of the joins."""
    for name, (packets, at) in zip(names, sides, strict=True):
        if len(packets):
            times = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
            hub.push(name, pa.table({"k": pa.array(packets), "at": times}))
    started = time.process_time()
    hub.catch_up()
    spent = time.process_time() - started
    seen, operators = hub.last, hub.plan.operators
    assert seen is not None
    joins = [name for name in seen.operators if name in operators and operators[name].makes_pairs]
    return spent, sum(seen.operators[name].state_rows for name in joins)
