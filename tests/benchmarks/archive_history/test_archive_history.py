"""What answers over an archive owe to it, each part small: the counters are exact, and a mistake would be counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.archive_history.hourly_sums import asked
from benchmarks.archive_history.late_join import WINDOW, joined
from benchmarks.archive_history.sampled_estimates import estimated
from benchmarks.archive_history.shed_and_repaired import BATCHES, same_blocks, shed


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_what_is_shed_is_archived_and_repaired(tmp_path: Path, share: float) -> None:
    done = shed(tmp_path, share)
    assert (done.archived, done.is_whole) == (done.pushed, True)
    assert done.seen == done.below
    assert done.windows == BATCHES - 1
    assert (done.before > 0).all() == (share < 1)
    assert (done.before <= done.allowed).mean() >= 0.8
    assert not done.after.any()
    assert done.repaired == (done.windows if share < 1 else 0)


def test_a_run_does_not_depend_on_the_cuts_of_its_rows() -> None:
    assert same_blocks((500, 7_777))


def test_a_few_samples_are_about_right() -> None:
    found = estimated(60)
    assert len({done.name for done in found}) == len(found) == 13
    assert all(abs(done.bias) < 5 and 0.8 < done.coverage <= 1 for done in found), found
    assert any(done.coverage < 1 for done in found)


def test_questions_read_only_what_no_sum_has(tmp_path: Path) -> None:
    found = asked(tmp_path)
    assert all(done.is_exact for done in found)
    assert [done.read for done in found] == [done.expected for done in found]


@pytest.mark.parametrize("rate", [0.1, 10.0])
def test_a_late_join_keeps_its_sides_together(tmp_path: Path, rate: float) -> None:
    done = joined(tmp_path, 6, rate)
    assert done.is_right
    assert {1.0, 4.0} <= set(done.leads) <= {0.0, 1.0, 4.0}
    assert max(done.leads) <= WINDOW
    assert max(done.stored) > 0
