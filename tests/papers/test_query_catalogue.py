"""The query catalogue of Babu's thesis on adaptive query processing: each query emits what was worked out by hand.

So does the reference, and so does SQLite, asked at each instant over what the windows hold then. All rows come in one epoch or each
in one of its own; queries are there before the rows, or come after them and read the archive. Over histories made by chance, where
nothing was worked out by hand, the three are compared.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.algebra.query import Query
from headrace.reference import scalar
from headrace.reference.derived import with_derived
from headrace.reference.evaluate import changes, stream_answer
from headrace.reference.history import History, record
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.time import SECOND
from tests.laws.driving import array
from tests.papers.query_catalogue import Coming, Emitted, Past, printed
from tests.papers.query_catalogue_in_sql import emitted_by_sql, translatable
from tests.papers.query_catalogue_q1_to_q7 import Q1_TO_Q7
from tests.papers.query_catalogue_q8_to_q12 import Q8_TO_Q12
from tests.runtime.rig import answer

PASTS = Q1_TO_Q7 | Q8_TO_Q12
QUERIES = [(name, query) for name, past in PASTS.items() for query in past.queries]
BY_CHANCE = [
    (name, query)
    for name, query in QUERIES
    if PASTS[name].queries[query].tied and not PASTS[name].times  # equal times of three streams are too rare
]
WAYS = list(itertools.product(("one epoch", "an epoch a row"), ("before", "after")))
CHANCES = [(None, *WAYS[0]), (1, "some epochs", "before"), (2, "some epochs", "after")]
"""A history by hand, and two by chance."""
ROWS_AN_EPOCH = {"one epoch": 1000, "some epochs": 9, "an epoch a row": 1}


def coming(past: Past, seed: int | None) -> Coming:
    """The rows, or by chance twice as many, of which many are equal and many share an instant."""
    if seed is None:
        return past.rows
    rng, arriving = np.random.default_rng(seed), []
    instants = sorted({row[past.time(stream)] for stream, row in past.rows})
    for at in np.sort(rng.choice(instants, 2 * len(past.rows))).tolist():
        stream = str(rng.choice(list(past.streams)))
        alike = [row for name, row in past.rows if name == stream]
        arriving.append((stream, alike[int(rng.integers(len(alike)))] | {past.time(stream): at}))
    return arriving


def lived(hub: Hub, past: Past, rows: Coming, cut: str, when: str) -> None:
    """Streams, functions, queries and rows, in the order asked for."""
    for stream in past.streams:
        columns = ", ".join(f"{name} {kind}" for name, kind in past.columns(stream).items())
        hub.execute(f"CREATE STREAM {stream} ({columns}) USING push TIMESTAMP BY {past.time(stream)}")
    for name, body in past.functions.items():
        hub.register_function(name, body, ["STRING", "STRING"], "BOOLEAN")
    if when == "before":
        register(hub, past)
    for part in epochs(rows, cut):
        arrive(hub, past, part)
    if when == "after":
        register(hub, past)
        hub.catch_up()


def epochs(rows: Coming, cut: str) -> list[Coming]:
    size = ROWS_AN_EPOCH[cut]
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def register(hub: Hub, past: Past) -> None:
    for name, asked in past.queries.items():
        hub.register(asked.text, named(name))


def named(query: str) -> str:
    """A name that a query may bear."""
    return query.replace(" ", "_").replace(",", "")


def arrive(hub: Hub, past: Past, rows: Coming) -> None:
    """Push rows, and have them read."""
    for stream in past.streams:
        if of_stream := [row for name, row in rows if name == stream]:
            schema = hub.stream_definition(stream).schema
            columns = [array([row[field.name] for row in of_stream], field.type) for field in schema]
            hub.push(stream, pa.table(columns, names=list(schema.names)))
    hub.catch_up()


@cache
def emitted(name: str, cut: str, when: str, seed: int | None = None) -> dict[str, tuple[Emitted, Query]]:
    """What each query over a history has emitted at its end."""
    past = PASTS[name]
    with tempfile.TemporaryDirectory() as folder, open_hub(Path(folder) / "home", local=True) as hub:
        lived(hub, past, coming(past, seed), cut, when)
        bound = {query: hub.operator_and_query(named(query))[1] for query in past.queries}
        return {each: (printed(answer(hub, named(each), {}), bound[each]), bound[each]) for each in bound}


def meant(name: str, cut: str, query: Query, seed: int | None = None) -> Emitted:
    """What the definitions make of the same history."""
    past = PASTS[name]
    parts = epochs(coming(past, seed), cut)
    streams = {
        stream: record(
            [[row for name_of_stream, row in part if name_of_stream == stream] for part in parts],
            past.time(stream),
        )
        for stream in past.streams
    }
    history = with_derived(query, History(streams), final=True)
    punctuation = history.punctuation(query)
    if query.emission == "stream":
        return printed(stream_answer(query, history, punctuation, final=True), query)
    now = history.now(query)
    return printed(changes(query, history, punctuation if now is None else now + 1), query)


@pytest.fixture(autouse=True)
def the_reference_knows_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    for past in PASTS.values():
        for name, body in past.functions.items():
            monkeypatch.setitem(scalar._STRICT, name, lambda _, *values, body=body: body(*values))


# ------------------------------------------------------------------------------------------------------------ the tests


@pytest.mark.parametrize(("cut", "when"), WAYS)
@pytest.mark.parametrize(("past", "query"), QUERIES)
def test_a_query_emits_what_was_worked_out_by_hand(past: str, query: str, cut: str, when: str) -> None:
    rows, bound = emitted(past, cut, when)[query]
    by_hand = PASTS[past].queries[query].expected
    assert meant(past, cut, bound) == by_hand
    assert rows == by_hand


@pytest.mark.parametrize(("seed", "cut", "when"), CHANCES[1:])
@pytest.mark.parametrize(("past", "query"), BY_CHANCE)
def test_over_other_histories_it_emits_what_the_definitions_require(
    past: str, query: str, seed: int, cut: str, when: str
) -> None:
    rows, bound = emitted(past, cut, when, seed)[query]
    assert rows == meant(past, cut, bound, seed)


@pytest.mark.parametrize(("seed", "cut", "when"), CHANCES)
@pytest.mark.parametrize(
    ("past", "query"),
    [(name, query) for name, query in QUERIES if translatable(PASTS[name].queries[query], PASTS[name])],
)
def test_sql_over_what_the_windows_hold_at_each_instant_says_the_same(
    past: str, query: str, seed: int | None, cut: str, when: str
) -> None:
    """The guide's oracle, in an engine that knows nothing of streams."""
    rows, bound = emitted(past, cut, when, seed)[query]
    assert rows == emitted_by_sql(PASTS[past], coming(PASTS[past], seed), PASTS[past].queries[query], bound)


