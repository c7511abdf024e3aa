"""Trees of joins that follow the data while they run: what is chosen and when it is in force, what is recorded, and what is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.operators.joins.window_join import WindowJoin
from headrace.overload.memory import MemoryControl
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive import join_trees
from headrace.runtime.plan.adaptive.overload_control import MEMORY
from headrace.runtime.plan.derived_streams import tree_of
from headrace.time import SECOND

STAR = (
    "SELECT ISTREAM(f.v, x.v AS a, y.v AS b, z.v AS c) FROM f [RANGE 20 SECONDS] JOIN x [RANGE 20 SECONDS] ON x.k = f.i"
    " JOIN y [RANGE 20 SECONDS] ON y.k = f.j JOIN z [RANGE 20 SECONDS] ON z.k = f.l"
)
ROWS, STEP = 400, 10 * SECOND
"""Rows of `f` in an epoch, and its length: windows hold two epochs."""


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


def rare(epoch: int) -> str:
    """The arm that has a tenth of the keys: `z`, and from the twelfth epoch on `x`."""
    return "z" if epoch < 12 else "x"


def push(hub: Hub, epoch: int) -> None:
    """Rows of each stream, which count once however often they are pushed."""
    numbers = list(range(epoch * ROWS, (epoch + 1) * ROWS))
    for name in "fxyz":
        chosen = numbers[:: 10 if name == rare(epoch) else 1]
        at = pa.array([epoch * STEP] * len(chosen)).cast(pa.timestamp("us", tz="UTC"))
        keys = dict.fromkeys("ijl", chosen) if name == "f" else {"k": chosen}
        hub.push(name, pa.table({**keys, "v": chosen, "at": at}), producer="test", sequence=epoch)


def run(hub: Hub, epochs: range) -> list[list[tuple[str, ...]]]:
    """The sides of the joins in force after each epoch, innermost first."""
    seen = []
    for epoch in epochs:
        push(hub, epoch)
        hub.run_once()
        growing = hub.catalog.require_query("q").definition.growing_tree
        joins = [
            join.joined_sides
            for name, join in hub.loop.engine.plan.operators.items()
            if isinstance(join, WindowJoin) and (growing is None or tree_of(name) != growing.number)
        ]
        seen.append(joins)
    return seen


def answer(hub: Hub) -> list[tuple[int, ...]]:
    rows = hub.query("q").history()
    return sorted(zip(*(rows.column(column).to_pylist() for column in ("v", "a", "b", "c")), strict=True))


def expected(epochs: range) -> list[tuple[int, ...]]:
    """All four have a key in one epoch; the last instant is not settled."""
    keys = (key for epoch in epochs for key in range(epoch * ROWS, (epoch + 1) * ROWS, 10))
    return [(key,) * 4 for key in keys]


def test_the_arm_with_few_partners_comes_first_and_answers_are_whole(tmp_path: Path) -> None:
    """As written `x` is first; the hub learns that `z` drops most, and when that becomes `x`, it learns again."""
    hub = prepared(tmp_path)
    hub.register(STAR, "q")
    seen = run(hub, range(24))
    found = answer(hub)
    hub.close()
    assert seen[0][0] == ("f", "x")
    assert seen[11][0] == ("f", "z")
    assert seen[23][0] == ("f", "x")
    assert len({str(tree) for tree in seen}) == 3
    assert found == expected(range(23))


def test_another_tree_comes_into_force_once_its_windows_are_full(tmp_path: Path) -> None:
    """It grows at an epoch, and all its joins but the last make rows; that one stores them."""
    hub = prepared(tmp_path)
    hub.register(STAR, "q")
    grows, made = [], []
    for epoch in range(9):
        push(hub, epoch)
        hub.run_once()
        plan, last = hub.loop.engine.plan.operators, hub.status()["last_epoch"]["operators"]
        growing = [name for name, each in plan.items() if isinstance(each, WindowJoin) and each.spec.grows]
        grows.append(len(growing))
        made += [last[name]["results"] for name in growing if name in last]
    hub.close()
    first = grows.index(1)
    assert grows[first : first + 3] == [1, 1, 1]  # longer than the two epochs of a window
    assert grows[-1] == 0
    assert set(made) == {0}


def test_a_restart_finds_the_tree_that_grows_and_the_one_in_force(tmp_path: Path) -> None:
    plain, often = (prepared(tmp_path / name) for name in ("plain", "often"))
    for hub in (plain, often):
        hub.register(STAR, "q")
    trees = run(plain, range(10))
    for epoch in range(10):
        run(often, range(epoch, epoch + 1))
        often.close()
        often = opened(tmp_path / "often")
    assert answer(often) == answer(plain) == expected(range(9))
    assert trees[-1][0] == ("f", "z")
    plain.close()
    often.close()


def test_explain_adaptive_shows_the_trees_with_what_was_believed_and_measured(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(STAR, "q")
    run(hub, range(3))
    grown = hub.execute("EXPLAIN ADAPTIVE q")[0].message
    run(hub, range(3, 10))
    lines = hub.execute("EXPLAIN ADAPTIVE q")[0].message.splitlines()
    hub.close()
    assert "next: f, z, then " in grown
    assert "comes into force when those from before it, 20 SECONDS long, have ended" in grown
    assert lines[0] == "3 joins one after the other, as written, and then in an order that adapts:"
    assert lines[1].startswith("  1. f, z: ")
    assert lines[4].startswith("    from epoch ")
    assert lines[4].endswith(" rows between joins for 1,000 of the sources; 72 believed, instead of 645")
    assert lines[5].endswith("; as registered")


def test_as_a_picture_the_trees_are_shown_over_the_epochs(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(STAR, "q")
    run(hub, range(10))
    drawn = hub.execute("EXPLAIN ADAPTIVE q AS SVG")[0].message
    (tree,) = (tree for tree in hub.catalog.require_query("q").definition.join_trees if tree.number)
    with pytest.raises(UserError, match="is no graph"):
        hub.execute("EXPLAIN ADAPTIVE q AS DOT")
    hub.close()
    titles = [element.text for element in ET.fromstring(drawn).iter() if element.tag.endswith("title")]
    assert titles[0] == f"epochs 1 to {tree.since}: f, x, then y, then z"
    assert titles[1].startswith(f"epochs {tree.since + 1} to ")
    assert titles[1].endswith(": f, z, then y, then x")


def test_no_tree_grows_while_memory_is_short_and_one_that_grows_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = prepared(tmp_path)
    hub.register(STAR, "q")
    run(hub, range(3))
    manifest, definition = hub.home.latest(), lambda: hub.catalog.require_query("q").definition
    assert definition().growing_tree is not None
    given_up = {"control": MemoryControl(without_caches=True).as_json()}
    assert join_trees.is_short_of_memory(replace(manifest, facts={**manifest.facts, MEMORY: given_up}))
    assert not join_trees.is_short_of_memory(manifest)
    monkeypatch.setattr(join_trees, "is_short_of_memory", lambda _: True)
    run(hub, range(3, 9))
    assert definition().growing_tree is None
    assert definition().join_tree.number == 0
    hub.close()


@pytest.mark.parametrize(
    "query",
    [
        STAR.replace("z [RANGE 20 SECONDS]", "z [ROWS 20]").replace("ISTREAM(", "").replace("c)", "c"),
        STAR.replace("[RANGE 20 SECONDS]", ""),
        f"{STAR} AND x.v / z.v > 0",
        f"{STAR} AND x.v = y.v",
    ],
)
def test_trees_stay_where_rows_are_stored_for_good_or_the_order_would_change_what_is_rejected(
    tmp_path: Path, query: str
) -> None:
    hub = prepared(tmp_path)
    hub.register(query, "q")
    for epoch in range(4):
        push(hub, epoch)
        hub.run_once()
    registered = hub.catalog.require_query("q")
    graph = join_trees.graph_of(hub.catalog, registered)
    hub.close()
    assert graph is None
    assert registered.definition.join_trees == ()
