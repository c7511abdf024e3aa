"""The worked examples of the thesis on window queries (Li 2008) and the repairs of its misprints: where each is shown.

Those about one window kind are in `tests/algebra/test_window_ids.py` and `tests/operators/row_windows/test_window_bins.py`; here are those
that need an operator and its punctuation. None is left out.
"""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest

from headrace.algebra.windows.window import TimeSlide
from headrace.operators.panes.panes import Panes
from headrace.reference.history import History, record
from headrace.time import FOREVER, MINUTE, SECOND
from tests.laws.driving import plain, run
from tests.reference.building import TABLE, count_of, row

TESTS = Path(__file__).parents[1]
IDS, BINS, HERE = (
    "algebra/test_window_ids.py",
    "operators/row_windows/test_window_bins.py",
    "papers/test_window_examples.py",
)
JOINS = "benchmarks/test_joins.py"
SEVERAL, JOINED = "papers/test_several_streams_examples.py", "papers/test_window_queries_several.py"
AHEAD = "operators/time_windows/test_group_punctuation.py"
PATTERNS = "runtime/progress/test_pattern_bounds.py"
COSTS, ADAPTIVE, LEVELS = (
    "operators/panes/test_window_cost_model.py",
    "benchmarks/test_adaptive_wid.py",
    "benchmarks/test_two_level.py",
)

EXAMPLES = {
    "G1": (IDS, "test_golden_1_the_windows_of_ten_minutes_every_minute"),
    "G2": (IDS, "test_golden_2_a_row_five_seconds_after_the_origin_is_in_windows_0_to_9"),
    "G3": (IDS, "test_golden_3_a_row_in_the_eleventh_minute_is_in_windows_10_to_19"),
    "G4": (HERE, "test_golden_4_punctuation_at_eleven_past_completes_windows_up_to_10"),
    "G5": (BINS, "test_golden_5_punctuation_4_emits_three_windows"),
    "G6": (HERE, "test_golden_6_nine_by_six_is_made_of_three_panes_of_three"),
    "G7": (HERE, "test_golden_7_a_pane_of_four_minutes_by_one_serves_four_windows"),
    "G8": (SEVERAL, "test_golden_8_a_union_has_come_as_far_as_the_slower_stream_and_says_so_once"),
    "G9": (JOINED, "test_rows_join_by_their_own_times_however_late_a_stream_arrives"),
    "G10": (JOINED, "test_rows_join_by_their_own_times_however_late_a_stream_arrives"),
    "G11": (
        JOINED,
        "test_a_group_of_two_times_is_emitted_when_both_streams_have_passed_it_and_not_a_window_later",
    ),
    "G12": (JOINS, "test_repair_19_a_late_input_makes_the_other_side_wait_for_its_delay_and_its_range"),
    "G14": (PATTERNS, "test_golden_14_a_group_of_which_no_row_follows_is_emitted_and_dropped"),
    "G13": (HERE, "test_golden_13_an_hour_every_five_minutes_has_twelve_open_windows"),
}
REPAIRS = {
    "R1": (BINS, "test_repair_1_a_row_at_the_punctuation_may_still_come"),
    "R2": (IDS, "test_repair_2_with_ceilings_wids_and_extent_disagree_as_they_do_not_with_floors"),
    "R3": (IDS, "test_repair_3_the_origin_is_given_and_not_the_least_time_that_came"),
    "R4": (JOINS, "test_a_row_stays_joinable_for_the_range_of_its_own_stream"),
    "R5": (AHEAD, "test_repair_5_a_promise_on_columns_that_a_query_does_not_keep_is_dropped"),
    "R6": (IDS, "test_repair_6_the_base_of_a_partition_s_rank_is_its_own"),
    "R7": (IDS, "test_repair_7_numbers_begin_at_one"),
    "R8": (IDS, "test_repair_8_rows_of_one_time_end_one_window_that_holds_them_all"),
    "R9": (HERE, "test_repair_9_punctuation_that_skips_windows_emits_all_of_them"),
    "R10": (BINS, "test_repair_10_a_row_exactly_a_range_older_is_not_in_the_window"),
    "R11": (BINS, "test_repair_11_the_last_bin_below_punctuation_says_what_new_windows_begin_with"),
    "R12": (COSTS, "test_repair_12_what_differences_cost_is_what_they_read_also_with_two_panes_a_slide"),
    "R13": (ADAPTIVE, "test_repair_13_a_row_counted_is_not_counted_again_by_the_offset_of_its_source"),
    "R14": (ADAPTIVE, "test_repair_14_a_window_lives_from_the_low_watermark_at_its_start"),
    "R15": (JOINED, "test_an_end_of_a_range_is_included_and_the_ranges_are_not_exchanged"),
    "R16": (SEVERAL, "test_repair_16_windows_end_by_their_ends_and_not_by_numbers_and_none_is_rounded_up"),
    "R17": (SEVERAL, "test_repair_17_both_sides_of_a_band_are_looked_at"),
    "R18": (
        SEVERAL,
        "test_repair_18_pairs_are_emitted_as_far_as_the_slower_stream_however_far_the_other_is_ahead",
    ),
    "R19": (JOINS, "test_repair_19_a_late_input_makes_the_other_side_wait_for_its_delay_and_its_range"),
    "R20": (LEVELS, "test_repair_20_what_was_new_becomes_old_when_a_window_ends"),
}


