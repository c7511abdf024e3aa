"""A home that was written when all files of `algebra/` were in one folder opens, continues with new rows and answers rightly."""

from __future__ import annotations

import base64
import datetime as dt
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.fixtures.home_before_rooms import MADE_BY, QUERIES, START, rows

HOME = Path(__file__).parents[2] / "fixtures" / "home-before-rooms"

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != MADE_BY, reason="what users registered there is bytecode of another Python"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HOME, tmp_path / "home"))


def answers(hub: hr.Hub, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in hub.query(name).history().to_pylist())


def second(number: int) -> dt.datetime:
    return START + dt.timedelta(seconds=number)


def test_its_query_log_names_the_module_of_the_time() -> None:
    """Otherwise the next test would show nothing."""
    log = "".join(path.read_text(encoding="utf-8") for path in sorted((HOME / "querylog").iterdir()))
    bodies = [base64.b64decode(body) for body in re.findall(r'"([A-Za-z0-9+/=]{80,})"', log)]
    assert sum(b"headrace.algebra.user_windows" in body for body in bodies) == 2


def test_it_answers_for_the_rows_before_and_after(home: Path) -> None:
    with hr.open(home, local=True) as hub:
        before = {name: answers(hub, name) for name in QUERIES}
        hub.push("s", rows(range(12, 21)))
        hub.run_once()
        after = {name: answers(hub, name) for name in QUERIES}
    assert all(0 < len(before[name]) < len(after[name]) for name in QUERIES)
    assert after["tens"] == [
        *(("a", 3, 6), ("a", 5, 20), ("a", 5, 50), ("a", 5, 70)),
        *(("b", 2, 4), ("b", 5, 25), ("b", 5, 45), ("b", 5, 75)),
    ]
    assert after["triples"] == sorted(("ab"[v % 2], 3 * v) for v in range(2, 21))
    assert after["blocks"] == [(4, 6), (4, 22), (4, 38), (4, 54), (4, 70)]
    assert after["steps"] == [(4,)] * 5
    assert after["totals"] == [(second(5), 10), (second(10), 45), (second(15), 60), (second(20), 145)]
    assert after["named"] == [
        *(("first", 6), ("first", 14), ("first", 34), ("first", 36)),
        *(("second", 4), ("second", 21), ("second", 24), ("second", 51)),
    ]
