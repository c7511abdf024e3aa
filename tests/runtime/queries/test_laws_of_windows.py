"""The laws of the design for every kind of window, in the pipeline: which law holds for which kind is a table without holes.

Laws 1, 2 and 4 for drawn queries are in `tests/laws/test_laws.py`; here every form of a window goes through whole homes:
restarted elsewhere (3), in another order (4), among the others (6), registered late (7), for long (8). Nothing is shed (9), so
all answers are exact; what is written means the same after it was rendered and read again (5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np

from headrace.algebra.query import find_window
from headrace.algebra.windows.window import Changing, InstantWindow, SlidingWindow
from headrace.algebra.windows.window import Lasting as LastingRows
from headrace.examples.windows import Months, Shifts
from headrace.language.binder.query_binder import bind_query
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.bound_queries import CatalogNames
from headrace.time import SECOND
from tests.language.rendering.query_text import render
from tests.laws.kinds import Lasting, Striped
from tests.runtime.rig import Rig, Row, answer, answers, cut, expected, made_rows

OWN = {"months": Months, "shifts": Shifts, "striped": Striped, "lasting": Lasting}
BRACKETS = {
    "tumbling": "[RANGE TUMBLING 10 SECONDS]",
    "sliding": "[RANGE 12 SECONDS SLIDE 3 SECONDS]",
    "sliding by more than divides it": "[RANGE 10 SECONDS SLIDE 4 SECONDS ORIGIN TIMESTAMP '1970-01-01 00:00:01']",
    "sampling": "[RANGE 2 SECONDS SLIDE 7 SECONDS]",
    "of everything": "[RANGE TUMBLING ALL]",
    "landmark": "[LANDMARK SLIDE 9 SECONDS]",
    "rows": "[ROWS 7 SLIDE 3]",
    "rows as they arrive": "[ROWS 7 SLIDE 3 WATTR row_num]",
    "partitioned": "[PARTITION BY k ROWS 4 SLIDE 2]",
    "partitioned as they arrive": "[PARTITION BY k ROWS 4 SLIDE 2 WATTR row_num]",
    "ending at rows": "[RANGE 8 SECONDS SLIDE 1 ROW]",
    "ending at every third by rank": "[RANGE 8 SECONDS SLIDE 3 ROWS SATTR rank(at)]",
    "ending at every third as they arrive": "[RANGE 8 SECONDS SLIDE 3 ROWS SATTR row_num PA k]",
    "delta": "[DELTA 3 ON x]",
    "delta by part": "[PARTITION BY k DELTA 2 ON y]",
    "session": "[SESSION 1 SECOND]",
    "session by part": "[PARTITION BY k SESSION 2 SECONDS]",
    "of a user: calendar": "[WINDOW months(1)]",
    "of a user: linear": "[WINDOW shifts(3000000, 2000000)]",
    "of a user: not consecutive": "[WINDOW striped(3)]",
    "of a user: by a value": "[WINDOW lasting(4) ON g]",
    "at instants": "[RANGE 6 SECONDS]",
    "of no length": "[NOW]",
    "last rows": "[ROWS 5]",
    "last rows by part": "[PARTITION BY k ROWS 2]",
    "unbounded": "[RANGE UNBOUNDED]",
}
MEASURED = "COUNT(*) AS n, SUM(x) AS total, MIN(y) AS least"
KINDS = {name: f"SELECT {MEASURED} FROM s {bracket}" for name, bracket in BRACKETS.items()}
KINDS |= {
    "sliding, of groups": f"SELECT k, {MEASURED} FROM s [RANGE 12 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "window()": f"SELECT k, {MEASURED} FROM s WHERE x > 0 GROUP BY k, window(at, '9 seconds', '2 seconds')",
    "session_window()": f"SELECT k, {MEASURED} FROM s WHERE x > 0 GROUP BY k, session_window(at, '2 seconds')",
    "HOP": f"SELECT {MEASURED} FROM HOP(TABLE s, DESCRIPTOR(at), INTERVAL 3 SECONDS, INTERVAL 9 SECONDS)",
    "CUMULATE": f"SELECT {MEASURED} FROM CUMULATE(TABLE s, DESCRIPTOR(at), INTERVAL 3 SECONDS, INTERVAL 9 SECONDS)",
}
NAMES = {kind: f"q{number}" for number, kind in enumerate(KINDS)}
BY_ARRIVAL = frozenset(kind for kind, text in KINDS.items() if "row_num" in text)
ONE_FILE = {"maxFilesPerTrigger": "1"}
SLACK = 3 * SECOND


@contextmanager
def home(rig: Rig, tasks: int, kinds: Mapping[str, str] = KINDS) -> Iterator[Hub]:
    with rig.hub(tasks) as hub:
        for name, kind in OWN.items():
            hub.register_window(name, kind)
        hub.execute(rig.script({NAMES[kind]: text for kind, text in kinds.items()}))
        yield hub


def streamed(seed: int, count: int = 80) -> list[list[Row]]:
    rows = made_rows(seed, count, disorder=2 * SECOND)
    return cut(rows, *range(10, count, 10))


def assert_meant(hub: Hub, files: list[list[Row]]) -> dict[str, list[Any]]:
    answered = answers(hub, hub.run_once())
    for kind, name in NAMES.items():
        assert answered[name] == expected(hub.operator_and_query(name)[1], files, SLACK), kind
        assert answered[name], kind
    return answered


def test_every_class_of_window_there_is_has_a_kind_here(tmp_path: Path) -> None:
    with home(Rig(tmp_path), 1) as hub:
        queries = [hub.operator_and_query(name)[1] for name in NAMES.values()]
        windows = [find_window(query.root) for query in queries]
        there = {type(window.window) for window in windows if window is not None}
        # What joins and relations in FROM make: tests/laws/test_several_streams.py, test_relations_joined.py.
        derived = {LastingRows, Changing}
        assert there == {*get_args(SlidingWindow), *get_args(InstantWindow)} - derived
        for query in queries:
            assert bind_query(render(query), CatalogNames(hub.catalog)) == query


def test_law_3_restarted_with_another_number_of_tasks_in_every_epoch(tmp_path: Path) -> None:
    rig, files = Rig(tmp_path, ONE_FILE, SLACK), streamed(1)
    rig.drop(*files)
    for number in range(len(files)):
        with home(rig, 1 + number % 4) as hub:
            hub.loop.step()
    with home(rig, 3) as hub:
        assert_meant(hub, files)


def test_law_4_in_another_order_that_the_slack_allows(tmp_path: Path) -> None:
    rows = [dict(row, at=place * SECOND // 2) for place, row in enumerate(made_rows(2, 80))]
    rng, answers_of = np.random.default_rng(2), []
    for number in range(2):
        order = np.argsort([row["at"] + int(rng.integers(0, SLACK)) for row in rows], kind="stable")
        files = cut([rows[place] for place in order], *range(13, 80, 13 + number))
        rig = Rig(tmp_path / str(number), ONE_FILE, SLACK)
        rig.drop(*files)
        with home(rig, 2) as hub:
            answers_of.append(assert_meant(hub, files))
    for kind, name in NAMES.items():
        assert (answers_of[0][name] == answers_of[1][name]) == (kind not in BY_ARRIVAL), kind


def test_laws_6_and_7_alone_and_registered_late_each_answers_as_among_the_others_from_the_start(
    tmp_path: Path,
) -> None:
    files = streamed(3, 40)
    together = Rig(tmp_path / "together", ONE_FILE, SLACK)
    together.drop(*files)
    with home(together, 2) as hub:
        answered = answers(hub, hub.run_once())
    for kind, text in KINDS.items():
        rig = Rig(tmp_path / NAMES[kind], ONE_FILE, SLACK)
        rig.drop(*files[:2])
        with home(rig, 2, {}) as hub:
            hub.run_once()
            rig.drop(*files[2:])
            hub.execute(f"CREATE QUERY {NAMES[kind]} AS {text}")
            assert answer(hub, NAMES[kind], hub.run_once()) == answered[NAMES[kind]], kind


def test_law_8_what_is_kept_does_not_grow_with_the_length_of_the_stream(tmp_path: Path) -> None:
    rig, epochs = Rig(tmp_path, ONE_FILE, SLACK), 48
    rig.drop(*cut(made_rows(4, 10 * epochs, disorder=2 * SECOND), *range(10, 10 * epochs, 10)))
    state_rows: dict[str, list[int]] = {}
    with home(rig, 1) as hub:
        while (seen := hub.loop.step()) is not None:
            for operator, observed in seen.operators.items():
                state_rows.setdefault(operator, []).append(observed.state_rows)
        for kind, name in NAMES.items():
            rows = state_rows[hub.operator_and_query(name)[0].id]
            assert len(rows) == epochs
            assert max(rows[epochs // 2 :]) <= 1.25 * max(rows[: epochs // 2]) + 5, (kind, rows)
