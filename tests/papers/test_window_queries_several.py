"""The queries of the thesis on window queries over streams (Li 2008) that read several streams, run and compared with loops.

Streams arrive in turn, each up to 40 seconds out of order, one of them an epoch behind the others. The oracles are nested
loops over all rows with the thesis's predicates: `floor(l.ts / W) = floor(r.ts / W)` for tumbling windows, and
`l.ts - RANGE_r <= r.ts <= l.ts + RANGE_l` for sliding ones (each RANGE is the lifetime of its own stream's rows).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.runtime.delivery.output_files import emitted_rows
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import MINUTE, SECOND

Row = dict[str, Any]
Streams = Mapping[str, list[Row]]
PACKET = "srcIP STRING, srcPort INT, destIP STRING, destPort INT, length BIGINT, flag STRING, ts TIMESTAMP"
COLUMNS = pa.schema(
    [
        ("srcIP", pa.string()),
        ("srcPort", pa.int32()),
        ("destIP", pa.string()),
        ("destPort", pa.int32()),
        ("length", pa.int64()),
        ("flag", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
EPOCHS = 5


def packets(seed: int, count: int = 240, minutes: int = 9) -> list[Row]:
    """In order of arrival; hosts and ports are few, so that the two directions of a connection meet."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, minutes * 60 * 4, count)) * (SECOND // 4)
    arrival = np.argsort(at + rng.integers(0, 40 * SECOND, count), kind="stable")
    return [
        {
            "srcIP": f"202.101.0.{int(rng.integers(4))}",
            "srcPort": int(rng.integers(2)),
            "destIP": f"202.101.0.{int(rng.integers(4))}",
            "destPort": int(rng.integers(2)),
            "length": int(rng.integers(40, 1500)),
            "flag": ("SYN", "SYN_ACK")[int(rng.integers(2))],
            "ts": int(at[place]),
        }
        for place in arrival
    ]


NAMES = ("Main1", "Main2", "Control", "M1", "M2", "A", "B", "C", "D", "S0", "S1")
ROWS: Streams = {name: packets(seed) for seed, name in enumerate(NAMES)}
CROSSED = "x.srcIP = y.destIP AND x.destIP = y.srcIP AND x.srcPort = y.destPort AND x.destPort = y.srcPort"


# ------------------------------------------------------------------------------------------------- oracles, by loops


def united(streams: Streams, *names: str) -> list[Row]:
    return [row for name in names for row in streams[name]]


