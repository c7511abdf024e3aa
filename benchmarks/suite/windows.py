"""Windowed aggregates against the peers: tumbling 60 s, and sliding 60 s by 1 s, over the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.contenders import (
    ARCHIVED,
    BYTEWAX,
    BYTEWAX_COMBINED,
    HEADRACE,
    PYFLINK,
    SPARK,
    SPARK_BATCH,
    SPARK_ROCKSDB,
    TEN_WINDOWS,
    Contender,
)
from benchmarks.environments import PEERS, versions_of
from benchmarks.plot import Bar
from benchmarks.report import Report
from benchmarks.runs import Series, in_turn
from benchmarks.thresholds import Ratio, best_rate, rate_of

_NATIVE = (SPARK.name, SPARK_ROCKSDB.name)


def tumbling(rows: int, rounds: int) -> Report:
    """20 M rows, one query, count, sum and max of 60 s by key; with the archive and without take turns at being first."""
    both = [HEADRACE, ARCHIVED]
    who = [*both, *reversed(both), BYTEWAX, PYFLINK, SPARK, SPARK_ROCKSDB, BYTEWAX_COMBINED, SPARK_BATCH]
    entries = [(one, "tumbling") for one in who]
    series = in_turn(entries, rows, rounds)
    ours = rate_of(series, HEADRACE.name, "tumbling")
    peers = best_rate(series, (BYTEWAX.name, PYFLINK.name), "tumbling")
    ratios = [
        Ratio("ours to the better of Bytewax and PyFlink", ours / peers, 3),
        Ratio("ours to Spark streaming", ours / best_rate(series, _NATIVE, "tumbling"), 2),
        Ratio("archive on to archive off", rate_of(series, ARCHIVED.name, "tumbling") / ours, 0.5),
    ]
    title = "Tumbling 60 s: count, sum, max by 1000 keys"
    return _report("tumbling", title, series, ratios, _left_out(entries, series))


def sliding(rows: int, rounds: int) -> Report:
    """The same rows and aggregates, a window of 60 s every second.

    Of our own two tasks, a second each, the ratio is asked: they run four times a round, and take turns at being first.
    """
    both = [(HEADRACE, "sliding"), (HEADRACE, "tumbling")]
    entries = [*both, *reversed(both)] * 2
    peers = (SPARK, SPARK_ROCKSDB, PYFLINK, BYTEWAX, BYTEWAX_COMBINED, SPARK_BATCH)
    entries += [(one, "sliding") for one in peers]
    series = in_turn(entries, rows, rounds)
    ours = rate_of(series, HEADRACE.name, "sliding")
    ratios = [
        Ratio("ours to Spark streaming", ours / best_rate(series, _NATIVE, "sliding"), 12),
        Ratio(
            "ours at slide 1 s to ours at slide 60 s", ours / rate_of(series, HEADRACE.name, "tumbling"), 0.7
        ),
    ]
    title = "Sliding 60 s by 1 s: count, sum, max by 1000 keys"
    return _report("sliding", title, series, ratios, _left_out(entries, series))


def shared(rows: int, rounds: int) -> Report:
    """Ten windows of different range and slide over one stream, beside one."""
    series = in_turn([(HEADRACE, "tumbling"), (TEN_WINDOWS, "tumbling")], rows, rounds)
    one, ten = (rate_of(series, who.name, "tumbling") for who in (HEADRACE, TEN_WINDOWS))
    ratios = [Ratio("time of ten windows to the time of one", one / ten, 1.5, at_most=True)]
    return _report(
        "shared",
        "Ten windows over one stream, and one: count, sum, max by 1000 keys",
        series,
        ratios,
        alone=True,
    )


def _left_out(entries: list[tuple[Contender, str]], series: list[Series]) -> list[str]:
    """A note on each who never gave a right answer."""
    shown = {(one.contender, one.task) for one in series}
    missing = [who.name for who, task in entries if (who.name, task) not in shown]
    return [f"{name} took part, gave no right answer in any round, and is left out." for name in missing]


def _report(
    name: str,
    title: str,
    series: list[Series],
    ratios: list[Ratio],
    more_notes: Sequence[str] = (),
    *,
    alone: bool = False,
) -> Report:
    """`alone`: no peer took part, so none has to be there."""
    peers = [] if alone else sorted(path.parent.name for path in PEERS.glob("*/requirements.txt"))
    notes = [
        (
            "Seconds run from the first row read to the last result written; start-up is shown apart. Every answer was "
            "compared with the truth (counts and maxima exactly, sums within 1e-9) before its time counted. Runs were "
            "interleaved. Slow contenders had fewer of the same rows: rates are what is compared."
        ),
        (
            "Yardsticks are measured for scale, not compared: `spark batch` keeps no state and closes no windows; "
            "`bytewax, combined by hand` has Arrow reduce each batch to one item per key and second before Bytewax sees it."
        ),
    ]
    drawn = [Bar(_label(one), one.rate / 1e6, _kind(one)) for one in series]
    return Report(
        name,
        title,
        [one.as_dict() for one in series],
        ratios,
        drawn,
        "M rows/s",
        [*notes, *more_notes],
        {peer: versions_of(peer) for peer in peers},
    )


def _label(one: Series) -> str:
    return f"{one.contender} ({one.task})" if one.contender == HEADRACE.name else one.contender


def _kind(one: Series) -> str:
    if one.contender.startswith(HEADRACE.name):
        return "ours"
    return "yardstick" if one.yardstick else "theirs"
