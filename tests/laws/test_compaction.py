"""Merging runs shows in no answer: late rows, revisions and INVOKE after it find all that they need.

Other laws merge too, but their histories are short, and most of what they merge is never asked for again. Here runs are merged
after most epochs, rows come late right after, and after each epoch the query is asked what it answers now.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.query import Query, Revisions
from headrace.operators.base.operator import Advance, Operator
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import changes, invoke, stream_answer, windows_answer
from headrace.reference.history import History, RecordedStream, record
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.state import compaction, run_merging, run_reviews
from headrace.time import SECOND
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws.comparing import canonical
from tests.laws.driving import batch, described, epochs, plain, table
from tests.laws.test_laws import KINDS, SCHEMAS, aggregates, time_queries
from tests.laws.test_revisions import admitted, session_queries, standing
from tests.operators.local_driver import DriveResult, drive
from tests.runtime import rig as rigs
from tests.runtime.rig import QUERIES, Rig, Row, answers, cut, faults_once_tidy, made_rows

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
MOST_ROWS = 200 if SOAK else 60
NAMES = ({"id": 0, "name": "one"}, {"id": 0, "name": "two"}, {"id": 2, "name": None})


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Many rows in many epochs, in order but for one in three, which comes up to 12 ticks late; a slack of up to 3 ticks."""
    rng, count = (
        np.random.default_rng(draw(st.integers(0, 2**16), "seed")),
        draw(st.integers(1, MOST_ROWS), "rows"),
    )
    at = np.arange(count) * (some.TICK // 2) - 5 * some.TICK
    at -= rng.integers(0, 13, count) * some.TICK * (rng.random(count) < 0.3)
    at += rng.choice([0, 0, 0, 1, -1], count)
    rows = [
        {
            "k": ["a", "b", "", None][rng.integers(4)],
            "g": [0, 1, 2, None][rng.integers(4)],
            "x": [None, *range(-3, 7)][rng.integers(11)],
            "y": [None, 0.5, -1.25, 3.0][rng.integers(4)],
            "at": int(instant),
        }
        for instant in at
    ]
    places = draw(st.lists(st.integers(0, count), min_size=2, max_size=12).map(sorted), "epochs")
    parts = [rows[low:high] for low, high in itertools.pairwise([0, *places, count])]
    stream = record(parts, "at", draw(st.integers(0, 3), "slack") * some.TICK)
    return History({"s": stream}, {"names": NAMES})


def merges(count: int) -> st.SearchStrategy[dict[int, int]]:
    """After which epochs how many of the newest runs are merged: after most of them, often all."""
    every = st.dictionaries(st.integers(0, max(count - 1, 0)), st.sampled_from((2, 3, 99)), max_size=count)
    return st.one_of(st.just(dict.fromkeys(range(count), 99)), every)


def driven(
    data: st.DataObject, operator: Operator, stream: RecordedStream, rows: Sequence[Any]
) -> DriveResult:
    """What an operator gives of the rows of epochs, one split each, when runs are merged on the way; the stream continues."""
    relations: Mapping[str, pa.Table] = {"names": table(NAMES, SCHEMAS["names"])}
    return drive(
        operator,
        [[batch(epoch, some.SCHEMA).only(operator.columns)] for epoch in rows],
        stream.punctuations,
        data.draw(st.integers(1, 3), "tasks"),
        final=False,
        relations=relations,
        compact_after=data.draw(merges(len(rows)), "merged"),
    )


def now(operator: Operator, query: Query, history: History, driven_run: DriveResult) -> list[Any]:
    """What INVOKE makes of the results so far and of the state, as the runtime does."""
    if query.emission == "windows":
        latest = operator.latest(driven_run.runs)
        return [row for _, row in plain(latest, query)]
    closed, greatest = history.punctuation(query), history.now(query)
    emitted_changes = plain(driven_run.results, query, changes=True)
    if greatest is not None:
        asked = Advance(closed, max(closed, greatest + 1), greatest)
        emitted_changes += plain(operator.advance(driven_run.runs, [], asked).results, query, changes=True)
    held: Counter[str] = Counter()
    rows = {}
    for _, sign, row in emitted_changes:
        held[repr(row)] += sign
        rows[repr(row)] = row
    assert all(count >= 0 for count in held.values())
    return [rows[index] for index, count in held.items() for _ in range(count)]


KEPT = ("windows of rows", "windows that end at rows", "delta windows", "sessions")
AT_INSTANTS = ("rows at instants", "aggregates at instants", "snapshots")


@pytest.mark.parametrize("kind", [*KEPT, *AT_INSTANTS])
@given(data=st.data())
def test_what_invoke_finds_in_merged_state_is_what_the_reference_says(kind: str, data: st.DataObject) -> None:
    query = data.draw(KINDS[kind]().filter(lambda each: each.emission != "stream"), "query")
    note(described(query))
    operator = lower("q", query, "q")
    if query.emission == "windows" and not operator.keeps_latest:
        return
    whole = data.draw(histories(), "history")
    last = data.draw(st.integers(1, len(whole.streams["s"].punctuations)), "asked after epoch")
    history = replace(whole, streams={"s": whole.streams["s"].after(last)})
    run = driven(data, operator, history.streams["s"], epochs(history.streams["s"]))
    assert canonical(now(operator, query, history, run)) == canonical(
        invoke(query, history, history.punctuation(query))
    )


REVISED: dict[str, st.SearchStrategy[Query]] = {
    "aggregates": time_queries(emits=False).filter(aggregates),
    "rows": time_queries(emits=False).filter(lambda query: not aggregates(query)),
    "sessions": session_queries(),
}


@pytest.mark.parametrize("kind", REVISED)
@given(data=st.data())
def test_late_rows_revise_what_was_emitted_before_runs_were_merged(kind: str, data: st.DataObject) -> None:
    within = data.draw(st.one_of(st.none(), st.integers(0, 12).map(lambda n: n * some.TICK)), "within")
    query = replace(data.draw(REVISED[kind], "query"), revisions=Revisions(within))
    note(described(query))
    history = data.draw(histories(), "history")
    stream = history.streams["s"]
    run = driven(data, lower("q", query, "q"), stream, admitted(stream, within))
    emitted = standing(plain(run.results, query, changes=True))
    assert canonical(emitted) == canonical(windows_answer(query, history, history.punctuation(query)))


WHOLE = "SELECT k, x, y FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE g = 1"
MORE = {
    **QUERIES,
    "revised": f"{QUERIES['slide']} WITH REVISIONS FOR INTERVAL 5 SECONDS",
    "whole": WHOLE,
    "listed": f"{WHOLE} WITH REVISIONS FOR INTERVAL 5 SECONDS",
    "entered": "ISTREAM(SELECT k, x FROM s [ROWS 4 SLIDE 3])",
    "left": "DSTREAM(SELECT k, x FROM s [ROWS 4 SLIDE 3])",
    "picked": "SELECT k, x FROM s [RANGE 7 SECONDS] WHERE x > 0 BEGIN NOW - INTERVAL 12 SECONDS END NOW",
}
SLACK = 2 * SECOND


@pytest.fixture(scope="module", autouse=True)
def _merging_at_once() -> Iterator[None]:
    """Runs are merged as soon as there are two, and checked for what no window needs as soon as that can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "FAN_IN", 2)
        patch.setattr(compaction, "_LEFT_TO_MERGING", 0)
        patch.setattr(run_merging, "_DEAD_SHARE", 0.0)
        patch.setattr(run_reviews, "_LIVE_SHARE", 1.0)
        patch.setattr(run_reviews, "MOST_ROWS", 3)
        yield


@examples(5)
@given(
    seed=st.integers(0, 2**16),
    size=st.integers(4, 15),
    names=st.permutations(sorted(MORE)).map(lambda each: each[:8]),
    change=st.integers(2, 8),
    ahead=st.booleans(),
)
def test_a_home_that_merges_after_every_epoch_answers_each_invoke_as_the_reference(
    seed: int, size: int, names: list[str], change: int, *, ahead: bool
) -> None:
    """Rows come up to 5 seconds late, 3 more than the slack; on the way a query is dropped, and the number of tasks changes.

    Runs are merged in an epoch, or `ahead` between two.
    """
    rows = made_rows(seed, MOST_ROWS, disorder=5 * SECOND)
    files = cut(rows, *range(size, len(rows), size))
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), {"maxFilesPerTrigger": "1"}, SLACK)
        with rig.hub(2, {name: MORE[name] for name in names}) as hub:
            assert_invoked(rig, hub, files, range(min(change, len(files))), ahead=ahead)
            hub.execute(f"DROP QUERY {names[-1]}")
        with rig.hub(3) as hub:
            assert_invoked(rig, hub, files, range(min(change, len(files)), len(files)), ahead=ahead)
            answered = answers(hub)
            for name in names[:-1]:
                on_request = hub.operator_and_query(name)[0].on_request is not None
                assert answered[name] == ([] if on_request else emitted(hub, name, files)), name
            assert faults_once_tidy(hub) == []


def assert_invoked(
    rig: Rig, hub: Hub, files: Sequence[Sequence[Row]], numbers: Iterable[int], *, ahead: bool
) -> None:
    """Read some files, an epoch each, and ask every query after each."""
    for number in numbers:
        rig.drop(files[number])
        hub.catch_up()
        if ahead:
            hub.loop.engine.executor.prepare_next()
        for known in hub.catalog.queries.values():
            name = known.definition.name
            query, history = hub.operator_and_query(name)[1], recorded(files[: number + 1])
            meant = invoke(query, history, history.punctuation(query))
            assert canonical(hub.query(name).invoke().to_pylist()) == canonical(meant), (name, number)


def recorded(files: Sequence[Sequence[Row]]) -> History:
    return History({"s": record([list(file) for file in files], "at", SLACK)}, {"names": rigs.NAMES})


def emitted(hub: Hub, name: str, files: Sequence[Sequence[Row]]) -> list[Any]:
    """All that a query emits while the stream continues."""
    query, history = hub.operator_and_query(name)[1], recorded(files)
    punctuation = history.punctuation(query)
    if query.emission == "windows":
        return rigs.canonical(windows_answer(query, history, punctuation))
    if query.emission == "stream":
        return rigs.canonical(stream_answer(query, history, punctuation))
    return rigs.canonical(changes(query, history, punctuation))
