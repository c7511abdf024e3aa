"""State runs are merged between two epochs: the epochs have nothing to merge, and what was merged counts only where it may."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import StoreError
from headrace.operators.base.operator import Operator
from headrace.runtime.epoch import commit
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.tasks.state import compaction, state_task
from headrace.runtime.tasks.state.agenda import Agenda
from headrace.runtime.tasks.state.compaction import Merged, MergedAhead
from headrace.runtime.tasks.state.run_merging import MergeFailed, RunMerging
from headrace.runtime.tasks.timing import Ledger
from headrace.store.logs.manifest import ManifestLog
from tests.runtime.rig import QUERIES, Rig, assert_as_the_reference, cut, faults_once_tidy, made_rows

FEW = {name: QUERIES[name] for name in ("tumble", "slide", "now", "some")}
ROWS = made_rows(19, 90)
FILES = cut(ROWS, *range(6, 90, 6))
ONE_FILE = {"maxFilesPerTrigger": "1"}


class Preparing(LocalExecutor):
    """Prepares each epoch once the one before is published, as a process that stays does; counts what is merged when."""

    def __init__(self) -> None:
        super().__init__()
        self.merged: Counter[str] = Counter()
        self.between = False
        self.two_runs = 0
        """Epochs that have written a run that was merged ahead besides their own."""
        self.highest = 0

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        self.between = True
        self.prepare_next()
        self.between = False
        receipts = super().run(scans, states)
        written = [run for receipt in receipts for run in receipt.runs]
        self.two_runs += len(written) > len(receipts)
        self.highest = max(self.highest, *(run.level for run in written), 0)
        assert {run.name for run in written} <= set(commit.files_named(receipts)), "they are made durable"
        for receipt in receipts:
            epochs = [run.epoch for run in receipt.runs]
            assert epochs == sorted(set(epochs)), "what was merged ahead is of the epoch before"
        return receipts


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Preparing:
    """Three runs of a level are merged; the executor has the merges in epochs and between them."""
    monkeypatch.setattr(compaction, "FAN_IN", 3)
    preparing, merged = Preparing(), RunMerging.merged

    def counted(self: RunMerging, names: Collection[str], fresh: Mapping[str, pa.Table]) -> Merged:
        if names:
            preparing.merged["between" if preparing.between else "in epochs"] += 1
        return merged(self, names, fresh)

    monkeypatch.setattr(RunMerging, "merged", counted)
    return preparing


def test_epochs_have_nothing_to_merge_and_store_no_more_runs(tmp_path: Path, executor: Preparing) -> None:
    counts = {}
    for name, chosen in (("ahead", executor), ("in epochs", LocalExecutor())):
        rig = Rig(tmp_path / name, ONE_FILE)
        rig.drop(*FILES)
        with Hub(rig.home, chosen, tasks=1) as hub:
            hub.execute(rig.script(FEW))
            hub.catch_up()
            counts[name] = len(hub.home.latest().state)
            if chosen is executor:
                assert executor.merged["between"] >= 4
                assert not executor.merged["in epochs"]
                assert executor.two_runs >= 4
            assert_as_the_reference(hub, FILES)
            assert faults_once_tidy(hub) == []
    assert counts["ahead"] <= counts["in epochs"] + 1


def test_a_run_that_a_merge_has_made_larger_is_of_a_higher_level(tmp_path: Path, executor: Preparing) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with Hub(rig.home, executor, tasks=1) as hub:
        hub.execute(rig.script({"held": "SELECT k, x FROM s [RANGE 1000 SECONDS]"}))
        hub.catch_up()
    assert executor.highest >= 1


def test_a_decision_counts_for_the_next_epoch_alone(tmp_path: Path, executor: Preparing) -> None:
    """The first epochs are prepared, when there is nothing to merge; the others are not, and merge by themselves."""
    rig, prepare = Rig(tmp_path, ONE_FILE), executor.prepare_next
    with Hub(rig.home, executor, tasks=1) as hub:
        hub.execute(rig.script(FEW))
        rig.drop(FILES[0])
        hub.catch_up()
        prepare()
        executor.prepare_next = lambda: None  # type: ignore[method-assign]
        rig.drop(*FILES[1:])
        assert_as_the_reference(hub, FILES)
    assert executor.merged["in epochs"] >= 3
    assert not executor.merged["between"]


def test_runs_that_are_no_longer_there_are_not_replaced(
    tmp_path: Path, executor: Preparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an epoch has taken over is given to the next one again, whose runs are others."""
    take, last = Agenda.take_merged, list[MergedAhead]()

    def again(self: Agenda) -> MergedAhead | None:
        ahead = take(self)
        if ahead is not None and ahead.merged.replaced:
            last.append(ahead)
        return last[0] if last else ahead

    monkeypatch.setattr(Agenda, "take_merged", again)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with Hub(rig.home, executor, tasks=1) as hub:
        hub.execute(rig.script(FEW))
        assert_as_the_reference(hub, FILES)
        assert faults_once_tidy(hub) == []
    assert last


