"""Joins without a common key, one after the other: which sources come first follows the rows that were counted when the query was
registered, and is part of the registration.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.adaptive.joins import tree_choice
from headrace.operators.joins.window_join import WindowJoin
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.derived_streams import tree_of
from headrace.time import SECOND

STAR = (
    "SELECT ISTREAM(f.v, x.v AS a, y.v AS b, z.v AS c) FROM f [RANGE 100 SECONDS] JOIN x [RANGE 100 SECONDS] ON x.k = f.i"
    " JOIN y [RANGE 100 SECONDS] ON y.k = f.j JOIN z [RANGE 100 SECONDS] ON z.k = f.l"
)
"""A fact stream and three others, each by a key of its own."""


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=2)


def prepared(folder: Path) -> Hub:
    hub = opened(folder)
    hub.execute(
        "CREATE STREAM f (i BIGINT, j BIGINT, l BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
        + ";".join(
            f"CREATE STREAM {name} (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
            for name in "xyz"
        )
    )
    return hub


def push(hub: Hub, name: str, rows: int, second: int) -> None:
    """Keys 0, 1, 2 and so on; of `f` modulo 100, 200 and 300."""
    numbers = list(range(rows))
    at = pa.array([second * SECOND] * rows).cast(pa.timestamp("us", tz="UTC"))
    keys = {"k": numbers}
    if name == "f":
        keys = {key: [n % most for n in numbers] for key, most in (("i", 100), ("j", 200), ("l", 300))}
    hub.push(name, pa.table({**keys, "v": numbers, "at": at}))


def fill(hub: Hub, sizes: Sequence[int], second: int) -> None:
    for name, rows in zip("fxyz", sizes, strict=True):
        push(hub, name, rows, second)
    hub.catch_up()


def stages(hub: Hub) -> list[tuple[str, ...]]:
    """The sides of the joins, in the order in which rows go through them."""
    return [hub.loop.engine.plan.operators[name].joined_sides for name in joins(hub)]


def joins(hub: Hub) -> list[str]:
    """The joins of the tree in force, in that order."""
    growing = hub.catalog.require_query("q").definition.growing_tree
    return [
        name
        for name, join in hub.loop.engine.plan.operators.items()
        if isinstance(join, WindowJoin) and (growing is None or tree_of(name) != growing.number)
    ]


def answer(hub: Hub) -> list[tuple[int, ...]]:
    rows = hub.query("q").history()
    return sorted(zip(*(rows.column(column).to_pylist() for column in ("v", "a", "b", "c")), strict=True))


def expected(rows: int, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    keys = [(n, n % 100, n % 200, n % 300) for n in range(rows)]
    return [each for each in keys if all(key < size for key, size in zip(each[1:], sizes, strict=True))]


@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        ((1000, 90, 90, 90), ["x", "y", "z"]),
        ((1000, 90, 40, 10), ["z", "y", "x"]),
        ((1000, 90, 10, 40), ["y", "z", "x"]),
        ((1000, 90, 90, 4), ["z", "x", "y"]),
    ],
)
def test_the_smallest_sources_are_joined_first_and_answers_are_the_same(
    tmp_path: Path, sizes: tuple[int, ...], order: list[str]
) -> None:
    hub = prepared(tmp_path)
    fill(hub, sizes, 10)
    hub.register(STAR, "q")
    fill(hub, sizes, 500)
    found, joined = answer(hub), stages(hub)
    hub.close()
    assert joined == [("f", order[0]), ("pairs", order[1]), ("pairs", order[2])]
    assert found == sorted(expected(1000, sizes[1:]))  # those of the last instant are not settled


def test_without_rows_sources_are_joined_as_written(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(STAR, "q")
    joined = stages(hub)
    hub.close()
    assert joined == [("f", "x"), ("pairs", "y"), ("pairs", "z")]


def test_longer_windows_count_for_more(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    fill(hub, (1000, 90, 90, 90), 10)
    hub.register(STAR.replace("y [RANGE 100", "y [RANGE 10"), "q")
    joined = stages(hub)
    hub.close()
    assert joined[0] == ("f", "y")


@pytest.mark.parametrize("changed", ["f.v / z.v > 0", "f.v + z.v > 0"])
def test_sources_are_joined_as_written_where_rejected_rows_would_follow_the_order(
    tmp_path: Path, changed: str
) -> None:
    """A condition of two streams that can fail rejects the combinations that its join makes."""
    hub = prepared(tmp_path)
    fill(hub, (1000, 90, 40, 10), 10)
    hub.register(f"{STAR} AND {changed}", "q")
    joined = stages(hub)
    hub.close()
    assert joined[0] == ("f", "x")


def test_conditions_that_cannot_fail_do_not_matter(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    fill(hub, (1000, 90, 40, 10), 10)
    hub.register(f"{STAR} AND f.v >= z.v", "q")
    joined = stages(hub)
    hub.close()
    assert joined[0] == ("f", "z")


def test_the_choice_is_part_of_the_registration(tmp_path: Path) -> None:
    """It stays over a restart, though rows have come that would make another; the same text again changes nothing."""
    hub = prepared(tmp_path)
    fill(hub, (1000, 90, 40, 10), 10)
    hub.register(STAR, "q")
    before = stages(hub)
    for second in range(500, 503):
        fill(hub, (10, 1, 1, 900), second)
    hub.execute(f"CREATE QUERY q AS {STAR}")
    assert stages(hub) == before
    found = answer(hub)
    hub.close()
    again = opened(tmp_path)
    assert stages(again) == before
    assert answer(again) == found
    again.execute(f"DROP QUERY q; CREATE QUERY q AS {STAR}")
    assert stages(again) != before
    again.close()


def test_fewer_rows_are_made_between_the_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 rows 40 find one of the ten of `z`: as written the first join makes 900 rows for the next one to store."""
    monkeypatch.setattr(tree_choice, "LEAST", 1 << 40)  # the order stays
    made = {}
    for when in ("before", "after"):
        hub = prepared(tmp_path / when)
        if when == "before":
            hub.register(STAR, "q")
        fill(hub, (1000, 90, 90, 10), 10)
        if when == "after":
            hub.register(STAR, "q")
        fill(hub, (1000, 90, 90, 10), 500)
        operators = hub.status()["last_epoch"]["operators"]
        made[when] = [operators[name]["results"] for name in joins(hub)]
        hub.close()
    assert made["before"][-1] == made["after"][-1]
    assert made["before"][0] == 900
    assert made["after"][0] == 40


def test_explain_adaptive_shows_the_joins_in_their_order_with_the_rows_that_each_has_made(
    tmp_path: Path,
) -> None:
    hub = prepared(tmp_path)
    fill(hub, (1000, 90, 40, 10), 10)
    hub.register(STAR, "q")
    fill(hub, (1000, 90, 40, 10), 500)
    lines = hub.execute("EXPLAIN ADAPTIVE q")[0].message.splitlines()
    hub.close()
    assert (
        lines[0]
        == "3 joins one after the other, sources of fewest rows first, as counted when it was registered, and then in an order that adapts:"
    )
    assert [line.partition(":")[0] for line in lines[1:4]] == ["  1. f, z", "  2. pairs, y", "  3. pairs, x"]
    assert all(line.endswith(" rows made") for line in lines[1:4])
