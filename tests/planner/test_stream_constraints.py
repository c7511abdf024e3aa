"""Which joins use which constraints of their streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.operators.joins.constrained_join import ConstrainedJoin
from headrace.operators.joins.join_aggregate import JoinAggregate
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with open_hub(tmp_path / "home", local=True) as opened:
        yield opened


def join_of(hub: Hub, constraints: str, select: str) -> ConstrainedJoin | None:
    """The join of a query over `a`, which has these constraints, and `b`; None if it uses none."""
    hub.execute(f"""
        CREATE STREAM a (k BIGINT, l INT, t STRING, at TIMESTAMP) USING push TIMESTAMP BY at {constraints};
        CREATE STREAM b (k BIGINT, l INT, t STRING, at TIMESTAMP) USING push TIMESTAMP BY at;
        CREATE QUERY q AS {select}""")
    found = [one for one in hub.plan.operators.values() if isinstance(one, ConstrainedJoin)]
    return found[0] if found else None


ALL = """CONSTRAINT UNIQUE (k) CONSTRAINT CLUSTERED BY (k) WITHIN 3 SECONDS CONSTRAINT ORDERED BY (k) WITHIN 4 SECONDS
         CONSTRAINT (k) REFERENCES B (K) WITHIN 5 SECONDS"""
ON_K = "SELECT ISTREAM(a.l, b.l AS m) FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k"
S = 1_000_000


def test_all_constraints_of_the_key_are_used_and_explained(hub: Hub) -> None:
    join = join_of(hub, ALL, ON_K)
    assert join is not None
    assert [(promise.kind, promise.within) for promise in join.promises[0]] == [
        ("unique", 0),
        ("clustered", 3 * S),
        ("ordered", 4 * S),
    ]
    assert join.promises[1] == ()
    assert [(one.parent, one.child, one.within) for one in join.references] == [(0, 1, 5 * S)]
    assert [side.stored.names for side in join.spec.sides] == [("a.l",), ("b.l",)]
    lines = hub.explain("q")
    for line in (
        "  (k) REFERENCES B (K) WITHIN 5 SECONDS of a: a row of a waits 5 SECONDS for those of b; a pair beyond that is rejected",
        "  UNIQUE (k) of a: rows of b wait for a value of a until it is finished",
        "  CLUSTERED BY (k) WITHIN 3 SECONDS of a: rows of b wait for a value of a until it is finished",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("constraints", "select", "used"),
    [
        (ALL, ON_K.replace("a.k = b.k", "a.l = b.l"), None),
        (ALL, ON_K.replace("a.k = b.k", "a.k = b.k AND a.t = b.t"), (0, 1)),
        (
            "CONSTRAINT UNIQUE (t) CONSTRAINT (t) REFERENCES b (t) WITHIN 5 SECONDS",
            ON_K.replace(".k", ".t"),
            (0, 1),
        ),
        ("CONSTRAINT (k) REFERENCES b (l) WITHIN 5 SECONDS", ON_K, None),
        ("CONSTRAINT (k) REFERENCES c (k) WITHIN 5 SECONDS", ON_K, None),
        ("", ON_K, None),
        (ALL, "SELECT a.l, b.l AS m FROM a [ROWS 5], b [ROWS 5] WHERE a.k = b.k", None),
        (ALL, "SELECT a.l, b.l AS m FROM a [RANGE 1 MINUTE] LEFT JOIN b [RANGE 1 MINUTE] ON a.k = b.k", None),
    ],
)
def test_constraints_are_used_where_they_are_about_the_key(
    hub: Hub, constraints: str, select: str, used: tuple[int, int] | None
) -> None:
    """`used`: the numbers of promises and references."""
    join = join_of(hub, constraints, select)
    assert used == (None if join is None else (sum(map(len, join.promises)), len(join.references)))


def test_an_aggregate_of_a_join_with_constraints_is_computed_from_pairs(hub: Hub) -> None:
    select = "SELECT COUNT(*) AS n FROM a [RANGE 1 MINUTE SLIDE 1 MINUTE], b [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE a.k = b.k"
    assert join_of(hub, ALL, select) is not None
    assert not any(isinstance(one, JoinAggregate) for one in hub.plan.operators.values())