def test_a_new_plan_drops_what_was_merged() -> None:
    index = index_of(EpochPlan())
    agenda = Agenda.of(index, 1, ())
    agenda.ahead = MergedAhead(1, Merged({}, 0, ()), Ledger())
    assert agenda.under(index, ()).take_merged() is None


@pytest.mark.parametrize("tasks", [1, 3])
def test_statements_and_epochs_that_fail_between_merges_change_no_answer(
    tmp_path: Path, executor: Preparing, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """Every third manifest cannot be published at first; a query is dropped and another registered on the way."""
    publish, attempts = ManifestLog.publish, Counter[int]()

    def unsure(self: ManifestLog, manifest, after=()) -> None:
        attempts[manifest.epoch] += 1
        if manifest.epoch % 3 == 2 and attempts[manifest.epoch] == 1:
            raise StoreError("the disk of the home is full", outcome="absent")
        publish(self, manifest, after)

    monkeypatch.setattr(ManifestLog, "publish", unsure)
    rig, half = Rig(tmp_path, ONE_FILE), len(FILES) // 2
    with Hub(rig.home, executor, tasks=tasks, retries=Retries((0.0,) * 4)) as hub:
        hub.execute(rig.script({"gone": QUERIES["tumble"], **FEW}))
        rig.drop(*FILES[:half])
        hub.catch_up()
        hub.execute("DROP QUERY gone")
        hub.register(QUERIES["tumble"], "new")
        rig.drop(*FILES[half:])
        assert_as_the_reference(hub, FILES)
        assert faults_once_tidy(hub) == []
    assert executor.merged["between"] >= 3
    assert max(attempts.values()) == 2


def test_what_would_take_much_memory_is_merged_in_the_epoch(
    tmp_path: Path, executor: Preparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_task, "_MOST_AHEAD", 0)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with Hub(rig.home, executor, tasks=1) as hub:
        hub.execute(rig.script(FEW))
        assert_as_the_reference(hub, FILES)
    assert executor.merged["in epochs"] >= 3
    assert not executor.merged["between"]


def test_the_epoch_meets_an_error_that_merging_ahead_met(
    tmp_path: Path, executor: Preparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, failures = RunMerging.merged, list[bool]()

    def fails(self: RunMerging, names: Collection[str], fresh: Mapping[str, pa.Table]) -> Merged:
        if names and len(failures) < 2:
            failures.append(executor.between)
            operators: Sequence[Operator] = self.progress.index.by_state[next(iter(self.runs[0].states))]
            raise MergeFailed(operators, ValueError("they cannot be added"))
        return counted(self, names, fresh)

    monkeypatch.setattr(RunMerging, "merged", fails)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with Hub(rig.home, executor, tasks=1) as hub:
        hub.execute(rig.script(FEW))
        hub.catch_up()
        assert failures == [True, False], "between two epochs, and then in the next one, which reports it"
        assert_as_the_reference(hub, FILES)


def test_the_thread_that_runs_epochs_prepares_the_next_one_while_it_waits(tmp_path: Path) -> None:
    prepared = Counter[int]()

    class Watched(LocalExecutor):
        def prepare_next(self) -> None:
            prepared[hub.loop.engine.published.epoch] += 1
            super().prepare_next()

    rig = Rig(tmp_path, ONE_FILE)
    with Hub(rig.home, Watched(), tasks=1) as hub:
        hub.execute(rig.script(FEW))
        with hub.running():
            for number, file in enumerate(FILES[:3], 1):
                rig.drop(file)
                until = time.monotonic() + 30
                while len(prepared) < number:
                    assert time.monotonic() < until
                    time.sleep(0.01)
        assert set(prepared.values()) == {1}
        assert_as_the_reference(hub, FILES[:3])
