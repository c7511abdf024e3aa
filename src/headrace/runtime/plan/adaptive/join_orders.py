"""The orders in which new rows of a join's sides probe the others: what state tasks observed, added by side, and the choice after
every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

import numpy as np

from headrace.adaptive.filters.ordering import UNSETTLED_SHARE, OrderInForce
from headrace.adaptive.settling.settled_order import ChoiceTime, Drops
from headrace.dataclass import dataclass
from headrace.observation import ProbeObservation
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles, join_of
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan.adaptive.recorded_orders import MOST, RecordedOrders, recorded
from headrace.store.logs.manifest import Manifest

JOIN_ORDERS: Final = "join orders"
SEES_DELAYS, SEES_KEYS = 4, 8
"""One epoch of so many measures delays, or compares rows by key, in joins that do not use what they find: enough for a proposal, at a small cost."""


def join_orders(manifest: Manifest) -> dict[str, OrderInForce]:
    """By side, the order of its probes as decided after the last epoch: places among the other sides."""
    return recorded(manifest, JOIN_ORDERS)


def probe_profiles(orders: Mapping[str, OrderInForce], epoch: int) -> ProbeProfiles:
    """The orders in force in a task; sides without one are sampled where there is room to record theirs."""
    share = UNSETTLED_SHARE if len(orders) < MOST else 0.0
    sees_delays, sees_keys = epoch % SEES_DELAYS == 0, epoch % SEES_KEYS == 0
    return ProbeProfiles(orders, share, measures=True, sees_delays=sees_delays, sees_keys=sees_keys)


def observed_probes(receipts: Iterable[StateReceipt]) -> dict[str, ProbeObservation]:
    """By side, the sums over state tasks."""
    sums: dict[str, ProbeObservation] = {}
    for receipt in receipts:
        for name, seen in receipt.joins.items():
            sums[name] = sums[name].plus(seen) if name in sums else seen
    return sums


@dataclass(slots=True)
class JoinOrders:
    """The profiles of sides of joins, in the driver."""

    _orders: RecordedOrders = field(default_factory=lambda: RecordedOrders(JOIN_ORDERS))

    def decided(
        self, manifest: Manifest, observed: Mapping[str, ProbeObservation], plan: EpochPlan
    ) -> Manifest:
        """The manifest with the orders for the next epoch; of sides that were not observed they stay, while the plan has the join."""
        drops = {name: _drops(seen) for name, seen in observed.items()}
        return self._orders.decided(manifest, drops, lambda name: join_of(name) in plan.operators)

    @property
    def spent(self) -> Mapping[str, ChoiceTime]:
        """By name, what the choices after the last epoch took."""
        return self._orders.spent


def _drops(seen: ProbeObservation) -> Drops:
    """Costs are steps of searches, not time: so the same data give the same orders."""
    return Drops(
        seen.order,
        seen.rows,
        seen.dropped,
        seen.spent / seen.rows,
        np.asarray(seen.costs),
        seen.sampled,
        seen.patterns,
    )
