"""Histograms of relations at every instant whose error is doubled and halved from epoch to epoch: at each instant the answer that holds is within
the bound that it states, and that within the largest error, for any cut, tasks and compaction, and if epochs without rows visit only what is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.algebra.windows.window import TimeRange
from headrace.operators.approximate import histogram_store
from headrace.operators.approximate.approximate_instants import HISTOGRAMS, ApproximateInstants
from headrace.operators.base.operator import Operator
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import changes, relation_at
from headrace.reference.history import History, record
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.driving import batch, coarsened, described, epochs, plain
from tests.laws.test_approximate import held, queries, relations, within_bounds
from tests.laws.test_coarser_histograms import GRAPH, counting, many_rows
from tests.laws.test_coarser_sketches import with_larger_errors
from tests.operators.local_driver import DrivenState

MOST = 2


@pytest.fixture(autouse=True)
def _thin_at_once() -> Iterator[None]:
    """Generated histories are short: a histogram is made from the first cells on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_store, "_LEAST_CELLS", 0)
        yield


def operator_of(query: Query) -> Operator:
    return lower("q", replace(query, quality=GRAPH), "q")


def within_at_every_instant(query: Query, history: History, changelog: list[Any], limit: int) -> None:
    """Also at instants at which rows enter or leave, and the answer stays as it is."""
    largest = with_larger_errors(query, MOST)
    instants = {at for at, _, _ in changes(query, history, limit)} | {at for at, _, _ in changelog}
    for at, now in held(changelog, sorted(instants)):
        within_bounds(largest, now, [(at, row) for row in relation_at(query, history, at)])


def driven(data: st.DataObject, query: Query) -> tuple[History, list[Any]]:
    """A history, and the changelog of the query over it, with drawn errors, cuts, tasks and merges."""
    history = data.draw(streams.histories(), "history")
    note(described(query))
    operator = operator_of(query)
    assert isinstance(operator, ApproximateInstants)
    cut = [data.draw(streams.splits(rows), "splits") for rows in epochs(history.streams["s"])]
    of_epochs = {"min_size": len(cut), "max_size": len(cut)}
    levels = data.draw(st.lists(st.integers(0, MOST), **of_epochs), "doubled")
    tasks = data.draw(st.lists(st.integers(1, 4), **of_epochs), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    results, _ = coarsened(
        operator,
        history,
        cut,
        levels,
        tasks,
        data.draw(merges, "compactions"),
        final=False,
        when_due=data.draw(st.booleans(), "only when due"),
    )
    return history, plain(results, query, changes=True)


@given(data=st.data())
def test_counts_are_within_the_bounds_that_they_state(data: st.DataObject) -> None:
    drawn = data.draw(queries(relations()), "query")
    query = replace(drawn, emission="relation")
    history, changelog = driven(data, query)
    within_at_every_instant(query, history, changelog, history.punctuation(query))


def long_history(rows: list[dict[str, Any]], *empty: int) -> History:
    """Epochs of sixty rows, and some without any."""
    parts = [rows[low : low + 60] for low in range(0, len(rows), 60)]
    for number in empty:
        parts.insert(number, [])
    return History({"s": record(parts, "at", 0)}, {"names": ()})


@pytest.mark.parametrize("visited", [True, False])
def test_an_answer_with_a_small_bound_is_emitted_again_when_its_buckets_become_larger(
    *, visited: bool
) -> None:
    """No row of the first group arrives after the tenth epoch, so that it changes by expiry alone, while errors rise and fall; they rise first
    in an epoch without rows, which merges what is stored, and visits the operator or not.
    """
    query = replace(counting(TimeRange(120 * some.TICK)), emission="relation")
    rows = [row | ({} if number < 600 else {"k": "b"}) for number, row in enumerate(many_rows(1320))]
    history = long_history(rows, 13)
    cut = [[part] for part in epochs(history.streams["s"])]
    levels = [0] * 13 + [2] * 5 + [0] * 2 + [1] * 3
    results, _ = coarsened(
        operator_of(query),
        history,
        cut,
        levels,
        [1] * len(cut),
        dict.fromkeys(range(8, len(cut)), 99),
        final=False,
        when_due=not visited,
    )
    changelog, limit = plain(results, query, changes=True), history.punctuation(query)
    rise = 156 * some.TICK
    compared = {*range(rise, rise + 14 * some.TICK, some.TICK // 5), *range(rise, limit, 3 * some.TICK)}
    bounds = set[int]()
    instants = sorted({at for at, _, _ in changelog} | compared)
    for at, now in held(changelog, [instant for instant in instants if instant < limit]):
        if at in compared:
            truth = [(at, row) for row in relation_at(query, history, at)]
            within_bounds(with_larger_errors(query, MOST), now, truth)
            bounds |= {row["a1"] for _, row in now if row["keyk"] == "a"}
    assert len(bounds) > 3, "it is approximate"


def bytes_of(state: DrivenState, section: str) -> int:
    return sum(run[section].nbytes for run in state.runs if section in run)


def at_rest(operator: Operator, history: History, levels: list[int], section: str) -> list[int]:
    """Bytes of a section after each epoch, everything merged."""
    state, sizes, stream = DrivenState(operator, {}, {}, False), list[int](), history.streams["s"]
    for number, (part, end) in enumerate(zip(epochs(stream), stream.punctuations, strict=True)):
        state.operator = operator.coarser(levels[number])
        state.epoch(number, [batch(part, some.SCHEMA).only(operator.columns)], end, 1)
        state.compact(len(state.runs))
        sizes.append(bytes_of(state, section))
    return sizes


def test_coarse_histograms_are_smaller_from_the_next_epoch_on() -> None:
    """Also those of a group without new rows."""
    query = replace(counting(TimeRange(400 * some.TICK)), emission="relation")
    rows = [row | ({} if number < 720 else {"k": "b"}) for number, row in enumerate(many_rows(1200))]
    operator, history = operator_of(query), long_history(rows)
    fine, coarse = (
        at_rest(operator, history, levels, HISTOGRAMS) for levels in ([0] * 20, [0] * 12 + [2] * 8)
    )
    assert fine[:12] == coarse[:12]
    assert coarse[12] < 0.2 * min(fine[12:])
    assert coarse[-1] < 0.2 * fine[-1]
