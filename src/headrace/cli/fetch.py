"""`headrace fetch`: the results of a client's query, on a terminal.

A delivery is acknowledged after the reader of the output has received it: rows that are still in a pipe are not shown.
"""

from __future__ import annotations

from headrace.cli.pipes import is_taken, wait_until_taken
from headrace.cli.screen import Screen
from headrace.runtime.delivery.client import Client, Delivery


def fetch_to(screen: Screen, client: Client, *, keep: bool = False) -> int:
    """Show all that is not acknowledged, and acknowledge each delivery after it was shown, unless `keep`; how many.

    Raises `BrokenPipeError` when the reader of the output is gone: what it did not receive is delivered again.
    """
    screen.several = False
    count = 0
    shown: Delivery | None = None
    for delivery in client.pending():
        if delivery.missed:
            screen.line.warning(f"{client.query}: retention had removed older answers that were not fetched")
        screen.rows(client.query, delivery.epoch, delivery.rows)
        shown = delivery
        count += 1
        if not keep and is_taken(screen.out):
            client.acknowledge(delivery)
            shown = None
    if not keep and shown is not None:
        wait_until_taken(screen.out)
        client.acknowledge(shown)
    if not count:
        screen.line.message(f"{client.query}: nothing new for {client.name}")
    return count
