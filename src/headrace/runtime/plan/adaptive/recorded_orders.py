"""Orders that are facts of the manifest: of conjunctions, and of joins; chosen after each epoch from what its tasks observed.

An epoch that is run again, after a failure or a restart, has the same orders. The profiles that they were chosen by are in memory
only, and are made again after a restart; results do not depend on either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.adaptive.settling.settled_order import ChoiceTime, Drops, SettledOrder
from headrace.dataclass import dataclass
from headrace.store.logs.manifest import Manifest

MOST: Final = 256
"""Orders of one kind that are recorded: those not observed for the longest time begin again with the guessed one."""


def recorded(manifest: Manifest, fact: str) -> dict[str, OrderInForce]:
    """By name, the orders of one kind as decided after the last epoch."""
    facts = manifest.facts.get(fact, ())
    return {name: OrderInForce(tuple(order), share, tuple(drops)) for name, order, share, drops in facts}


@dataclass(slots=True)
class RecordedOrders:
    """The profiles of one kind, in the driver. The fact has, most recently observed last, names and the fields of `OrderInForce`.

    `spent`: by name, what the choices after the last epoch took.
    """

    fact: str
    spent: dict[str, ChoiceTime] = field(default_factory=dict)
    _profiles: dict[str, SettledOrder] = field(default_factory=dict)

    def decided(
        self, manifest: Manifest, observed: Mapping[str, Drops], exists: Callable[[str], bool] = bool
    ) -> Manifest:
        """The manifest with the orders for the next epoch; those that were not observed stay, while they exist."""
        self.spent = {}
        if not observed:
            return manifest
        orders = {name: order for name, order in recorded(manifest, self.fact).items() if exists(name)}
        for name, seen in observed.items():
            orders.pop(name, None)
            orders[name] = self.chosen(name, seen)
        recent = list(orders.items())[-MOST:]
        self._profiles = {name: self._profiles[name] for name, _ in recent if name in self._profiles}
        facts = [[name, list(chosen.order), chosen.share, list(chosen.believed)] for name, chosen in recent]
        return replace(manifest, facts={**manifest.facts, self.fact: facts})

    def chosen(self, name: str, seen: Drops) -> OrderInForce:
        """The order after what was observed in an epoch."""
        profile = self._profiles.get(name)
        if profile is None or set(profile.ordering.plan) != set(seen.order):
            profile = self._profiles[name] = SettledOrder.of(seen.order)
        chosen, self.spent[name] = profile.take(seen), profile.spent
        return chosen
