"""Which rows are dropped first: greedy against all choices that there are; and the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.quality_of_service import Importance, QualityOfService, UtilityGraph
from headrace.overload.road_map import FINE, LEAST_SHARE, Sheddable, Step, shed, undo
from tests.examples import examples

TOLERANT = UtilityGraph(((0.0, 1.0), (0.9, 0.8)))
LINEAR = UtilityGraph(((0.0, 1.0), (1.0, 0.0)))
STRICT = UtilityGraph(((0.0, 1.0), (0.1, 0.9), (0.5, 0.0)))


def query(
    loss: UtilityGraph, seconds: float, importance: Importance | None = None, *frequencies: float
) -> Sheddable:
    return Sheddable(
        QualityOfService(loss=loss, importance=importance),
        seconds,
        frequencies or (1.0,),
        (1.0,) * max(1, len(frequencies)),
    )


def after(queries: Mapping[str, Sheddable], steps: Sequence[Step]) -> dict[str, Sheddable]:
    state = dict(queries)
    for step in steps:
        assert state[step.query].shares[step.interval] == step.before > step.after
        state[step.query] = state[step.query].at(step.interval, step.after)
    return state


def utility(queries: Mapping[str, Sheddable]) -> float:
    return sum(each.quality.utility(0, each.lost) for each in queries.values())


def saved(queries: Mapping[str, Sheddable]) -> float:
    return sum(each.saved for each in queries.values())


def test_nothing_is_dropped_without_need_and_nothing_of_a_query_that_allows_none() -> None:
    queries = {"a": query(TOLERANT, 1.0), "b": Sheddable(QualityOfService(), 5.0)}
    assert shed(queries, 0) == []
    assert {step.query for step in shed(queries, 99)} == {"a"}


def test_the_costly_and_tolerant_query_loses_first() -> None:
    queries = {"cheap": query(TOLERANT, 0.1), "costly": query(TOLERANT, 1.0), "strict": query(STRICT, 1.0)}
    assert shed(queries, 0.5) == [Step("costly", 0, 1.0, 0.5)]


def test_a_query_loses_no_more_than_its_graph_allows() -> None:
    (step,) = shed({"a": query(TOLERANT, 1.0)}, 99)
    assert step.after == pytest.approx(4 / FINE)
    assert 1 - step.after <= 0.9 < 1 - step.after + 1 / FINE


def test_a_query_whose_answers_would_be_worthless_is_not_computed_at_all() -> None:
    (step,) = shed({"a": query(STRICT, 1.0)}, 0.6)
    assert step.after == LEAST_SHARE


def test_one_query_is_given_up_where_that_loses_less_than_a_part_of_several() -> None:
    """The strict one loses steeply, step by step, but once it is worthless it saves all of its time."""
    queries = {"linear": query(LINEAR, 0.5), "strict": query(STRICT, 1.0)}
    assert {step.query for step in shed(queries, 0.6)} == {"strict"}
    assert {step.query for step in shed(queries, 0.05)} == {"strict"}
    assert utility(after(queries, shed(queries, 0.05))) > 1.9


@examples(40)
@given(
    kinds=st.lists(
        st.tuples(
            st.sampled_from((TOLERANT, LINEAR, UtilityGraph(((0.0, 1.0), (0.5, 0.9), (1.0, 0.3))))),
            st.integers(1, 9),
        ),
        min_size=2,
        max_size=3,
    ),
    part=st.floats(0.05, 0.8),
)
def test_no_choice_of_shares_saves_as_much_and_loses_less(
    kinds: list[tuple[UtilityGraph, int]], part: float
) -> None:
    queries = {f"q{number}": query(loss, float(seconds)) for number, (loss, seconds) in enumerate(kinds)}
    need = part * sum(seconds for _, seconds in kinds) * 0.8
    chosen = after(queries, shed(queries, need))
    assert saved(chosen) >= need - 1e-6
    best = max(
        utility(others)
        for shares in product(*[[n / 16 for n in range(1, 17)]] * len(queries))
        for others in (
            {name: each.at(0, share) for (name, each), share in zip(queries.items(), shares, strict=True)},
        )
        if saved(others) >= need
        and all(each.lost <= (each.quality.loss or LINEAR).last for each in others.values())
    )
    a_step = 1 / FINE  # of the rows of one query, at the steepest graph
    assert utility(chosen) >= best - 1.2 * a_step


def test_rows_that_count_least_are_dropped_first_and_every_interval_keeps_a_sample() -> None:
    importance = Importance("v", (10.0, 100.0), (0.1, 0.5, 1.0))
    queries = {"q": query(LINEAR, 1.0, importance, 0.5, 0.3, 0.2)}
    order = list(dict.fromkeys(step.interval for step in shed(queries, 0.9)))
    assert order == [0, 1, 2]
    chosen = after(queries, shed(queries, 0.48))["q"]
    assert chosen.shares == (LEAST_SHARE, 1.0, 1.0)
    without = after({"q": query(LINEAR, 1.0)}, shed({"q": query(LINEAR, 1.0)}, 0.48))["q"]
    assert chosen.saved >= 0.48
    assert chosen.quality.utility(0, chosen.lost) > without.quality.utility(0, without.lost) + 0.3


@given(
    costs=st.lists(st.floats(0.1, 5), min_size=1, max_size=4),
    needs=st.lists(st.floats(0.05, 3), min_size=1, max_size=4),
)
def test_what_was_dropped_last_returns_first_and_in_the_end_all_is_as_before(
    costs: list[float], needs: list[float]
) -> None:
    queries = {f"q{number}": query((TOLERANT, LINEAR)[number % 2], cost) for number, cost in enumerate(costs)}
    state, stack, states = dict(queries), list[Step](), [dict(queries)]
    for need in needs:
        steps = shed(state, need)
        state = after(state, steps)
        stack += steps
        states.append(state)
    for before, now in reversed(list(pairwise(states))):
        spare = saved(now) - saved(before)
        stack, state = undo(stack, state, spare)
        for name in queries:
            assert state[name].shares == pytest.approx(before[name].shares)
    assert stack == []


def test_no_more_returns_than_there_is_time_for_and_a_step_returns_in_part() -> None:
    queries = {"a": query(TOLERANT, 1.0)}
    steps = shed(queries, 0.5)
    remaining, state = undo(steps, after(queries, steps), 0.2)
    assert state["a"].shares[0] == pytest.approx(0.5 + 6 / FINE)
    assert remaining == [Step("a", 0, 1.0, state["a"].shares[0])]


def test_steps_of_a_query_that_is_no_more_are_forgotten() -> None:
    remaining, _ = undo([Step("gone", 0, 1.0, 0.5)], {}, 0.0)
    assert remaining == []


def sketching(seconds: float, utility_of_sketches: float, remaining: float) -> Sheddable:
    return Sheddable(QualityOfService(sketches=utility_of_sketches), seconds, remaining=remaining)


def test_a_query_is_sketched_as_a_whole_when_that_is_the_cheapest_loss() -> None:
    queries = {"sketched": sketching(1.0, 0.9, 0.25), "lossy": query(LINEAR, 1.0)}
    assert shed(queries, 0.5) == [Step("sketched", 0, 1.0, 0.0)]
    assert after(queries, shed(queries, 0.5))["sketched"].saved == 0.75
    first, second = shed(queries, 1.0)
    assert (first, second.query, second.after) == (Step("sketched", 0, 1.0, 0.0), "lossy", 0.75)


def test_rows_are_dropped_first_where_sketches_are_worth_less_for_a_second_saved() -> None:
    queries = {"sketched": sketching(1.0, 0.2, 0.25), "lossy": query(LINEAR, 1.0)}
    assert {step.query for step in shed(queries, 0.5)} == {"lossy"}


def group_of_three(seconds: float, remaining: float, loss: UtilityGraph = TOLERANT) -> Sheddable:
    return Sheddable(QualityOfService(loss=loss, sketches=0.9), seconds, (), (1.0, 1.0), remaining)


def test_rows_are_counted_exactly_then_sketched_then_sampled_and_that_is_undone_in_reverse() -> None:
    queries = {"q": group_of_three(1.0, 0.5)}
    assert shed(queries, 0.5) == [Step("q", 0, 1.0, 0.0)]
    steps = shed(queries, 0.8)
    assert steps == [Step("q", 0, 1.0, 0.0), Step("q", 1, 1.0, 0.25)]
    then = after(queries, steps)
    assert then["q"].saved == pytest.approx(0.875)
    assert then["q"].utility == pytest.approx(0.9 * TOLERANT.at(0.75))
    for spare, remaining in (
        (0.1, steps),
        (0.125, [steps[0], Step("q", 1, 1.0, 0.5)]),
        (0.375, steps[:1]),
        (0.875, []),
    ):
        assert undo(steps, then, spare)[0] == remaining


def test_of_sketched_rows_no_more_are_lost_than_the_graph_allows() -> None:
    queries = {"q": group_of_three(1.0, 0.5), "worthless": group_of_three(1.0, 0.5, STRICT)}
    chosen = after(queries, shed(queries, 99))
    assert chosen["q"].shares == (0.0, 0.125)
    assert chosen["worthless"].shares == (0.0, LEAST_SHARE)


def test_where_sketches_cost_more_than_exact_answers_a_sample_of_them_is_the_next_choice() -> None:
    (first, second) = shed({"q": group_of_three(1.0, 1.5)}, 0.1)
    assert (first, second) == (Step("q", 0, 1.0, 0.0), Step("q", 1, 1.0, 0.125))
    assert shed({"q": group_of_three(1.0, 1.5, UtilityGraph(((0.0, 1.0), (0.2, 0.9))))}, 0.1) == []


def test_sketches_that_save_nothing_are_no_choice() -> None:
    assert shed({"dear": sketching(1.0, 1.0, 1.0), "dearer": sketching(1.0, 1.0, 1.5)}, 0.5) == []


def test_exact_answers_return_at_once_and_only_when_there_is_time_for_all_of_them() -> None:
    queries = {"sketched": sketching(1.0, 0.9, 0.25), "lossy": query(LINEAR, 1.0)}
    steps = shed(queries, 1.0)
    state = after(queries, steps)
    remaining, then = undo(steps, state, 0.25)
    assert remaining == [Step("sketched", 0, 1.0, 0.0)]
    assert undo(remaining, then, 0.74)[0] == remaining
    assert undo(remaining, then, 0.75)[0] == []


def sketched(sizes: tuple[float, ...], graph: UtilityGraph, doubled: int = 0) -> Sheddable:
    return Sheddable(QualityOfService(error=graph), sizes[0], shares=(2.0**-doubled,), sizes=sizes)


LENIENT = UtilityGraph(((1.0, 1.0), (4.0, 0.9), (8.0, 0.7)))
DEMANDING = UtilityGraph(((1.0, 1.0), (2.0, 0.5)))


def test_errors_are_doubled_one_after_the_other_and_no_further_than_the_graph_goes() -> None:
    queries = {"a": sketched((80.0, 40.0, 20.0, 10.0, 5.0), LENIENT)}
    assert shed(queries, 40) == [Step("a", 0, 1.0, 0.5)]
    assert shed(queries, 41) == [Step("a", 0, 1.0, 0.25)]
    assert shed(queries, 99) == [Step("a", 0, 1.0, 0.125)]
    assert after(queries, shed(queries, 99))["a"].saved == 70
    assert shed({"a": sketched((80.0, 40.0), LENIENT)}, 99) == [Step("a", 0, 1.0, 0.5)]


def test_accuracy_and_rows_are_given_up_by_the_utility_lost_for_a_byte() -> None:
    queries = {"a": sketched((80.0, 40.0, 20.0), LENIENT), "b": sketched((80.0, 40.0), DEMANDING)}
    assert [step.query for step in shed(queries, 50)] == ["a"]
    assert [step.query for step in shed(queries, 61)] == ["a", "b"]
    with_rows = queries | {"rows": query(TOLERANT, 200.0)}
    assert [step.query for step in shed(with_rows, 50)] == ["a", "rows"]
    assert [step.query for step in shed(with_rows, 225)] == ["a", "rows", "a"]


def test_coarser_sketches_that_are_not_smaller_are_no_choice() -> None:
    assert shed({"a": sketched((80.0, 80.0, 80.0), LENIENT)}, 40) == []


def test_errors_are_halved_again_one_after_the_other_where_there_is_room() -> None:
    queries = {"a": sketched((80.0, 40.0, 20.0, 10.0), LENIENT), "b": sketched((80.0, 40.0), DEMANDING)}
    steps = shed(queries, 110)
    assert [(step.query, step.after) for step in steps] == [("a", 0.25), ("b", 0.5), ("a", 0.125)]
    state = after(queries, steps)
    assert undo(steps, state, 9)[0] == steps
    remaining, then = undo(steps, state, 10)
    assert remaining == steps[:2]
    assert then["a"].saved == 60
    remaining, then = undo(remaining, then, 40 + 20)
    assert remaining == [Step("a", 0, 1.0, 0.5)]
    assert undo(remaining, then, 39)[0] == remaining
    assert undo(remaining, then, 40)[0] == []