@pytest.mark.parametrize(("seed", "cut", "when"), CHANCES)
def test_queries_that_mean_the_same_emit_the_same(seed: int | None, cut: str, when: str) -> None:
    """A bare stream and its default; a query and its parts by name; a filter over and under a window of time."""
    for name, beginning in (("filtered", "Q"), ("Linear Road", "Q10"), ("ranges", "Q11b")):
        alike = [
            rows for query, (rows, _) in emitted(name, cut, when, seed).items() if query.startswith(beginning)
        ]
        assert len(alike) > 1
        assert all(rows_of_query == alike[0] for rows_of_query in alike)


def test_a_filter_under_a_window_of_rows_is_another_query() -> None:
    rows = emitted("ranges", *WAYS[0])
    assert rows["Q11c"][0] != rows["Q11c, the filter under the window"][0]


@pytest.mark.parametrize(
    ("name", "query"), [("chain", "Q12"), ("ranges", "Q11"), ("pairs", "Q4b"), ("filtered", "Q3")]
)
def test_changes_are_shown_with_their_instants_and_a_stream_without_signs(
    name: str, query: str, tmp_path: Path
) -> None:
    """What users see is what was compared: `history()`, and of what is not settled yet the closing rows."""
    past = PASTS[name]
    with open_hub(tmp_path / "home", local=True) as hub:
        lived(hub, past, past.rows, "an epoch a row", "before")
        closing = hub.run_once()
        bound = hub.operator_and_query(query)[1]
        seen = [
            row
            for table in (hub.query(query).history(), *([closing[query]] if query in closing else []))
            for row in table.to_pylist()
        ]
    by_hand = past.queries[query].expected
    if bound.emission == "relation":
        signed = [(round(row["__at"].timestamp() * SECOND), row["__change"], row) for row in seen]
        assert printed(signed, bound) == by_hand
    else:
        assert [row["A"] for row in seen] == [int(row.split(",")[0]) for _, row in by_hand]


@pytest.mark.spark
def test_segments_with_accidents_are_emitted_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    past = PASTS["Linear Road"]
    past = replace(past, queries={"Q10": past.queries["Q10"]})
    with open_hub(tmp_path / "home", spark=spark, tasks=2) as hub:
        lived(hub, past, past.rows, "one epoch", "before")
        bound = hub.operator_and_query("Q10")[1]
        assert printed(answer(hub, "Q10", {}), bound) == past.queries["Q10"].expected
