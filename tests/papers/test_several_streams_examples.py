"""The thesis' examples and repairs of unions and joins of streams, on the engine: G8 and R16 to R18."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.time import SECOND

START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Streams r and s, whose punctuation the tests give."""
    with open_hub(tmp_path / "home", local=True) as hub:
        for name in "rs":
            hub.execute(
                f"CREATE STREAM {name} (k INT, at TIMESTAMP) USING push TIMESTAMP BY at PUNCTUATED EXTERNALLY"
            )
        yield hub


def push(hub: Hub, stream: str, *seconds: float) -> None:
    hub.push(stream, [{"k": 1, "at": START + dt.timedelta(seconds=at)} for at in seconds])
    hub.catch_up()


def punctuate(hub: Hub, stream: str, second: int) -> None:
    hub.punctuate(stream, second * SECOND)
    hub.catch_up()


def ends(hub: Hub) -> list[int]:
    """The seconds at which the emitted windows end, in the order of emission."""
    rows = hub.query("q").history().to_pylist()
    return [round((row["window_end"] - START).total_seconds()) for row in rows]


def test_golden_8_a_union_has_come_as_far_as_the_slower_stream_and_says_so_once(hub: Hub) -> None:
    hub.register("SELECT window_end, COUNT(*) AS n FROM r UNION ALL s [RANGE TUMBLING 1 SECOND]", "q")
    push(hub, "r", 18.5, 19.5, 21.5)
    punctuate(hub, "r", 20)
    punctuate(hub, "s", 19)
    assert ends(hub) == [19]
    for second in (20, 21, 22):
        punctuate(hub, "s", second)
        assert ends(hub) == [19, 20], "r has come no further than 20"


def test_repair_16_windows_end_by_their_ends_and_not_by_numbers_and_none_is_rounded_up(hub: Hub) -> None:
    hub.register(
        "SELECT x.window_end, x.k FROM r [RANGE TUMBLING 10 SECONDS] x, s [RANGE TUMBLING 10 SECONDS] y WHERE x.k = y.k",
        "q",
    )
    push(hub, "r", 5, 15)
    push(hub, "s", 6, 16)
    punctuate(hub, "r", 19)
    punctuate(hub, "s", 25)
    assert ends(hub) == [10], "with a ceiling the window that ends at 20 would have been emitted"
    push(hub, "r", 19.5)
    punctuate(hub, "r", 20)
    assert ends(hub) == [10, 20, 20], "with window numbers for times, no row would be kept for 20"


def test_repair_17_both_sides_of_a_band_are_looked_at(hub: Hub) -> None:
    """With "or" every pair is in the band: it is never further than either range at once."""
    hub.register(
        "SELECT ISTREAM(x.at AS xt, y.at AS yt) FROM r [RANGE 3 SECONDS] x, s [RANGE 2 SECONDS] y", "q"
    )
    push(hub, "r", 10)
    push(hub, "s", 1, 7.9, 8, 13, 13.1, 30)
    for stream in "rs":
        punctuate(hub, stream, 100)
    seconds = sorted((row["yt"] - START).total_seconds() for row in hub.query("q").history().to_pylist())
    assert seconds == [8, 13]


def test_repair_18_pairs_are_emitted_as_far_as_the_slower_stream_however_far_the_other_is_ahead(
    hub: Hub,
) -> None:
    """With the printed test, a pair of punctuations that differ by more than the ranges covers nothing, and readers starve."""
    hub.register(
        "SELECT x.window_end, COUNT(*) AS n FROM r [RANGE 2 SECONDS SLIDE 1 SECOND] x,"
        " s [RANGE 2 SECONDS SLIDE 1 SECOND] y WHERE x.k = y.k GROUP BY x.k",
        "q",
    )
    push(hub, "r", *range(12))
    push(hub, "s", *range(12))
    punctuate(hub, "r", 1000)
    emitted = 0
    for second in (3, 6, 9, 12):
        punctuate(hub, "s", second)
        window_ends = ends(hub)
        assert len(window_ends) > emitted
        assert max(window_ends) == second
        emitted = len(window_ends)
