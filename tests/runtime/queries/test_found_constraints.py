"""Constraints that joins find: as a hub uses them, what a restart continues with, what is lost when they break, what is shown and refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.partner_delays import DelayEstimate, PartnerBound
from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive import join_orders
from headrace.runtime.plan.adaptive import partner_bounds as deciding
from headrace.runtime.plan.adaptive.partner_bounds import join_bounds, partner_bounds
from headrace.time import SECOND
from tests.examples import examples

Rows = Sequence[tuple[int, int, int]]
"""(key, value, second)."""
WINDOW = "[RANGE 10 MINUTES]"
PAIRS = f"SELECT ISTREAM(e.k, e.v, p.v AS w) FROM entered e {WINDOW}, passed p {WINDOW} WHERE e.k = p.k"
THREE = (
    f"SELECT SUM(e.v) AS bytes FROM entered e {WINDOW}, passed p {WINDOW}, left_it l {WINDOW} "
    "WHERE e.k = p.k AND p.k = l.k"
)
LINKS = ("entered", "passed", "left_it")
RATE = 200
FIND = "OPTIONS (constraints 'find')"


def network(latency: Sequence[int]) -> list[dict[str, Rows]]:
    """By epoch of ten seconds and link the packets: of those that enter in an epoch three of four are on each next link up to its
    latency later.
    """
    drawn, epochs = random.Random(1), list[dict[str, list[tuple[int, int, int]]]]()
    epochs = [{name: [] for name in LINKS} for _ in latency]
    for number in range(len(latency) * RATE):
        at = 10 * number // RATE
        for link, name in enumerate(LINKS):
            if at >= 10 * len(latency) or (link and drawn.random() < 0.25):
                break
            epochs[at // 10][name].append((number, 3 * number + link, at))
            at += drawn.randint(0, latency[number // RATE])
    return [{name: sorted(rows, key=lambda row: row[2]) for name, rows in epoch.items()} for epoch in epochs]


def opened(folder: Path, queries: Mapping[str, str], slack: str = "") -> Hub:
    hub = Hub(folder / "home", LocalExecutor(), tasks=2)
    for name in LINKS:
        hub.execute(
            f"CREATE STREAM {name} (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at {slack}"
        )
    for name, text in queries.items():
        hub.execute(f"CREATE QUERY {name} {text}")
    return hub


def push(hub: Hub, epoch: Mapping[str, Rows]) -> None:
    for name, rows in epoch.items():
        if rows:
            times = pa.array([at * SECOND for _, _, at in rows]).cast(pa.timestamp("us", tz="UTC"))
            keys, values = pa.array([row[0] for row in rows]), pa.array([row[1] for row in rows], pa.int32())
            hub.push(name, pa.table({"k": keys, "v": values, "at": times}))
    hub.run_once()


def answer(hub: Hub, query: str) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in hub.query(query).history().to_pylist())


def rows_of_joins(hub: Hub) -> dict[str, int]:
    """The stored rows of the joins of each query, in the newest epoch."""
    assert hub.last is not None
    named = {query.operator_id: name for name, query in hub.catalog.queries.items()}
    return {
        named[name.partition(".")[0]]: seen.state_rows
        for name, seen in hub.last.operators.items()
        if hub.plan.operators[name].makes_pairs
    }


def adaptive(hub: Hub, query: str) -> str:
    (outcome,) = hub.execute(f"EXPLAIN ADAPTIVE {query}")
    return outcome.message


@pytest.fixture(scope="module", autouse=True)
def _each_epoch_is_measured() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(join_orders, "SEES_DELAYS", 1)
        yield


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Thirty epochs with a latency of ten seconds, and queries that find constraints, one that may not, and a restart."""
    folder = tmp_path_factory.mktemp("steady")
    queries = {
        "pairs": f"AS {PAIRS}",
        "finds": f"{FIND} AS {PAIRS}",
        "three": f"OPTIONS (sharing 'off') AS {THREE}",
        "finds_three": f"{FIND} AS {THREE}",
    }
    hub = opened(folder, queries)
    for number, epoch in enumerate(network([10] * 30)):
        push(hub, epoch)
        if number in (9, 20):
            before = partner_bounds(hub.home.latest())
            hub.close()
            hub = Hub(folder / "home", LocalExecutor(), tasks=2)
            assert partner_bounds(hub.home.latest()) == before
    yield hub
    hub.close()


