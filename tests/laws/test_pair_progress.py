"""Punctuation of the times of joined rows: a group is emitted once, as soon as no pair of it can follow, and not before.

Which pairs can follow is asked of every pair of instants on a grid, whatever formula the engine has: of joins within an interval those of
which a row may still come, of joins of windows those that have not been emitted. Rows come in any order, and streams are ahead of each other.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND, Instant
from tests.laws.two_streams import epochs, expected, opened, script, table
from tests.runtime.rig import answer

HALF = SECOND // 2
GRID = range(-12 * HALF, 48 * HALF, HALF)
COLUMNS = "x.at AS xt, y.at AS yt, greatest(x.at, y.at) AS later, least(y.at, x.at) AS earlier, x.v"
BAND = "y.at >= x.at - INTERVAL 1 SECOND AND y.at <= x.at + INTERVAL 1500 MILLISECONDS"
Pair = tuple[Instant, Instant]


@dataclass(frozen=True)
class Joined:
    """A join of a stream `one` and a stream `other`: pairs with `least` ≤ y.at - x.at ≤ `most`."""

    text: str
    one: str
    other: str
    least: int
    most: int
    at_once: bool = True

    def follow(self, pair: Pair, bounds: dict[str, Instant]) -> bool:
        """Whether a pair of rows at these instants may still be emitted."""
        if not self.least <= pair[1] - pair[0] <= self.most:
            return False
        if not self.at_once:
            return max(pair) >= min(bounds[self.one], bounds[self.other])
        return pair[0] >= bounds[self.one] or pair[1] >= bounds[self.other]


@dataclass(frozen=True)
class Slid(Joined):
    """A join of windows that slide, of which a pair is in those that end up to its last one."""

    ranges: tuple[int, int] = (0, 0)
    slide: int = SECOND

    def follow(self, pair: Pair, bounds: dict[str, Instant]) -> bool:
        last = (
            min(at + range_ for at, range_ in zip(pair, self.ranges, strict=True)) // self.slide * self.slide
        )
        return max(pair) < last and last > min(bounds[self.one], bounds[self.other])


WIDE = 100 * SECOND
SECONDS = ", date_trunc('SECOND', x.at) AS xs"
"""A column that the reference does not have."""
JOINS = {
    "within an interval": Joined(
        f"SELECT {COLUMNS} FROM a x, b y WHERE x.k = y.k AND {BAND}", "a", "b", -SECOND, 3 * HALF
    ),
    "with itself": Joined(
        f"SELECT {COLUMNS} FROM a x, a y WHERE x.k = y.k AND {BAND}", "a", "a", -SECOND, 3 * HALF
    ),
    "without an interval": Joined(f"SELECT {COLUMNS} FROM a x, b y WHERE x.k = y.k", "a", "b", -WIDE, WIDE),
    "of windows": Joined(
        f"SELECT ISTREAM({COLUMNS}) FROM a x [RANGE 2 SECONDS], b y [RANGE 500 MILLISECONDS] WHERE x.k = y.k",
        "a",
        "b",
        -HALF,
        2 * SECOND,
        at_once=False,
    ),
    "of windows that slide": Slid(
        f"SELECT {COLUMNS}, x.window_end AS e FROM a x [RANGE 3 SECONDS SLIDE 1 SECOND], b y [RANGE 2 SECONDS SLIDE 1 SECOND]"
        " WHERE x.k = y.k",
        "a",
        "b",
        -WIDE,
        WIDE,
        ranges=(3 * SECOND, 2 * SECOND),
    ),
    "of windows that do not overlap": Slid(
        f"SELECT {COLUMNS}, x.window_end AS e FROM a x [RANGE TUMBLING 2 SECONDS], b y [RANGE TUMBLING 2 SECONDS] WHERE x.k = y.k",
        "a",
        "b",
        -WIDE,
        WIDE,
        ranges=(2 * SECOND, 2 * SECOND),
        slide=2 * SECOND,
    ),
}
GROUPS: dict[str, Callable[[Pair], Sequence[Instant]]] = {
    "xt, yt": lambda pair: pair,
    "xt": lambda pair: pair[:1],
    "yt": lambda pair: pair[1:],
    "xs": lambda pair: (pair[0] // SECOND * SECOND,),
    "xs, yt": lambda pair: (pair[0] // SECOND * SECOND, pair[1]),
    "later": lambda pair: (max(pair),),
    "earlier": lambda pair: (min(pair),),
}
WINDOWS = {"": "[RANGE TUMBLING ALL]", "window_end AS e, ": "[RANGE TUMBLING 3 SECONDS]"}


def instant(value: Any) -> Instant:
    return round(value.timestamp() * 1_000_000)


def emitted(hub: Hub, name: str) -> Counter[tuple[Any, ...]]:
    """(end of the window or none, group, count, sum) of all rows so far."""
    rows = (list(row.values()) for row in hub.query(name).history().to_pylist())
    return Counter((*map(instant, row[:-2]), *row[-2:]) for row in rows)


@given(data=st.data())
def test_a_group_is_emitted_as_soon_as_no_pair_of_it_can_follow(data: st.DataObject) -> None:
    joined = JOINS[data.draw(st.sampled_from(sorted(JOINS)), "join")]
    keys, bounds_shown = (
        data.draw(st.sampled_from(sorted(GROUPS)), "keys"),
        data.draw(st.sampled_from(sorted(WINDOWS))),
    )
    inner = data.draw(st.booleans(), "a SELECT in FROM")
    pairs = joined.text.replace(COLUMNS, f"{COLUMNS}{SECONDS}") if "xs" in keys else joined.text
    source = f"({pairs}) AS p" if inner else "pairs p"
    asked = f"SELECT {bounds_shown}{keys}, COUNT(*) AS n, SUM(v) AS s FROM {source} {WINDOWS[bounds_shown]} GROUP BY {keys}"
    taken = data.draw(epochs(), "epochs")
    slacks = data.draw(st.tuples(*[st.sampled_from((0, SECOND, 3 * SECOND))] * 2), "slacks")
    registered = data.draw(st.integers(0, len(taken)), "registered before epoch")
    restarts = data.draw(st.sets(st.integers(0, len(taken))), "restarts")
    with tempfile.TemporaryDirectory() as folder:
        hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
        try:
            hub.execute(script(folder, slacks))
            hub.register(pairs, "pairs")
            for number, parts in enumerate([*taken, ([], [])]):
                if number in restarts:
                    hub.close()
                    hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
                if number == registered:
                    hub.register(asked, "asked")
                for name, part in zip("ab", parts, strict=True):
                    if part:
                        hub.push(name, table(part))
                hub.catch_up()
                if number >= registered:
                    check_emitted(hub, joined, keys, with_ends=bool(bounds_shown))
            hub.finish(seal=True)
            check_emitted(hub, joined, keys, with_ends=bool(bounds_shown))
            _, query = hub.operator_and_query("asked")
            if inner and pairs == joined.text:
                assert repr(answer(hub, "asked", {})) == repr(expected(query, taken, slacks))
        finally:
            hub.close()


def check_emitted(hub: Hub, joined: Joined, keys: str, *, with_ends: bool) -> None:
    """The groups of all pairs so far of which none can follow, and no others."""
    manifest = hub.home.latest()
    bounds = {name: manifest.stream(name).punctuation for name in "ab"}
    reached = min(bounds[joined.one], bounds[joined.other])
    group = GROUPS[keys]
    open_groups = {group((x, y)) for x in GRID for y in GRID if joined.follow((x, y), bounds)}
    groups: Counter[tuple[Instant, ...]] = Counter()
    for row in hub.query("pairs").history().to_pylist():
        pair = instant(row["xt"]), instant(row["yt"])
        at = instant(row["e"]) - 1 if "e" in row else max(pair)
        end = (at // (3 * SECOND) + 1) * 3 * SECOND
        ends = (end,) if with_ends else ()
        if group(pair) not in open_groups or (with_ends and end <= reached):
            groups[(*ends, *group(pair))] += 1
    rows = emitted(hub, "asked")
    assert Counter({row[:-2]: row[-2] for row in rows}) == groups
    assert max(rows.values(), default=1) == 1, "each once"
