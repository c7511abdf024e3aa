"""The choice of the order in which the terms of each conjunction are evaluated, after every epoch, from what its scan tasks
observed.

An order is a fact of the manifest: an epoch that is run again, after a failure or a restart, evaluates in the same order. The
profiles that it was chosen by are in memory only, and are made again after a restart; results do not depend on either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.order_cost import Order
from headrace.adaptive.filters.profile_window import DropProfile
from headrace.observation import FilterObservation
from headrace.runtime.messages.task_messages import ScanReceipt
from headrace.store.logs.manifest import Manifest

FILTER_ORDERS: Final = "filter orders"
"""In a manifest's facts: pairs of a conjunction's name and the order of its terms, the most recently observed last."""
MOST: Final = 256
"""Conjunctions whose order is recorded: others, not observed for the longest time, begin again with the guessed one."""
_WINDOW: Final = 1000
_LEAST_ROWS: Final = 256
"""Rows from which on the time of a term in a run counts for the cost of a row."""


def filter_orders(manifest: Manifest) -> dict[str, Order]:
    """By conjunction, the order of its terms as decided after the last epoch."""
    return {name: tuple(order) for name, order in manifest.facts.get(FILTER_ORDERS, ())}


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

    _orderings: dict[str, AGreedy] = field(default_factory=dict)

    def decided(self, manifest: Manifest, observed: Mapping[str, FilterObservation]) -> Manifest:
        """The manifest with the orders for the next epoch; conjunctions that were not observed keep theirs."""
        if not observed:
            return manifest
        orders = filter_orders(manifest)
        for name, seen in observed.items():
            orders.pop(name, None)
            orders[name] = self._order(name, seen)
        recent = list(orders.items())[-MOST:]
        self._orderings = {name: self._orderings[name] for name, _ in recent if name in self._orderings}
        facts = {**manifest.facts, FILTER_ORDERS: [[name, list(order)] for name, order in recent]}
        return replace(manifest, facts=facts)

    def _order(self, name: str, seen: FilterObservation) -> Order:
        costs = np.asarray(seen.costs(_LEAST_ROWS))
        ordering = self._orderings.get(name)
        if ordering is None or set(ordering.plan) != set(seen.order):
            ordering = self._orderings[name] = AGreedy(seen.order, np.ones(len(costs)), _WINDOW)
        if not seen.sampled:
            return ordering.plan
        if ordering.record(DropProfile.whole(_dropped(seen), costs)):
            ordering.reoptimize()
        return ordering.plan


def _dropped(seen: FilterObservation) -> np.ndarray:
    """The sampled rows that are dropped, by term; of more than a window's worth every so many."""
    bits = np.repeat(
        np.fromiter(seen.patterns.keys(), np.int64, len(seen.patterns)),
        np.fromiter(seen.patterns.values(), np.int64, len(seen.patterns)),
    )
    if len(bits) > _WINDOW:
        bits = bits[np.linspace(0, len(bits) - 1, _WINDOW).astype(np.int64)]
    return (bits[:, None] >> np.arange(len(seen.order)) & 1).astype(bool)
