"""Every query of the thesis on window queries over streams (Li 2008), run and compared with its meaning row by row.

The oracle knows nothing of panes, bins or window-ids of a row: it reads every window and asks of every row whether it is
inside. Those that read several streams are in `test_window_queries_several.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from headrace.planner.explain.operator_text import explain
from headrace.planner.lowering.lower import lower
from headrace.reference.history import History, record
from headrace.reference.values import identity
from headrace.schema import BIGINT, INT, STRING, TIMESTAMP, Field, Schema
from headrace.time import MINUTE, SECOND
from tests.language.catalog import Catalog
from tests.laws.driving import plain, run
from tests.papers.test_window_queries_several import QUERIES as SEVERAL

STREAMS = ("M", "Main", "Main1", "Main2", "M1", "M2", "C", "A", "B", "D", "S0", "S1", "Control", "packets")
PACKET = "srcIP STRING, srcPort INT, destIP STRING, destPort INT, length BIGINT, flag STRING, ts TIMESTAMP"
SCHEMA = Schema(
    (
        Field("srcIP", STRING),
        Field("srcPort", INT),
        Field("destIP", STRING),
        Field("destPort", INT),
        Field("length", BIGINT),
        Field("flag", STRING),
        Field("ts", TIMESTAMP),
    )
)
CATALOG = Catalog(
    "".join(f"CREATE STREAM {name} ({PACKET}) USING push TIMESTAMP BY ts;\n" for name in STREAMS)
)
Row = dict[str, Any]
Windows = Iterator[tuple[int, list[Row]]]


def packets(seed: int = 5, count: int = 1500, minutes: int = 14) -> list[Row]:
    """Packets that arrive up to 40 seconds out of order; some ties, some at whole minutes."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, minutes * 60 * 4, count)) * (SECOND // 4)
    arrival = np.argsort(at + rng.integers(0, 40 * SECOND, count), kind="stable")
    hosts = [f"202.101.0.{host}" for host in range(6)]
    return [
        {
            "srcIP": hosts[int(rng.integers(6))],
            "srcPort": int(rng.integers(3)),
            "destIP": hosts[int(rng.integers(2))],
            "destPort": 80,
            "length": int(rng.integers(40, 1500)),
            "flag": "SYN",
            "ts": int(at[place]),
        }
        for place in arrival
    ]


ROWS = packets()


# ---------------------------------------------------------------------------------------- windows, by reading every row


def sliding(length: int, slide: int) -> Callable[[list[Row]], Windows]:
    def windows(rows: list[Row]) -> Windows:
        last = (max(row["ts"] for row in rows) + length) // slide
        for number in range(1, last + 1):
            end = number * slide
            yield number, [row for row in rows if end - length <= row["ts"] < end]

    return windows


