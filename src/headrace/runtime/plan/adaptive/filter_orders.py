"""The orders in which the terms of conjunctions are evaluated: what scan tasks observed, added by conjunction, and the choice after
every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

import numpy as np

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.adaptive.settling.settled_order import ChoiceTime, Drops
from headrace.dataclass import dataclass
from headrace.observation import FilterObservation
from headrace.runtime.messages.task_messages import ScanReceipt
from headrace.runtime.plan.adaptive.recorded_orders import RecordedOrders, recorded
from headrace.store.logs.manifest import Manifest

FILTER_ORDERS: Final = "filter orders"
_LEAST_ROWS: Final = 256
"""Rows from which on the time of a term in a run counts for the cost of a row."""


def filter_orders(manifest: Manifest) -> dict[str, OrderInForce]:
    """By conjunction, the order of its terms as decided after the last epoch."""
    return recorded(manifest, FILTER_ORDERS)


def observed_filters(scans: Iterable[ScanReceipt]) -> dict[str, FilterObservation]:
    """By conjunction, the sums over scan tasks."""
    sums: dict[str, FilterObservation] = {}
    for scan in scans:
        for name, seen in scan.filters.items():
            sums[name] = sums[name].plus(seen) if name in sums else seen
    return sums


@dataclass(slots=True)
class FilterOrders:
    """The profiles of conjunctions, in the driver."""

    _orders: RecordedOrders = field(default_factory=lambda: RecordedOrders(FILTER_ORDERS))

    def decided(self, manifest: Manifest, observed: Mapping[str, FilterObservation]) -> Manifest:
        """The manifest with the orders for the next epoch; conjunctions that were not observed keep theirs."""
        return self._orders.decided(manifest, {name: _drops(seen) for name, seen in observed.items()})

    @property
    def spent(self) -> Mapping[str, ChoiceTime]:
        """By name, what the choices after the last epoch took."""
        return self._orders.spent

    def chosen(self, name: str, seen: FilterObservation) -> OrderInForce:
        """The order after what was observed of a conjunction in an epoch."""
        return self._orders.chosen(name, _drops(seen))


def _drops(seen: FilterObservation) -> Drops:
    spent = sum(seen.nanoseconds) / max(1, seen.rows)
    costs = np.asarray(seen.costs(_LEAST_ROWS))
    return Drops(
        seen.order, seen.rows, seen.dropped, spent, costs, seen.sampled, seen.patterns, seen.in_sample
    )
