"""Floods over real hubs on a slow machine's clock: rows that arrive at a rate, while epochs take as long as rows cost; with kills the hub
is opened again every few epochs, and every other job fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive.overload_control import chosen_shares
from tests.overload.slow_machine import CHEAP, SlowMachine, batch, flooded_hub

STREAM = "CREATE STREAM s (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at;"
USUAL, FLOOD = 100.0, 1700.0
"""Rows a second."""


@dataclass(frozen=True)
class Flood:
    """What happens: queries by name, of which `cheap` ones cost little, seconds in which rows flood in, and all seconds."""

    queries: Mapping[str, str]
    flooded: range
    seconds: int
    cheap: str = "exact"
    epochs_of_a_life: int = 8
    """With kills."""
    sketch: float = CHEAP
    """Seconds that a sketched row takes."""

    def drive(
        self,
        path: Path,
        patch: pytest.MonkeyPatch,
        *,
        kills: bool,
        after_epoch: Callable[[Hub], None],
        at_end: Callable[[Hub], None],
    ) -> list[dict[str, Any]]:
        """All rows that were pushed; the hub is shown after every round of epochs, and before it closes."""
        machine, pushed, number, done = SlowMachine(), list[dict[str, Any]](), 0, 0.0
        machine.sketch = self.sketch
        while done < self.seconds:
            with flooded_hub(path, machine, patch) as hub:
                if not pushed:
                    hub.execute(STREAM)
                    for name, text in self.queries.items():
                        hub.execute(f"CREATE QUERY {name} AS {text}")
                    hub.catch_up()
                machine.cheap = frozenset({hub.catalog.require_query(self.cheap).operator_id})
                for _ in range(self.epochs_of_a_life if kills else 10_000):
                    machine.seconds = max(machine.seconds, done + 0.5)
                    for begin, end in halves(done, machine.seconds):
                        rows = batch(number, begin, end, FLOOD if int(begin) in self.flooded else USUAL)
                        machine.pushing = end
                        hub.push("s", rows)
                        pushed += rows
                        number, done = number + 1, end
                    machine.failures, machine.pushing = number % 2 if kills else 0, None
                    hub.catch_up()
                    after_epoch(hub)
                    if done >= self.seconds:
                        break
                at_end(hub)
        return pushed


def halves(begin: float, end: float) -> list[tuple[float, float]]:
    """The half seconds in between."""
    return [(begin + n / 2, begin + (n + 1) / 2) for n in range(int((end - begin) * 2))]


def by_name(hub: Hub) -> dict[str, tuple[float, ...]]:
    """The shares in force, by query."""
    names = {query.operator_id: query.definition.name for query in hub.catalog.queries.values()}
    return {names[operator]: shares for operator, shares in chosen_shares(hub.home.latest()).items()}
