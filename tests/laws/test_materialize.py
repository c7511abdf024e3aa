"""However much of an answer is kept, INVOKE gives the same: that of the reference over the whole committed prefix."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.reference.evaluate import invoke
from headrace.reference.history import History, record
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.examples import examples
from tests.runtime.rig import Rig, Row, canonical, cut, made_rows

MODES = ("none", "partial", "complete")
SLACK = 2 * SECOND

conditions = st.sampled_from(
    [
        "",
        "WHERE x > 3",
        "WHERE x BETWEEN -1 AND 6 AND y < 5",
        "WHERE k IS NULL OR g <> 2",
        "WHERE k IN ('a', 'c') AND x > g",
        "WHERE x % 3 = 1",
        "WHERE x > 100",
    ]
)
shapes = st.sampled_from(
    [
        ("k, x, y", ""),
        ("DISTINCT k, g", ""),
        ("x + 1 AS above, k", "ORDER BY x DESC, k LIMIT 3"),
        ("COUNT(*) AS n, SUM(x) AS total, AVG(y) AS mean, MIN(x) AS low, MAX(y) AS top", ""),
        ("g, COUNT(*) AS n, AVG(x) AS mean, MAX(k) AS last", "GROUP BY g"),
        ("k AS g, MAX(x) AS x", "GROUP BY k ORDER BY x DESC, g LIMIT 2"),
        ("g, COUNT(DISTINCT k) AS ks, SUM(x) AS total", "GROUP BY g HAVING COUNT(*) > 1"),
        ("FIRST(k) AS first, LAST(x) AS last, COUNT(*) AS n", ""),
        ("g, MAX_BY(k, x) AS of_top, MIN_BY(x, k) AS of_first", "GROUP BY g"),
        ("g, LAST(x, TRUE) AS last, SLOPE(x) AS up, EWMA(x, INTERVAL 3 SECONDS) AS faded", "GROUP BY g"),
    ]
)
bounds = st.one_of(
    st.builds(
        lambda old, new: (
            f"BEGIN NOW - INTERVAL {max(old, new)} SECONDS END NOW - INTERVAL {min(old, new)} SECONDS"
        ),
        st.integers(0, 25),
        st.integers(0, 25),
    ),
    st.builds(lambda old: f"BEGIN NOW - INTERVAL {old} SECONDS END NOW", st.integers(0, 40)),
    st.builds(
        lambda low, length: (
            f"BEGIN TIMESTAMP '1970-01-01 00:00:{low:02}' END TIMESTAMP '1970-01-01 00:00:{low + length:02}'"
        ),
        st.integers(0, 30),
        st.integers(0, 29),
    ),
    st.builds(lambda low: f"BEGIN TIMESTAMP '1970-01-01 00:00:{low:02}' END NOW", st.integers(0, 50)),
    st.builds(
        lambda old, end: f"BEGIN NOW - INTERVAL {old} SECONDS END TIMESTAMP '1970-01-01 00:00:{end:02}'",
        st.integers(0, 30),
        st.integers(0, 50),
    ),
)
ranges = st.sampled_from(["", "", "[RANGE 7 SECONDS]"])


@st.composite
def selections(draw: st.DrawFn) -> str:
    columns, after = draw(shapes)
    return f"SELECT {columns} FROM s {draw(ranges)} {draw(conditions)} {draw(bounds)} {after}"


def meant(hub: Hub, name: str, epochs: Sequence[Sequence[Row]], slack: int = SLACK) -> list:
    """The reference's answer over what is committed."""
    query = hub.operator_and_query(name)[1]
    history = History({"s": record([list(epoch) for epoch in epochs], "at", slack)}, {})
    return canonical(invoke(query, history, history.punctuation(query)))


def invoked(hub: Hub, name: str) -> list:
    """What INVOKE gives, as the reference writes it."""
    return canonical(hub.query(name).invoke().to_pylist())


def create(hub: Hub, text: str, suffix: str = "") -> None:
    for mode in MODES:
        hub.execute(f"CREATE QUERY {mode}{suffix} OPTIONS (materialize '{mode}') AS {text}")


@examples(40)
@given(
    text=selections(),
    seed=st.integers(0, 99),
    places=st.sets(st.integers(1, 29), max_size=4),
    tasks=st.integers(1, 3),
)
def test_all_three_modes_give_the_answer_of_the_reference_after_every_epoch(
    text: str, seed: int, places: set[int], tasks: int
) -> None:
    files = cut(made_rows(seed, 30, disorder=3 * SECOND), *sorted(places))
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), {"maxFilesPerTrigger": "1"}, SLACK)
        with rig.hub(tasks, {}) as hub:
            create(hub, text)
            for number, file in enumerate(files):
                rig.drop(file)
                hub.catch_up()
                if number == len(files) // 2:
                    create(hub, text, "_late")
                    for name in MODES[:2]:  # before the archive is read: the answer is whole all the same
                        assert invoked(hub, f"{name}_late") == meant(hub, name, files[: number + 1])
                    hub.catch_up()
                for name in MODES:
                    assert invoked(hub, name) == meant(hub, name, files[: number + 1]), (name, text)
            for name in MODES:
                assert invoked(hub, f"{name}_late") == meant(hub, name, files), (name, text)
        with rig.hub(tasks % 3 + 1) as hub:  # the handles outlive the process
            for name in MODES:
                assert invoked(hub, name) == meant(hub, name, files)


@pytest.mark.parametrize(
    "bounds", ["BEGIN TIMESTAMP '1970-01-01' END NOW", "BEGIN NOW - INTERVAL 9 SECONDS END NOW"]
)
@pytest.mark.parametrize("window", ["[RANGE 7 SECONDS]", "[RANGE 9 SECONDS]", "[RANGE 11 SECONDS]", ""])
def test_the_row_at_the_very_beginning_of_a_window_is_in_it_and_the_one_before_is_not(
    window: str, bounds: str, tmp_path: Path
) -> None:
    """Rows a microsecond before, at and after each end that a range or BEGIN may have; and they stay kept."""
    edges = [7 * SECOND, 9 * SECOND, 11 * SECOND]
    now = 30 * SECOND
    rows: list[Row] = [
        {"k": "a", "g": 1, "x": index, "y": 0.0, "at": now - edge + off}
        for index, (edge, off) in enumerate((edge, off) for edge in edges[::-1] for off in (-1, 0, 1))
    ]
    files = [rows, [{"k": "b", "g": 1, "x": -1, "y": 0.0, "at": now}]]
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(1, {}) as hub:
        create(hub, f"SELECT x FROM s {window} {bounds}")
        create(hub, f"SELECT COUNT(*) AS n, MIN(x) AS low FROM s {window} {bounds}", "_whole")
        for number, file in enumerate(files, 1):
            rig.drop(file)
            hub.catch_up()
            for name in (*MODES, *(f"{mode}_whole" for mode in MODES)):
                assert invoked(hub, name) == meant(hub, name, files[:number], 0), name
        reaches = [int(part) * SECOND for part in re.findall(r"(\d+) SECONDS", f"{window} {bounds}")]
        reach = min(reaches, default=now)
        held = {row["x"] for file in files for row in file if row["at"] >= now - reach}
        assert {row["x"] for row in hub.query("none").invoke().to_pylist()} == held
