"""An executor, a profiler and a re-optimizer in one loop, each replaced by a plain one."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.models.roles import Adaptation

TRACE = (3, 3, 4, 9, 9, 2, 2)
"""A statistic over time; the best plan is its half."""


@dataclass(slots=True)
class Replay:
    """Executor: returns the next statistic, and notes the plan."""

    plans: list[int] = field(default_factory=list)

    def run(self, plan: int) -> int:
        self.plans.append(plan)
        return TRACE[len(self.plans) - 1]


@dataclass(slots=True)
class Halves:
    """Profiler: a change by more than one is significant. Re-optimizer: the half."""

    plan: int = 0
    seen: int = 0
    assumed: int = 0

    def record(self, profile: int) -> bool:
        self.seen = profile
        return abs(profile - self.assumed) > 1

    def reoptimize(self) -> int:
        self.assumed, self.plan = self.seen, self.seen // 2
        return self.plan


def test_the_plan_follows_the_trace_and_changes_only_where_it_has_to() -> None:
    replay, halves = Replay(), Halves()
    adaptation = Adaptation[int, int](replay, halves, halves)
    for _ in TRACE:
        adaptation.step()
    assert replay.plans == [0, 1, 1, 1, 4, 4, 1]
    assert (adaptation.reoptimizations, adaptation.switches) == (3, 3)


def test_a_reoptimization_that_finds_the_same_plan_is_no_switch() -> None:
    halves = Halves(plan=1, assumed=0)
    adaptation = Adaptation[int, int](Replay(), halves, halves)
    adaptation.step()
    assert (adaptation.reoptimizations, adaptation.switches) == (1, 0)
