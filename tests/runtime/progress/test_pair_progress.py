"""Punctuation of the times of joined rows, in the pipeline: which groups of a query over a join are emitted after which epoch.

G11 and Q7-1 of the thesis on windows (Li 2008, section 7.2): joint punctuation, individual punctuation, and what is read of it by
queries that group by one time, by both, by the later and by the earlier.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import MINUTE

PAIRS = (
    "SELECT x.at AS xt, y.at AS yt, greatest(x.at, y.at) AS later, least(x.at, y.at) AS earlier FROM a x, b y"
    " WHERE x.k = y.k AND y.at BETWEEN x.at - INTERVAL 2 MINUTES AND x.at + INTERVAL 2 MINUTES"
)
WHOLE = "[RANGE TUMBLING ALL]"


@contextmanager
def opened(folder: Path, pairs: str = PAIRS, **queries: str) -> Iterator[Hub]:
    """Two streams with rows at minutes, their pairs, and queries over these."""
    with Hub(folder / "home", LocalExecutor(), tasks=2) as hub:
        if hub.catalog.query("pairs") is None:
            for name in "ab":
                hub.execute(
                    f"CREATE STREAM {name} (k INT, at TIMESTAMP) USING push OPTIONS (maxAhead '100000 days') TIMESTAMP BY at"
                    " PUNCTUATED EXTERNALLY"
                )
            hub.register(pairs, "pairs")
        for name, text in queries.items():
            if hub.catalog.query(name) is None:
                hub.register(text, name)
        yield hub


def push(hub: Hub, stream: str, *minutes: float, upto: float | None = None) -> None:
    """Rows at minutes, and then the promise that no row below a minute follows."""
    if minutes:
        at = pa.array([round(minute * MINUTE) for minute in minutes], pa.int64()).cast(
            pa.timestamp("us", "UTC")
        )
        hub.push(stream, pa.table({"k": pa.array([1] * len(minutes), pa.int32()), "at": at}))
    if upto is not None:
        hub.punctuate(stream, round(upto * MINUTE))
    hub.loop.drain()


def minutes(hub: Hub, name: str) -> list[tuple[float, ...]]:
    """What was emitted: times in minutes, and counts."""
    return sorted(tuple(map(_plain, row.values())) for row in hub.query(name).history().to_pylist())


def _plain(value: Any) -> float:
    return value if isinstance(value, int) else value.timestamp() / 60


def by(*columns: str, over: str = "pairs") -> str:
    listed = ", ".join(columns)
    return f"SELECT {listed}, COUNT(*) AS n FROM {over} {WHOLE} GROUP BY {listed}"


def test_golden_11_joint_punctuation_closes_what_individual_punctuation_does_not_yet(tmp_path: Path) -> None:
    queries = {
        "both": by("xt", "yt"),
        "one": by("xt"),
        "other": by("yt"),
        "last": by("later"),
        "first": by("earlier"),
    }
    with opened(tmp_path, **queries) as hub:
        push(hub, "a", 0.5, 1.5, 2.5)
        push(hub, "b", 0.25, 0.75, 2)
        assert minutes(hub, "both") == []
        push(hub, "a", upto=2)
        push(hub, "b", upto=1)
        assert minutes(hub, "both") == [
            (0.5, 0.25, 1),
            (0.5, 0.75, 1),
            (1.5, 0.25, 1),
            (1.5, 0.75, 1),
        ], "joint punctuation (2, 1)"
        assert minutes(hub, "other") == [], "on S1's time it is 2 - 2, and on S0's 1 - 2"
        assert minutes(hub, "one") == []
        assert minutes(hub, "last") == [(0.5, 1), (0.75, 1)], (
            "the later time is below 1 for pairs of these alone"
        )
        push(hub, "a", upto=3)
        assert minutes(hub, "other") == [(0.25, 2), (0.75, 3)], (
            "on S1's time it reaches 1 when S0's bound reaches 3"
        )
        assert minutes(hub, "one") == []
        assert minutes(hub, "first") == []
        push(hub, "b", upto=3)
        assert minutes(hub, "one") == [(0.5, 3)]
        assert minutes(hub, "first") == [(0.25, 2), (0.5, 2), (0.75, 2)], "the earlier time waits for both"
