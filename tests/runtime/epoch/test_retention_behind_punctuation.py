"""INVOKE of a relation is R(NOW) also where changes after NOW, which punctuation has passed, are older than it retains."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from tests.runtime.epoch.test_retention import START, prepared

TEXT = "SELECT v, COUNT(*) AS n FROM s [RANGE 30 SECONDS] GROUP BY v"
ROWS = 200


def instant(second: int) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def invoked(hub: Hub, name: str) -> list[tuple[int, int]]:
    return sorted((row["v"], row["n"]) for row in hub.query(name).invoke().to_pylist())


def test_changes_after_now_that_expired_are_in_the_answer_when_now_passes_them(tmp_path: Path) -> None:
    """Two hundred rows, one a second, then punctuation far ahead in steps: those of the last thirty seconds stay in R(NOW)."""
    with prepared(tmp_path / "home") as hub:
        hub.execute(f"CREATE QUERY kept OPTIONS (retain '1 MINUTE') AS {TEXT}")
        hub.execute(f"CREATE QUERY whole AS {TEXT}")
        hub.push("s", [{"at": instant(second), "v": second} for second in range(ROWS)])
        hub.loop.drain()
        for minute in range(4, 24):
            hub.execute(f"PUNCTUATE s AT TIMESTAMP '{instant(60 * minute):%Y-%m-%d %H:%M:%S}'")
            hub.loop.drain()
        assert "sums" in hub.home.latest().facts
        assert hub.query("kept").history().num_rows < hub.query("whole").history().num_rows // 4
        assert invoked(hub, "whole") == [(second, 1) for second in range(ROWS - 31, ROWS)]
        assert invoked(hub, "kept") == invoked(hub, "whole")
    with open_hub(tmp_path / "home", local=True) as hub:
        assert invoked(hub, "kept") == invoked(hub, "whole")
        for second in range(ROWS):  # NOW passes the expired changes
            hub.push("s", [{"at": instant(60 * 24 + second), "v": second}])
            if second % 8 == 0:
                hub.loop.drain()
        hub.loop.drain()
        assert (
            invoked(hub, "kept")
            == invoked(hub, "whole")
            == [(second, 1) for second in range(ROWS - 31, ROWS)]
        )


@pytest.mark.parametrize(
    ("before", "after"), [(None, "2 SECONDS"), ("2 SECONDS", "1 MINUTE"), ("1 HOUR", "2 SECONDS")]
)
def test_retractions_that_expire_before_their_insertions_are_in_the_sum(
    tmp_path: Path, before: str | None, after: str
) -> None:
    """ALTER … SET (retain …) puts later changes into another class, which expires by itself."""
    text = "SELECT v FROM s [RANGE 3 SECONDS]"
    with prepared(tmp_path / "home") as hub:
        options = "" if before is None else f"OPTIONS (retain '{before}')"
        hub.execute(f"CREATE QUERY altered {options} AS {text}; CREATE QUERY whole AS {text};")
        for epoch in range(40):
            if epoch == 3:
                hub.execute(f"ALTER QUERY altered SET (retain '{after}')")
            seconds = range(6 * epoch, 6 * epoch + 6)
            hub.push("s", [{"at": instant(second), "v": second} for second in seconds])
            hub.loop.drain()
            answers = [
                sorted(hub.query(name).invoke().column("v").to_pylist()) for name in ("altered", "whole")
            ]
            assert answers[0] == answers[1]
        assert "sums" in hub.home.latest().facts
