"""Recorded plans: the statements of `plans/*.sql`, the EXPLAIN of each, and a few rows to run them over.

The last query of a file is the one that is explained; those before it are what it reads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.algebra.query import Query
from headrace.examples.windows import Shifts
from headrace.reference.derived import with_derived
from headrace.reference.evaluate import changes, invoke, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.laws.two_streams import NAMES, Row

HERE: Final = Path(__file__).parent
PLANS: Final = tuple(sorted((HERE / "plans").glob("*.sql")))
SLACK: Final = 2 * SECOND


@contextmanager
def opened(plan: Path) -> Iterator[tuple[Hub, str]]:
    """A home with the statements of a file, and the name of its last query."""
    script = plan.read_text(encoding="utf-8").replace("tests/planner/", f"{HERE}/")
    with (
        tempfile.TemporaryDirectory() as folder,
        Hub(Path(folder) / "home", LocalExecutor(), tasks=2) as hub,
    ):
        hub.register_window("shifts", Shifts)
        outcomes = hub.execute(script)
        assert outcomes[-1].name is not None
        yield hub, outcomes[-1].name


def explained(plan: Path) -> str:
    """The EXPLAIN of a file's last query before any row has come, as it is recorded."""
    with opened(plan) as (hub, name):
        return f"{hub.execute(f'EXPLAIN QUERY {name}')[0].message}\n"


def epochs(seed: int = 7, rows: int = 12) -> list[dict[str, list[Row]]]:
    """Three epochs of each stream: ties, disorder, some late rows, NULLs; sums of `d` are exact."""
    rng = np.random.default_rng(seed)

    def some(start: int) -> list[Row]:
        return [
            {
                "k": [None, "a", "a", "b", "c"][rng.integers(5)],
                "v": int(rng.integers(-1, 4)),
                "d": None if rng.integers(6) == 0 else float(rng.integers(-8, 9)) / 4,
                "at": (start + int(rng.integers(0, 20))) * (SECOND // 2),
            }
            for _ in range(rows)
        ]

    return [{"a": some(start), "b": some(start)} for start in (0, 12, 24)]


def answered(hub: Hub, taken: Sequence[dict[str, list[Row]]]) -> list[Any]:
    """The reference's answer of the newest query once the streams have ended."""
    history, answer = _history(hub, taken), list[Any]()
    for standing in hub.catalog.queries.values():
        name = standing.definition.name
        query = hub.operator_and_query(name)[1]
        known = with_derived(query, history, final=True)
        answer = _answer(query, known)
        if query.emission != "relation":
            history = known.with_results(name, answer, query)
    return answer


def invoked(hub: Hub, taken: Sequence[dict[str, list[Row]]]) -> list[Any]:
    """What the reference gives when the newest query is asked before the streams end."""
    *_, newest = hub.catalog.queries.values()
    query, history = hub.operator_and_query(newest.definition.name)[1], _history(hub, taken)
    return invoke(query, history, history.punctuation(query))


def _history(hub: Hub, taken: Sequence[dict[str, list[Row]]]) -> History:
    streams = {name: record([epoch[name] for epoch in taken], "at", SLACK) for name in hub.catalog.streams}
    return History(streams, {"names": NAMES})


def _answer(query: Query, history: History) -> list[Any]:
    punctuation, now = history.punctuation(query), history.now(query)
    if query.emission == "windows":
        return windows_answer(query, history, punctuation, final=True)
    if query.emission == "stream":
        return stream_answer(query, history, punctuation, final=True)
    return changes(query, history, punctuation if now is None else now + 1)
