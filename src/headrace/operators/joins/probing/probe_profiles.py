"""The orders in force in a state task in which the new rows of each side of a join probe the others, what was observed of each
side, and the delays between rows that were joined: for the joins that advance in a block of code.

Outside such a block (tests) the smallest SteM is probed first, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.dataclass import dataclass
from headrace.observation import DelayObservation, HeavyKey, ProbeObservation
from headrace.operators.joins.probing.delay_monitor import DelayMonitor


def name_of_side(join: str, side: int) -> str:
    """The name by which the order of one side of a join is recorded."""
    return f"{join}/{side}"


def join_of(name: str) -> str:
    """The join of such a name."""
    return name.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class ProbeProfiles:
    """Orders by the name of the side; of each that probed what was `observed`, and by join the delays, if `measures`.

    A side without an order is sampled at `share_without`. `sees_delays`, `sees_keys`: delays are
    measured, and rows compared by key, also where nothing is dropped by what is found.
    """

    orders: Mapping[str, OrderInForce] = field(default_factory=dict)
    share_without: float = 0.0
    measures: bool = False
    sees_delays: bool = True
    sees_keys: bool = False
    observed: dict[str, ProbeObservation] = field(default_factory=dict)
    monitors: dict[str, DelayMonitor] = field(default_factory=dict)
    heavy: dict[str, tuple[HeavyKey, ...]] = field(default_factory=dict)
    """By join, the keys with much of its work."""

    @property
    def delays(self) -> dict[str, DelayObservation]:
        """By join, the delays that were measured."""
        return {join: monitor.observation() for join, monitor in self.monitors.items()}

    def monitor(self, join: str, sides: int, *, every: bool) -> DelayMonitor | None:
        """The monitor of a join, if delays are measured."""
        if self.measures and join not in self.monitors:
            self.monitors[join] = DelayMonitor(
                sides, every, every or self.sees_delays, every or self.sees_keys
            )
        return self.monitors.get(join)

    def add(self, name: str, seen: ProbeObservation) -> None:
        """Add what was observed of a side."""
        self.observed[name] = self.observed[name].plus(seen) if name in self.observed else seen


_IN_FORCE: ContextVar[ProbeProfiles] = ContextVar("probe_profiles", default=ProbeProfiles())  # noqa: B039 - never changed unless it measures


@contextmanager
def probing(profiles: ProbeProfiles) -> Iterator[None]:
    """Orders for all joins that advance inside the block, which add what they observe."""
    token = _IN_FORCE.set(profiles)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def in_force() -> ProbeProfiles:
    """Those of the innermost `probing` block."""
    return _IN_FORCE.get()
