"""`headrace fetch`: the results of a client's query, on a terminal."""

from __future__ import annotations

from headrace.cli.screen import Screen
from headrace.runtime.delivery.client import Client


def fetch_to(screen: Screen, client: Client, *, keep: bool = False) -> int:
    """Show all that is not acknowledged, and acknowledge each delivery after it was shown, unless `keep`; how many."""
    screen.several = False
    count = 0
    for delivery in client.pending():
        if delivery.missed:
            screen.line.warning(f"{client.query}: retention had removed older answers that were not fetched")
        screen.rows(client.query, delivery.epoch, delivery.rows)
        if not keep:
            client.acknowledge(delivery)
        count += 1
    if not count:
        screen.line.message(f"{client.query}: nothing new for {client.name}")
    return count
