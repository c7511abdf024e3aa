"""Whatever a SELECT asks for, if it binds it runs: in a crowd as rows come, and registered late, with one answer (laws 6 and 7)."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import Phase, given, note
from hypothesis import strategies as st

from headrace.errors import UserError
from headrace.examples.windows import Months
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.examples import examples
from tests.language.texts import selects

STREAM = """CREATE STREAM bids (auction BIGINT, bidder BIGINT, price DOUBLE, at TIMESTAMP) USING push
  TIMESTAMP BY at SLACK 300 SECONDS"""
RELATIONS = {
    "category": ("id BIGINT, name STRING", "id,name\n1,x\n2,y\n3,z\n3,zz\n,n\n"),
    "people": ("id BIGINT, name STRING, city STRING", "id,name,city\n1,p,A\n6,q,\n,r,C\n"),
}
PRICES = (None, 0.5, 1.0, 2.0, 3.5, 150.0, -1.0, 0.0, -0.0, math.nan)
ROUNDING = re.compile(r"(stddev\(price|regr|corr|slope|ewma|zscore|kurtosis)")
SLIDING = re.compile(r"^SELECT.*( SLIDE |TUMBLING|SESSION|DELTA|\[WINDOW|window\(at)")
"""Doubles differ in their last figure with the cut, and what emits changes, as all do but windows that slide, shows it."""
ENDLESS = re.compile(r"EMIT EMPTY|LANDMARK|cumulate")
"""What has a window at each slide, though no row comes for years."""
Row = dict[str, Any]


def bids(seed: int, count: int, *, old: bool) -> list[Row]:
    """Bids of an hour, out of order; with `old` one is of the year 1969."""
    rng = np.random.default_rng(seed)
    start = datetime(2023, 11, 14, 22, tzinfo=UTC)
    seconds = np.sort(rng.integers(0, 3600, count)) + rng.integers(-200, 200, count)
    if old:
        seconds[count // 2] = -54 * 365 * 86_400
    return [
        {
            "auction": [None, 1, 2, 3, 3, 6][rng.integers(6)],
            "bidder": [None, 1, 2, 3][rng.integers(4)],
            "price": PRICES[rng.integers(len(PRICES))],
            "at": start + timedelta(seconds=float(second) + rng.integers(2) / 2),
        }
        for second in seconds.tolist()
    ]


@contextmanager
def hub(folder: Path, tasks: int) -> Iterator[Hub]:
    with Hub(folder / "home", LocalExecutor(), tasks=tasks) as opened:
        opened.register_window("months", Months)
        opened.execute(STREAM)
        for name, (columns, rows) in RELATIONS.items():
            path = folder / f"{name}.csv"
            path.write_text(rows)
            opened.execute(
                f"CREATE RELATION {name} ({columns}) USING csv OPTIONS (path '{path}', header 'true')"
            )
        yield opened


def registered(hub: Hub, texts: Sequence[str]) -> list[str]:
    """Those that are available; what is refused when it is registered has the reason."""
    names = []
    for number, text in enumerate(texts):
        try:
            hub.register(text, f"q{number}")
        except UserError:
            continue
        names.append(f"q{number}")
    return names


def answered(hub: Hub, names: Sequence[str]) -> dict[str, tuple[list[Row], list[Row], list[Row]]]:
    """What each query has emitted, would emit at the end, and gives when asked."""
    closing = hub.run_once()
    return {
        name: (
            hub.query(name).history().to_pylist(),
            closing[name].to_pylist() if name in closing else [],
            hub.query(name).invoke().to_pylist(),
        )
        for name in names
    }


def rounded(rows: Sequence[Row]) -> list[str]:
    """The rows as a bag, doubles to nine figures."""
    return sorted(
        repr([float(f"{cell:.9g}") + 0.0 if isinstance(cell, float) else cell for cell in row.values()])
        for row in rows
    )


@examples(12, derandomize=True, phases=[Phase.generate])
@given(
    texts=st.lists(selects(), min_size=12, max_size=16, unique=True),
    seed=st.integers(0, 99),
    tasks=st.integers(1, 3),
    old=st.booleans(),
)
def test_a_text_that_binds_runs_and_answers_the_same_whenever_it_was_registered(
    texts: list[str], seed: int, tasks: int, old: bool
) -> None:
    rows = bids(seed, 40, old=old)
    texts = [text for text in texts if not (old and ENDLESS.search(text))]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        with hub(Path(first), tasks) as live:
            names = registered(live, texts)
            for start in range(0, 40, 8):
                live.push("bids", rows[start : start + 8])
                live.catch_up()
            of_live = answered(live, names)
        with hub(Path(second), tasks % 3 + 1) as late:
            for start in range(0, 40, 8):
                late.push("bids", rows[start : start + 8])
                late.catch_up()
            assert registered(late, texts) == names
            again = answered(late, names)
    for name in names:
        note(texts[int(name[1:])])
        history, closing, asked = of_live[name]
        text = texts[int(name[1:])]
        if SLIDING.search(text) or not ROUNDING.search(text):
            assert rounded([*history, *closing]) == rounded([*again[name][0], *again[name][1]])
            assert rounded(asked) == rounded(again[name][2])
