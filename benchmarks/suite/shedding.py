"""The gain of keeping a part of a stream's rows: fifty queries WITH SHEDDING, each grouped by another key.

Each counts and adds by another key over tumbling windows of 10 s, so that none shares panes with another. A window's five million rows
come in five epochs, without a JVM and without an archive; the share changes from window to window in one home. In turn with
them the same queries without WITH SHEDDING, the yardstick. Reading a row costs the same whether it is kept or not, and so do closing a
window and its answers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

ROWS, EPOCHS, QUERIES, KEYS, WARM = 1_000_000, 5, 50, 1000, 1
WINDOW = ROWS * EPOCHS
KEEPS = (1.0, 0.5, 0.25, 0.1)
EXACT = "exact"
_STREAM = (
    "CREATE STREAM s (at TIMESTAMP, key INT, v INT) USING push OPTIONS (archive 'none') TIMESTAMP BY at;"
)


def _query(number: int, shedding: bool) -> str:
    """Groups by a key of its own."""
    key = f"(key * {number + 1}) % {100 + number}"
    text = f"SELECT window_end, {key} AS g, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY {key}"
    return f"{text} WITH SHEDDING" if shedding else text


def shedding(rows: int, rounds: int) -> Report:
    """Medians over `rounds` windows of each share; `rows` has no effect."""
    del rows
    spent = _measured(rounds)
    rates = {case: WINDOW / seconds / 1e6 for case, seconds in spent.items()}
    table = [
        {"kept": case, "million_rows_per_s": float(f"{rate:.3g}"), "to_all": round(rate / rates["1"], 2)}
        for case, rate in rates.items()
    ]
    drawn = [
        Bar(
            "no shedding" if case == EXACT else f"kept: {case}",
            rate,
            "yardstick" if case == EXACT else "ours",
        )
        for case, rate in rates.items()
    ]
    ratios = [
        Ratio("rate where a tenth is kept to that where all is", rates["0.1"] / rates["1"], 3),
        Ratio("rate where a quarter is kept to that where all is", rates["0.25"] / rates["1"], 2),
        Ratio("rate where a quarter is kept to that without shedding", rates["0.25"] / rates[EXACT], 1),
    ]
    assert __doc__ is not None
    return Report(
        "shedding",
        "Fifty queries over a part of the rows",
        table,
        ratios,
        drawn,
        "M rows/s",
        [__doc__.strip()],
    )


def _measured(rounds: int) -> dict[str, float]:
    """Median seconds of a window by the share kept. Raises `WrongAnswer` where estimates differ much from what is counted."""
    cases = [EXACT, *(f"{sample_rate:g}" for sample_rate in KEEPS)]
    spent: dict[str, list[float]] = {case: [] for case in cases}
    with (
        tempfile.TemporaryDirectory(prefix="headrace-shedding-") as name,
        open_hub(Path(name) / "exact", local=True) as exact,
        open_hub(Path(name) / "shedding", local=True) as thinned,
    ):
        for hub in (exact, thinned):
            hub.execute(_STREAM)
            hub.register_many({f"q{number}": _query(number, hub is thinned) for number in range(QUERIES)})
        advance = 0
        for _ in range(rounds + WARM):
            for case in cases:
                hub = exact if case == EXACT else thinned
                if case != EXACT:
                    hub.execute(f"ALTER STREAM s SET (keep '{case}')")
                spent[case].append(sum(_epoch(hub, advance * EPOCHS + part) for part in range(EPOCHS)))
                advance += 1
        _check(thinned)
    return {case: statistics.median(seconds[WARM:]) for case, seconds in spent.items()}


def _epoch(hub: Hub, number: int) -> float:
    """Seconds of one epoch, its rows pushed before."""
    hub.push("s", _batch(number))
    started = time.perf_counter()
    hub.catch_up()
    return time.perf_counter() - started


def _batch(number: int) -> pa.Table:
    """The rows of one epoch, in order of time."""
    random = np.random.default_rng(number)
    at = number * 2_000_000 + np.sort(random.integers(0, 2_000_000, ROWS))
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "key": pa.array(random.integers(0, KEYS, ROWS), pa.int32()),
            "v": pa.array(random.integers(0, 100, ROWS), pa.int32()),
        }
    )


def _check(hub: Hub) -> None:
    """All groups of a window together are its rows, within six standard deviations."""
    emitted = hub.query("q0").history().to_pandas()
    for at, rows in emitted.groupby("window_end"):
        error = (rows["n_error"] ** 2).sum() ** 0.5 / 1.96
        if abs(rows["n"].sum() - WINDOW) > 6 * error + 1e-6:
            raise WrongAnswer(f"window {at}: {rows['n'].sum():,.0f} of {WINDOW:,} rows")