def test_answers_are_the_same_from_less_state_over_restarts(steady: Hub) -> None:
    assert answer(steady, "finds") == answer(steady, "pairs")
    assert answer(steady, "finds_three") == answer(steady, "three")
    assert answer(steady, "finds").total() > 3000
    assert answer(steady, "three").total() > 100
    rows = rows_of_joins(steady)
    assert rows["finds"] * 2 < rows["pairs"]
    assert rows["finds_three"] * 1.3 < 30 * RATE * (1 + 0.75 + 0.75**2)
    assert steady.status()["rejected"] == {}


def test_what_was_found_is_reported(steady: Hub) -> None:
    report = steady.status()["found_constraints"]
    assert report["finds"] == {"bounds": {"e to p": 12 * SECOND, "p to e": 0}, "noticed": 0, "left_out": 0}
    assert report["finds_three"]["bounds"]["e to l"] <= 24 * SECOND
    assert report.keys() == {"finds", "finds_three"}
    text = adaptive(steady, "finds")
    assert "rows of e wait 12 SECONDS for those of p: the newest came at most 10 SECONDS later" in text
    assert "rows of p wait 0 SECONDS for those of e" in text
    assert "; whole windows would have about " in text
    assert ": p within 12 SECONDS of e; e within 0 SECONDS of p; " in text
    assert "    epochs 1 to 8: no bound; " in text
    assert "given up" not in text
    assert "bounds found from the delays of joined rows" in steady.explain("finds")
    assert "bounds found" not in steady.explain("pairs")


def test_without_the_option_constraints_are_proposed_in_words_that_can_be_declared(
    steady: Hub, tmp_path: Path
) -> None:
    text = adaptive(steady, "pairs")
    assert " rows (" in text
    assert "OPTIONS (constraints 'find')" in text
    clauses = [line.partition(": declare ")[2] for line in text.splitlines() if "declare" in line]
    assert clauses == [
        "CONSTRAINT (k) REFERENCES passed (k) WITHIN 12 SECONDS of entered",
        "CONSTRAINT (k) REFERENCES entered (k) WITHIN 0 SECONDS of passed",
    ]
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        for clause in clauses:
            constraint, _, name = clause.rpartition(" of ")
            hub.execute(
                f"CREATE STREAM {name} (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at {constraint}"
            )
        hub.register(PAIRS, "pairs")
        for epoch in network([10] * 30):
            push(hub, {name: epoch[name] for name in LINKS[:2]})
        assert answer(hub, "pairs") == answer(steady, "pairs")


def test_a_query_that_is_registered_later_reads_the_archive_without_a_loss(steady: Hub) -> None:
    steady.execute(f"CREATE QUERY later {FIND} AS {PAIRS.replace('e.v', 'e.v AS own')}")
    steady.catch_up()
    assert answer(steady, "later") == answer(steady, "pairs")
    steady.execute("DROP QUERY later")


