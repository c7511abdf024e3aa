"""The three roles of an adaptive plan: executor, profiler and re-optimizer, as interfaces; and one step of all three, which
counts re-optimizations and changes of the plan.

At any moment one plan is followed by all rows. The executor runs it and returns a profile, a by-product of the run; the
profiler tracks statistics of the profiles and notices that the plan may have become bad; the re-optimizer then finds the best
plan for these statistics. None of the three affects an answer.
Source: Babu, Adaptive Query Processing in Data Stream Management Systems (2005), section 2.5 (StreaMon).
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from headrace.dataclass import dataclass

Plan = TypeVar("Plan")
Profile = TypeVar("Profile")
PlanRun_contra = TypeVar("PlanRun_contra", contravariant=True)
ProfileMade_co = TypeVar("ProfileMade_co", covariant=True)
ProfileSeen_contra = TypeVar("ProfileSeen_contra", contravariant=True)
PlanMade_co = TypeVar("PlanMade_co", covariant=True)


class Executor(Protocol[PlanRun_contra, ProfileMade_co]):
    """Runs the next batch by a plan."""

    def run(self, plan: PlanRun_contra) -> ProfileMade_co:
        """The profile of the batch that was run."""
        ...


class Profiler(Protocol[ProfileSeen_contra]):
    """Tracks the statistics on which the choice of a plan depends."""

    def record(self, profile: ProfileSeen_contra) -> bool:
        """Add a profile; whether another plan may be better now."""
        ...


class Reoptimizer(Protocol[PlanMade_co]):
    """Finds the best plan for the statistics that a profiler tracks."""

    @property
    def plan(self) -> PlanMade_co:
        """The plan to follow."""
        ...

    def reoptimize(self) -> PlanMade_co:
        """The best plan for the current statistics, which is the one to follow from now on."""
        ...


@dataclass(slots=True)
class Adaptation(Generic[Plan, Profile]):
    """An executor, a profiler and a re-optimizer that work together, and how often they have changed the plan."""

    executor: Executor[Plan, Profile]
    profiler: Profiler[Profile]
    reoptimizer: Reoptimizer[Plan]
    reoptimizations: int = 0
    switches: int = 0

    def step(self) -> None:
        """Run one batch, and change the plan for the next one if another is better."""
        before = self.reoptimizer.plan
        if self.profiler.record(self.executor.run(before)):
            self.reoptimizations += 1
            self.switches += self.reoptimizer.reoptimize() != before
