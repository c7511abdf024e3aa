"""INVOKE of a relation over pairs or over relations: R(NOW) over all committed rows, after every epoch and not only when all is read."""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.reference.evaluate import invoke
from headrace.reference.history import History, record
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.examples import examples
from tests.laws.two_streams import NAMES, epochs, opened, script, table

QUERIES = {
    "pairs": "SELECT x.k, x.v, y.v AS w FROM a x [ROWS 2], b y [ROWS 2] WHERE x.k = y.k",
    "times": "SELECT x.k, x.v, y.v AS w FROM a x [RANGE 2 SECONDS], b y [RANGE 3 SECONDS] WHERE x.k = y.k",
    "both": "SELECT x.k, y.v FROM a x [ROWS 1], b y [RANGE 2 SECONDS] WHERE x.k = y.k",
    "three": "SELECT COUNT(*) AS n FROM a x [ROWS 2], b y [ROWS 1], a z [RANGE 1 SECOND] WHERE x.k = y.k AND z.v = y.v",
    "counts": "SELECT n, COUNT(*) AS c FROM (SELECT k, COUNT(*) AS n FROM a [RANGE 2 SECONDS] GROUP BY k) AS t GROUP BY n",
    "deep": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT k FROM (SELECT k FROM a [ROWS 3]) t) u",
    "joined": "SELECT b.v, t.n FROM b [ROWS 1], (SELECT k, COUNT(*) AS n FROM a GROUP BY k) AS t WHERE b.k = t.k",
    "in": "SELECT k, v FROM a [ROWS 3] WHERE k IN (SELECT k FROM b [RANGE 2 SECONDS])",
    "all": "SELECT k, v FROM a [ROWS 2] UNION ALL SELECT k, v FROM b [RANGE 2 SECONDS] ORDER BY v LIMIT 3",
    "either": "SELECT v FROM a [RANGE 1 SECOND] UNION SELECT d FROM b [ROWS 3]",
    "without": "SELECT k FROM a [ROWS 4] EXCEPT SELECT k FROM b [RANGE 2 SECONDS]",
    "common": "SELECT COUNT(*) AS n FROM (SELECT k FROM a [RANGE UNBOUNDED] INTERSECT SELECT k FROM b [ROWS 3]) AS t",
    "in some": "SELECT COUNT(*) AS n FROM a WHERE (k, v) IN (SELECT k, v FROM b [ROWS 3] ORDER BY d LIMIT 2)",
}


def expected(query: Query, drawn: list[Any], slacks: tuple[int, int]) -> list[Any]:
    streams = {
        name: record([part for epoch in drawn if (part := epoch[index])], "at", slack)
        for index, (name, slack) in enumerate(zip("ab", slacks, strict=True))
    }
    history = History(streams, {"names": NAMES})
    return invoke(query, history, history.punctuation(query))


def invoked(hub: Hub, name: str) -> list[Any]:
    return hub.query(name).invoke().to_pylist()


@examples(40)
@given(data=st.data())
def test_after_every_epoch_it_is_that_of_all_committed_rows(data: st.DataObject) -> None:
    some = st.sampled_from((0, SECOND, 3 * SECOND))
    taken, slacks = data.draw(epochs(), "epochs"), data.draw(st.tuples(some, some), "slacks")
    chosen = data.draw(
        st.lists(st.sampled_from(sorted(QUERIES)), min_size=1, max_size=3, unique=True), "queries"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(folder, data.draw(st.integers(1, 3), "tasks")) as hub,
    ):
        hub.execute(script(folder, slacks))
        for name in chosen:
            hub.register(QUERIES[name], name)
        hub.catch_up()
        for number, parts in enumerate(taken, start=1):
            for name, part in zip("ab", parts, strict=True):
                if part:
                    hub.push(name, table(part))
            while hub.loop.engine.step() is not None:
                for name in chosen:
                    _, query = hub.operator_and_query(name)
                    assert repr(invoked(hub, name)) == repr(expected(query, taken[:number], slacks)), name