def windows(rows: Iterable[Row], length: int, slide: int, *keys: str) -> Counter[tuple[Any, ...]]:
    """(window end, keys) → how many rows."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        first = row["ts"] // slide + 1
        for number in range(first, (row["ts"] + length) // slide + 1):
            counts[(number * slide, *(row[key] for key in keys))] += 1
    return counts


def counted(
    length: int, slide: int, names: tuple[str, ...], *keys: str
) -> Callable[[Streams], Counter[tuple[Any, ...]]]:
    def answer(streams: Streams) -> Counter[tuple[Any, ...]]:
        counts = windows(united(streams, *names), length, slide, *keys)
        return Counter({(*key, number): 1 for key, number in counts.items()})

    return answer


def crossed(one: Row, other: Row) -> bool:
    return (one["srcIP"], one["srcPort"], one["destIP"], one["destPort"]) == (
        other["destIP"],
        other["destPort"],
        other["srcIP"],
        other["srcPort"],
    )


def source_meets(one: Row, other: Row) -> bool:
    return bool(one["srcIP"] == other["destIP"])


def sliding(one: Row, other: Row, range_of_one: int, range_of_other: int) -> bool:
    return bool(one["ts"] - range_of_other <= other["ts"] <= one["ts"] + range_of_one)


def pairs(
    left: Iterable[Row], right: list[Row], test: Callable[[Row, Row], bool], near: Callable[[Row, Row], bool]
) -> list[tuple[Row, Row]]:
    return [(one, other) for one in left for other in right if near(one, other) and test(one, other)]


def tumbling(width: int) -> Callable[[Row, Row], bool]:
    return lambda one, other: one["ts"] // width == other["ts"] // width


def handshake(one: Row, other: Row) -> bool:
    first = one["ts"] < other["ts"] and (one["flag"], other["flag"]) == ("SYN", "SYN_ACK")
    second = one["ts"] > other["ts"] and (one["flag"], other["flag"]) == ("SYN_ACK", "SYN")
    return crossed(one, other) and (first or second)


def q3_1(streams: Streams) -> Counter[tuple[Any, ...]]:
    near = lambda one, other: sliding(one, other, 3 * MINUTE, 2 * MINUTE)  # noqa: E731
    met = pairs(streams["Main1"], streams["Main2"], source_meets, near)
    return Counter((one["srcIP"], one["length"], other["ts"]) for one, other in met)


def q5_7(streams: Streams) -> Counter[tuple[Any, ...]]:
    met = pairs(streams["Main1"], streams["Main2"], source_meets, tumbling(5 * MINUTE))
    return Counter((a["srcIP"], a["destIP"], b["srcIP"], b["destIP"], b["ts"]) for a, b in met)


def q7_1(streams: Streams) -> Counter[tuple[Any, ...]]:
    near = lambda one, other: sliding(one, other, 2 * MINUTE, 2 * MINUTE)  # noqa: E731
    counts = Counter((a["ts"], b["ts"]) for a, b in pairs(streams["S0"], streams["S1"], handshake, near))
    return Counter({(*times, number): 1 for times, number in counts.items()})


def q7_2(streams: Streams) -> Counter[tuple[Any, ...]]:
    near = lambda one, other: sliding(one, other, MINUTE, MINUTE)  # noqa: E731
    counts = Counter(
        a["ts"] // MINUTE * MINUTE for a, _ in pairs(streams["M1"], streams["M2"], crossed, near)
    )
    return Counter(dict.fromkeys(counts.items(), 1))


def q8_3(streams: Streams) -> Counter[tuple[Any, ...]]:
    left, right = united(streams, "A", "B"), united(streams, "C", "D")
    return Counter(
        (a["srcIP"], a["destIP"], a["ts"]) for a, _ in pairs(left, right, crossed, tumbling(10 * SECOND))
    )


def q8_4(streams: Streams) -> Counter[tuple[Any, ...]]:
    met = pairs(streams["M1"], united(streams, "M2", "C"), crossed, tumbling(MINUTE))
    return Counter((a["srcIP"], a["destIP"], a["ts"]) for a, _ in met)


@dataclass(frozen=True)
class Asked:
    text: str
    answer: Callable[[Streams], Counter[tuple[Any, ...]]]
    streams: tuple[str, ...]


ONE_MINUTE = "RANGE 1 min SLIDE 1 min WA ts"
JOIN_5_8 = (
    "SELECT ISTREAM(x.srcIP, x.length, y.ts) FROM Main1 x [WA ts, RANGE 3 min], Main2 y [WA ts, RANGE 2 min]"
    " WHERE x.srcIP = y.destIP"
)
QUERIES = {
    "Q1-2": Asked(
        f"SELECT window_end, count(*) AS n FROM Control UNION ALL Main1 UNION ALL Main2 [{ONE_MINUTE}]",
        counted(MINUTE, MINUTE, ("Control", "Main1", "Main2")),
        ("Control", "Main1", "Main2"),
    ),
    "Q3-1": Asked(JOIN_5_8, q3_1, ("Main1", "Main2")),
    "Q5-7": Asked(
        "SELECT x.srcIP, x.destIP, y.srcIP AS ys, y.destIP AS yd, y.ts FROM Main1 x [RANGE TUMBLING 5 min, WA ts],"
        " Main2 y [RANGE TUMBLING 5 min, WA ts] WHERE x.srcIP = y.destIP",
        q5_7,
        ("Main1", "Main2"),
    ),
    "Q5-8": Asked(JOIN_5_8, q3_1, ("Main1", "Main2")),
    "Q6-8": Asked(
        "SELECT window_end, srcIP, count(*) AS n FROM Main2 UNION ALL Main1 UNION ALL Control [RANGE 10 s SLIDE 1 s]"
        " GROUP BY srcIP",
        counted(10 * SECOND, SECOND, ("Main2", "Main1", "Control"), "srcIP"),
        ("Main2", "Main1", "Control"),
    ),
    "Q7-1": Asked(
        f"SELECT ISTREAM(x.ts AS xt, y.ts AS yt, count(*) AS n) FROM S0 x [RANGE 2 min, WA ts], S1 y [RANGE 2 min, WA ts]"
        f" WHERE {CROSSED} AND (x.ts < y.ts AND x.flag = 'SYN' AND y.flag = 'SYN_ACK'"
        " OR x.ts > y.ts AND x.flag = 'SYN_ACK' AND y.flag = 'SYN') GROUP BY x.ts, y.ts",
        q7_1,
        ("S0", "S1"),
    ),
    "Q7-2": Asked(
        "SELECT date_trunc('MINUTE', ts) AS m, count(*) AS n FROM"
        f" (SELECT ISTREAM(x.ts, y.ts AS other, y.length) FROM M1 x [RANGE 1 min], M2 y [RANGE 1 min] WHERE {CROSSED}) p"
        " GROUP BY date_trunc('MINUTE', ts)",
        q7_2,
        ("M1", "M2"),
    ),
    "Q8-2": Asked(
        f"SELECT window_end, srcIP, destIP, count(*) AS n FROM M1 UNION ALL M2 [{ONE_MINUTE}] GROUP BY srcIP, destIP",
        counted(MINUTE, MINUTE, ("M1", "M2"), "srcIP", "destIP"),
        ("M1", "M2"),
    ),
    "Q8-3": Asked(
        "SELECT x.srcIP, x.destIP, x.ts FROM (A UNION ALL B) x [RANGE TUMBLING 10 s, WA ts],"
        f" (C UNION ALL D) y [RANGE TUMBLING 10 s, WA ts] WHERE {CROSSED}",
        q8_3,
        ("A", "B", "C", "D"),
    ),
    "Q8-4": Asked(
        f"SELECT x.srcIP, x.destIP, x.ts FROM M1 x [RANGE TUMBLING 1 min], (M2 UNION ALL C) y [RANGE TUMBLING 1 min]"
        f" WHERE {CROSSED}",
        q8_4,
        ("M1", "M2", "C"),
    ),
    "Q8-5": Asked(
        "SELECT window_end, count(*) AS n FROM M1 UNION ALL M2 UNION ALL C [RANGE 5 min SLIDE 1 min WA ts]",
        counted(5 * MINUTE, MINUTE, ("M1", "M2", "C")),
        ("M1", "M2", "C"),
    ),
}


# ------------------------------------------------------------------------------------------------------------ running


def opened(folder: Path, streams: Iterable[str], slack: int = 60) -> Hub:
    hub = Hub(folder / "home", LocalExecutor(), tasks=2)
    for name in streams:
        hub.execute(
            f"CREATE STREAM {name} ({PACKET}) USING push OPTIONS (maxAhead '100000 days') TIMESTAMP BY ts"
            f" SLACK INTERVAL {slack} SECONDS"
        )
    return hub


def table(rows: list[Row]) -> pa.Table:
    columns = [
        pa.array([row[name] for row in rows], pa.int64() if name == "ts" else COLUMNS.field(name).type)
        for name in COLUMNS.names
    ]
    return pa.table(
        [column.cast(kind) for column, kind in zip(columns, COLUMNS.types, strict=True)], schema=COLUMNS
    )


def feed(hub: Hub, streams: Iterable[str]) -> None:
    """Epoch by epoch; the last stream is one epoch behind the others."""
    names = list(streams)
    for epoch in range(EPOCHS + 1):
        for name in names:
            place = epoch - (name == names[-1])
            size = len(ROWS[name]) // EPOCHS + 1
            part = ROWS[name][place * size : (place + 1) * size] if place >= 0 else []
            if part:
                hub.push(name, table(part))
        hub.catch_up()


def emitted(hub: Hub, name: str) -> Counter[tuple[Any, ...]]:
    closing = hub.finish()
    operator, query = hub.operator_and_query(name)
    rows = emitted_rows(hub.home, hub.home.latest(), operator, query, closing.get(name))
    columns = [
        column.combine_chunks().cast(pa.int64()).to_pylist()
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in rows.columns
    ]
    return Counter(zip(*columns, strict=True))


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_of_the_thesis_over_several_streams_answers_what_loops_find(
    name: str, tmp_path: Path
) -> None:
    asked = QUERIES[name]
    with opened(tmp_path, asked.streams) as hub:
        hub.register(asked.text, "asked")
        feed(hub, asked.streams)
        for stream in asked.streams:
            hub.punctuate(stream, 20 * MINUTE)
        hub.catch_up()
        rows = emitted(hub, "asked")
    expected = asked.answer(ROWS)
    assert sum(expected.values()) >= 8
    assert rows == expected


def test_explain_says_what_is_read_together(tmp_path: Path) -> None:
    with opened(tmp_path, ("M1", "M2", "C")) as hub:
        hub.register(QUERIES["Q8-4"].text, "asked")
        said = hub.explain("asked")
    assert "WindowJoin" in said
    assert "M1" in said
    assert "M2" in said


def packet(minute: float, flag: str = "SYN", *, reply: bool = False) -> Row:
    hosts = ("h1", "h2") if not reply else ("h2", "h1")
    return {
        "srcIP": hosts[0],
        "srcPort": 1,
        "destIP": hosts[1],
        "destPort": 1,
        "length": 1,
        "flag": flag,
        "ts": round(minute * MINUTE),
    }


def test_rows_join_by_their_own_times_however_late_a_stream_arrives(tmp_path: Path) -> None:
    """G9: the global order of arrival would join them; G10: and lose pairs of the stream that is behind."""
    with opened(tmp_path, ("Main1", "Main2"), slack=0) as hub:
        hub.register(JOIN_5_8, "asked")
        hub.push("Main2", table([packet(10 + 59 / 60, reply=True)]))
        hub.catch_up()
        hub.push("Main1", table([packet(3), packet(9.5)]))
        hub.catch_up()
        rows = emitted(hub, "asked")
    assert rows == Counter({("h1", 1, round((10 + 59 / 60) * MINUTE)): 1})


def test_a_group_of_two_times_is_emitted_when_both_streams_have_passed_it_and_not_a_window_later(
    tmp_path: Path,
) -> None:
    """G11 and Q7-1: joint punctuation (b0, b1) closes the pairs below both; individual bounds are a RANGE behind."""
    with opened(tmp_path, ("S0", "S1"), slack=0) as hub:
        handle = hub.register(QUERIES["Q7-1"].text, "asked")
        hub.push("S0", table([packet(0.5), packet(2)]))
        hub.push("S1", table([packet(0.75, "SYN_ACK", reply=True), packet(1, "SYN_ACK", reply=True)]))
        hub.catch_up()
        first = handle.history().to_pylist()
        assert [(row["n"], row["yt"].minute, row["yt"].second) for row in first] == [(1, 0, 45)]
        hub.push("S1", table([packet(3)]))
        hub.catch_up()
        assert len(handle.history()) == 2, "S1 has passed the pair at minute 1 too"


def test_an_end_of_a_range_is_included_and_the_ranges_are_not_exchanged(tmp_path: Path) -> None:
    """A printed formula of the thesis (L740, L1462) exchanges the two RANGEs; this fails with it."""
    left, right = [packet(10)], [packet(minute, reply=True) for minute in (7.99, 8, 13, 13.01)]
    with opened(tmp_path, ("Main1", "Main2"), slack=600) as hub:
        hub.register(JOIN_5_8, "asked")
        hub.push("Main1", table(left))
        hub.push("Main2", table(right))
        hub.catch_up()
        times = sorted(row[-1] / MINUTE for row in emitted(hub, "asked"))
    assert times == [8, 13], "Main1's row lives 3 minutes, those of Main2 live 2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1 AS n FROM M1 x [RANGE 1 min], M2 y [RANGE 1 min SLIDE 1 min]", "slides"),
    ],
)
def test_what_has_no_meaning_yet_is_refused_with_a_reason(text: str, said: str, tmp_path: Path) -> None:
    with opened(tmp_path, ("M1", "M2")) as hub, pytest.raises(UserError, match=said):
        hub.register(text, "asked")
