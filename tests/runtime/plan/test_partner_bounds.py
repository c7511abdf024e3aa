"""The choice of bounds on delays in the driver, from observations of epochs: what is recorded, and what a new driver continues with."""

from __future__ import annotations

from dataclasses import replace

from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.observation import NO_DELAY, DelayObservation, KeyTimes
from headrace.operators.joins.probing.key_monitor import SHADOWS
from headrace.runtime.plan.adaptive.partner_bounds import JoinBounds, JoinEstimates

SECONDS = 1_000_000


def seen(at: int, delay: int, punctuations: tuple[int, int] | None = None) -> DelayObservation:
    """An epoch with 200 pairs, whose rows of side 1 came up to `delay` after those of side 0, at a second of event time."""
    delays = (NO_DELAY, delay * SECONDS, -1, NO_DELAY)
    reached = (at * SECONDS,) * 2 if punctuations is None else tuple(p * SECONDS for p in punctuations)
    return DelayObservation(200, delays, at * SECONDS, (9, 9), (0, 0), reached, (None,) * 6, uses=True)


def test_former_bounds_follow_the_punctuation_of_the_side_that_was_waited_for() -> None:
    estimates = JoinEstimates()
    for at in range(0, 90, 10):
        bounds = estimates.take(seen(at, 10), None)
    assert bounds == (PartnerBound(0, 1, 12 * SECONDS, 10 * SECONDS), PartnerBound(1, 0, 0, 0))
    bounds = estimates.take(seen(90, 13, (50, 70)), None)
    assert bounds[0] == PartnerBound(0, 1, None, None, ((58 * SECONDS, 12 * SECONDS),))
    assert bounds[1] == PartnerBound(1, 0, 0, 0)


def test_another_driver_continues_with_the_bounds() -> None:
    first = JoinEstimates()
    for at in range(0, 90, 10):
        bounds = first.take(seen(at, 10), None)
    again = JoinEstimates().begin_with(bounds)
    assert again.take(seen(90, 2), None) == bounds, "nothing is lowered by one epoch"
    assert again.take(seen(100, 11), None)[0].within == 14 * SECONDS


def test_sides_of_which_nothing_was_joined_have_no_bound() -> None:
    estimates = JoinEstimates()
    for at in range(0, 90, 10):
        assert estimates.take(replace(seen(at, 10), pairs=0, delays=(NO_DELAY,) * 4), None) == ()


def test_what_is_recorded_is_read_again_and_counts_are_added() -> None:
    bound = PartnerBound(0, 1, None, None, ((5, 6),))
    known = JoinBounds((bound, PartnerBound(1, 0, 7, 6)), 3, 4)
    assert JoinBounds.of(known.fields) == known
    after = known.then((bound, PartnerBound(1, 0)), replace(seen(0, 1), left_out=5, left_out_sampled=1))
    assert after == JoinBounds((bound,), 8, 4 + round(1 / SHADOWS))
    assert known.then((), replace(seen(0, 1), left_out=5)).estimated == 9


def test_of_one_side_a_bound_is_trusted_after_a_whole_window_and_restarts_keep_it() -> None:
    estimates, keys = JoinEstimates(), (KeyTimes(), KeyTimes(200, NO_DELAY, 200, 3 * SECONDS))
    found = []
    for at in range(0, 150, 10):
        (_, times) = keys
        shown = (keys[0], times._replace(latest=at * SECONDS))
        epoch = replace(seen(at, 10), pairs=0, delays=(NO_DELAY,) * 4, keys=shown)
        found.append(
            [
                (bound.kind, bound.within)
                for bound in estimates.take(epoch, 100 * SECONDS)
                if bound.within is not None
            ]
        )
    assert found[9] == [], "90 seconds of the longest window's 100"
    assert found[10] == [("clustered", 0), ("ordered", 3_600_000)]
    known = JoinBounds(estimates.take(epoch, 100 * SECONDS))
    assert JoinBounds.of(known.fields) == known
    again = JoinEstimates().begin_with(known.bounds)
    worse = replace(epoch, keys=(keys[0], KeyTimes(1, 50 * SECONDS, 1, 4 * SECONDS, 150 * SECONDS)))
    assert [bound.within for bound in again.take(worse, 100 * SECONDS)] == [None, None], "both are given up"
    assert [bound.former for bound in again.take(worse, 100 * SECONDS)] == [(), ()], (
        "former bounds are of pairs"
    )


