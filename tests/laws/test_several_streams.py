"""The laws of queries over several streams: unions and window joins, as the whole engine answers them.

One check draws rows of two streams that come in turn and out of order, how they are cut into epochs, when a query is
registered and paused, whether the home is closed and opened again in between, and over how many tasks. Late rows are judged stream by
stream, as recorded. The reference looks at every window, or at every instant, by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.reference.evaluate import changes, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.runtime.executor import LocalExecutor
from headrace.runtime.hub import Hub
from headrace.time import SECOND
from tests.runtime.rig import answer, canonical

SCHEMA = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("d", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))]
)
COLUMNS = "(k STRING, v BIGINT, d DOUBLE, at TIMESTAMP)"
NAMES = [{"k": "a", "name": "one"}, {"k": "b", "name": "two"}, {"k": "b", "name": "zwei"}]
UNIONS = {
    "tumbling": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a UNION ALL b [RANGE TUMBLING 4 SECONDS] GROUP BY k",
    "sliding": "SELECT COUNT(*) AS n, MAX(d) AS top FROM a UNION ALL b [RANGE 5 SECONDS SLIDE 2 SECONDS]",
    "landmark": "SELECT k, COUNT(*) AS n FROM a UNION ALL b [LANDMARK SLIDE 3 SECONDS] GROUP BY k",
    "rows": "SELECT COUNT(*) AS n, FIRST(v) AS f, LAST(v) AS l FROM a UNION ALL b [ROWS 4 SLIDE 3]",
    "parts": "SELECT k, MAX(v) AS top FROM a UNION ALL b [PARTITION BY k ROWS 2] GROUP BY k",
    "ends": "SELECT COUNT(*) AS n FROM a UNION ALL b [RANGE 3 SECONDS SLIDE 2 ROWS]",
    "sessions": "SELECT k, COUNT(*) AS n FROM a UNION ALL b GROUP BY session_window(at, '1 second'), k",
    "instants": "SELECT k, COUNT(*) AS n FROM a UNION ALL b [RANGE 2 SECONDS] GROUP BY k",
    "ever": "SELECT COUNT(*) AS n, SUM(v) AS s FROM a UNION ALL b",
    "passing": "SELECT k, v + 1 AS w FROM (a UNION ALL b) AS u WHERE u.v > 0",
    "named": "SELECT name, COUNT(*) AS n FROM a UNION ALL b u [RANGE 3 SECONDS SLIDE 3 SECONDS]"
    " JOIN names ON u.k = names.k GROUP BY name",
    "three": "SELECT v, COUNT(*) AS n FROM b UNION ALL a UNION ALL b [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY v",
}
X_TWO, Y_TWO = "a x [RANGE 2 SECONDS]", "b y [RANGE 4 SECONDS]"
SLIDING = "a x [RANGE 3 SECONDS SLIDE 2 SECONDS], b y [RANGE 5 SECONDS SLIDE 2 SECONDS]"
TUMBLING = "a x [RANGE TUMBLING 4 SECONDS] JOIN b y [RANGE TUMBLING 4 SECONDS] ON x.k = y.k"
JOINS = {
    "pairs of windows": f"SELECT x.k, x.v, y.v AS w, x.window_start AS s, y.window_end AS e FROM {TUMBLING}",
    "counts of windows": f"SELECT x.k, COUNT(*) AS n, SUM(x.v + y.v) AS s, MAX(y.d) AS t FROM {TUMBLING} GROUP BY x.k",
    "sliding pairs": f"SELECT x.v, y.v AS w, x.window_start AS s, y.window_start AS t FROM {SLIDING} WHERE x.k = y.k",
    "sliding counts": f"SELECT COUNT(*) AS n, SUM(y.v) AS s, x.window_id AS i FROM {SLIDING} WHERE x.k = y.k AND x.v < y.v",
    "gaps": "SELECT x.v, y.v AS w FROM a x [RANGE 1 SECOND SLIDE 3 SECONDS], b y [RANGE 2 SECONDS SLIDE 3 SECONDS]"
    " WHERE x.k = y.k",
    "no key": f"SELECT x.v, COUNT(*) AS n FROM {SLIDING} WHERE x.v > y.v GROUP BY x.v HAVING COUNT(*) > 1",
    "new pairs": f"SELECT ISTREAM(x.k, x.v, y.v AS w) FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k",
    "gone pairs": f"SELECT DSTREAM(x.k) FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k AND x.v <> y.v",
    "relation": f"SELECT x.k, x.v, y.v AS w FROM {X_TWO} JOIN {Y_TWO} ON x.k = y.k AND x.v + 1 > y.v WHERE y.d > 0",
    "now": "SELECT x.v, y.v AS w FROM a x [NOW], b y [NOW] WHERE x.k = y.k",
    "groups": f"SELECT x.k, COUNT(*) AS n, MIN(y.v) AS m FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k GROUP BY x.k",
    "one row": f"SELECT COUNT(*) AS n, SUM(x.v) AS s FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k AND x.v > 0",
    "half bounded": "SELECT x.k, COUNT(*) AS n FROM a x [RANGE 2 SECONDS], b y [RANGE UNBOUNDED] WHERE x.k = y.k GROUP BY x.k",
    "bare": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.v = 1",
    "between": "SELECT ISTREAM(x.v, y.v AS w) FROM a x [RANGE 3 SECONDS], b y [RANGE 3 SECONDS]"
    " WHERE x.k = y.k AND y.at BETWEEN x.at AND x.at + INTERVAL 3 SECONDS",
    "distinct": f"SELECT DISTINCT x.k FROM {SLIDING} WHERE x.k = y.k",
    "best": f"SELECT x.v, y.v AS w FROM {SLIDING} WHERE x.k = y.k ORDER BY w DESC LIMIT 2",
    "itself": "SELECT x.v, y.v AS w FROM a x [RANGE 3 SECONDS SLIDE 3 SECONDS], a y [RANGE 3 SECONDS SLIDE 3 SECONDS]"
    " WHERE x.k = y.k AND x.v < y.v",
    "with names": f"SELECT name, COUNT(*) AS n FROM {TUMBLING} JOIN names ON y.k = names.k GROUP BY name",
    "of a union": "SELECT x.k, y.v FROM (a UNION ALL b) AS x [RANGE 2 SECONDS SLIDE 2 SECONDS],"
    " b y [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE x.k = y.k AND x.v > 0",
    "three": "SELECT x.k, COUNT(*) AS n, SUM(z.v) AS s FROM a x [RANGE 4 SECONDS SLIDE 2 SECONDS],"
    " b y [RANGE 3 SECONDS SLIDE 2 SECONDS], a z [RANGE 2 SECONDS SLIDE 2 SECONDS]"
    " WHERE x.k = y.k AND z.k = y.k AND z.v >= x.v GROUP BY x.k",
    "three at instants": "SELECT x.v, y.v AS w, z.v AS u FROM a x [RANGE 2 SECONDS], b y [RANGE 3 SECONDS],"
    " a z [RANGE 1 SECOND] WHERE x.k = y.k AND z.k = x.k AND z.v + y.v > x.v",
    "three in one row": "SELECT COUNT(*) AS n FROM a x [RANGE 2 SECONDS], b y [RANGE 3 SECONDS],"
    " a z [RANGE 1 SECOND] WHERE x.k = y.k AND z.v = y.v",
}
Row = dict[str, Any]


@st.composite
def rows(draw: st.DrawFn) -> Row:
    return {
        "k": draw(st.sampled_from((None, "a", "a", "b", "c"))),
        "v": draw(st.sampled_from((None, -1, 0, 1, 1, 2))),
        "d": draw(st.sampled_from((None, 0.0, 1.5, float("nan")))),
        "at": draw(st.integers(-4, 24)) * (SECOND // 2),
    }


def epochs() -> st.SearchStrategy[list[tuple[list[Row], list[Row]]]]:
    some = st.lists(rows(), max_size=6)
    return st.lists(st.tuples(some, some), min_size=1, max_size=4)


def expected(query: Query, taken: Sequence[tuple[list[Row], list[Row]]], slack: int) -> list[Any]:
    """An epoch in which a stream has no row is none of its own."""
    streams = {
        name: record([part for epoch in taken if (part := epoch[place])], "at", slack)
        for place, name in enumerate("ab")
    }
    history = History(streams, {"names": NAMES})
    punctuation = history.punctuation(query)
    if query.emission == "windows":
        return canonical(windows_answer(query, history, punctuation, final=True))
    if query.emission == "stream":
        return canonical(stream_answer(query, history, punctuation, final=True))
    now = history.now(query)
    return canonical(changes(query, history, punctuation if now is None else now + 1))


def table(part: Sequence[Row]) -> pa.Table:
    columns = [pa.array([row[name] for row in part], SCHEMA.field(name).type) for name in SCHEMA.names[:-1]]
    return pa.table(
        [*columns, pa.array([row["at"] for row in part], pa.int64()).cast(SCHEMA.types[-1])], schema=SCHEMA
    )


def opened(folder: str, tasks: int) -> Hub:
    return Hub(Path(folder) / "home", LocalExecutor(), tasks=tasks)


def script(folder: str, slack: int) -> str:
    file = Path(folder) / "names.csv"
    file.write_text("k,name\n" + "".join(f"{row['k']},{row['name']}\n" for row in NAMES))
    streams = [
        f"CREATE STREAM {name} {COLUMNS} USING push OPTIONS (maxAhead '100000 days') TIMESTAMP BY at"
        f" SLACK INTERVAL {slack} MICROSECONDS"
        for name in "ab"
    ]
    relation = (
        f"CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path '{file}', header 'true')"
    )
    return ";\n".join([*streams, relation])


@settings(max_examples=20)
@pytest.mark.parametrize("kind", ["unions", "joins"])
@given(data=st.data())
def test_the_answer_is_the_reference_s_for_any_cut_order_registration_restart_and_tasks(
    kind: str, data: st.DataObject
) -> None:
    queries = UNIONS if kind == "unions" else JOINS
    chosen = data.draw(
        st.lists(st.sampled_from(sorted(queries)), min_size=1, max_size=4, unique=True), "queries"
    )
    taken, slack = data.draw(epochs(), "epochs"), data.draw(st.sampled_from((0, SECOND, 3 * SECOND)), "slack")
    registered = {name: data.draw(st.integers(0, len(taken)), f"before epoch: {name}") for name in chosen}
    restarts = data.draw(st.sets(st.integers(0, len(taken))), "restarts")
    pauses = {
        name: data.draw(st.sets(st.integers(0, len(taken)), max_size=2), f"paused in: {name}")
        for name in chosen
    }
    with tempfile.TemporaryDirectory() as folder:
        hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
        try:
            hub.execute(script(folder, slack))
            for number in range(len(taken) + 1):
                if number in restarts:
                    hub.close()
                    hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
                for name in (name for name, at in registered.items() if at == number):
                    hub.register(queries[name], name.replace(" ", "_"))
                paused = [name for name in chosen if registered[name] <= number and number in pauses[name]]
                for name in paused:
                    hub.execute(f"PAUSE QUERY {name.replace(' ', '_')}")
                if number < len(taken):
                    for name, part in zip("ab", taken[number], strict=True):
                        if part:
                            hub.push(name, table(part))
                hub.catch_up()
                for name in paused:
                    hub.execute(f"RESUME QUERY {name.replace(' ', '_')}")
            hub.catch_up()
            for name in chosen:
                _, query = hub.operator_and_query(name.replace(" ", "_"))
                found = answer(hub, name.replace(" ", "_"), {})
                assert repr(found) == repr(expected(query, taken, slack)), name
        finally:
            hub.close()
