"""Windows that slide over the time of one side of a join: each is emitted once, as soon as no pair of it can follow, and not before; and
they hold what the reference's hold.

Which pairs can follow is asked of every pair of instants on a grid, whatever formula the engine has.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND, Instant
from tests.examples import examples
from tests.laws.test_pair_progress import GRID, HALF, JOINS, Joined, Pair, instant
from tests.laws.two_streams import epochs, expected, opened, script, table
from tests.runtime.rig import answer

TIMES: dict[str, Callable[[Pair], Instant]] = {
    "xt": lambda pair: pair[0],
    "yt": lambda pair: pair[1],
    "later": max,
    "earlier": min,
}
WINDOWS = {
    "[RANGE 3 SECONDS SLIDE 1 SECOND WATTR {}]": (3 * SECOND, SECOND),
    "[RANGE TUMBLING 2 SECONDS WATTR {}]": (2 * SECOND, 2 * SECOND),
    "[RANGE 1 SECOND SLIDE 3 SECONDS WATTR {}]": (SECOND, 3 * SECOND),
    "[RANGE TUMBLING 500 MILLISECONDS WATTR {}]": (HALF, HALF),
}


@dataclass(frozen=True)
class Reader:
    """A query with a window over one of the times; `inner`: of a SELECT in its FROM, not of the registered join."""

    time: str
    window: str
    grouped: bool
    inner: bool

    def text(self, joined: Joined) -> str:
        source = f"({joined.text}) AS p" if self.inner else "pairs p"
        length, slide = WINDOWS[self.window]
        if self.grouped and slide <= length:
            over = f"{source} GROUP BY window(p.{self.time}, '{length} microseconds', '{slide} microseconds')"
        else:
            over = f"{source} {self.window.format(self.time)}"
        return f"SELECT window_end AS we, COUNT(*) AS n, SUM(v) AS s FROM {over}"


DRAWN = (
    st.sampled_from(sorted(TIMES)),
    st.sampled_from(sorted(WINDOWS)),
    st.booleans(),
    st.booleans(),
)


def ends_of(at: Instant, window: tuple[int, int]) -> range:
    """The ends of the windows that hold an instant."""
    length, slide = window
    first = at // slide * slide + slide
    return range(first, at + length + 1, slide)


@examples(60)
@given(data=st.data())
def test_a_window_over_one_side_is_emitted_as_soon_as_no_pair_of_it_can_follow(data: st.DataObject) -> None:
    bounded = sorted(name for name in JOINS if name != "without an interval")
    joined = JOINS[data.draw(st.sampled_from(bounded), "join")]
    readers = data.draw(st.lists(st.builds(Reader, *DRAWN), min_size=1, max_size=3), "readers")
    names = [f"asked{number}" for number in range(len(readers))]
    taken = data.draw(epochs(), "epochs")
    slacks = data.draw(st.tuples(*[st.sampled_from((0, SECOND, 3 * SECOND))] * 2), "slacks")
    registered = [data.draw(st.integers(0, len(taken)), f"registered before epoch: {name}") for name in names]
    restarts = data.draw(st.sets(st.integers(0, len(taken))), "restarts")
    paused = data.draw(st.sets(st.integers(0, len(taken)), max_size=2), "the join is paused in")
    with tempfile.TemporaryDirectory() as folder:
        hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
        try:
            hub.execute(script(folder, slacks))
            hub.register(joined.text, "pairs")
            for number, parts in enumerate([*taken, ([], [])]):
                if number in restarts:
                    hub.close()
                    hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
                for name, reader, first in zip(names, readers, registered, strict=True):
                    if number == first:
                        hub.register(reader.text(joined), name)
                if number in paused:
                    hub.execute("PAUSE QUERY pairs")
                for stream, part in zip("ab", parts, strict=True):
                    if part:
                        hub.push(stream, table(part))
                hub.catch_up()
                if number in paused:
                    hub.execute("RESUME QUERY pairs")
                    hub.catch_up()
                for name, reader, first in zip(names, readers, registered, strict=True):
                    if number >= first:
                        check_emitted(hub, joined, name, reader)
            hub.finish(seal=True)
            for name, reader in zip(names, readers, strict=True):
                check_emitted(hub, joined, name, reader, ended=True)
                _, query = hub.operator_and_query(name)
                if reader.inner:
                    assert repr(answer(hub, name, {})) == repr(expected(query, taken, slacks))
        finally:
            hub.close()


def check_emitted(hub: Hub, joined: Joined, name: str, reader: Reader, *, ended: bool = False) -> None:
    """The windows that hold a pair so far, and of which no pair can follow; each once, with all of its pairs."""
    manifest = hub.home.latest()
    bounds = {name: manifest.stream(name).punctuation for name in "ab"}
    of, window = TIMES[reader.time], WINDOWS[reader.window]
    may_follow = [of((x, y)) for x in GRID for y in GRID if not ended and joined.follow((x, y), bounds)]
    held: Counter[Instant] = Counter()
    for row in hub.query("pairs").history().to_pylist():
        pair: Pair = (instant(row["xt"]), instant(row["yt"]))
        held.update(ends_of(of(pair), window))
    least = min(may_follow, default=None)
    complete = {end: n for end, n in held.items() if least is None or end <= least}
    emitted: list[tuple[Any, ...]] = [
        (instant(row["we"]), row["n"]) for row in hub.query(name).history().to_pylist()
    ]
    assert sorted(emitted) == sorted(complete.items())
