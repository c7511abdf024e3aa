"""Joins whose constraints are found, as queries of a hub in one process: the rows of their state epoch by epoch, and the keys of their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.constrained_joins import Feed
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import Duration, render_duration


@dataclass(frozen=True, slots=True)
class HubState:
    """In each epoch the rows in the state of the joins; the keys of all results, ascending; and the processor time of all epochs."""

    rows: list[int]
    keys: npt.NDArray[np.int64]
    seconds: float


def state_in_hub(names: Sequence[str], range_: Duration, feed: Feed, options: str = "") -> HubState:
    """A join of streams by one key, under windows of one length, as a query with these options."""
    window = f"[RANGE {render_duration(range_)}]"
    sources = ", ".join(f"{name} {window}" for name in names)
    keys = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    rows, spent = list[int](), 0.0
    with TemporaryDirectory() as folder, Hub(Path(folder) / "home", LocalExecutor(), tasks=1) as hub:
        for name in names:
            hub.execute(
                f"CREATE STREAM {name} (k BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at OPTIONS (archive 'none')"
            )
        hub.execute(
            f"CREATE QUERY q FROM NOW {options} AS SELECT ISTREAM({names[0]}.k) FROM {sources} WHERE {keys}"
        )
        for _, sides in feed:
            for name, (packets, at) in zip(names, sides, strict=True):
                if len(packets):
                    times = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
                    hub.push(name, pa.table({"k": pa.array(packets), "at": times}))
            started = time.process_time()
            hub.run_once()
            spent += time.process_time() - started
            seen = hub.last
            assert seen is not None
            joins = [
                name
                for name in seen.operators
                if name in hub.plan.operators and hub.plan.operators[name].makes_pairs
            ]
            rows.append(sum(seen.operators[name].state_rows for name in joins))
        keys = hub.query("q").history()["k"].to_numpy()
    return HubState(rows, np.sort(keys), spent)
