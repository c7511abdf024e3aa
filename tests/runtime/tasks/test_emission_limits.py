"""A query with very many windows to emit emits them over several epochs: the same ones, and no other query waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.operators.panes.emission_limit import EmissionCap
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.state import emission_limits
from headrace.time import SECOND
from tests.runtime.rig import QUERIES, Rig, answers, cut, expected, faults_once_tidy, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
MANY = {
    **QUERIES,
    "silence": "SELECT COUNT(*) AS n, SUM(x) AS total FROM s [RANGE TUMBLING 2 SECONDS] EMIT EMPTY",
    "quiet": "SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 1 SECOND] WHERE x > 5 EMIT EMPTY",
    "often": "SELECT COUNT(*) AS n, MAX(y) AS top FROM s [LANDMARK SLIDE 1 SECOND]",
    "fine": "SELECT k, COUNT(*) AS n, AVG(y) AS mean FROM s [RANGE 30 SECONDS SLIDE 250 MILLISECONDS] GROUP BY k",
    "each": "SELECT k, x FROM s [RANGE 9 SECONDS SLIDE 500 MILLISECONDS] WHERE x > 6",
    "came": "ISTREAM(SELECT k, COUNT(*) AS n FROM s [RANGE 8 SECONDS SLIDE 1 SECOND] GROUP BY k)",
    "went": "DSTREAM(SELECT k, COUNT(*) AS n FROM s [RANGE 8 SECONDS SLIDE 1 SECOND] GROUP BY k)",
}
LIVE = [name for name in MANY if name != "named"]


def rows_with_gaps(seed: int, count: int = 60) -> list[dict[str, object]]:
    rows = made_rows(seed, count)
    for index, row in enumerate(rows):
        row["at"] += (index // 20) * 80 * SECOND
    return rows


@pytest.mark.parametrize(("tasks", "cap"), [(1, EmissionCap(60, 25)), (3, EmissionCap(25, 40))])
def test_answers_emitted_in_parts_are_the_reference_s(tmp_path: Path, monkeypatch, tasks, cap) -> None:
    monkeypatch.setattr(emission_limits, "EMISSION_CAP", cap)
    rows = rows_with_gaps(3)
    files = cut(rows, 9, 31, 40)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*files)
    kinds: list[str] = []
    with rig.hub(tasks, MANY) as hub:
        hub.on_epoch(lambda seen: kinds.append(seen.kind))
        closing = hub.run_once()
        answered = answers(hub, closing)
        for name in MANY:
            assert answered[name] == expected(hub.operator_and_query(name)[1], files), name
        assert kinds.count("tick") > 5
        assert not faults_once_tidy(hub)


def test_a_home_left_in_the_middle_continues_emitting_and_late_queries_agree(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(emission_limits, "EMISSION_CAP", EmissionCap(40, 30))
    rows = rows_with_gaps(4)
    files = cut(rows, 25, 42)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*files)
    early = {name: MANY[name] for name in ("silence", "often", "each", "went", "tumble")}
    with rig.hub(1, early) as hub:
        for _ in range(4):
            hub.loop.step()
        assert hub.loop.engine.has_emission_backlog()
    with rig.hub(3) as hub:
        hub.run_once()
        for name, text in MANY.items():
            if name not in early and name != "named":
                hub.register(text, name)
        answered = answers(hub, hub.run_once())
        for name in answered:
            assert answered[name] == expected(hub.operator_and_query(name)[1], files), name


def test_a_seal_emits_everything(tmp_path: Path, monkeypatch) -> None:
    files = cut(rows_with_gaps(5), 30)
    runs = []
    for cap in (EmissionCap(), EmissionCap(30, 40)):
        monkeypatch.setattr(emission_limits, "EMISSION_CAP", cap)
        rig = Rig(tmp_path / str(cap.rows), ONE_FILE)
        rig.drop(*files)
        with rig.hub(2, MANY) as hub:
            hub.run_once(seal=True)
            assert not hub.loop.engine.has_emission_backlog()
            runs.append(answers(hub))
    assert runs[0] == runs[1]


def test_windows_over_half_a_century_hold_up_nobody(tmp_path: Path) -> None:
    """A row of 1970 and one of 2024, emitted every second between: 1.7 thousand million windows, each at its time."""
    row = {"k": "a", "g": 1, "x": 1, "y": 1.0}
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop([{**row, "at": 0}], [{**row, "at": 1_704_067_200 * SECOND}])
    queries = {
        "some": "SELECT k, at FROM s",
        "bad": "SELECT window_end, COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND] EMIT EMPTY",
        "ever": "SELECT window_end, COUNT(*) AS n FROM s [LANDMARK SLIDE 1 SECOND]",
        "sparse": "SELECT window_end, COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND]",
    }
    with rig.hub(1, queries) as hub:
        hub.execute(
            "CREATE QUERY long OPTIONS (maxWindowsPerRow '31536000') AS"
            " SELECT window_end, COUNT(*) AS n FROM s [RANGE 365 DAYS SLIDE 1 SECOND]"
        )
        for _ in range(3):
            hub.loop.step()
        assert hub.query("some").history().num_rows == 2
        assert hub.query("sparse").history().num_rows == 1
        for name in ("bad", "ever", "long"):
            table = hub.query(name).history()
            assert table.num_rows == EmissionCap().rows * 2
            assert set(table["n"].to_pylist()[1:]) == ({0} if name == "bad" else {1})
        assert states(hub)["bad"] == "emitting"
        assert states(hub)["some"] == "live"
        assert set(states(hub, "WHERE state = 'emitting'")) == {"bad", "ever", "long"}


def states(hub: Hub, condition: str = "") -> dict[str, str]:
    table = hub.execute(f"SHOW QUERIES {condition}")[0].table
    assert table is not None
    return dict(zip(table["name"].to_pylist(), table["state"].to_pylist(), strict=True))


def test_a_provisional_end_is_emitted_in_parts_too(tmp_path: Path, monkeypatch) -> None:
    files = cut(rows_with_gaps(6), 30)
    asked = {name: MANY[name] for name in ("slide", "fine", "each", "whole", "tumble", "went", "distinct")}
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*files)
    with rig.hub(2, asked) as hub:
        whole = answers(hub, hub.run_once())
        monkeypatch.setattr(emission_limits, "EMISSION_CAP", EmissionCap(20, 8))
        assert answers(hub, hub.finish()) == whole
        for name in asked:
            assert whole[name] == expected(hub.operator_and_query(name)[1], files), name
