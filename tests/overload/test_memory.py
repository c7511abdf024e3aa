"""The memory budget as a pure function: what is given up first, that those that run never use more, and that it returns in reverse order."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.quality_of_service import QualityOfService, UtilityGraph
from headrace.errors import UserError
from headrace.overload.memory import CALM, SETTLES, SOFT, Claim, Limits, MemoryControl, MemoryUse, bytes_of
from headrace.overload.road_map import Step

LOSSY = QualityOfService(loss=UtilityGraph(((0.1, 1.0), (0.9, 0.2))))
STRICT = QualityOfService(loss=UtilityGraph(((0.0, 1.0), (0.5, 0.0))))


def claim(query: str, size: int, **how: object) -> Claim:
    return replace(Claim(query, query, "", "state", size), **how)


def lossy(query: str, size: int, quality: QualityOfService = LOSSY, follows: float = 1.0) -> Claim:
    return claim(query, size, quality=quality, follows=follows)


def test_sizes_have_units_of_thousands() -> None:
    assert [bytes_of(text) for text in ("7", 7, "2 GB", "1.5kb", "3 MB ")] == [
        7,
        7,
        2 * 10**9,
        1500,
        3 * 10**6,
    ]
    for wrong in ("", "0", "-1", "2 GiB", "many", "GB"):
        with pytest.raises(UserError, match="is no size of memory"):
            bytes_of(wrong)


def test_caches_and_large_epochs_go_before_rows_and_queries() -> None:
    limits = Limits(1000)
    seen = MemoryUse(1, [lossy("a", 500), claim("b", 100)], caches=150, rows=10, row_bytes=40)
    assert MemoryControl().after(seen, limits).is_idle
    only_caches = MemoryControl().after(replace(seen, caches=250), limits)
    assert (only_caches.without_caches, only_caches.epoch_rows, only_caches.steps) == (True, None, ())
    more = MemoryControl().after(replace(seen, caches=250, rows=100, row_bytes=400), limits)
    assert (more.without_caches, more.epoch_rows) == (
        True,
        12,
    )  # an eighth of the budget, 10 bytes a row: its own, and of state
    assert not more.steps
    rows = MemoryControl().after(MemoryUse(1, [lossy("a", 700), claim("b", 200)]), limits)
    assert {step.query for step in rows.steps} == {"a"}
    assert not rows.suspended
    (share,) = rows.shares([lossy("a", 700)])["a"]
    assert 700 * share + 200 == pytest.approx(SOFT * 1000, abs=700 / 32)
    hard = MemoryControl().after(MemoryUse(1, [claim("a", 900), claim("b", 300)]), limits)
    assert [one.query for one in hard.suspended] == ["a"]


def test_the_query_whose_bytes_are_worth_least_pays_and_those_that_allow_loss_last() -> None:
    limits = Limits(1000)
    claims = [claim("a", 500), claim("b", 450, utility=0.5), lossy("c", 600, follows=0.0)]
    control = MemoryControl().after(MemoryUse(1, claims), limits)
    assert [one.query for one in control.suspended] == ["b", "a"]
    cheap, dear = lossy("cheap", 450), lossy("dear", 450, STRICT)
    sampled = MemoryControl().after(MemoryUse(1, [cheap, dear]), limits).shares([cheap, dear])
    assert set(sampled) == {"cheap"}


def test_queries_are_suspended_from_one_byte_too_much_on() -> None:
    claims = [claim("a", 600), claim("b", 400)]
    assert not MemoryControl().after(MemoryUse(1, claims), Limits(1000)).suspended
    assert MemoryControl().after(MemoryUse(1, claims), Limits(999)).suspended
    assert not MemoryControl().after(MemoryUse(1, claims, caches=500), Limits(1000)).suspended


def test_a_further_step_takes_into_account_that_the_state_is_already_of_a_sample() -> None:
    """500 bytes of half of its rows are 1000 of all: the 150 that are too many are 0.15 of the rows."""
    before = MemoryControl(steps=(Step("a", 0, 1.0, 0.5),))
    control = before.after(MemoryUse(9, [lossy("a", 500), claim("b", 450)]), Limits(1000))
    assert control.shares([lossy("a", 500)])["a"][0] == pytest.approx(0.35, abs=1 / 32)
    less = MemoryControl().after(MemoryUse(9, [lossy("a", 500, follows=0.5), claim("b", 450)]), Limits(1000))
    assert less.shares([lossy("a", 500)])["a"][0] == pytest.approx(0.4, abs=1 / 32)


def test_of_few_groups_fewer_rows_are_not_less_state() -> None:
    control = MemoryControl().after(MemoryUse(1, [lossy("a", 900, follows=0.01)]), Limits(1000))
    assert control.is_idle


def test_samples_have_time_to_show_what_they_free() -> None:
    limits, seen = Limits(1000), MemoryUse(1, [lossy("a", 900)])
    first = MemoryControl().after(seen, limits)
    for epoch in range(2, 1 + SETTLES):
        assert first.after(replace(seen, epoch=epoch), limits).steps == first.steps
    assert first.after(replace(seen, epoch=1 + SETTLES), limits).steps != first.steps


def test_what_was_given_up_last_returns_first_after_a_calm() -> None:
    limits, claims = Limits(1000), [lossy("a", 600), claim("b", 500), claim("c", 450)]
    full = MemoryUse(1, claims, caches=100, rows=100, row_bytes=400)
    control = MemoryControl().after(full, limits)
    assert [one.query for one in control.suspended] == ["b", "c"]
    assert control.without_caches
    assert control.epoch_rows
    assert control.steps
    off, returned, running = {"b", "c"}, [], [lossy("a", 60)]
    for epoch in range(2, 200):
        used = MemoryUse(epoch, running, rows=20, row_bytes=80, suspended=frozenset(off))
        after = control.after(used, limits)
        if len(after.suspended) < len(control.suspended):
            returned.append(after.resuming[-1])
            off.discard(after.resuming[-1])
            running.append(claim(after.resuming[-1], 20))
        given_up = ("steps", "epoch_rows", "without_caches")
        returned += [name for name in given_up if getattr(control, name) and not getattr(after, name)]
        control = MemoryControl.from_json(json.loads(json.dumps(after.as_json())))
        assert control == after
    assert returned == ["c", "b", "steps", "epoch_rows", "without_caches"]
    assert control.is_idle


def test_nothing_returns_before_a_calm_or_without_room() -> None:
    limits, suspended = Limits(1000), frozenset({"b"})
    control = MemoryControl().after(MemoryUse(1, [claim("a", 400), claim("b", 700)]), limits)
    for epoch in range(2, 60):
        control = control.after(MemoryUse(epoch, [claim("a", 400)], suspended=suspended), limits)
        assert [one.query for one in control.suspended] == ["b"]
    for _ in range(CALM - 1):
        control = control.after(MemoryUse(60, [claim("a", 10)], suspended=suspended), limits)
        assert control.suspended
    control = control.after(MemoryUse(60, [claim("a", 10)], suspended=suspended), limits)
    assert control.resuming == ("b",)


def test_a_query_that_someone_resumes_or_drops_is_forgotten() -> None:
    limits = Limits(1000)
    control = MemoryControl().after(MemoryUse(1, [claim("a", 900), claim("b", 300)]), limits)
    assert control.after(MemoryUse(2, [claim("a", 200), claim("b", 300)]), limits).is_idle


def test_without_a_budget_all_returns() -> None:
    control = MemoryControl().after(MemoryUse(1, [claim("a", 900), claim("b", 300)]), Limits(1000))
    after = control.after(MemoryUse(2, [claim("b", 300)], suspended=frozenset({"a"})), Limits())
    assert (after.suspended, after.resuming) == ((), ("a",))


def test_an_owner_pays_for_its_own_queries() -> None:
    claims = [
        claim("a", 600, owner="ana"),
        claim("b", 590, owner="ana"),
        claim("c", 900, owner="ben"),
        claim("d", 5000),
    ]
    control = MemoryControl().after(MemoryUse(1, claims), Limits(None, 1000))
    assert [(one.query, one.scope) for one in control.suspended] == [("a", "ana")]


GRAPH = QualityOfService(error=UtilityGraph(((1.0, 1.0), (4.0, 0.9), (8.0, 0.6))))


def sketched(query: str, size: int, cell: float = 1000.0, quality: QualityOfService = GRAPH) -> Claim:
    """Sketches of 800 bytes in each cell, 200 with twice the error and 50 with four times."""
    return claim(query, size, quality=quality, synopses=(800.0, 200.0, 50.0), cell=cell)


def test_sketches_get_coarser_before_any_query_is_suspended() -> None:
    limits, claims = Limits(1000), [sketched("a", 500), claim("b", 400)]
    control = MemoryControl().after(MemoryUse(1, claims), limits)
    assert (control.doubled(claims), control.shares(claims), control.suspended) == ({"a": 1}, {}, ())
    again = MemoryControl.from_json(json.loads(json.dumps(control.as_json())))
    assert again == control
    assert MemoryControl().after(MemoryUse(1, [sketched("a", 400), claim("b", 400)]), limits).is_idle
    paying = [sketched("a", 700), claim("b", 500), sketched("c", 300)]
    hard = MemoryControl().after(MemoryUse(1, paying), limits)
    assert [one.query for one in hard.suspended] == ["b"]
    assert hard.doubled(paying).keys() == {"a", "c"}


def test_sizes_follow_from_those_of_now_and_sketches_that_are_not_full_stay_as_they_are() -> None:
    full = sketched("a", 1000, cell=900)
    assert full.sizes(0) == (1000, 250, 62.5)
    assert full.sizes(1) == (4000, 1000, 250)
    assert full.sizes(2) == (16000, 4000, 1000)
    assert sketched("a", 1000, cell=400).sizes(0) == (1000, 500, 125)
    assert sketched("a", 1000, cell=100).sizes(0) == (1000, 1000, 500)
    assert sketched("a", 1000, cell=10).sizes(0) == (1000, 1000, 1000)
    assert sketched("a", 0, cell=0).sizes(0) == (0, 0, 0)


def test_errors_are_halved_again_when_there_is_room_for_it() -> None:
    limits, control = Limits(1000), MemoryControl(steps=(Step("a", 0, 1.0, 0.25), Step("b", 0, 1.0, 0.5)))
    levels = []
    for epoch in range(1, 4 * CALM):
        seen = [sketched("a", 25), sketched("b", 100)]
        control = control.after(MemoryUse(epoch, seen), limits)
        levels.append((control.doubled(seen).get("a", 0), control.doubled(seen).get("b", 0)))
    assert list(dict.fromkeys(levels)) == [(2, 1), (1, 0), (0, 0)]
    tight = MemoryControl(steps=(Step("a", 0, 1.0, 0.5),))
    for epoch in range(1, 4 * CALM):
        tight = tight.after(MemoryUse(epoch, [sketched("a", 200)]), limits)
        assert tight.doubled([sketched("a", 200)]) == {"a": 1}, "four times the bytes have no room"


SIZES = st.integers(0, 800)


@st.composite
def mixes(draw: st.DrawFn) -> list[Claim]:
    return [
        Claim(
            f"q{number}",
            f"q{number}",
            draw(st.sampled_from(("", "ana", "ben"))),
            "state",
            draw(SIZES),
            draw(st.sampled_from((0.0, 0.5, 1.0))),
            quality,
            draw(st.sampled_from((0.0, 0.5, 1.0))),
            synopses=synopses,
            cell=draw(st.sampled_from((0.0, 100.0, 1000.0))),
        )
        for number in range(draw(st.integers(1, 6)))
        for quality in [draw(st.sampled_from((None, LOSSY, STRICT, GRAPH)))]
        for synopses in [(800.0, 200.0, 50.0) if quality is GRAPH else ()]
    ]


@given(
    mix=mixes(),
    sizes=st.lists(st.lists(SIZES, min_size=6, max_size=6), min_size=1, max_size=12),
    hub=st.integers(100, 2000),
    owner=st.one_of(st.none(), st.integers(50, 1500)),
)
def test_what_runs_never_uses_more_than_the_budgets(
    mix: list[Claim], sizes: list[list[int]], hub: int, owner: int | None
) -> None:
    """Whatever the sizes are from epoch to epoch; and of two queries of one owner without loss the one whose bytes are worth more stays."""
    control, limits = MemoryControl(), Limits(hub, owner)
    for epoch, of_epoch in enumerate(sizes, 1):
        off = {one.query for one in control.suspended}
        now = [replace(one, bytes=size) for one, size in zip(mix, of_epoch, strict=False)]
        running = [one for one in now if one.query not in off]
        before, control = (
            control,
            control.after(
                MemoryUse(epoch, running, suspended=frozenset(off) | frozenset(control.resuming)), limits
            ),
        )
        off = {one.query for one in control.suspended}
        left = [one for one in running if one.query not in off]
        assert sum(one.bytes for one in left) <= hub
        for name in ("ana", "ben") if owner is not None else ():
            assert sum(one.bytes for one in left if one.owner == name) <= (owner or 0)
        if owner is None:
            paid = [one for one in running if one.query in off and one.quality is None]
            stays = [one for one in left if one.quality is None]
            assert all(
                one.bytes / max(one.utility, 1e-9) <= other.bytes / max(other.utility, 1e-9)
                for one in stays
                for other in paid
            )
            # no query was suspended in vain: the one that paid last would not have fitted
            new = control.suspended[len([one for one in before.suspended if one in control.suspended]) :]
            if new:
                assert sum(one.bytes for one in left) + new[-1].bytes > hub
