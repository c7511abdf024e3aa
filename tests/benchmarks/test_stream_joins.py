"""The page about joins of streams is made without a peer that fails, is killed, answers wrongly or takes too long, and names the reason."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import pytest

from benchmarks import folders
from benchmarks.expected import WrongAnswer
from benchmarks.runs import RunFailed, run_watched
from benchmarks.suite import stream_joins
from benchmarks.suite.stream_joins import ENTRIES, LONGEST_SECONDS, ROUND_SECONDS, Entry, Turns, page, why

ROWS = 1_000_000


class Clock:
    """Seconds that pass when an entry runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def turns(takes: dict[str | None, float | Exception]) -> Turns:
    """Each peer takes so many seconds, or fails."""
    clock = Clock()

    def run(entry: Entry, longest: float) -> dict[str, Any]:
        took = takes.get(entry.peer, 10.0)
        if isinstance(took, Exception):
            raise took
        clock.now += min(took, longest)
        if took > longest:
            raise TimeoutExpired("java", longest)
        return {"seconds": took, "peak_pss_mb": 100.0}

    return Turns(run, clock)


def test_all_answer() -> None:
    done = turns({None: 2.0})
    done.round(ENTRIES, 1, ROWS)
    done.round(ENTRIES, 2, ROWS)
    shown = page(done, ROWS)
    assert not done.reasons
    assert len(shown.table) == len(ENTRIES)
    assert [row["seconds"] for row in shown.table if row["contender"] == "headrace"] == [[2.0, 2.0]] * 3
    assert next(ratio.value for ratio in shown.ratios if "Flink" in ratio.what) == 5.0


@pytest.mark.parametrize("error", [RunFailed("java\nConnection refused"), WrongAnswer("3 windows expected.")])
def test_a_peer_that_fails_is_named_and_has_no_further_turn(error: Exception) -> None:
    done = turns({None: 2.0, "spark": error})
    done.round(ENTRIES, 1, ROWS)
    done.run = turns({}).run
    done.round(ENTRIES, 2, ROWS)
    shown = page(done, ROWS)
    assert not any("spark" in row["contender"] for row in shown.table)
    reason = str(error).splitlines()[-1].rstrip(".")
    assert f"spark, hdfs, 3 streams with a heap of 10 GB, is left out: {reason}." in shown.notes
    assert any("Flink" in ratio.what for ratio in shown.ratios)
    assert not any("Spark" in ratio.what for ratio in shown.ratios)


def test_a_peer_that_is_stopped_counts_less_than_it_took() -> None:
    done = turns({None: 2.0, "flink": 1e9})
    done.round(ENTRIES, 1, ROWS)
    counted = LONGEST_SECONDS - stream_joins.START_SECONDS
    shown = page(done, ROWS)
    ratios = {ratio.what: ratio.value for ratio in shown.ratios}
    assert ratios["2 streams, ours to Flink's best"] == counted / 2
    assert any(note.startswith("flink, 2 streams, is left out: stopped after 150 s") for note in shown.notes)
    assert not any(row["contender"] == "flink" for row in shown.table)


def test_a_round_ends_in_time_however_slow_peers_are() -> None:
    done = turns({None: 2.0, "flink": 1e9, "spark": 1e9, "duckdb": 1.0})
    done.round(ENTRIES, 1, ROWS)
    assert isinstance(done.clock, Clock)
    assert done.clock.now <= ROUND_SECONDS + 10
    assert {entry.streams for entry in done.measured if entry.peer is None} == {2, 3, 4}, (
        "ours has all its turns"
    )
    left = [reason for reason in done.reasons.values() if "no time of the round was left" in reason]
    assert left
    page(done, ROWS)


def test_our_own_error_ends_the_page() -> None:
    with pytest.raises(RunFailed, match="ours"):
        turns({None: RunFailed("ours")}).round(ENTRIES, 1, ROWS)


def test_a_process_that_is_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a JVM that the system kills for its memory."""
    monkeypatch.setattr(folders, "CHECKOUT", tmp_path)
    monkeypatch.setattr("benchmarks.runs.java_home", lambda: tmp_path)

    def run(entry: Entry, longest: float) -> dict[str, Any]:
        if entry.peer is None:
            return {"seconds": 1.0, "peak_pss_mb": 1.0}
        killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        printed, _ = run_watched([sys.executable, "-c", killed], tmp_path, longest_seconds=longest)
        return printed

    done = Turns(run)
    done.round(ENTRIES[:4], 1, ROWS)
    assert set(done.reasons) == {entry for entry in ENTRIES[:4] if entry.peer is not None}
    assert all("exit code -9" in reason for reason in done.reasons.values())


def test_the_reason_is_in_the_log() -> None:
    refused = "ConnectionRefusedError: [Errno 111] Connection refused"
    assert "no memory" in why(f"java.lang.OutOfMemoryError: Java heap space\n{refused}")
    assert "has ended" in why(f"…\n{refused}")
    assert why("ValueError: 3") == ""
