"""Groups of few rows are stored as rows when many are: chosen from what epochs measure, kept by the manifest, never seen in answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.operators.panes.adaptive_panes import SPARSE_OPEN, SPARSE_SEALED
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.runtime.progress.pane_layout import states_in_row_layout
from headrace.time import SECOND

T0 = 1_700_000_000 * SECOND
STREAM = (
    "CREATE STREAM s (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK INTERVAL 20 SECONDS;"
)
WIDE = "SUM(v) AS total, AVG(v) AS mean, MIN(v) AS least, MAX(v) AS most, COUNT(*) AS n"
QUERY = f"SELECT k, window_end, {WIDE} FROM s [RANGE 60 SECONDS SLIDE 20 SECONDS] GROUP BY k"


@contextmanager
def opened(folder: Path, *, register: bool = True, tasks: int = 2) -> Iterator[Hub]:
    with Hub(folder, LocalExecutor(), clock=lambda: T0, tasks=tasks) as hub:
        if register:
            hub.execute(STREAM)
            hub.register(QUERY, "q")
        yield hub


def push(hub: Hub, epoch: int, small: int, *, large: int = 300) -> None:
    """An epoch of ten seconds: three large groups, and `small` groups of one row that no other epoch has."""
    rng = np.random.default_rng(epoch)
    k = np.r_[rng.integers(0, 3, large), 1000 * (epoch + 1) + np.arange(small)]
    at = T0 + (10 * epoch + rng.integers(0, 10, len(k))) * SECOND
    stamps = pa.array(at).cast(pa.timestamp("us", "UTC"))
    hub.push("s", pa.table({"k": k, "v": rng.integers(-99, 99, len(k)), "at": stamps}))
    hub.loop.drain()


def adapts(hub: Hub) -> bool:
    return bool(states_in_row_layout(hub.home.latest()))


def sections(hub: Hub) -> set[str]:
    """Names of what the state holds."""
    runs = hub.home.latest().state
    return {name.partition("/")[2] for run in runs for name in open_run(hub.home.store, run.name)}


def answers(hub: Hub) -> list[tuple[Any, ...]]:
    rows = hub.query("q").history().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_a_stream_of_many_small_groups_keeps_their_rows_and_goes_back_when_they_have_gone(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as hub:
        push(hub, 0, 0)
        assert not adapts(hub)
        push(hub, 1, 400)
        assert adapts(hub), "measured by this epoch, for the next"
        assert not {SPARSE_OPEN, SPARSE_SEALED} & sections(hub)
        push(hub, 2, 400)
        assert SPARSE_OPEN in sections(hub)
        assert "are stored as rows" in hub.execute("EXPLAIN QUERY q;")[0].message
        for epoch in range(3, 7):
            push(hub, epoch, 400)
        assert SPARSE_SEALED in sections(hub)
        push(hub, 7, 3, large=4000)
        assert adapts(hub), "too few groups to tell"
        k = np.repeat(np.arange(200), 20)
        stamps = pa.array(np.full(len(k), T0 + 80 * SECOND)).cast(pa.timestamp("us", "UTC"))
        hub.push("s", pa.table({"k": k, "v": k, "at": stamps}))
        hub.loop.drain()
        assert not adapts(hub)


def test_where_hardly_a_pane_holds_two_rows_of_a_group_no_row_is_folded_as_it_comes(tmp_path: Path) -> None:
    counts = []
    for number in range(2):
        with opened(tmp_path / str(number)) as hub:
            for epoch in range(8):
                push(hub, epoch, 400, large=6 if number == 0 or epoch < 5 else 6000)
                if epoch == 4:
                    assert "rows are not folded into panes" in hub.execute("EXPLAIN QUERY q;")[0].message
            said = hub.execute("EXPLAIN QUERY q;")[0].message
            assert ("rows are not folded into panes" in said) == (number == 0), "and back"
            counts.append(len(answers(hub)))
    assert counts[0] > 1000


def test_the_choice_outlives_a_restart_and_answers_are_those_of_partials(
    tmp_path: Path, monkeypatch: Any
) -> None:
    of_layout = []
    for never in (False, True):
        folder = tmp_path / str(never)
        if never:
            monkeypatch.setattr(
                "headrace.runtime.progress.pane_layout.should_store_rows", lambda *_, does: False
            )
        for epoch in range(12):
            with opened(folder, register=epoch == 0, tasks=1 + epoch % 3) as hub:
                before = adapts(hub)
                push(hub, epoch, 400 if epoch % 5 else 0, large=300 if epoch % 4 else 6)
                assert before == (not never and epoch > 1 and adapts(hub)) or epoch in (1, 2)
        with opened(folder, register=False) as hub:
            hub.run_once(seal=True)
            of_layout.append(answers(hub))
    assert len(of_layout[0]) > 10_000
    assert of_layout[0] == of_layout[1]


def test_a_query_registered_late_over_small_groups_answers_the_same(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        for epoch in range(6):
            push(hub, epoch, 300)
        hub.register(QUERY, "late")
        hub.loop.drain()
        push(hub, 6, 300)
        first, second = (hub.query(name).history().to_pylist() for name in ("q", "late"))
        assert sorted(map(repr, first)) == sorted(map(repr, second))
        assert len(first) > 1500
