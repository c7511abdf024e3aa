"""A join of two streams that is registered after much of them was archived, while live rows arrive at some rate: how far it reads one side ahead of the other,
what it stores, and its answers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

import headrace as hr
from headrace.runtime.backfill.backfill_scheduler import Chunk, ReplaySchedule
from headrace.runtime.hub.hub import Hub

START: Final = 1_700_000_000
WINDOW, SLIDE, BATCH = 10, 5, 5
"""Seconds of a window, from one to the next, and of the rows that are pushed at a time."""
ROWS: Final = {"a": 4, "b": 40}
"""Rows of a batch."""
SLICE_ROWS: Final = 40
"""Rows that a slice of the archive has at most: a batch of one side."""
JOIN: Final = (
    f"SELECT x.k, COUNT(*) AS n, MAX(y.v) AS top FROM a x [RANGE {WINDOW} SECONDS SLIDE {SLIDE} SECONDS],"
    f" b y [RANGE {WINDOW} SECONDS SLIDE {SLIDE} SECONDS] WHERE x.k = y.k GROUP BY x.k"
)


@dataclass(frozen=True, slots=True)
class Joined:
    """One run: the lead of one side over the other after each epoch, in seconds of event time, the bytes stored then, and whether all answers are right."""

    rate: float
    archived: int
    leads: tuple[float, ...]
    stored: tuple[int, ...]
    is_right: bool


def joined(folder: Path, archived: int, rate: float) -> Joined:
    """A join over so many archived batches; `rate` live batches arrive for each slice of the archive, at most as many as were archived."""
    with (
        hr.open(folder, local=True) as hub,
        mock.patch.object(ReplaySchedule, "turn", _turn),
    ):
        for stream in ROWS:
            hub.execute(f"CREATE STREAM {stream} (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at")
        for number in range(archived):
            for stream in ROWS:  # each in an epoch of its own: one side arrives before the other
                _push(hub, stream, number)
                hub.catch_up()
        hub.execute(f"CREATE QUERY late AS {JOIN}")
        leads, stored, due, live = [], [], 0.0, archived
        while (seen := hub.loop.step(live_first=True)) is not None:
            leads.append(_lead(hub))
            stored.append(sum(run.bytes for run in hub.home.latest().state))
            due += rate if seen.kind == "replay" else 0
            if due >= 1 and live < 2 * archived:
                for stream in ROWS:
                    _push(hub, stream, live)
                live, due = live + 1, due - 1
        found = [(row["k"], row["n"], row["top"]) for row in hub.query("late").history().to_pylist()]
    return Joined(rate, archived, tuple(leads), tuple(stored), found == _truth(live))


def _turn(schedule: ReplaySchedule, *, live_waits: bool) -> Chunk | None:
    """Live rows go first; slices are equal, whatever they take."""
    del schedule
    return None if live_waits else Chunk(SLICE_ROWS)


def _batch(stream: str, number: int) -> list[tuple[int, int, int]]:
    """Event times, keys and values."""
    first = START + BATCH * number
    return [
        (first + row % BATCH, (row + number) % 3, (7 * row + number) % 100) for row in range(ROWS[stream])
    ]


def _push(hub: Hub, stream: str, number: int) -> None:
    hub.push(stream, [{"at": at * 1_000_000, "k": k, "v": v} for at, k, v in _batch(stream, number)])


def _lead(hub: Hub) -> float:
    """How much later the last archived row that the join has read of one side is than that of the other."""
    manifest = hub.home.latest()
    read = manifest.operator(hub.catalog.require_query("late").operator_id).replayed
    latest = []
    for stream in ROWS:
        entries = hub.home.list_of(manifest, f"archive:{stream}").iterate(hub.home.store.read, 0)
        latest.append(
            max(
                (entry["greatest"] for _, entry in entries if entry["epoch"] < read and entry["rows"]),
                default=0,
            )
        )
    return abs(latest[0] - latest[1]) / 1e6 if min(latest) else 0.0


def _truth(batches: int) -> list[tuple[int, int, int]]:
    """The answers of all closed windows, in the order of their ends and keys: key, pairs, greatest value."""
    rows = {stream: [row for number in range(batches) for row in _batch(stream, number)] for stream in ROWS}
    last = min(max(at for at, _, _ in each) for each in rows.values())
    answers = []
    for end in range(START - START % SLIDE + SLIDE, last + 1, SLIDE):
        counts: dict[str, dict[int, list[int]]] = {stream: defaultdict(list) for stream in ROWS}
        for stream, each in rows.items():
            for at, k, v in each:
                if end - WINDOW <= at < end:
                    counts[stream][k].append(v)
        answers += [
            (k, len(counts["a"][k]) * len(counts["b"][k]), max(counts["b"][k]))
            for k in sorted(counts["a"].keys() & counts["b"].keys())
        ]
    return answers
