"""Manifests: what each epoch committed, and the fence between drivers.

A manifest is the only checkpoint: a small value that names immutable files. Manifest n is published if absent, so of two
drivers that try epoch n one succeeds. A driver first publishes a takeover; from then on every earlier driver fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headrace.errors import AlreadyPublished, CorruptStore
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import MissingFile, Store
from headrace.store.logs.committed import (
    NEW_STREAM,
    CommittedStream,
    OperatorProgress,
    operators_from_json,
    operators_to_json,
)
from headrace.store.logs.numbered_files import NumberedFiles
from headrace.store.logs.radix_list import RadixList

MANIFESTS: Final = "manifests"
PINNED: Final = "pinned"
KEPT: Final = 8
"""How many of the newest manifests are retained without a pin."""

SUMMARISED: Final = "intake"
"""The fact about the summary of ingest records: its file, how many records it covers (`upto`), and the number of its names."""

_KIND: Final = "manifest"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StateRun:
    """A state run: file name, slots [low_slot, high_slot) it holds, bytes on disk, how often merged, in which epoch written."""

    name: str
    low_slot: int
    high_slot: int
    bytes: int
    level: int = 0
    epoch: int = 0

    def as_json(self) -> list[Any]:
        """JSON values; the constructor takes them back."""
        return [self.name, self.low_slot, self.high_slot, self.bytes, self.level, self.epoch]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is committed after epoch `epoch`.

    `querylog` and `ingest` are how many entries of the two logs are applied; `plan` names a file. The runtime defines what
    is in `facts`, as long as it is JSON.
    """

    epoch: int
    incarnation: int
    kind: str = "epoch"
    plan: str | None = None
    querylog: int = 0
    ingest: int = 0
    streams: Mapping[str, CommittedStream] = field(default_factory=dict)
    operators: Mapping[str, OperatorProgress] = field(default_factory=dict)
    state: tuple[StateRun, ...] = ()
    lists: Mapping[str, RadixList] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def stream(self, name: str) -> CommittedStream:
        """What is committed of a stream; `NEW_STREAM` where nothing is."""
        return self.streams.get(name, NEW_STREAM)

    def as_json(self) -> dict[str, Any]:
        """JSON values; see `from_json`."""
        return {
            "epoch": self.epoch,
            "incarnation": self.incarnation,
            "kind": self.kind,
            "plan": self.plan,
            "querylog": self.querylog,
            "ingest": self.ingest,
            "streams": {name: stream.as_json() for name, stream in self.streams.items()},
            "operators": operators_to_json(self.operators),
            "state": [run.as_json() for run in self.state],
            "lists": {name: radix_list.as_json() for name, radix_list in self.lists.items()},
            "facts": dict(self.facts),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Manifest:
        """The inverse of `as_json`."""
        attributes = dict(value)
        attributes["streams"] = {
            name: CommittedStream.from_json(stream) for name, stream in attributes["streams"].items()
        }
        attributes["operators"] = operators_from_json(attributes["operators"])
        attributes["state"] = tuple(StateRun(*run) for run in attributes["state"])
        attributes["lists"] = {
            name: RadixList.from_json(radix_list) for name, radix_list in attributes["lists"].items()
        }
        return Manifest(**attributes)

    def encode(self) -> bytes:
        """The bytes of the manifest's file."""
        return seal(_KIND, _VERSION, self.as_json())

    @staticmethod
    def decode(data: bytes, name: str) -> Manifest:
        """The inverse; `CorruptStore` names the file `name`."""
        body = unseal(_KIND, _VERSION, data, name)
        try:
            return Manifest.from_json(body)
        except (TypeError, KeyError, AttributeError) as error:
            raise CorruptStore(
                f"the manifest '{name}' does not hold what a manifest holds: {error}"
            ) from error


class ManifestLog:
    """All manifests of a home."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files = NumberedFiles(store, MANIFESTS)
        self._last_number: int | None = None
        self._newest: Manifest | None = None
        self._attempted: int | None = None

    def latest(self) -> Manifest | None:
        """The newest manifest; None in an empty home. Lists once, then searches for newer ones each time."""
        while True:
            number = self._files.last(self._last_number)
            if number is None:
                return None
            self._last_number = number
            if self._newest is None or self._newest.epoch != number:
                try:
                    self._newest = self._read(self._files.name(number), number)
                except MissingFile:
                    continue  # it was collected since, so there are newer ones
            return self._newest

    def read(self, epoch: int) -> Manifest:
        """The manifest of an epoch; `MissingFile` when it was collected or never published."""
        try:
            return self._read(self._files.name(epoch), epoch)
        except MissingFile:
            return self._read(pinned_name(epoch), epoch)

    def epochs(self) -> range:
        """The epochs whose manifest is retained, without pinned older ones."""
        return self._files.range()

    def publish(self, manifest: Manifest, after: Iterable[str] = ()) -> None:
        """Commit, durably. `AlreadyPublished` when the epoch is taken: this driver was replaced and must stop.

        `after`: files that the manifest names and that are not durable yet.
        """
        self._files.publish(manifest.epoch, manifest.encode(), after)
        self._last_number, self._newest = manifest.epoch, manifest

    def takeover(self, of: int | None = None) -> Manifest:
        """Publish a copy of the latest manifest under a new incarnation: no earlier driver can publish any more.

        With `of` only from that incarnation, the caller's own: `AlreadyPublished` when another driver has taken over.
        """
        while True:
            latest = self.latest()
            # A takeover that failed may have been published all the same; then the latest manifest is the caller's own.
            if of is not None and latest is not None and latest.incarnation not in {of, self._attempted}:
                raise AlreadyPublished(
                    f"another process has taken over this home (start {latest.incarnation}, this one is {of}). "
                    "This one must stop; start it again to take over"
                )
            if latest is None:
                manifest = Manifest(epoch=0, incarnation=1, kind="takeover")
            else:
                manifest = replace(
                    latest, epoch=latest.epoch + 1, incarnation=latest.incarnation + 1, kind="takeover"
                )
            self._attempted = manifest.incarnation
            try:
                self.publish(manifest)
            except AlreadyPublished:
                self._attempted = None
                continue  # another driver published in between; take over from there
            return manifest

    def drop_old(self, pinned: Collection[int], latest: int, keep: int = KEPT) -> tuple[str, ...]:
        """Delete all but the `keep` manifests up to epoch `latest` and the pinned ones; the deleted names."""
        cutoff = latest - keep + 1
        here = self._files.range()
        for epoch in sorted(pinned):
            if epoch in here and epoch < cutoff:
                # Numbered files are one unbroken range, so what outlives its range moves to a folder of its own.
                self._store.put_if_absent(pinned_name(epoch), self._store.read(self._files.name(epoch)))
        dropped = self._files.drop_below(cutoff)
        unpinned = [name for epoch, name in self.pinned().items() if epoch not in pinned]
        return dropped + tuple(name for name in unpinned if self._store.delete(name, durable=True))

    def pinned(self) -> dict[int, str]:
        """Epoch → file of the manifests that are retained only because they were pinned."""
        names = [file.name for file in self._store.list(f"{PINNED}/")]
        return {int(name[len(PINNED) + 1 : -len(".json")]): name for name in names}

    def _read(self, name: str, epoch: int) -> Manifest:
        manifest = Manifest.decode(self._store.read(name), name)
        if manifest.epoch != epoch:
            raise CorruptStore(f"the manifest '{name}' is of epoch {manifest.epoch}")
        return manifest


def pinned_name(epoch: int) -> str:
    """Where a pinned manifest is moved when its neighbours are dropped."""
    return f"{PINNED}/{epoch:012d}.json"
