"""The contract of operators: what one has to do, and what the others take for granted of one that does no more."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pyarrow as pa
import pytest

import headrace.operators
from headrace.errors import UserError
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import (
    AT,
    SLOT,
    WINDOW,
    Advance,
    BaseOperator,
    Scanned,
    Scanner,
    Sections,
    Step,
)
from headrace.operators.base.wrapper import Around
from headrace.operators.families.family import state_name, with_stored_layout
from headrace.operators.on_demand.subwindow_check import check
from headrace.operators.sharing.scan_sharing import groups
from headrace.planner.explain.operator_text import explain
from headrace.planner.explain.work_sharing import sharing
from headrace.planner.lowering.lower import lower  # noqa: F401 - so that all operators are known
from headrace.planner.lowering.materialization import materialized  # noqa: F401
from tests.operators import local_driver

NO_TURN = Advance(0, 0, 0)


class Counter:
    """Counts a task's rows."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, batch: Batch) -> None:
        self.rows += batch.rows

    def finish(self) -> Scanned:
        table = pa.table({SLOT: pa.array([0], pa.int16()), "n": [self.rows]})
        return Scanned({"n": table} if self.rows else {}, (), self.rows, self.rows)


@dataclass(frozen=True, slots=True)
class CountAtEnd(BaseOperator):
    """The smallest operator: how many rows there were, when the stream ends."""

    id: str
    query: str = "counted"
    stream: str = "s"
    columns: frozenset[str] = frozenset()
    relations: tuple[str, ...] = ()

    def scanner(self, relations: Mapping[str, pa.Table]) -> Scanner:
        return Counter()

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        state = {"n": self.compact("n", [delta["n"] for delta in deltas], advance)} if deltas else {}
        if not advance.final:
            return Step(state)
        counted = self.compact("n", [run["n"] for run in runs], advance)
        system = {WINDOW: [0] * counted.num_rows, AT: [advance.max_event_time] * counted.num_rows}
        return Step(state, pa.table({"n": counted.column("n"), **system}))

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        total = sum(sum(table.column("n").to_pylist()) for table in tables)
        return pa.table({SLOT: pa.array([0], pa.int16()), "n": [total]})


@pytest.fixture(autouse=True, scope="module")
def every_operator_is_imported() -> None:
    """Plans import an operator when a query needs it."""
    for module in pkgutil.walk_packages(headrace.operators.__path__, "headrace.operators."):
        importlib.import_module(module.name)


def all_operators(above: type = BaseOperator) -> Iterator[type[BaseOperator]]:
    for each in above.__subclasses__():
        known = vars(sys.modules[each.__module__]).get(
            each.__name__
        )  # slots=True makes a second class of each
        if known is each and is_dataclass(each) and each.__module__.startswith("headrace."):
            yield each
        yield from all_operators(each)


def test_an_operator_that_does_no_more_than_it_must_runs_and_is_explained() -> None:
    operator = CountAtEnd("q1")
    epochs = [[Batch({}, np.array([1, 2]), np.array([0, 1]))], [Batch({}, np.array([3]), np.array([2]))]]
    answer = local_driver.answer(operator, epochs, [2, 3], compact_after=[1])
    assert answer is not None
    assert answer.column("n").to_pylist() == [3]
    assert explain(operator) == "query counted\n  CountAtEnd\n  read stream s: no columns"
    assert [work.label for work in sharing({"q1": operator}, {}, {}, {}).works] == [
        "read stream s",
        "keep rows for count at end",
        "count at end",
    ]


def test_it_shares_nothing_and_has_a_state_of_its_own() -> None:
    one, other = CountAtEnd("q1"), CountAtEnd("q2")
    assert list(groups([one, other])) == [("unshared", (one,)), ("unshared", (other,))]
    assert (state_name(one), one.together([one]), one.unshared()) == ("q1", one, one)
    assert with_stored_layout(one, {"q1"}) is one
    assert one.owners([one], lambda _: NO_TURN) == [(one, NO_TURN)]
    table = pa.table({"n": [1]})
    assert one.own_rows([table]) == [table]
    assert one.for_family({"n": table}) == {"n": table}


def test_it_emits_all_at_once_and_is_asked_for_its_whole_window_alone() -> None:
    operator = CountAtEnd("q1")
    assert operator.emission_windows is None
    assert not operator.ends_in_parts
    assert operator.group_columns(("k",)) == ()
    assert operator.sort == ()
    with pytest.raises(UserError, match="has no window of which a shorter one can be asked"):
        check(operator, 1)


def test_one_that_leaves_out_what_it_must_do_cannot_be_made() -> None:
    @dataclass(frozen=True, slots=True)
    class Idle(BaseOperator):
        id: str

    with pytest.raises(TypeError, match="abstract"):
        Idle("q1")  # type: ignore[abstract]


def test_all_operators_are_frozen_records_of_plain_fields() -> None:
    known = set(all_operators())
    assert len(known) > 14
    for each in known:
        assert "__dict__" not in dir(each), f"{each.__name__} has no slots"
        assert each.__dataclass_params__.frozen, each.__name__  # type: ignore[attr-defined]
        assert all(field.init for field in fields(each)), each.__name__


def test_no_default_of_the_contract_is_taken_for_that_of_a_field() -> None:
    """A property of a base class would become the default of a field of its name."""
    for each in all_operators():
        for field in fields(each):
            assert not isinstance(field.default, property), f"{each.__name__}.{field.name}"


ITS_OWN = {
    *(
        "advance",
        "due_after",
        "expires_unvisited",
        "compact",
        "before_merge",
        "own_rows",
        "owners",
        "family_key",
        "former_states",
        "without_family",
        "together",
        "coarser",
    ),
    *(
        "for_family",
        "advance_family",
        "stream_family",
        "in_family",
        "among_readers_of",
        "family_rows",
        "family_deltas",
        "extent",
        "own_slot",
        "join_signature",
        "over_panes",
        "time_panes",
        "on_request",
        "routing_steps",
        "row_steps",
        "unshared",
        "keeping",
        "with_row_layout",
    ),
    *(
        "emission_windows",
        "emission_limit",
        "ends_in_parts",
        "group_columns",
        "advance_groups",
        "without_done",
    ),
    *(
        "keeps_latest",
        "latest",
        "subwindows",
        "answer_subwindow",
        "title",
        "state_label",
        "makes_pairs",
        "joined_sides",
        "joined_keys",
        "heeds_key_promises",
        "most_rows",
        "longest_stored",
        "divides_keys",
        "slot_of_key",
    ),
}
"""What an operator around another one does not take over: it stores more, so it takes part in nothing by itself."""


def test_every_operator_with_state_says_when_it_is_due() -> None:
    """By default an operator is visited each time punctuation moves; rows as they are have no state."""
    unsaid = {each.__name__ for each in all_operators() if each.due_after is BaseOperator.due_after}
    assert unsaid == {"Passing"}


def test_an_operator_around_another_one_decides_of_every_ability_whether_it_is_the_inner_one_s() -> None:
    contract = {name for name in dir(BaseOperator) if not name.startswith("_")}
    forwarded = {name for name in vars(Around) if not name.startswith("_")}
    assert contract - ITS_OWN == forwarded - {"id", "query", "stream", "columns", "relations", "inner"}
    assert not forwarded & ITS_OWN