def test_a_latency_that_rises_loses_pairs_once_and_is_counted_and_found_again(tmp_path: Path) -> None:
    hub = opened(tmp_path, {"pairs": f"AS {PAIRS}", "finds": f"{FIND} AS {PAIRS}"})
    bounds = []
    for epoch in network([5] * 15 + [40] * 45):
        push(hub, epoch)
        (known,) = join_bounds(hub.home.latest()).values() or [deciding.JoinBounds()]
        bounds.append({(bound.parent, bound.child): bound.within for bound in known.bounds}.get((0, 1)))
    hub.run_once()
    missing = answer(hub, "pairs") - answer(hub, "finds")
    assert answer(hub, "finds") <= answer(hub, "pairs")
    assert 6 * SECOND in bounds[:16]
    given_up = next(number for number, bound in enumerate(bounds) if number > 15 and bound is None)
    assert given_up < 20
    assert bounds[-1] == 48 * SECOND
    late = [key for key, *_ in missing]
    assert {int(str(key)) // RATE for key in late} <= set(range(10, given_up + 1)), "none of later epochs"
    report = hub.status()["found_constraints"]["finds"]
    assert 0 < report["noticed"] <= missing.total()
    assert report["left_out"] >= report["noticed"]
    assert hub.status()["rejected"] == {"finds": report["noticed"]}
    text = adaptive(hub, "finds")
    assert "until a row of p came " in text
    assert f"  {report['noticed']:,} combinations were beyond a bound and are left out" in text
    hub.execute("ALTER QUERY finds SET (constraints 'declared')")
    hub.catch_up()
    assert answer(hub, "finds") == answer(hub, "pairs"), "computed again from the archive"
    assert hub.status()["found_constraints"] == {}
    hub.close()


@examples(20)
@given(data=st.data())
def test_the_answer_has_the_pairs_that_no_bound_in_force_excludes(data: st.DataObject) -> None:
    """Bounds that are found after few pairs, and often break; restarts and other numbers of tasks."""
    quick = partial(DelayEstimate, window=2, epochs=1, reach=1.2)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(deciding, "DelayEstimate", quick)
        hub = opened(Path(folder), {"finds": f"{FIND} AS {PAIRS}"}, slack="SLACK 3 SECONDS")
        force, came, newest = list[dict[tuple[int, int], PartnerBound]](), dict[int, int](), [3, 3]
        rows: list[list[tuple[int, int, int]]] = [[], []]
        for number in range(data.draw(st.integers(2, 10), "epochs")):
            (known,) = partner_bounds(hub.home.latest()).values() or [()]
            force.append({(bound.parent, bound.child): bound for bound in known})
            epoch: dict[str, Rows] = {}
            for side, name in enumerate(LINKS[:2]):
                drawn = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=6))
                own = [
                    (key, 100 * number + 10 * n + side, newest[side] - 3 + later)
                    for n, (key, later) in enumerate(drawn)
                ]
                came |= {row[1]: number for row in own}
                newest[side] = max([newest[side], *(row[2] for row in own)])
                rows[side] += own
                epoch[name] = own
            push(hub, epoch)
            if data.draw(st.integers(0, 3)) == 0:
                hub.close()
                hub = Hub(Path(folder) / "home", LocalExecutor(), tasks=data.draw(st.integers(1, 3)))
        hub.execute("CREATE QUERY every AS " + PAIRS)
        hub.catch_up()

        def is_answer(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
            pair, in_force = (one, other), force[max(came[one[1]], came[other[1]])]
            return all(
                SECOND * pair[bound.child][2]
                <= SECOND * pair[bound.parent][2]
                + bound.limits(np.array([SECOND * pair[bound.parent][2]]))[0]
                for bound in in_force.values()
            )

        pairs = {(a[1], b[1]): is_answer(a, b) for a in rows[0] for b in rows[1] if a[0] == b[0]}
        wanted = {row for row in answer(hub, "every") if pairs[row[1], row[2]]}
        hub.close()
        hub = Hub(Path(folder) / "home", LocalExecutor())
        emitted = answer(hub, "finds")
        hub.close()
    assert emitted == Counter(wanted)


def test_the_option_is_shown_changed_and_refused_where_nothing_would_heed_it(tmp_path: Path) -> None:
    hub = opened(tmp_path, {"pairs": f"AS {PAIRS}", "again": f"AS {PAIRS}", "finds": f"{FIND} AS {PAIRS}"})
    (shown,) = hub.execute("SHOW CREATE QUERY finds")
    assert shown.table is not None
    assert "OPTIONS ('constraints' 'find')" in shown.table.to_pylist()[0]["statement"]
    assert not hub.catalog.require_query("finds").definition.join
    with pytest.raises(UserError, match=r"differs in constraints \(find there, declared here\)"):
        hub.execute(f"CREATE QUERY finds AS {PAIRS}")
    with pytest.raises(UserError, match="constraints is 'declared' or 'find', not 'guess'"):
        hub.execute(f"CREATE QUERY guesses OPTIONS (constraints 'guess') AS {PAIRS}")
    for text in (
        "SELECT COUNT(*) AS n FROM entered [RANGE 1 MINUTE]",
        f"SELECT ISTREAM(e.k) FROM entered e {WINDOW} LEFT JOIN passed p {WINDOW} ON e.k = p.k",
        f"SELECT ISTREAM(e.k) FROM entered e {WINDOW}, passed p {WINDOW} WHERE e.v < p.v",
    ):
        with pytest.raises(UserError, match="constraints 'find' is for joins of windows of time"):
            hub.execute(f"CREATE QUERY other {FIND} AS {text}")
    (outcome,) = hub.execute("ALTER QUERY finds SET (constraints 'declared')")
    assert "drops rows by declared constraints only" in outcome.message
    assert "bounds found" not in hub.explain("finds")
    hub.close()