@pytest.mark.parametrize(("shown", "letter", "last"), [(EXAMPLES, "G", 14), (REPAIRS, "R", 20)])
def test_each_is_shown_by_a_test(shown: dict[str, tuple[str, str]], letter: str, last: int) -> None:
    assert set(shown) == {f"{letter}{number}" for number in range(1, last + 1)}
    for file, name in shown.values():
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# --------------------------------------------------------------------------------------------------------- with operators


def closed(window: TimeSlide, seconds: list[float], punctuation: int) -> list[tuple[int, int]]:
    """(window end, count) of what the operator emits at a punctuation."""
    stream = record([[row("a", 1, at) for at in seconds]], "at", FOREVER)
    query = count_of(window)
    punctuated = type(stream)(stream.rows, (punctuation,))
    results = run(query, History({"s": punctuated}), {"s": TABLE}, final=False)
    return [(at, values["n"]) for at, values in plain(results, query)]


def test_golden_4_punctuation_at_eleven_past_completes_windows_up_to_10() -> None:
    noon = 12 * 60 * MINUTE
    window = TimeSlide(600 * SECOND, 60 * SECOND, noon)
    at = [(noon + 60 * SECOND * minute + 5 * SECOND) / SECOND for minute in range(10, 13)]
    counts = closed(window, at, noon + 11 * MINUTE)
    assert counts == [(noon + (10 + 1) * MINUTE, 1)], (
        "window 10 of the thesis ends at 12:11; 11 holds rows and stays open"
    )


def test_golden_6_nine_by_six_is_made_of_three_panes_of_three() -> None:
    panes = Panes.of(TimeSlide(9, 6))
    assert panes.per_window == 3
    of = panes.of_instants(np.arange(60))
    assert np.bincount(of[: 3 * 18]).tolist() == [3] * 18, "panes of three"
    windows = [range(panes.first(window) or 0, panes.stop(window)) for window in range(3, 9)]
    for one, following in itertools.pairwise(windows):
        assert len(set(one) & set(following)) == 1
        assert following.start - one.start == 2, "in panes it is RANGE 3 SLIDE 2"


def test_golden_7_a_pane_of_four_minutes_by_one_serves_four_windows() -> None:
    panes = Panes.of(TimeSlide(4 * MINUTE, MINUTE))
    serving = [w for w in range(-5, 20) if (panes.first(w) or 0) <= 5 < panes.stop(w)]
    assert [window - 1 for window in serving] == [5, 6, 7, 8], (
        "numbered from 0 by their ends, as ids of the thesis are"
    )
    assert len(serving) == 4


def test_golden_13_an_hour_every_five_minutes_has_twelve_open_windows() -> None:
    window = TimeSlide(60 * MINUTE, 5 * MINUTE)
    at = 1_000 * MINUTE + 2 * MINUTE
    open_windows = [w for w in range(150, 300) if window.holds(w, at)]
    assert len(open_windows) == 12
    assert Panes.of(window).per_window == 12, "and as many panes are kept of each group"


# ------------------------------------------------------------------------------------------------ figure 6-4, as printed


def figure_6_4(
    window: TimeSlide, rows: list[int], bounds: list[int], *, printed: bool
) -> list[tuple[int, int]]:
    """(window end, count) over windows counted in a hash table; as printed punctuation emits only the window it names."""
    table: dict[int, int] = {}
    for at in rows:
        for number in range(at // window.slide + 1, (at + window.range) // window.slide + 1):
            table[number] = table.get(number, 0) + 1
    emitted = []
    for bound in bounds:
        first_open = bound // window.slide + 1
        due = [n for n in table if n == first_open] if printed else [n for n in table if n < first_open]
        emitted += sorted((n * window.slide, table.pop(n)) for n in due)
    return emitted


def test_repair_9_punctuation_that_skips_windows_emits_all_of_them() -> None:
    window = TimeSlide(4 * SECOND, 2 * SECOND)
    rows = [second * SECOND for second in (0, 1, 3, 4, 7, 9)]
    bound = 8 * SECOND
    emitted = closed(window, [at / SECOND for at in rows], bound)
    assert emitted == figure_6_4(window, rows, [bound], printed=False)
    assert [end for end, _ in emitted] == [2 * SECOND, 4 * SECOND, 6 * SECOND, 8 * SECOND]
    wrong = figure_6_4(window, rows, [bound], printed=True)
    assert wrong == [(10 * SECOND, 2)], (
        "one window too far, which is not complete, and none of those that are"
    )
