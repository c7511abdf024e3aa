"""`maxJoinRows`: a join that stores at most so many rows joins a sample of keys, and reports what it leaves out."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive.key_samples import key_samples
from headrace.time import SECOND
from tests.examples import examples

STREAMS = """
CREATE STREAM a (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE STREAM b (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"""
PAIRS = (
    "SELECT ISTREAM(x.k, x.v, y.v AS w) FROM a x [RANGE 60 SECONDS], b y [RANGE 60 SECONDS] WHERE x.k = y.k"
)
THREE = (
    "SELECT ISTREAM(x.k, x.v, y.v AS w) FROM a x [RANGE 60 SECONDS], b y [RANGE 60 SECONDS], b z [RANGE 5 SECONDS]"
    " WHERE x.k = y.k AND z.k = x.k"
)
Pair = tuple[int, int, int]


def opened(folder: str | Path, tasks: int = 2) -> Hub:
    return Hub(Path(folder) / "home", LocalExecutor(), tasks=tasks)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with opened(tmp_path) as hub:
        hub.execute(STREAMS)
        yield hub


def create(hub: Hub, most: int | str, name: str = "q", text: str = PAIRS) -> None:
    hub.execute(f"CREATE QUERY {name} OPTIONS (maxJoinRows '{most}') AS {text}")


def push(hub: Hub, seed: int, second: int, rows: int = 300, keys: int = 150, span: int = 10) -> None:
    """So many rows of each stream within `span` seconds; values are different."""
    rng = np.random.default_rng(seed)
    for place, name in enumerate("ab"):
        at = np.sort(rng.integers(second, second + span, rows)) * SECOND
        table = {
            "k": pa.array(rng.integers(0, keys, rows)),
            "v": pa.array(np.arange(rows) + 10_000 * second + 5000 * place),
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
        }
        hub.push(name, pa.table(table))
    hub.catch_up()


def pairs(hub: Hub, name: str = "q") -> Counter[Pair]:
    return Counter((row["k"], row["v"], row["w"]) for row in hub.query(name).history().to_pylist())


def measured(hub: Hub, what: str) -> int:
    """A measurement of the limited join in the last epoch."""
    seen = hub.status()["last_epoch"]["operators"].values()
    return sum(each[what] for each in seen if "joinable" in each)


def test_below_the_limit_it_is_the_exact_join(hub: Hub) -> None:
    create(hub, 100_000)
    hub.register(PAIRS, "exact")
    for epoch in range(3):
        push(hub, epoch, 10 * epoch)
    assert pairs(hub) == pairs(hub, "exact")
    assert hub.status()["key_samples"] == {}


@examples(16)
@given(data=st.data())
def test_beyond_it_some_keys_are_joined_wholly_and_the_error_is_stated(data: st.DataObject) -> None:
    """Any limit, tasks, restarts: rows that may still be joined are at most the limit after the next epoch; pairs are a part of all;
    keys that are still in the sample have all their pairs; the number of the others is within the stated error, or near it.
    """
    most = data.draw(st.sampled_from((100, 400, 1000)), "limit")
    text = data.draw(st.sampled_from((PAIRS, THREE)), "join")
    with tempfile.TemporaryDirectory() as folder:
        hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
        try:
            hub.execute(STREAMS)
            create(hub, most, text=text)
            hub.register(text, "exact")
            for epoch in range(5):
                push(hub, data.draw(st.integers(0, 99), "seed"), 10 * epoch, data.draw(st.integers(50, 300)))
                if data.draw(st.booleans(), "restart"):
                    hub.close()
                    hub = opened(folder, data.draw(st.integers(1, 3), "tasks again"))
            found, every = pairs(hub), pairs(hub, "exact")
            assert not found - every
            (sample,) = key_samples(hub.home.latest()).values() or (None,)
            if sample is None:
                assert found == every
                return
            assert 0 < sample.share < 1
            stated = hub.status()["key_samples"]["q"]
            missing = sum((every - found).values())
            assert abs(stated["missing"] - missing) <= max(3 * stated["error"], 30)
            by_key, lost = Counter(k for k, *_ in found.elements()), {k for k, *_ in every - found}
            assert by_key.keys() - lost, "keys of the sample have all of their pairs"
        finally:
            hub.close()


def test_after_the_next_epoch_stored_rows_are_within_the_limit(hub: Hub) -> None:
    create(hub, 500)
    push(hub, 1, 0)
    assert measured(hub, "joinable") == 600
    push(hub, 2, 10, rows=1)
    assert measured(hub, "joinable") <= 500
    assert 0.6 < hub.status()["key_samples"]["q"]["share"] < 0.8, "0.9 of 500 to 600"


def test_the_state_shrinks_when_its_runs_are_merged(hub: Hub) -> None:
    create(hub, 300)
    push(hub, 0, 0, rows=600, span=1)
    for epoch in range(1, 15):
        push(hub, epoch, epoch, rows=1, span=1)
    assert measured(hub, "state_rows") <= 300, "1,228 rows came within the range"


def test_a_burst_is_forgotten_a_range_later_and_no_result_is_wrong_meanwhile(hub: Hub) -> None:
    """Shares double while rows are few, a range of a minute after each other, until all keys are joined: then answers are exact again."""
    create(hub, 500)
    hub.register(PAIRS, "exact")
    push(hub, 0, 0, rows=600)
    shares = []
    for epoch in range(1, 60):
        push(hub, epoch, 10 * epoch, rows=8)
        shares.append(hub.status()["key_samples"]["q"]["share"])
    assert min(shares) < 0.5
    assert shares[-1] == 1
    grown = 10 * (2 + max(place for place, share in enumerate(shares) if share < 1))
    found, every = pairs(hub), pairs(hub, "exact")
    assert not found - every
    lost = every - found
    assert lost
    assert all(min(v, w) // 10_000 < grown for _, v, w in lost), "each lost pair has a row of before"
    changes = [place for place, share in enumerate(shares[1:], 1) if share > shares[place - 1]]
    assert changes
    assert changes[0] >= 7, "the rows of the first seconds have expired: a range of 60 seconds"


def test_a_join_without_an_end_of_its_rows_joins_no_more_keys_again(hub: Hub) -> None:
    create(hub, 300, text="SELECT ISTREAM(x.k, x.v, y.v AS w) FROM a x JOIN b y ON x.k = y.k")
    push(hub, 0, 0)
    share = hub.status()["key_samples"]["q"]["share"]
    for epoch in range(1, 6):
        push(hub, epoch, 100 * epoch, rows=1)
        assert hub.status()["key_samples"]["q"]["share"] <= share


def test_the_error_is_told_wherever_one_may_look(hub: Hub) -> None:
    create(hub, 300)
    create(hub, 300, "counts", PAIRS.replace("ISTREAM(x.k, x.v, y.v AS w)", "COUNT(*) AS n"))
    for epoch in range(3):
        push(hub, epoch, 10 * epoch)
    assert "% of the keys are joined (maxJoinRows), and about" in hub.explain("q")
    assert "of more than 300 rows" in hub.explain("q")
    told = hub.query("counts").invoke().schema.metadata[b"keys_left_out"].decode()
    assert "% of the keys are joined" in told
    assert hub.status()["key_samples"].keys() == {"q", "counts"}


def test_another_limit_begins_again_from_the_archive(hub: Hub) -> None:
    create(hub, 300)
    hub.register(PAIRS, "exact")
    for epoch in range(3):
        push(hub, epoch, 10 * epoch)
    assert pairs(hub) != pairs(hub, "exact")
    hub.execute("ALTER QUERY q SET (maxJoinRows 'ALL')")
    hub.catch_up()
    assert pairs(hub) == pairs(hub, "exact")
    assert hub.status()["key_samples"] == {}


def test_the_option_is_part_of_the_query_and_its_mistakes_have_a_place(hub: Hub) -> None:
    create(hub, 300)
    (shown,) = hub.execute("SHOW CREATE QUERY q")
    assert "OPTIONS ('maxJoinRows' '300')" in shown.table.to_pylist()[0]["statement"]
    with pytest.raises(UserError, match=r"column 40: maxJoinRows is a whole number of at least 1, not '0'"):
        hub.execute(f"CREATE QUERY none OPTIONS (maxJoinRows '0') AS {PAIRS}")
    with pytest.raises(UserError, match=r"differs in maxJoinRows \(300 there, 400 here\)"):
        create(hub, 400)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) AS n FROM a [RANGE 5 SECONDS]",
        "SELECT ISTREAM(x.v) FROM a x [RANGE 5 SECONDS], b y [RANGE 5 SECONDS] WHERE x.v < y.v",
        "SELECT ISTREAM(x.v) FROM a x [RANGE 5 SECONDS], b y [RANGE 5 SECONDS], a z [RANGE 5 SECONDS] WHERE x.k = y.k AND y.v = z.v",
    ],
    ids=["no join", "no key", "two keys"],
)
def test_a_limit_needs_one_join_by_one_key(text: str, hub: Hub) -> None:
    with pytest.raises(UserError, match="maxJoinRows limits a join of windows by one common key"):
        create(hub, 300, text=text)


def test_an_aggregate_of_sliding_windows_with_a_limit_stores_rows_and_says_so(hub: Hub) -> None:
    """Without the option its sides would be aggregated, and no row stored."""
    windows = "a x [RANGE TUMBLING 60 SECONDS] JOIN b y [RANGE TUMBLING 60 SECONDS] ON x.k = y.k"
    create(hub, 100_000, text=f"SELECT COUNT(*) AS n FROM {windows}")
    hub.register(f"SELECT COUNT(*) AS n FROM {windows}", "products")
    push(hub, 3, 0)
    push(hub, 4, 120, rows=5)
    assert "WindowJoin" in hub.explain("q")
    assert hub.query("q").history().to_pylist() == hub.query("products").history().to_pylist()
