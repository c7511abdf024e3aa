"""The join of relations that change, by hand: pairs come when both rows are there, and go when either goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Call, Column
from headrace.algebra.windows.window import CHANGE
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import QUERY_NUMBER
from headrace.operators.base.union_positions import placed
from headrace.operators.families.numbering import number_of
from headrace.operators.joins.changelog_join import RelationJoin
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.rows.sorted_rows import HASH, in_order
from headrace.schema import BIGINT, BOOLEAN, STRING, TINYINT, Field, Schema
from tests.operators.by_hand import plain
from tests.operators.local_driver import drive

X, Y = (Schema((Field(f"{side}.k", STRING), Field(f"{side}.v", BIGINT))) for side in "xy")
SAME = Call("=", (Column("x.k", STRING), Column("y.k", STRING)), BOOLEAN)
SHOWN = Schema((Field("x.v", BIGINT), Field("y.v", BIGINT), Field(CHANGE, TINYINT)))


def join(reach: int | None = 10, **how: Any) -> RelationJoin:
    """`x [RANGE reach]` with a relation `y` that is known by its changes."""
    sides = (
        Side((0,), X, (), (Column("x.k", STRING),), reach, None, reach),
        Side((1,), Y, (), (Column("y.k", STRING),), None, changes="y.change"),
    )
    return RelationJoin(JoinSpec("q1.inner", "q", "@met", sides, SAME, SHOWN, 3, **how))


def rows(*given: tuple[str | None, int, int]) -> Batch:
    """Rows of x: (key, value, time)."""
    return _batch("x", 0, given)


def changes(*given: tuple[str | None, int, int, int]) -> Batch:
    """Changes of y: (key, value, time, sign)."""
    batch = _batch("y", 1, given)
    signs = pa.array([row[3] for row in given], pa.int8())
    return Batch({**batch.columns, "y.change": signs}, batch.at, batch.position)


def _batch(name: str, member: int, given: Sequence[tuple[Any, ...]]) -> Batch:
    columns = {
        f"{name}.k": pa.array([row[0] for row in given], pa.string()),
        f"{name}.v": pa.array([row[1] for row in given], pa.int64()),
    }
    at = np.array([row[2] for row in given], np.int64)
    return Batch(columns, at, placed(np.arange(len(given)), member))


def pairs(*epochs: Sequence[Batch], **how: Any) -> list[tuple[Any, ...]]:
    """(instant, sign, x.v, y.v)."""
    driven = drive(join(), epochs, list(range(len(epochs))), **{"final": False, **how})
    return plain(driven.results, "x.v", "y.v")


def test_a_pair_comes_at_the_later_instant_and_goes_when_the_first_of_both_does() -> None:
    """The row of x holds from 5 to 15; that of y comes at 8 and goes at 12.

    x      5 ------------- 15
    y         8 ---- 12
    pair      +       -
    """
    found = pairs([rows(("a", 1, 5)), changes(("a", 7, 8, 1), ("a", 7, 12, -1))])
    assert found == [(8, 1, 1, 7), (12, -1, 1, 7)], (
        "at 16 the row of x goes, and no pair is left to go with it"
    )


def test_which_side_comes_first_does_not_show() -> None:
    x, y = rows(("a", 1, 5), ("b", 2, 6)), changes(("a", 7, 8, 1), ("b", 9, 20, 1))
    together = pairs([x, y])
    assert together == [(8, 1, 1, 7), (16, -1, 1, 7)]
    assert sorted(pairs([x], [y], tasks=2)) == sorted(pairs([y], [x], tasks=3)) == sorted(together)


def test_a_row_that_comes_and_goes_at_one_instant_makes_no_pair() -> None:
    assert pairs([rows(("a", 1, 5)), changes(("a", 7, 8, 1), ("a", 7, 8, -1))]) == []


def test_a_key_that_is_null_meets_nothing() -> None:
    assert pairs([rows((None, 1, 5)), changes((None, 7, 8, 1))]) == []


def test_changes_that_the_other_side_has_passed_are_added_up_to_what_the_relation_holds() -> None:
    """The value of y changes a hundred times: the last one is kept, and meets a row of x that comes then."""
    flips = [changes(("a", n - 1, 10 * n, -1), ("a", n, 10 * n, 1)) for n in range(1, 100)]
    epochs = [[changes(("a", 0, 0, 1))], *([each] for each in flips)]
    passed = [10 * n for n in range(1, 101)]
    left = drive(join(), epochs, passed, final=False, compact_after=range(100))
    assert left.state_rows == 1
    after = drive(
        join(), [*epochs, [rows(("a", 1, 1005))]], [*passed, 1006], final=False, compact_after=range(100)
    )
    assert plain(after.results, "x.v", "y.v") == [(1005, 1, 1, 99), (1016, -1, 1, 99)]


def test_the_first_row_of_all_is_emitted_though_it_has_no_pair_where_that_is_wanted() -> None:
    operator = join(emits_first=True)
    epochs = [[rows(("a", 1, 9))], [rows(("b", 2, 4))], [rows(("c", 3, 6))]]
    found = plain(drive(operator, epochs, [0, 0, 0], final=False).results, "x.v", "y.v")
    assert found == [(4, None, None, None), (9, None, None, None)]


def test_rows_of_a_family_are_in_the_order_of_their_hashes_there() -> None:
    operator = join().in_family()
    scanner = operator.scanner({})
    scanner.add(rows(*((chr(97 + number), number, number) for number in range(26))))
    own = in_order([scanner.finish().deltas["left"]])
    (stored,) = operator.for_family({"left": own}).values()
    assert np.all(np.diff(ints(stored, HASH)) >= 0)
    assert not np.isin(ints(stored, HASH), ints(own, HASH)).any()
    assert set(ints(stored, QUERY_NUMBER).tolist()) == {number_of("q1.inner")}
