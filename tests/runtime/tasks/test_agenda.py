"""The agenda of a state task: when each state is due, with one entry a state however often it is scheduled again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.base.operator import Advance
from headrace.operators.rows.row_state import ROWS
from headrace.operators.time_windows.window_rows import WindowRows
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.progress.plan_index import PlanIndex, index_of
from headrace.runtime.tasks.state import agenda as agenda_module
from headrace.runtime.tasks.state.agenda import Agenda
from headrace.time import FOREVER, SECOND
from tests.runtime.epoch.test_what_waits import STREAM


def index(path: Path, queries: int) -> PlanIndex:
    """Of a plan with states `q…` over one stream."""
    with Hub(path / "home", LocalExecutor()) as hub:
        hub.execute(STREAM.format(name="s"))
        for number in range(queries):
            hub.register(
                f"SELECT k, x FROM s [RANGE {number + 1} SECONDS SLIDE {number + 1} SECONDS]", f"q{number}"
            )
        return index_of(hub.loop.engine.plan)


def due(agenda: Agenda, at: int) -> set[str]:
    (clock,) = agenda.heaps
    return set(agenda.due({clock: at}))


def test_a_state_is_due_once_at_the_last_instant_that_was_set(tmp_path: Path) -> None:
    planned = index(tmp_path, 8)
    states, rng = list(planned.by_state), np.random.default_rng(3)
    agenda = Agenda.of(planned, 1, planned.by_state)
    assert due(agenda, 0) == set(states)
    expected: dict[str, int] = {}
    for now in range(1, 400):
        for state in rng.choice(states, 3):
            at = FOREVER if rng.integers(5) == 0 else now + int(rng.integers(1, 40))
            agenda.schedule({str(state): at})
            expected[str(state)] = at
        first = min(expected.values(), default=FOREVER)
        assert agenda.next_due() == (dict.fromkeys(agenda.heaps, first) if first < FOREVER else {})
        here = {state for state, at in expected.items() if at <= now}
        assert due(agenda, now) == here
        expected = {state: at for state, at in expected.items() if state not in here}


def test_entries_do_not_add_up_while_a_state_is_visited_again_and_again(tmp_path: Path) -> None:
    """As with a session that each epoch makes longer."""
    planned = index(tmp_path, 4)
    agenda = Agenda.of(planned, 1, planned.by_state)
    for now in range(2000):
        due(agenda, now)
        agenda.begin(planned.by_state, now)
        agenda.schedule(dict.fromkeys(planned.by_state, now + 1000 * SECOND))
    assert sum(map(len, agenda.heaps.values())) == len(agenda.queued) == 4


def test_what_may_have_expired_since_an_epoch_was_visited_after_it(tmp_path: Path) -> None:
    planned = index(tmp_path, 4)
    states = list(planned.by_state)
    agenda = Agenda.of(planned, 10, planned.by_state)
    assert agenda.touched_since(9) is None
    for epoch, state in enumerate([*states, states[1]], start=11):
        agenda.begin([state], epoch)
    since = agenda.touched_since(13)
    assert since is not None
    assert list(since) == [states[1], states[3]]
    assert list(agenda.touched_since(15) or ()) == []


def test_of_several_cohorts_that_a_visit_advances_the_first_to_be_due_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the last one has nothing to do any more."""
    planned = index(tmp_path, 1)
    ((state, operators),) = planned.by_state.items()
    (operator,) = operators
    assert isinstance(operator, WindowRows)
    monkeypatch.setattr(agenda_module, "due_in", lambda progress, operators, due_after: due_after)
    values = [0, 3 * SECOND + 5, 0, True, *(None for _ in operator.rows.names)]
    row = pa.Table.from_pylist(
        [dict(zip(operator.rows.schema().names, values, strict=True))], operator.rows.schema()
    )
    agenda, advance, progress = (
        Agenda.of(planned, 1, planned.by_state),
        Advance(0, SECOND, SECOND),
        cast("Any", None),
    )
    agenda.begin([state], 1)
    for runs in ([], [{ROWS: row}], []):
        agenda.plan_visit(progress, operators, runs, advance)
    assert agenda.due_at == {state: 4 * SECOND}
    agenda.begin([state], 2)
    agenda.plan_visit(progress, operators, [{ROWS: row}], Advance(0, FOREVER, SECOND, final=True))
    assert agenda.due_at == {}, "its stream has ended"


def test_a_state_with_rows_in_epoch_after_epoch_is_due_next_and_not_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a visit without rows; a state that is never due is not visited for that."""
    planned = index(tmp_path, 2)
    (state, operators), (other, _) = planned.by_state.items()
    asked: list[int] = []

    def computed(_self: object, _runs: object, advance: Advance) -> int:
        asked.append(advance.punctuation)
        return advance.punctuation + 50

    monkeypatch.setattr(agenda_module, "due_in", lambda progress, operators, due_after: due_after)
    monkeypatch.setattr(WindowRows, "due_after", computed)
    agenda, progress = Agenda.of(planned, 1, ()), cast("Any", None)

    def visit(epoch: int, *fed: str) -> dict[str, int]:
        agenda.feed(fed, epoch)
        agenda.begin([state], epoch)
        agenda.plan_visit(progress, operators, (), Advance(0, epoch, epoch))
        return agenda.due_at

    assert visit(1, state, other) == {state: 51}
    assert visit(2, state, other) == {state: 3}
    assert agenda.busy == {state}
    assert visit(4, state) == {state: 5}, "an epoch of other streams may be between"
    assert visit(5) == {state: 55}
    assert visit(8, state) == {state: 58}, "it has rested"
    assert asked == [1, 5, 8]
