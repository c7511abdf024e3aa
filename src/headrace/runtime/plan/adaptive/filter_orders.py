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
from headrace.adaptive.filters.ordering import (
    LEAST_PROFILED,
    UNSETTLED_SHARE,
    OrderInForce,
    drops_elsewhere,
)
from headrace.adaptive.filters.profile_window import DropProfile
from headrace.observation import FilterObservation
from headrace.runtime.messages.task_messages import ScanReceipt
from headrace.store.logs.manifest import Manifest

FILTER_ORDERS: Final = "filter orders"
"""In a manifest's facts: of conjunctions, the most recently observed last, the name, and the fields of its
`OrderInForce`."""
MOST: Final = 256
"""Conjunctions whose order is recorded: others, not observed for the longest time, begin again with the guessed one."""
_WINDOW: Final = 1000
_BUDGET: Final = 0.005
"""The part of the time of a conjunction that profiling takes."""
_ENOUGH: Final = 1024
"""Sampled rows after which an order is settled, however few of them are dropped."""
_LEAST_ROWS: Final = 256
"""Rows from which on the time of a term in a run counts for the cost of a row."""


def filter_orders(manifest: Manifest) -> dict[str, OrderInForce]:
    """By conjunction, the order of its terms as decided after the last epoch."""
    facts = manifest.facts.get(FILTER_ORDERS, ())
    return {name: OrderInForce(tuple(order), share, tuple(drops)) for name, order, share, drops in facts}


def observed_filters(scans: Iterable[ScanReceipt]) -> dict[str, FilterObservation]:
    """By conjunction, the sums over scan tasks."""
    sums: dict[str, FilterObservation] = {}
    for scan in scans:
        for name, seen in scan.filters.items():
            sums[name] = sums[name].plus(seen) if name in sums else seen
    return sums


@dataclass(slots=True)
class _Conjunction:
    """The profile of one conjunction; `sampled` rows of it since conditions last changed, also those that no term drops."""

    ordering: AGreedy
    sampled: int = 0

    def take(self, seen: FilterObservation) -> OrderInForce:
        """The order after an epoch, and the share of rows to profile in the next."""
        ordering, costs = self.ordering, np.asarray(seen.costs(_LEAST_ROWS))
        if drops_elsewhere(ordering.believed(), seen.dropped):
            ordering.forget()
            self.sampled = 0
        self.sampled += seen.sampled
        if seen.sampled and ordering.record(DropProfile.whole(_dropped(seen), costs)):
            ordering.reoptimize()
        if self.sampled < _ENOUGH and ordering.window.held.rows < LEAST_PROFILED:
            return OrderInForce(ordering.plan, UNSETTLED_SHARE, ordering.believed())
        spent = sum(seen.nanoseconds) / max(1, seen.rows)
        all_terms = float(np.where(np.isfinite(costs), costs, ordering.costs).sum())
        share = min(UNSETTLED_SHARE, round(_BUDGET * spent / all_terms, 6))
        return OrderInForce(ordering.plan, share, ordering.believed())


@dataclass(slots=True)
class FilterOrders:
    """The profiles of conjunctions, in the driver."""

    _conjunctions: dict[str, _Conjunction] = field(default_factory=dict)

    def decided(self, manifest: Manifest, observed: Mapping[str, FilterObservation]) -> Manifest:
        """The manifest with the orders for the next epoch; conjunctions that were not observed keep theirs."""
        if not observed:
            return manifest
        orders = filter_orders(manifest)
        for name, seen in observed.items():
            orders.pop(name, None)
            orders[name] = self.chosen(name, seen)
        recent = list(orders.items())[-MOST:]
        self._conjunctions = {
            name: self._conjunctions[name] for name, _ in recent if name in self._conjunctions
        }
        facts = [[name, list(chosen.order), chosen.share, list(chosen.believed)] for name, chosen in recent]
        return replace(manifest, facts={**manifest.facts, FILTER_ORDERS: facts})

    def chosen(self, name: str, seen: FilterObservation) -> OrderInForce:
        """The order after what was observed of a conjunction in an epoch.

        Where enough rows were profiled since conditions last changed, profiling takes a small part of the time of the terms; what
        the order drops is known of all rows, so a change is noticed anyway, and more rows are profiled then.
        """
        conjunction = self._conjunctions.get(name)
        if conjunction is None or set(conjunction.ordering.plan) != set(seen.order):
            ordering = AGreedy(seen.order, np.ones(len(seen.order)), _WINDOW)
            conjunction = self._conjunctions[name] = _Conjunction(ordering)
        return conjunction.take(seen)


def _dropped(seen: FilterObservation) -> np.ndarray:
    """The sampled rows that are dropped, by term; of more than a window's worth every so many."""
    bits = np.repeat(
        np.fromiter(seen.patterns.keys(), np.int64, len(seen.patterns)),
        np.fromiter(seen.patterns.values(), np.int64, len(seen.patterns)),
    )
    if len(bits) > _WINDOW:
        bits = bits[np.linspace(0, len(bits) - 1, _WINDOW).astype(np.int64)]
    return (bits[:, None] >> np.arange(len(seen.order)) & 1).astype(bool)
