"""Joins of many streams whose sides probe each other in orders that adapt from epoch to epoch: what is recorded, and what is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive.join_orders import JOIN_ORDERS, join_orders
from headrace.time import SECOND

STREAMS = "abcd"
FOUR = (
    "SELECT a.k, a.n AS an, b.n AS bn, c.n AS cn, d.n AS dn FROM a [RANGE 20 SECONDS] JOIN b [RANGE 20 SECONDS] ON b.k = a.k"
    " JOIN c [RANGE 20 SECONDS] ON c.k = a.k JOIN d [RANGE 20 SECONDS] ON d.k = a.k"
)
EPOCHS, KEYS = 8, 600


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=2)


def prepared(folder: Path) -> Hub:
    hub = opened(folder)
    hub.execute(
        ";".join(
            f"CREATE STREAM {name} (k BIGINT, n BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
            for name in STREAMS
        )
    )
    return hub


def keys(stream: str, epoch: int) -> range:
    """All keys in `a` and `d`; in the first epochs `b` has a tenth of them, in the later ones `c` has."""
    rare = "b" if epoch < EPOCHS // 2 else "c"
    return range(0, KEYS, 10) if stream == rare else range(KEYS)


def push(hub: Hub, epoch: int) -> None:
    for stream in STREAMS:
        of_epoch = keys(stream, epoch)
        at = pa.array([epoch * 30 * SECOND] * len(of_epoch)).cast(pa.timestamp("us", tz="UTC"))
        hub.push(
            stream, pa.table({"k": pa.array(of_epoch), "n": pa.array([epoch] * len(of_epoch)), "at": at})
        )


def run(hub: Hub, epochs: range) -> list[tuple[int, ...]]:
    """Run epochs, each beyond the windows of the one before; the order of the last stream's side after each."""
    seen = []
    for epoch in epochs:
        push(hub, epoch)
        hub.run_once()
        orders = join_orders(hub.home.latest())
        seen.append(next(chosen.order for name, chosen in orders.items() if name.endswith("/3")))
    return seen


def found(hub: Hub, name: str = "q") -> list[tuple[int, ...]]:
    rows = hub.query(name).history()
    return sorted(
        zip(*(rows.column(column).to_pylist() for column in ("k", "an", "bn", "cn", "dn")), strict=True)
    )


def expected(epochs: range = range(EPOCHS - 1)) -> list[tuple[int, ...]]:
    """Of each epoch the keys that all four streams have; the last instant is not settled."""
    common = [(epoch, key) for epoch in epochs for key in range(0, KEYS, 10)]
    return sorted((key, *(epoch,) * 4) for epoch, key in common)


