"""Windowed aggregates at their edges: every type, years of nothing, dense and sparse tables, blocks, state that stays small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.query import Aggregate, Project, Query, StreamScan, Windowed
from headrace.algebra.windows.window import Landmark, TimeSlide, Window
from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.operator import AT, Advance
from headrace.operators.panes.pane_keys import block_key
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.operators.window_assembly import assemble
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, record
from headrace.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    Field,
    Schema,
    decimal,
)
from headrace.time import DAY, SECOND
from tests.laws.comparing import canonical
from tests.laws.driving import batch, epochs, plain, run
from tests.operators.local_driver import drive

WIDE = Schema(
    (
        Field("k", STRING),
        Field("price", decimal(10, 2)),
        Field("huge", decimal(38, 0)),
        Field("day", DATE),
        Field("f", FLOAT),
        Field("y", DOUBLE),
        Field("flag", BOOLEAN),
        Field("raw", BINARY),
        Field("small", SMALLINT),
        Field("big", BIGINT),
        Field("at", TIMESTAMP),
    )
)
VALUES: dict[str, tuple[Any, ...]] = {
    "k": ("a", "b", "Z", "ä", "", None),
    "price": (Decimal("1.10"), Decimal("-99999999.99"), Decimal("99999999.99"), Decimal("0.01"), None),
    "huge": (Decimal(9 * 10**37), Decimal(1), Decimal(-9 * 10**37), Decimal(10**18), None),
    "day": (date(2020, 2, 29), date(1960, 1, 1), None),
    "f": (0.5, -1.25, float("nan"), float("inf"), None),
    "y": (0.1, 0.2, float("nan"), float("-inf"), -0.0, None),
    "flag": (True, False, None),
    "raw": (b"\x00", b"\xff\x00", b"", None),
    "small": (-(2**15), 2**15 - 1, 0, None),
    "big": (2**63 - 1, -(2**63), 5, None),
}
FUNCTIONS = dict.fromkeys(VALUES, ("count", "min", "max", "mode")) | dict.fromkeys(
    ("price", "y", "small", "big"),
    ("sum", "avg", "min", "max", "var_samp", "stddev_pop", "percentile", "mode"),
)
FUNCTIONS["huge"] = ("sum", "min", "max", "count")


def query(
    window: Window,
    keys: Sequence[str],
    calls: Sequence[tuple[str, str | None, bool]],
    *,
    emit_empty: bool = False,
    bounds: bool = False,
) -> Query:
    def column(name: str) -> Column:
        return Column(f"s.{name}", WIDE.field(name).type)

    aggregates = []
    for index, (function, name, distinct) in enumerate(calls):
        argument = column(name) if name is not None else None
        kind = result_type(function, argument.type if argument else None)
        share = 0.3 if function == "percentile" else None
        call = AggregateCall(function, argument, kind, distinct and function != "mode", share=share)
        aggregates.append(NamedAggregate(f"a{index}", call))
    source = Windowed(StreamScan("s", "s", WIDE, "at"), "s", window)
    node = Aggregate(source, tuple(Named(key, column(key)) for key in keys), tuple(aggregates))
    wanted = [*keys, *(item.name for item in aggregates), *(["s.window_end"] if bounds else [])]
    fields = {field.name: field.type for field in node.schema}
    shown = tuple(Named(name.rpartition(".")[2], Column(name, fields[name])) for name in wanted)
    return Query(Project(node, shown), "windows", emit_empty=emit_empty)


def rows(times: Sequence[int], values: Sequence[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    empty = dict.fromkeys(VALUES)
    return [{**empty, **(values[index] if values else {}), "at": at} for index, at in enumerate(times)]


def both(
    wanted: Query, cut: list[list[dict[str, Any]]], slack: int = 0, tasks: int = 2
) -> tuple[list[Any], list[Any]]:
    history = History({"s": record(cut, "at", slack)})
    result = run(wanted, history, {"s": WIDE}, tasks=tasks, compact_after=[1])
    return canonical(plain(result, wanted)), canonical(
        windows_answer(wanted, history, history.punctuation(wanted), final=True)
    )


@given(data=st.data())
def test_every_type_aggregates_as_in_the_reference(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FUNCTIONS)), "column")
    functions = data.draw(st.lists(st.sampled_from(FUNCTIONS[name]), min_size=1, max_size=3, unique=True))
    distinct = data.draw(st.booleans(), "distinct") and name != "huge"
    drawn = data.draw(
        st.lists(
            st.tuples(st.integers(-9, 20), st.sampled_from(VALUES[name]), st.sampled_from(VALUES["k"])),
            max_size=12,
        )
    )
    generated = rows([at * SECOND for at, _, _ in drawn], [{"k": k, name: value} for _, value, k in drawn])
    keys = data.draw(st.sampled_from([(), ("k",), (name,)] if name != "k" else [(), ("k",)]), "keys")
    window = data.draw(
        st.sampled_from(
            [TimeSlide(5 * SECOND, 2 * SECOND), TimeSlide(9 * SECOND, SECOND), Landmark(7 * SECOND)]
        )
    )
    wanted = query(window, keys, [(function, name, distinct) for function in functions])
    half = len(generated) // 2
    answered, right = both(wanted, [generated[:half], generated[half:]], slack=60 * SECOND)
    assert answered == right


def test_a_sum_that_does_not_fit_its_type_leaves_the_answer_and_says_so() -> None:
    wanted = query(TimeSlide(SECOND, SECOND), ("k",), [("sum", "big", False)])
    too_large = rows([0, 1, 2], [{"k": "a", "big": 2**63 - 1}, {"k": "a", "big": 1}, {"k": "b", "big": 7}])
    history = History({"s": record([too_large], "at")})
    operator = lower("q", wanted, "q")
    run = drive(operator, [[batch(epochs(history.streams["s"])[0], WIDE)]], history.streams["s"].punctuations)
    assert run.results is not None
    assert run.results.select(["k", "a0"]).to_pylist() == [{"k": "b", "a0": 7}]
    assert [reason for rejected in run.rejected for reason in rejected.reasons] == [
        "an aggregate does not fit its type"
    ]


def test_years_without_a_row_cost_nothing_and_lose_nothing() -> None:
    years = 365 * 40 * DAY
    wanted = query(TimeSlide(3 * SECOND, SECOND), (), [("count", None, False)], bounds=True)
    cut = [rows([-years, -years + 1]), rows([0, SECOND]), rows([years])]
    answered, right = both(wanted, cut)
    assert answered == right
    assert len(answered) == 3 + 4 + 3


def test_windows_without_rows_are_emitted_where_they_are_asked_for() -> None:
    wanted = query(
        TimeSlide(2 * SECOND, SECOND),
        (),
        [("count", None, False), ("max", "k", False)],
        emit_empty=True,
        bounds=True,
    )
    answered, right = both(wanted, [rows([0]), rows([6 * SECOND])])
    assert answered == right
    assert [row[1] for row in answered] == [1, 1, 0, 0, 0, 0, 1, 1]


def test_a_global_window_without_rows_is_silent_where_it_is_not_asked_for() -> None:
    wanted = query(TimeSlide(2 * SECOND, SECOND), (), [("count", None, False)])
    answered, right = both(wanted, [rows([0]), rows([6 * SECOND])])
    assert answered == right
    assert [row[1] for row in answered] == [1, 1, 1, 1]


@pytest.mark.parametrize("way", ["sparse", "dense"])
@given(data=st.data())
def test_dense_and_sparse_tables_answer_alike(way: str, data: st.DataObject) -> None:
    window = data.draw(
        st.builds(
            TimeSlide,
            st.integers(1, 40).map(lambda n: n * SECOND),
            st.integers(1, 5).map(lambda n: n * SECOND),
        )
    )
    times = data.draw(st.lists(st.integers(-20, 60), max_size=25))
    keys = data.draw(st.lists(st.sampled_from(("a", "b", "c")), min_size=len(times), max_size=len(times)))
    generated = rows(
        [at * SECOND for at in times], [{"k": k, "big": at} for k, at in zip(keys, times, strict=True)]
    )
    calls = [("count", None, False), ("sum", "big", False), ("min", "big", False), ("min", "k", False)]
    wanted = query(window, ("k",), calls, bounds=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_DENSE_CELLS", 1 << 40)
        if way == "sparse":
            patch.setattr(assemble, "_dense", _as_sparse)
        answered, right = both(
            wanted, [generated[: len(generated) // 2], generated[len(generated) // 2 :]], slack=90 * SECOND
        )
    assert answered == right


def _as_sparse(layout: Any, panes: Any, rows: Any, parts: Any, due: range, *_: Any) -> Any:
    return assemble._sparse(layout, panes, rows, parts[1], due)


def operator_over(window: Window) -> PaneAggregate:
    operator = lower("q", query(window, ("k",), [("count", None, False)]), "q")
    assert isinstance(operator, PaneAggregate)
    return operator


def levels(operator: PaneAggregate, generated: list[dict[str, Any]], size: int) -> set[int]:
    """Levels of blocks in the state after all epochs of `size` rows."""
    stream = record([generated[at : at + size] for at in range(0, len(generated), size)], "at")
    levels_of_keys: set[int] = set()
    original = type(operator).advance

    def spy(self: PaneAggregate, runs: Any, deltas: Any, advance: Any) -> Any:
        step = original(self, runs, deltas, advance)
        for name, table in step.state.items():
            if name.startswith("sealed"):
                keys = np.asarray(table.column(KEY))
                levels_of_keys.update(((keys + (1 << 56) - block_key(0, 0)) >> 57).tolist())
        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaneAggregate, "advance", spy)
        drive(operator, [[batch(epoch, WIDE)] for epoch in epochs(stream)], stream.punctuations)
    return levels_of_keys


def test_wide_windows_are_made_of_blocks_of_every_level_up_to_the_width_of_a_window() -> None:
    generated = rows([at * SECOND for at in range(80)], [{"k": "a"}] * 80)
    assert levels(operator_over(TimeSlide(16 * SECOND, SECOND)), generated, 7) == {0, 1, 2, 3, 4}
    assert levels(operator_over(TimeSlide(4 * SECOND, SECOND)), generated, 7) == {0}


def test_a_window_of_many_panes_reads_few_of_them() -> None:
    read: list[int] = []
    original = assemble.gather

    def counting(layout: Any, tables: Any) -> Any:
        gathered = original(layout, tables)
        read.append(gathered.rows)
        return gathered

    generated = rows([at * SECOND for at in range(2000)], [{"k": "a"}] * 2000)
    stream = record([generated[at : at + 10] for at in range(0, 2000, 10)], "at")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "gather", counting)
        run = drive(
            operator_over(TimeSlide(512 * SECOND, SECOND)),
            [[batch(epoch, WIDE)] for epoch in epochs(stream)],
            stream.punctuations,
            compact_after=range(0, 200, 5),
            final=False,
        )
    assert run.results is not None
    assert run.results.column("a0").to_pylist()[-1] == 512
    assert max(read) <= 2 * 10 + 2 * 10, "ten windows at once: what is common to them, and what is not"


def test_state_after_compaction_is_what_later_windows_hold() -> None:
    generated = rows([at * SECOND for at in range(1000)], [{"k": "a"}] * 1000)
    stream = record([generated[at : at + 20] for at in range(0, 1000, 20)], "at")
    run = drive(
        operator_over(TimeSlide(32 * SECOND, SECOND)),
        [[batch(epoch, WIDE)] for epoch in epochs(stream)],
        stream.punctuations,
        compact_after=range(50),
        final=False,
    )
    assert run.state_rows <= 2 * 32 + 2
    assert run.results is not None
    assert run.results.column(AT).to_pylist()[-1] == 999 * SECOND


@pytest.mark.parametrize("window", [TimeSlide(16 * SECOND, SECOND), TimeSlide(40 * SECOND, 20 * SECOND)])
@pytest.mark.parametrize("keeping", [None, 2])
def test_rows_that_a_merge_would_keep_are_counted_without_it_unless_parts_of_open_panes_merge(
    window: TimeSlide, keeping: int | None
) -> None:
    generated = rows([at * SECOND // 2 for at in range(600)], [{"k": "a"}, {"k": "b"}, {"k": "a"}] * 200)
    stream = record([generated[at : at + 25] for at in range(0, 600, 25)], "at")
    kept = {} if keeping is None else dict.fromkeys(range(24), keeping)
    operator = operator_over(window).keeping(keeping)
    batches = [[batch(epoch, WIDE)] for epoch in epochs(stream)]
    seen = Counter[tuple[str, bool]]()
    for count in range(2, 25, 3):
        punctuation = stream.punctuations[count - 1]
        run = drive(operator, batches[:count], stream.punctuations[:count], final=False, keeping=kept)
        advance = Advance(punctuation, punctuation, punctuation)
        for runs in (run.runs[-1:], run.runs[-2:], run.runs):
            for name in {name for sections in runs for name in sections}:
                tables = [sections[name] for sections in runs if name in sections]
                unexpired = operator.over_panes.unexpired_rows(name, tables, advance)
                merged = operator.compact(name, tables, advance).num_rows
                assert unexpired in (None, merged), name
                seen[name, unexpired is None] += 1
    closed = {"sealed0", "few_sealed"}
    assert {is_unknown for name, is_unknown in seen if name in closed} == {False}
    assert {name for name, is_unknown in seen if is_unknown} <= {"open0", "few_open"}
    assert {name for name, is_unknown in seen if not is_unknown} - closed


def test_no_rows_are_counted_of_windows_whose_rows_a_merge_makes_one() -> None:
    operator = operator_over(Landmark(SECOND))
    assert operator.unexpired_rows("sealed0", [], Advance(5, 5, 5)) is None
