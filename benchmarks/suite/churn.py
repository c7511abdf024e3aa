"""A thousand standing queries of which a fifth are dropped and replaced every minute.

Minutes with and without churn alternate in one run on Spark, over epochs of one slide of rows each. The queries that stay must
answer all along what numpy answers, new ones from the first window on that began after they were registered; epochs may not get slower,
memory may not grow.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import churn_runner, folders
from benchmarks import queries_data as data
from benchmarks.charts import Bar
from benchmarks.environments import python_of
from benchmarks.expected import WrongAnswer
from benchmarks.queries_memory_runner import KEYS, ROWS, slide
from benchmarks.report import Report
from benchmarks.runs import run_watched
from benchmarks.thresholds import Ratio
from headrace.time import EPOCH

QUERIES = 1000
LONG, QUICK = (600.0, 60.0), (80.0, 20.0)
"""Seconds in all, and of an interval with or without churn."""
_READING_SECONDS = 1200
"""At most, after the run: the histories of all epochs of the queries that are compared."""


def churn(rows: int, rounds: int) -> Report:
    """One run, whatever `rounds` is: ten minutes, or two where `rows` is small."""
    del rounds
    seconds, stretch = LONG if rows >= 1_000_000 else QUICK
    scratch = folders.fresh("churn-run")
    command = [str(python_of(None)), "-m", "benchmarks.churn_runner", str(scratch / "output")]
    said, _ = run_watched(
        [*command, str(QUERIES), str(seconds), str(stretch)],
        scratch,
        longest_seconds=seconds + _READING_SECONDS,
    )
    checked = _check(scratch / "output", said)
    epochs = said["epochs"][len(said["epochs"]) // 10 :]  # the first ones warm up
    table = [_row(name, [epoch for epoch in epochs if epoch[0] == on]) for name, on in _PHASES]
    quiet, busy = (row["median_epoch_ms"] for row in table)
    mb, quarter = said["mb"], max(1, len(said["mb"]) // 4)
    grown = median(mb[-quarter:]) / median(mb[quarter : 2 * quarter])
    assert __doc__ is not None
    note = (
        f"{said['changes']:,} queries were dropped and as many registered in {seconds:g} s, {said['standing']:,} are registered in the end; "
        f"{ROWS:,} rows an epoch; {checked:,} result rows compared. "
        f"Memory of all processes after every tenth epoch, MB: {', '.join(map(str, mb))}."
    )
    return Report(
        "churn",
        "Queries dropped and registered among a thousand",
        table,
        [
            Ratio("median epoch with 20 % churn a minute to without", busy / quiet, 1.5, at_most=True),
            Ratio("memory, last quarter of the run to its second", grown, 1.1, at_most=True),
        ],
        [Bar(row["phase"], row["median_epoch_ms"], "ours") for row in table],
        "ms",
        [__doc__.strip(), note],
    )


_PHASES = (("no changes", False), ("20 % a minute", True))


def _row(phase: str, epochs: list[tuple[bool, float, float]]) -> dict[str, Any]:
    changing, running = (np.array([epoch[column] for epoch in epochs]) * 1000 for column in (1, 2))
    return {
        "phase": phase,
        "epochs": len(epochs),
        "median_epoch_ms": round(float(np.median(running)), 1),
        "p95_epoch_ms": round(float(np.quantile(running, 0.95)), 1),
        "median_ms_of_changes_before_it": round(float(np.median(changing)), 1),
    }


def _check(output: Path, said: dict[str, Any]) -> int:
    """Compare what queries emitted with numpy; how many rows were. Raises `WrongAnswer`."""
    panes, compared = len(said["epochs"]), 0
    asked = {int(name): churn_runner.predicate_of(int(name), QUERIES) for name in said["complete_since"]}
    cells = _cells(asked, panes)
    for name, since in said["complete_since"].items():
        begins = (
            None if since is None else (datetime.fromisoformat(since) - EPOCH) // timedelta(microseconds=1)
        )
        meant = _windows(*cells[int(name)], begins)
        emitted = pq.read_table(output / f"q{name}.parquet")
        if begins is not None:
            whole = pc.greater_equal(emitted["window_end"], begins + data.RANGE_SECONDS * 1_000_000)
            emitted = emitted.filter(whole)
        emitted = emitted.sort_by([("window_end", "ascending"), ("key", "ascending")])
        columns = [np.asarray(emitted[column], np.int64) for column in ("window_end", "key", "n", "total")]
        if not all(map(np.array_equal, meant, columns)):
            raise WrongAnswer(
                f"query {name} emitted {len(columns[0]):,} rows that are not the {len(meant[0]):,} meant"
            )
        compared += len(columns[0])
    return compared


def _cells(asked: dict[int, data.Predicate], panes: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Counts and sums of queries by pane (one an epoch) and key."""
    cells = {
        number: (np.zeros((panes, KEYS), np.int64), np.zeros((panes, KEYS), np.int64)) for number in asked
    }
    for pane in range(panes):
        rows = slide(pane)
        key, v = (rows[name].cast(pa.int64()).to_numpy() for name in ("key", "v"))
        columns = {name: rows[name].to_numpy() for name in data.ATTRIBUTES}
        for number, factors in asked.items():
            mask = np.ones(len(key), bool)
            for name, low, high in factors:
                mask &= (columns[name] >= low) & (columns[name] <= high)
            counts, totals = cells[number]
            counts[pane] = np.bincount(key[mask], minlength=KEYS)
            totals[pane] = np.bincount(key[mask], v[mask], KEYS).astype(np.int64)
    return cells


def _windows(counts: np.ndarray, totals: np.ndarray, begins: int | None) -> list[np.ndarray]:
    """Ends, keys, counts and sums of the windows that have closed, those that began since `begins` where that is known."""
    slide_us, reach = data.SLIDE_SECONDS * 1_000_000, data.RANGE_SECONDS // data.SLIDE_SECONDS
    columns: list[list[np.ndarray]] = [[], [], [], []]
    for last in range(len(counts) - 1):  # the newest pane is open
        end = data.ORIGIN_US + (last + 1) * slide_us
        if begins is not None and end - data.RANGE_SECONDS * 1_000_000 < begins:
            continue
        held = slice(max(0, last - reach + 1), last + 1)
        n, total = counts[held].sum(axis=0), totals[held].sum(axis=0)
        keys = np.flatnonzero(n)
        for column, part in zip(columns, (np.full(len(keys), end), keys, n[keys], total[keys]), strict=True):
            column.append(part)
    return [np.concatenate([np.empty(0, np.int64), *column]) for column in columns]
