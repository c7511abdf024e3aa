"""State that an earlier version stored under other names of families is read by this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.operators.families.family import in_family, state_name
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering import lower
from headrace.runtime.epoch import engine
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import bound_queries
from headrace.time import SECOND
from tests.runtime.rig import Rig, assert_as_the_reference, cut, faults_once_tidy, made_rows

QUERIES = {
    f"q{n}": f"SELECT k, COUNT(*) AS n, MAX(x) AS top FROM s [RANGE {n} SECONDS SLIDE 2 SECONDS] {where} GROUP BY k"
    for n, where in ((4, ""), (6, ""), (30, "WHERE x > 0"))
}


def formerly(operator: PaneAggregate) -> PaneAggregate:
    """The operator with the name of its family by an earlier version."""
    named = in_family(operator)
    return PaneAggregate(
        **{name: getattr(named, name) for name in named.__slots__} | {"family": named.former_states[0]}
    )


def states(hub: Hub) -> set[str]:
    runs = hub.home.latest().state
    return {name.partition("/")[0] for run in runs for name in open_run(hub.home.store, run.name)}


def test_rows_of_several_former_families_become_rows_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cut(made_rows(7, 60, disorder=2 * SECOND), 20, 40)
    rig = Rig(tmp_path, slack=2 * SECOND)
    bound_queries._lowered.clear()
    with monkeypatch.context() as earlier:
        earlier.setattr(lower, "in_family", formerly)
        with rig.hub(2, QUERIES) as hub:
            for file in files[:2]:
                rig.drop(file)
                hub.catch_up()
            former = states(hub)
    assert len(former) == 3
    bound_queries._lowered.clear()
    monkeypatch.setattr(engine, "is_readable", lambda *_: False)  # another version wrote the plan
    with rig.hub(2) as hub:
        family = state_name(hub.operator_and_query("q4")[0])
        assert states(hub) == {family}
        rig.drop(files[2])
        hub.catch_up()
        assert_as_the_reference(hub, files, 2 * SECOND)
        assert faults_once_tidy(hub) == []
