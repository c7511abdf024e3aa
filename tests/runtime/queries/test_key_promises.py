"""Promises for single keys, as statements and rows give them, and what a join of streams stores: the auction that is closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

STREAMS = """
CREATE STREAM auctions (id BIGINT, seller STRING, at TIMESTAMP) USING push TIMESTAMP BY at
  SLACK INTERVAL 1 HOUR PUNCTUATED BY PATTERNS OF (id);
CREATE STREAM bids (auction BIGINT, price BIGINT, closes BOOLEAN, at TIMESTAMP) USING push TIMESTAMP BY at
  SLACK INTERVAL 1 HOUR PUNCTUATED BY closes FOR (auction)"""
PRICES = "SELECT ISTREAM(a.id, a.seller, b.price) FROM auctions a JOIN bids b ON a.id = b.auction"


def opened(folder: Path, tasks: int = 2) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=tasks)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with opened(tmp_path) as hub:
        hub.execute(STREAMS)
        yield hub


def at(*seconds: int) -> pa.Array:
    return pa.array([second * SECOND for second in seconds], pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def auction(hub: Hub, *rows: tuple[int, str, int]) -> None:
    """(id, seller, second)."""
    ids, sellers, seconds = zip(*rows, strict=True)
    hub.push("auctions", pa.table({"id": pa.array(ids), "seller": pa.array(sellers), "at": at(*seconds)}))
    hub.catch_up()


def bid(hub: Hub, *rows: tuple[int, int, bool, int]) -> None:
    """(auction, price, whether no earlier one follows, second)."""
    ids, prices, closes, seconds = (list(column) for column in zip(*rows, strict=True))
    hub.push("bids", pa.table({"auction": ids, "price": prices, "closes": closes, "at": at(*seconds)}))
    hub.catch_up()


def stored(hub: Hub) -> tuple[int, int]:
    """The rows of both sides in the state."""
    counts = {"left": 0, "right": 0}
    for run in hub.home.latest().state:
        for name, table in open_run(hub.home.store, run.name).items():
            section = name.rpartition("/")[2]
            if section in counts:
                counts[section] += table.num_rows
    return counts["left"], counts["right"]


def prices(hub: Hub, name: str = "prices") -> list[tuple[int, int]]:
    return sorted((row["id"], row["price"]) for row in hub.query(name).history().to_pylist())


def test_bids_of_a_closed_auction_are_joined_and_no_longer_stored(hub: Hub, tmp_path: Path) -> None:
    hub.register(PRICES, "prices")
    auction(hub, (1, "ann", 0), (2, "bob", 1))
    assert stored(hub) == (2, 0)
    hub.execute("PUNCTUATE auctions WHERE id = 1")
    bid(hub, (1, 10, False, 5), (2, 20, False, 5))
    assert prices(hub) == [(1, 10), (2, 20)]
    assert stored(hub) == (2, 1), "no second auction 1 follows, so its bids need not wait for one"
    auction(hub, (1, "eve", 9))
    assert hub.home.latest().stream("auctions").late == 1, "it breaks the promise"
    bid(hub, (1, 11, False, 6))
    assert prices(hub) == [(1, 10), (1, 11), (2, 20)]
    assert stored(hub) == (2, 1)


def test_a_promise_of_rows_up_to_their_instant_counts_with_the_range(hub: Hub) -> None:
    """`closes FOR (auction)`: no bid of auction 1 before second 90 follows, so its row at 20, which holds for a minute, is not
    needed; the one at 40 is.
    """
    windows = PRICES.replace("auctions a", "auctions a [RANGE 1 MINUTE]").replace("bids b", "bids b [NOW]")
    hub.register(windows, "prices")
    bid(hub, (1, 10, True, 90))
    auction(hub, (1, "ann", 20), (2, "bob", 20), (1, "cem", 40))
    assert stored(hub)[0] == 2
    bid(hub, (1, 11, False, 91), (2, 12, False, 80), (1, 13, False, 60))
    assert hub.home.latest().stream("bids").late == 1
    hub.finish(seal=True)
    assert prices(hub) == [(1, 10), (1, 11), (2, 12)], "10 and 11 of the auction at 40"


def test_stored_rows_are_removed_at_a_merge_and_nothing_is_lost_by_a_restart(
    hub: Hub, tmp_path: Path
) -> None:
    hub.register(PRICES, "prices")
    auction(hub, *((number, "ann", number) for number in range(50)))
    bid(hub, *((number, number, False, 60) for number in range(45, 50)))
    hub.execute("PUNCTUATE auctions WHERE id BETWEEN 0 AND 47")
    hub.close()
    with opened(tmp_path, tasks=1) as again:
        for second in range(14):  # enough epochs that runs are merged
            bid(again, (49, 100 + second, False, 61 + second))
        assert stored(again)[1] == 2 + 14, "of 45 to 47 no auction follows"
        again.register(PRICES, "late")
        again.catch_up()
        assert prices(again, "late") == prices(again)
        auction(again, (48, "eve", 99))
        assert prices(again).count((48, 48)) == 2
        assert prices(again, "late") == prices(again)


def test_a_promise_about_other_columns_than_the_key_removes_nothing(hub: Hub) -> None:
    hub.execute("""
      CREATE STREAM offers (id BIGINT, shop INT, at TIMESTAMP) USING push TIMESTAMP BY at
        SLACK INTERVAL 1 HOUR PUNCTUATED BY PATTERNS OF (id, shop)""")
    hub.register("SELECT ISTREAM(o.id, b.price) FROM offers o JOIN bids b ON o.id = b.auction", "prices")
    hub.execute("""
      CREATE STREAM visits (page BIGINT, shop INT, done BOOLEAN, at TIMESTAMP) USING push TIMESTAMP BY at
        SLACK INTERVAL 1 HOUR PUNCTUATED BY done FOR (page, shop)""")
    hub.register("SELECT ISTREAM(v.shop, b.price) FROM visits v JOIN bids b ON v.page = b.auction", "visited")
    rows = {"page": [1], "shop": pa.array([7], pa.int32()), "done": [True], "at": at(99)}
    hub.push("visits", pa.table(rows))
    hub.execute("PUNCTUATE offers WHERE id = 1 AND shop = 7; PUNCTUATE offers WHERE id = 2")
    bid(hub, (1, 10, False, 5), (2, 20, False, 5))
    assert stored(hub)[1] == 1 + 2, "an offer 1 of another shop may still come, and visits of any"
    assert [row["price"] for row in hub.query("visited").history().to_pylist()] == [10]
    hub.push("offers", pa.table({"id": [1], "shop": pa.array([8], pa.int32()), "at": at(9)}))
    hub.catch_up()
    assert prices(hub) == [(1, 10)]


def test_explain_says_that_promises_for_keys_end_a_row(hub: Hub) -> None:
    hub.register(PRICES, "prices")
    assert "or until promises of all others have passed that for its key" in hub.explain("prices")