def test_keys_are_measured_from_the_start_after_delays_had_made_them_of_no_use() -> None:
    """Rows of side 0 wait at most a twentieth of the window for side 1, until that is given up; then its keys count a whole window again."""
    estimates, longest = JoinEstimates(), 100 * SECONDS

    def found(at: int, delay: int, *, compared: bool = True) -> set[str]:
        keys = (KeyTimes(), KeyTimes(200, NO_DELAY, 200, 0, at * SECONDS)) if compared else ()
        epoch = replace(seen(at, delay), delays=(NO_DELAY, delay * SECONDS, NO_DELAY, NO_DELAY), keys=keys)
        return {bound.kind for bound in estimates.take(epoch, longest) if bound.within is not None}

    assert [found(at, 4) for at in range(0, 90, 10)][-1] == {"partner"}
    assert found(90, 4, compared=False) == {"partner"}
    assert found(100, 90, compared=False) == set(), "given up"
    assert [found(at, 90) for at in range(110, 210, 10)] == [set()] * 10
    assert found(210, 90) == {"clustered", "ordered"}


def test_keys_are_measured_from_the_start_after_an_epoch_that_passed_over_them() -> None:
    """Then few rows waited for the side; after an epoch without new rows of it nothing changes."""
    estimates = JoinEstimates()

    def found(at: int, *, compared: bool = True, rows: int = 9) -> bool:
        keys = (KeyTimes(), KeyTimes(200, NO_DELAY, 200, 0, at * SECONDS)) if compared else ()
        epoch = replace(seen(at, 90), delays=(NO_DELAY,) * 4, pairs=0, rows=(rows, rows), keys=keys)
        return any(bound.within is not None for bound in estimates.take(epoch, 100 * SECONDS))

    assert not any(found(at) for at in range(0, 60, 10))
    assert not found(60, compared=False)
    assert not any(found(at, rows=9 if at != 120 else 0, compared=at != 120) for at in range(70, 170, 10))
    assert found(170)


def test_bounds_on_keys_are_left_once_rows_wait_briefly() -> None:
    """Of side 1, for which rows of side 0 wait at most a twentieth of the window; those of side 0 stay, since nothing is known of how long others wait for it."""
    keys = (KeyTimes(200, NO_DELAY, 200, 0, 0), KeyTimes(200, NO_DELAY, 200, 0, 0))
    known = [
        PartnerBound(side, side, 0, 0, kind=kind) for side in (0, 1) for kind in ("clustered", "ordered")
    ]
    estimates = JoinEstimates().begin_with(known)
    for at in range(0, 90, 10):
        shown = tuple(times._replace(latest=at * SECONDS) for times in keys)
        epoch = replace(seen(at, 4), delays=(NO_DELAY, 4 * SECONDS, NO_DELAY, NO_DELAY), keys=shown)
        bounds = estimates.take(epoch, 100 * SECONDS)
        assert len([bound for bound in bounds if bound.within is not None]) == (3 if at >= 70 else 4)
    assert {(bound.parent, bound.child) for bound in bounds} == {(0, 1), (0, 0)}


def test_without_end_nothing_is_found_of_one_side() -> None:
    estimates = JoinEstimates()
    for at in range(0, 3000, 10):
        keys = (KeyTimes(), KeyTimes(200, NO_DELAY, 200, 0, at * SECONDS))
        bounds = estimates.take(replace(seen(at, 10), keys=keys), None)
    assert {bound.kind for bound in bounds if bound.within is not None} == {"partner"}


def test_what_a_driver_recorded_before_there_were_kinds_is_read() -> None:
    assert JoinBounds.of([[[0, 1, 5, 4, []]], 0, 0]).bounds == (PartnerBound(0, 1, 5, 4),)
