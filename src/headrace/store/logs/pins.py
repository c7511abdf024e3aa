"""Pins: small files, each of which protects an old manifest, and the files that it names, from garbage collection; put,
removed and listed here.

Backfills, cursors and readers pin the epoch they started from. A pin names its owner, so that the pins of a dead process
can be ignored, and may expire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore, StoreError
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import MissingFile, Store
from headrace.store.logs.manifest import KEPT, ManifestLog
from headrace.time import Instant

PINS: Final = "pins"
_KIND: Final = "pin"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Pin:
    """Retain manifest `epoch` and all it names; until `expires`, or permanently."""

    name: str
    owner: str
    epoch: int
    expires: Instant | None = None

    def holds(self, now: Instant) -> bool:
        """Whether it has not expired."""
        return self.expires is None or now < self.expires


def put_pin(store: Store, pin: Pin, keep: int = KEPT) -> None:
    """Pin an epoch. Only one of the newest `keep` can be pinned for the first time: older ones may be half collected.

    A collection reads the latest manifest before it reads the pins; so if the epoch is still among the newest after the
    pin is there, every collection either sees the pin or leaves the epoch alone.
    """
    body = {"owner": pin.owner, "epoch": pin.epoch, "expires": pin.expires}
    if not store.put_if_absent(_file(pin.name), seal(_KIND, _VERSION, body)):
        raise StoreError(f"there is a pin '{pin.name}' already: pins need names of their own")
    latest = ManifestLog(store).latest()
    if latest is None or not latest.epoch - keep < pin.epoch <= latest.epoch:
        remove_pin(store, pin.name)
        raise StoreError(
            f"epoch {pin.epoch} cannot be pinned: "
            + (
                "the home has no manifest"
                if latest is None
                else f"the latest is {latest.epoch}, {keep} are kept"
            )
            + "; pin the latest instead"
        )


def remove_pin(store: Store, name: str) -> bool:
    """Release the epoch; False when there was no such pin."""
    return store.delete(_file(name))


def all_pins(store: Store) -> tuple[Pin, ...]:
    """Every pin, whether it holds or not. A damaged one is `CorruptStore`: guessing would delete data."""
    pins = []
    for file in store.list(f"{PINS}/"):
        try:
            body = unseal(_KIND, _VERSION, store.read(file.name), file.name)
        except MissingFile:
            continue  # removed since it was listed
        try:
            pin = Pin(file.name[len(PINS) + 1 : -len(".json")], body["owner"], body["epoch"], body["expires"])
        except (KeyError, TypeError) as error:
            raise CorruptStore(f"the pin '{file.name}' lacks {error}") from error
        pins.append(pin)
    return tuple(pins)


def pinned_epochs(store: Store, now: Instant, is_alive: Callable[[Pin], bool]) -> frozenset[int]:
    """Epochs that a pin holds whose owner is alive."""
    return frozenset(pin.epoch for pin in all_pins(store) if pin.holds(now) and is_alive(pin))


def _file(name: str) -> str:
    return f"{PINS}/{name}.json"
