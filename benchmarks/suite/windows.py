"""Windowed aggregates against the peers: tumbling 60 s, and sliding 60 s by 1 s, over the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.charts import Bar
from benchmarks.contenders import (
    ARCHIVED,
    BYTEWAX,
    BYTEWAX_COMBINED,
    DUCKDB,
    FLINK,
    HEADRACE,
    POLARS,
    SPARK,
    SPARK_BATCH,
    SPARK_PANES,
    SPARK_PANES_ROCKSDB,
    SPARK_ROCKSDB,
    TEN_WINDOWS,
)
from benchmarks.environments import versions_of
from benchmarks.report import Report
from benchmarks.runs import Entry, Series, in_turn, present
from benchmarks.thresholds import Ratio, best_rate, rate_of

_NATIVE = (SPARK.name, SPARK_ROCKSDB.name)
_PANES = (SPARK_PANES.name, SPARK_PANES_ROCKSDB.name)
_YARDSTICKS = (BYTEWAX_COMBINED, SPARK_BATCH, DUCKDB, POLARS)


def tumbling(rows: int, rounds: int) -> Report:
    """One query, count, sum and max of 60 s by key; with the archive and without take turns at being first."""
    both = [HEADRACE, ARCHIVED]
    who = [*both, *reversed(both), BYTEWAX, FLINK, SPARK, SPARK_ROCKSDB, *_YARDSTICKS]
    entries, absent = present((one, "tumbling") for one in who)
    series = in_turn(entries, rows, rounds)
    ours = rate_of(series, HEADRACE.name, "tumbling")
    peers = best_rate(series, (BYTEWAX.name, FLINK.name), "tumbling")
    ratios = [
        Ratio("ours to the better of Bytewax and Flink", ours / peers, 3),
        Ratio("ours to Spark streaming", ours / best_rate(series, _NATIVE, "tumbling"), 2),
        Ratio("archive on to archive off", rate_of(series, ARCHIVED.name, "tumbling") / ours, 0.5),
        Ratio("ours to DuckDB's batch", ours / rate_of(series, DUCKDB.name, "tumbling"), 0.7),
    ]
    title = "Tumbling 60 s: count, sum, max by 1000 keys"
    return _report("tumbling", title, entries, series, ratios, absent)


def sliding(rows: int, rounds: int) -> Report:
    """The same rows and aggregates, a window of 60 s every second.

    Of our own two tasks, a second each, the ratio is asked: they run four times a round, and take turns at being first.
    """
    both = [(HEADRACE, "sliding"), (HEADRACE, "tumbling")]
    peers = (SPARK, SPARK_ROCKSDB, SPARK_PANES, SPARK_PANES_ROCKSDB, FLINK, BYTEWAX, *_YARDSTICKS)
    here, absent = present((one, "sliding") for one in peers)
    entries = [*both, *reversed(both), *both, *reversed(both), *here]
    series = in_turn(entries, rows, rounds)
    ours = rate_of(series, HEADRACE.name, "sliding")
    ratios = [
        Ratio(
            "ours to Spark streaming, any plan", ours / best_rate(series, (*_NATIVE, *_PANES), "sliding"), 12
        ),
        Ratio(
            "ours at slide 1 s to ours at slide 60 s", ours / rate_of(series, HEADRACE.name, "tumbling"), 0.7
        ),
        Ratio("ours to DuckDB's batch", ours / rate_of(series, DUCKDB.name, "sliding"), 0.5),
    ]
    title = "Sliding 60 s by 1 s: count, sum, max by 1000 keys"
    return _report("sliding", title, entries, series, ratios, absent)


def shared(rows: int, rounds: int) -> Report:
    """Ten windows of different range and slide over one stream, and one alone."""
    entries = [(HEADRACE, "tumbling"), (TEN_WINDOWS, "tumbling")]
    series = in_turn(entries, rows, rounds)
    one, ten = (rate_of(series, who.name, "tumbling") for who in (HEADRACE, TEN_WINDOWS))
    ratios = [Ratio("time of ten windows to the time of one", one / ten, 1.5, at_most=True)]
    return _report(
        "shared",
        "Ten windows over one stream, and one: count, sum, max by 1000 keys",
        entries,
        series,
        ratios,
    )


def _left_out(entries: Sequence[Entry], series: Sequence[Series]) -> list[str]:
    """A note on each that gave no right answer at one of its sizes."""
    shown = {(one.contender, one.task) for one in series}
    missing = dict.fromkeys(who.name for who, task in entries if (who.name, task) not in shown)
    return [f"{name} took part, gave no right answer in any round, and is left out." for name in missing]


_NOTES = (
    (
        "Seconds run from the first row read to the last result written; start-up, with the same query over one row, is listed separately. "
        "Every answer was compared with the truth (counts and maxima exactly, sums within 1e-9) before its time counted. Runs were "
        "interleaved, and the files were locked in memory for all. Where a contender was measured at several sizes, its rate is that of "
        "all rows by its fixed cost and its cost per row, extrapolated over at most ten times the rows."
    ),
    (
        "Yardsticks are measured for scale, and only DuckDB is compared: the batch engines keep no state and close no windows; "
        "`bytewax, combined by hand` has Arrow reduce each batch to one item per key and second before Bytewax reads it."
    ),
)


def _allowed(entries: Sequence[Entry]) -> str:
    """Who may use how much of the machine."""
    limits = {who.name: who.memory for who, _ in entries}
    return (
        "Memory: "
        + "; ".join(f"{name}: {memory}" for name, memory in limits.items())
        + (". Each has as many threads, tasks or processes as there are cores.")
    )


def _report(
    name: str,
    title: str,
    entries: Sequence[Entry],
    series: list[Series],
    ratios: list[Ratio],
    absent: Sequence[str] = (),
) -> Report:
    peers = sorted({who.peer for who, _ in entries if who.peer is not None})
    notes = [*_NOTES, _allowed(entries), *absent, *_left_out(entries, series)]
    drawn = [Bar(_label(one), one.rate / 1e6, _kind(one)) for one in series]
    return Report(
        name,
        title,
        [one.as_dict() for one in series],
        ratios,
        drawn,
        "M rows/s",
        notes,
        {peer: versions_of(peer) for peer in peers},
    )


def _label(one: Series) -> str:
    return f"{one.contender} ({one.task})" if one.contender == HEADRACE.name else one.contender


def _kind(one: Series) -> str:
    if one.contender.startswith(HEADRACE.name):
        return "ours"
    return "yardstick" if one.yardstick else "theirs"