@pytest.fixture
def _whole_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is sampled, and a window is as long as an epoch."""
    for module in (
        "operators.joins.probing.two_phases",
        "runtime.plan.adaptive.join_orders",
        "adaptive.settling.settled_order",
    ):
        monkeypatch.setattr(f"headrace.{module}.UNSETTLED_SHARE", 1)
    monkeypatch.setattr("headrace.adaptive.settling.settled_order.BUDGET", 99)
    monkeypatch.setattr("headrace.adaptive.settling.settled_order.WINDOW", KEYS)


@pytest.mark.usefixtures("_whole_samples")
def test_the_order_follows_the_data_and_answers_do_not(tmp_path: Path) -> None:
    """Rows of `d` probe first the stream that has few of their keys, from the epoch on after it has become another."""
    hub = prepared(tmp_path)
    hub.register(FOUR.replace("SELECT", "SELECT ISTREAM(", 1).replace(" FROM a", ") FROM a", 1), "q")
    seen = run(hub, range(EPOCHS))
    assert found(hub) == expected()
    hub.close()
    assert seen[1][0] == seen[EPOCHS // 2 - 1][0] == STREAMS.index("b")
    assert seen[EPOCHS // 2][0] == seen[-1][0] == STREAMS.index("c")


@pytest.mark.usefixtures("_whole_samples")
def test_fewer_probes_are_made_once_the_order_has_followed(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(FOUR, "q")
    probes = []
    for epoch in range(EPOCHS):
        push(hub, epoch)
        hub.run_once()
        (seen,) = (one for name, one in hub.status()["last_epoch"]["joins"].items() if name.endswith("/3"))
        probes.append(sum(seen["probed"]))
    hub.close()
    changed = EPOCHS // 2
    assert probes[changed - 1] == probes[-1] == KEYS + 2 * (KEYS // 10)
    assert probes[changed] > probes[-1]


def test_orders_are_in_the_manifest_and_there_after_a_restart(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(FOUR, "q")
    run(hub, range(2))
    before = hub.home.latest().facts[JOIN_ORDERS]
    hub.close()
    assert [name.partition("/")[2] for name, *_ in before] == ["0", "1", "2", "3"]
    again = opened(tmp_path)
    assert again.home.latest().facts[JOIN_ORDERS] == before
    given: list[Any] = []
    plain = LocalExecutor.run
    with pytest.MonkeyPatch.context() as patched:

        def noting(self: Any, scans: Any, states: Any) -> Any:
            given.extend(state.join_orders for state in states)
            return plain(self, scans, states)

        patched.setattr(LocalExecutor, "run", noting)
        run(again, range(2, 3))
    again.close()
    assert given[0] == {name: OrderInForce(tuple(order), share, tuple(b)) for name, order, share, b in before}


def test_an_epoch_that_is_run_again_probes_in_the_same_orders(tmp_path: Path, monkeypatch) -> None:
    """The tasks of both attempts get the orders that the manifest before has, whatever was observed by the first."""
    hub = prepared(tmp_path)
    hub.register(FOUR, "q")
    run(hub, range(1))
    given: list[Any] = []
    plain, failures = LocalExecutor.run, [True]

    def failing(self: Any, scans: Any, states: Any) -> Any:
        receipts = plain(self, scans, states)
        given.append([state.join_orders for state in states])
        if failures:
            failures.pop()
            raise OSError("lost")
        return receipts

    monkeypatch.setattr(LocalExecutor, "run", failing)
    push(hub, 1)
    hub.run_once()
    hub.close()
    assert len(given) == 2
    assert given[0] == given[1] != [{}, {}]


def test_the_same_data_give_the_same_orders(tmp_path: Path) -> None:
    """No clock decides: costs are steps of searches."""
    facts = []
    for place in ("one", "two"):
        hub = prepared(tmp_path / place)
        hub.register(FOUR, "q")
        run(hub, range(EPOCHS))
        facts.append(hub.home.latest().facts[JOIN_ORDERS])
        hub.close()
    assert facts[0] == facts[1]


@pytest.mark.usefixtures("_whole_samples")
def test_explain_adaptive_shows_orders_costs_believed_and_measured_and_why_it_switched(
    tmp_path: Path,
) -> None:
    hub = prepared(tmp_path)
    hub.register(FOUR, "q")
    before = hub.execute("EXPLAIN ADAPTIVE q")[0].message
    run(hub, range(EPOCHS))
    text = hub.execute("EXPLAIN ADAPTIVE q")[0].message
    hub.close()
    assert "a: nothing was observed yet: the side with fewest rows first" in before
    lines = text.splitlines()
    assert lines[0].endswith("of 4 sides, whose new rows probe the others in orders that adapt (A-Greedy):")
    of_d = lines[next(place for place, line in enumerate(lines) if line.startswith("  d: ")) :]
    assert of_d[0] == "  d: c drops 90 %, b drops 0 %, a drops 0 %"
    switched = next(line for line in of_d if ", before b, which drops" in line)
    assert "order c, " in switched
    assert "1.2 probes and 0.3 rows made for each of" in switched
    assert "probes a row instead of" in switched


def test_queries_that_share_a_join_show_its_orders(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    for number in range(3):
        hub.register(FOUR + f" AND a.n >= {number}", f"q{number}")
    run(hub, range(2))
    shown = [hub.execute(f"EXPLAIN ADAPTIVE q{number}")[0].message for number in range(3)]
    hub.close()
    assert shown[1] == shown[2] != shown[0]
    assert "s3 (d): " in shown[1]


def test_orders_of_joins_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(FOUR, "q")
    run(hub, range(2))
    before = set(join_orders(hub.home.latest()))
    hub.execute("DROP QUERY q")
    hub.register(FOUR, "other")
    run(hub, range(2, 4))
    after = set(join_orders(hub.home.latest()))
    hub.close()
    assert before
    assert after
    assert not before & after


def test_a_join_of_two_streams_records_nothing(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register("SELECT a.k FROM a [RANGE 20 SECONDS] JOIN b [RANGE 20 SECONDS] ON b.k = a.k", "q")
    push(hub, 0)
    hub.run_once()
    push(hub, 1)
    hub.run_once()
    facts, status = hub.home.latest().facts, hub.status()["last_epoch"]
    shown = hub.execute("EXPLAIN ADAPTIVE q")[0].message
    hub.close()
    assert JOIN_ORDERS not in facts
    assert "joins" not in status
    assert shown.startswith("nothing in q adapts")
    assert "joins of three or more streams by one key" in shown


def test_what_is_recorded_for_a_join_is_small(tmp_path: Path) -> None:
    """At most a hundred bytes for a side, of manifest and of messages; orders of what was decided before are not repeated."""
    hub = prepared(tmp_path)
    hub.register(FOUR, "q")
    run(hub, range(EPOCHS))
    facts = hub.home.latest().facts[JOIN_ORDERS]
    hub.close()
    assert all(len(repr(fact)) < 100 for fact in facts)