def landmark(slide: int) -> Callable[[list[Row]], Windows]:
    def windows(rows: list[Row]) -> Windows:
        for number in range(1, max(row["ts"] for row in rows) // slide + 2):
            yield number, [row for row in rows if row["ts"] < number * slide]

    return windows


def counted(size: int, slide: int, partition: str | None = None) -> Callable[[list[Row]], Windows]:
    """In the order of arrival."""

    def windows(rows: list[Row]) -> Windows:
        for part in dict.fromkeys(row[partition] if partition else None for row in rows):
            of_part = [row for row in rows if partition is None or row[partition] == part]
            for number in range(1, len(of_part) // slide + 1):
                yield number, of_part[max(0, number * slide - size) : number * slide]

    return windows


def ending(length: int, every: int, *, by_rank: bool) -> Callable[[list[Row]], Windows]:
    def windows(rows: list[Row]) -> Windows:
        numbered = sorted(rows, key=lambda row: row["ts"]) if by_rank else rows
        for end in sorted({row["ts"] for row in numbered[every - 1 :: every]}):
            yield end, [row for row in rows if end - length < row["ts"] <= end]

    return windows


# ----------------------------------------------------------------------------------------------------------- the queries


@dataclass(frozen=True)
class Asked:
    """A query's text, its windows, its group key, its aggregate over a window's rows, and its window's class."""

    text: str
    windows: Callable[[list[Row]], Windows]
    keys: tuple[str, ...]
    aggregate: Callable[[list[Row]], int | str]
    context: str = "context free"


def top(rows: list[Row]) -> int:
    return max(row["length"] for row in rows)


def total(rows: list[Row]) -> int:
    return sum(row["length"] for row in rows)


def heavy(rows: list[Row]) -> str:
    """Of six hosts: the share of the query, 5 percent, would be every one's."""
    counts = Counter(row["srcIP"] for row in rows)
    hosts = [host for host in counts if counts[host] >= 0.17 * len(rows)]
    return json.dumps(sorted(hosts, key=lambda host: (-counts[host], host)), separators=(",", ":"))


def counting(stream: str, bracket: str, *keys: str, what: str = "count(*)") -> str:
    columns = "".join(f"{key}, " for key in keys)
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT window_id, {columns}{what} AS v FROM {stream} [{bracket}]{by}"


AWARE, FREE = "forward-context aware", "forward-context free"
TEN_BY_ONE = sliding(10 * MINUTE, MINUTE)
Q5_1 = Asked(counting("Main", "RANGE 10 min, SLIDE 1 min, WATTR ts", "srcIP"), TEN_BY_ONE, ("srcIP",), len)
QUERIES = {
    "Q1-1": Asked(counting("M", "RANGE 10 min, SLIDE 1 min, WA ts", "srcIP"), TEN_BY_ONE, ("srcIP",), len),
    "Q5-1": Q5_1,
    "Q5-2": Asked(
        counting("Main", "RANGE 1000 rows, SLIDE 10 rows, WA row-num, PA srcIP", what="max(length)"),
        counted(1000, 10, "srcIP"),
        (),
        top,
        FREE,
    ),
    "Q5-2, shorter": Asked(
        counting("Main", "RANGE 100 rows, SLIDE 10 rows, WA row-num, PA srcIP", "srcIP", what="max(length)"),
        counted(100, 10, "srcIP"),
        ("srcIP",),
        top,
        FREE,
    ),
    "Q5-3": Asked(
        counting("Main", "RANGE 1000 rows, SLIDE 10 rows, WA row-num", "srcIP", what="max(length)"),
        counted(1000, 10),
        ("srcIP",),
        top,
        FREE,
    ),
    "Q5-4": Asked(
        counting("Main1", "RANGE ALL, SLIDE 1 min, WA ts", "srcIP"), landmark(MINUTE), ("srcIP",), len
    ),
    "Q5-5": Asked(
        counting("Main", "RANGE 5 min RATTR ts, SLIDE 1 row SATTR row-num", what="max(length)"),
        ending(5 * MINUTE, 1, by_rank=False),
        (),
        top,
        AWARE,
    ),
    "Q5-5, every fifth": Asked(
        counting("Main", "RANGE 5 min RATTR ts, SLIDE 5 rows SATTR row-num", what="max(length)"),
        ending(5 * MINUTE, 5, by_rank=False),
        (),
        top,
        AWARE,
    ),
    "Q5-6": Asked(
        counting("Main", "RANGE 5 min RATTR ts, SLIDE 5 rows SATTR rank(ts)"),
        ending(5 * MINUTE, 5, by_rank=True),
        (),
        len,
        AWARE,
    ),
    "Q6-1": Q5_1,
    "Q6-2": Asked(
        counting("Main", "RANGE 4 min, SLIDE 1 min, WA ts", what="max(length)"),
        sliding(4 * MINUTE, MINUTE),
        (),
        top,
    ),
    "Q6-3": Asked(
        counting("packets", "RANGE 4 min, SLIDE 1 min, WA ts", "srcIP"),
        sliding(4 * MINUTE, MINUTE),
        ("srcIP",),
        len,
    ),
    "Q6-4": Asked(
        counting("packets", "RANGE 10 min, SLIDE 1 min", what="heavy_hitters(srcIP, 0.17)"),
        TEN_BY_ONE,
        (),
        heavy,
    ),
    "Q6-5": Asked(
        counting("M1", "RANGE 5 min, SLIDE 1 min, WA ts", "srcIP"),
        sliding(5 * MINUTE, MINUTE),
        ("srcIP",),
        len,
    ),
    "Q6-6": Asked(
        counting("packets", "RANGE 10 s, SLIDE 1 s, WA ts", "srcIP", what="sum(length)"),
        sliding(10 * SECOND, SECOND),
        ("srcIP",),
        total,
    ),
    "Q6-7": Asked(
        counting("Main", "RANGE 1 s, SLIDE 1 s, WA ts", "srcIP", what="sum(length)"),
        sliding(SECOND, SECOND),
        ("srcIP",),
        total,
    ),
    "Q8-1": Asked(
        counting("Main", "RANGE 1 min, SLIDE 1 min, WA ts", "srcIP", "destIP"),
        sliding(MINUTE, MINUTE),
        ("srcIP", "destIP"),
        len,
    ),
}
RELATION = "Q2-1"


def history(stream: str, rows: list[Row]) -> History:
    """Five epochs; the slack keeps every packet."""
    size = len(rows) // 5 + 1
    epochs = [rows[start : start + size] for start in range(0, len(rows), size)]
    return History({stream: record(epochs, "ts", 60 * SECOND)})


def answered(text: str, rows: list[Row]) -> list[Row]:
    query = bind_query(text, CATALOG)
    operator = lower("q", query, "q")
    past = history(operator.stream, rows)
    results = run(query, past, {operator.stream: SCHEMA}, tasks=[1, 3, 2, 1, 4], compact_after=(1, 3))
    emitted = plain(results, query, changes=query.emission == "relation")
    if query.emission != "relation":
        return [row for _, row in emitted]
    held: list[Row] = []
    for _, sign, row in sorted(emitted, key=lambda item: item[:2]):
        if sign > 0:
            held.append(row)
        else:
            held.remove(row)
    return held


def bag(rows: list[Row]) -> list[Any]:
    return sorted((tuple(map(identity, row.values())) for row in rows), key=repr)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_of_the_thesis_answers_what_each_window_holds(name: str) -> None:
    asked = QUERIES[name]
    expected = []
    for number, held in asked.windows(ROWS):
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in held:
            groups.setdefault(tuple(row[key] for key in asked.keys), []).append(row)
        for key, of_group in groups.items():
            expected.append(
                {"w": number} | dict(zip(asked.keys, key, strict=True)) | {"v": asked.aggregate(of_group)}
            )
    rows = answered(asked.text, ROWS)
    assert len(rows) > 10
    assert bag(rows) == bag(expected)


@pytest.mark.parametrize("name", QUERIES)
def test_explain_shows_the_class_of_a_query_s_window(name: str) -> None:
    asked = QUERIES[name]
    text = explain(lower("q", bind_query(asked.text, CATALOG), "q"))
    assert asked.context in text


def test_query_2_1_without_a_window_counts_for_ever() -> None:
    hosts = ("202.101.0.0", "202.101.0.1")
    text = (
        "SELECT srcIP, date_trunc('MINUTE', ts) AS at, count(*) AS v FROM Main1 "
        f"WHERE srcIP IN {hosts} GROUP BY srcIP, date_trunc('MINUTE', ts)"
    )
    counts: dict[tuple[str, int], int] = {}
    for row in ROWS:
        if row["srcIP"] in hosts:
            key = row["srcIP"], row["ts"] // MINUTE * MINUTE
            counts[key] = counts.get(key, 0) + 1
    expected = [{"srcIP": host, "at": at, "v": n} for (host, at), n in counts.items()]
    assert bag(answered(text, ROWS)) == bag(expected)


def test_partitioned_and_grouped_windows_of_rows_differ_and_those_of_time_do_not() -> None:
    parts = {row["window_id"]: row["v"] for row in answered(QUERIES["Q5-2, shorter"].text, ROWS)}
    short = counting("Main", "RANGE 100 rows, SLIDE 10 rows, WA row-num", "srcIP", what="max(length)")
    groups = {row["window_id"]: row["v"] for row in answered(short, ROWS)}
    assert max(groups) > 3 * max(parts), "split first, each part advances on its own rows"
    with pytest.raises(UserError, match="PA belongs to windows of ROWS"):
        bind_query(counting("Main", "RANGE 1 min, SLIDE 1 min, PA srcIP"), CATALOG)


def test_a_late_packet_shifts_the_ranks_of_those_after_it() -> None:
    text = "SELECT window_end, count(*) AS v FROM Main [RANGE 5 min RATTR ts, SLIDE 2 rows SATTR rank(ts)]"
    first = [dict(ROWS[0], ts=minute * MINUTE) for minute in (1, 2, 3, 4)]
    ends = [row["window_end"] for row in answered(text, first)]
    assert ends == [2 * MINUTE, 4 * MINUTE]
    shifted = [row["window_end"] for row in answered(text, [*first, dict(ROWS[0], ts=210 * SECOND)])]
    assert shifted == [2 * MINUTE, 210 * SECOND], "it is within the slack: it moves every number after it"


def test_all_twenty_seven_queries_are_here() -> None:
    named = {name.partition(",")[0] for name in QUERIES} | {RELATION} | set(SEVERAL)
    counts = {"1": 2, "2": 1, "3": 1, "5": 8, "6": 8, "7": 2, "8": 5}
    assert named == {f"Q{chapter}-{index}" for chapter, n in counts.items() for index in range(1, n + 1)}
    assert len(named) == 27
