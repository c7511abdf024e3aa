"""Manifests: what is committed after each epoch, as a value with its encoding; and their log: read, publish, take over
from another driver (which can publish no more), and delete old ones.

A manifest is the only checkpoint: a small value that names immutable files. Manifest n is published if absent, so of two
drivers that try epoch n one succeeds. A driver first publishes a takeover; from then on every earlier driver fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.errors import AlreadyPublished, CorruptStore
from headrace.store.files.envelope import json_text, seal_text, unseal
from headrace.store.files.filesystem import MissingFile, Store
from headrace.store.logs.at_rest import NO_LISTS, NO_OPERATORS, NO_STREAMS, Records, lists_text
from headrace.store.logs.committed import (
    NEW_STREAM,
    CommittedStream,
    OperatorProgress,
    operators_to_json,
)
from headrace.store.logs.layers import Layers, needs_base
from headrace.store.logs.numbered_files import NumberedFiles
from headrace.store.logs.radix_list import RadixList, Write
from headrace.time import BEGINNING, FOREVER, Instant

MANIFESTS: Final = "manifests"
KEPT: Final = 8
"""How many of the newest manifests are retained."""

SUMMARISED: Final = "intake"
"""The fact about the summary of ingest records: its file, how many records it covers (`upto`), and the number of its names."""

_KIND: Final = "manifest"
_VERSION: Final = 1


@dataclass(slots=True)
class _Encoded:
    """The overlays of the manifest that was encoded last, and their text; replaced at once, as threads share it."""

    last: tuple[tuple[object, object, object], str] = ((None, None, None), "")


_encoded: Final = _Encoded()


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
    is in `facts`, as long as it is JSON. `streams`, `operators` and `lists` are records; those at rest are in the file `base`,
    but for what changed since. `stream` and `operator` give the progress itself.
    """

    epoch: int
    incarnation: int
    kind: str = "epoch"
    plan: str | None = None
    querylog: int = 0
    ingest: int = 0
    streams: Layers[CommittedStream] = field(default_factory=lambda: NO_STREAMS)
    operators: Layers[OperatorProgress] = field(default_factory=lambda: NO_OPERATORS)
    state: tuple[StateRun, ...] = ()
    lists: Layers[RadixList] = field(default_factory=lambda: NO_LISTS)
    facts: Mapping[str, Any] = field(default_factory=dict)
    base: str = ""
    _followed: dict[str, CommittedStream] = field(init=False, default_factory=dict, compare=False, repr=False)
    """Streams that follow others, as `stream` has computed them: each level would compute all below it again."""
    _punctuations: dict[str, Instant] = field(init=False, default_factory=dict, compare=False, repr=False)
    """The same of punctuations alone."""

    def stream(self, name: str) -> CommittedStream:
        """The progress of a stream; `NEW_STREAM` where nothing is committed."""
        record = self.streams.get(name, NEW_STREAM)
        if not record.follows:
            return record
        followed = self._followed.get(name)
        if followed is None:
            followed = self._followed[name] = self._progress_of(record)
        return followed

    def punctuation(self, name: str) -> Instant:
        """The punctuation of a stream.

        That of a union is the least of its inputs', that of results what their operator has emitted up to.
        """
        record = self.streams.get(name, NEW_STREAM)
        if not record.follows:
            return record.punctuation
        known = self._punctuations.get(name)
        if known is None:
            known = self._punctuations[name] = self._punctuation_of(record)
        return known

    def _punctuation_of(self, record: CommittedStream) -> Instant:
        """The punctuation of a stream that follows others."""
        if record.bound is not None:
            punctuation = record.bound.value(self.punctuation)
        elif record.inputs:
            punctuation = min(map(self.punctuation, record.inputs))
        else:
            punctuation = self._emitted_to(record.producer)
            punctuation -= 0 if punctuation in (BEGINNING, FOREVER) else record.behind
        return max(record.punctuation, punctuation)

    def _emitted_to(self, operator: str) -> Instant:
        """The instant up to which an operator has emitted; `BEGINNING` where there is none."""
        record = self.operators.get(operator)
        if record is None:
            return BEGINNING
        return self.punctuation(record.follows) if record.follows else record.emitted_to

    def _progress_of(self, record: CommittedStream) -> CommittedStream:
        """The progress of a stream that follows others."""
        inputs = [self.stream(name) for name in record.inputs]
        greatest = [self.stream(name).greatest for name in record.now_of]
        taken = max((stream.taken for stream in inputs), default=record.taken)
        return replace(
            record,
            punctuation=self._punctuation_of(record),
            greatest=max(record.greatest, *greatest, BEGINNING),
            taken=taken,
            until=max(record.until, taken + 1) if inputs else record.until,
        )

    def find_operator(self, name: str) -> OperatorProgress | None:
        """The progress of an operator; None where there is none."""
        return self.operator(name) if name in self.operators else None

    def operator(self, name: str) -> OperatorProgress:
        """The progress of an operator that the manifest has."""
        record = self.operators[name]
        if not record.follows:
            return record
        emitted_to, replayed = self.punctuation(record.follows), self.length_of(record.follows)
        return replace(record, emitted_to=emitted_to, replayed=replayed, follows="")

    def length_of(self, stream: str) -> int:
        """The position of a reader of a stream, or of a union, that has folded all of its archive."""
        if self.streams.get(stream, NEW_STREAM).inputs:
            return self.stream(stream).until
        return self.lists.get(f"archive:{stream}", RadixList()).length

    def with_base(self, write: Write) -> Manifest:
        """The same manifest, over a new base where too many records at rest have changed."""
        layers = (self.streams, self.operators, self.lists)
        if not needs_base(layers):
            return self
        base = Records(self.streams.at_rest(), self.operators.at_rest(), self.lists.at_rest())
        name = write(base.encode())
        return replace(
            self,
            streams=self.streams.over(base.streams),
            operators=self.operators.over(base.operators),
            lists=self.lists.over(base.lists),
            base=name,
        )

    def as_json(self) -> dict[str, Any]:
        """JSON values without the lists; see `from_json`."""
        layers = (self.streams, self.operators, self.lists)
        value = {
            "epoch": self.epoch,
            "incarnation": self.incarnation,
            "kind": self.kind,
            "plan": self.plan,
            "querylog": self.querylog,
            "ingest": self.ingest,
            "streams": {name: stream.as_json() for name, stream in self.streams.moving.items()},
            "operators": operators_to_json(self.operators.moving),
            "state": [run.as_json() for run in self.state],
            "facts": dict(self.facts),
        }
        if self.base or any(part.changes for part in layers):
            gone = [sorted(part.gone) for part in layers]
            value["at_rest"] = {"base": self.base, "gone": gone, "overlay": self._overlay()}
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any], base: Callable[[str], Records] = lambda _: Records()) -> Manifest:
        """The inverse of `encode`; `base` reads the file of that name."""
        attributes = dict(value)
        at_rest = attributes.pop("at_rest", None)
        moving = Records.from_json(attributes)
        attributes["state"] = tuple(StateRun(*run) for run in attributes["state"])
        name = "" if at_rest is None else at_rest["base"]
        overlay = Records() if at_rest is None else Records.from_json(json.loads(at_rest["overlay"]))
        gone = ((), (), ()) if at_rest is None else at_rest["gone"]
        streams, operators, lists = (frozenset(names) for names in gone)
        below = base(name) if name else Records()
        attributes["streams"] = Layers(
            NO_STREAMS.is_at_rest, moving.streams, overlay.streams, below.streams, streams
        )
        attributes["operators"] = Layers(
            NO_OPERATORS.is_at_rest, moving.operators, overlay.operators, below.operators, operators
        )
        attributes["lists"] = Layers(NO_LISTS.is_at_rest, moving.lists, overlay.lists, below.lists, lists)
        return Manifest(**attributes, base=name)

    def _overlay(self) -> str:
        """The records at rest that changed after the base, as text; that of the last manifest is kept."""
        overlays = self.streams.overlay, self.operators.overlay, self.lists.overlay
        last = _encoded.last
        if any(one is not other for one, other in zip(last[0], overlays, strict=True)):
            _encoded.last = last = overlays, Records(*overlays).text()
        return last[1]

    def encode(self) -> bytes:
        """The bytes of the manifest's file."""
        return seal_text(
            _KIND,
            _VERSION,
            f'{json_text(_KIND, self.as_json())[:-1]},"lists":{lists_text(self.lists.moving)}}}',
        )

    @staticmethod
    def decode(data: bytes, name: str, base: Callable[[str], Records] = lambda _: Records()) -> Manifest:
        """The inverse; `CorruptStore` names the file `name`. `base` reads the records at rest."""
        body = unseal(_KIND, _VERSION, data, name)
        try:
            return Manifest.from_json(body, base)
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
        self._bases: dict[str, Records] = {}

    def latest(self) -> Manifest | None:
        """The newest manifest; None in an empty home. Lists once, then searches for newer ones each time."""
        while True:
            number, newest = self._files.last(self._last_number), self._newest
            if number is None:
                return None
            self._last_number = number
            if newest is None or newest.epoch != number:
                try:
                    newest = self._newest = self._read(self._files.name(number), number)
                except MissingFile:
                    continue  # it was collected since, so there are newer ones
            return newest

    def read(self, epoch: int) -> Manifest:
        """The manifest of an epoch; `MissingFile` when it was collected or never published."""
        return self._read(self._files.name(epoch), epoch)

    def epochs(self) -> range:
        """The epochs whose manifest is retained."""
        return self._files.range()

    def retained(self) -> list[Manifest]:
        """These manifests, the oldest first."""
        return [self.read(epoch) for epoch in self.epochs()]

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

    def drop_old(self, latest: int, keep: int = KEPT) -> tuple[str, ...]:
        """Delete all but the `keep` manifests up to epoch `latest`; the deleted names."""
        return self._files.drop_below(latest - keep + 1)

    def _read(self, name: str, epoch: int) -> Manifest:
        manifest = Manifest.decode(self._store.read(name), name, self._base)
        if manifest.epoch != epoch:
            raise CorruptStore(f"the manifest '{name}' is of epoch {manifest.epoch}")
        return manifest

    def _base(self, name: str) -> Records:
        """The records at rest in a file; those of the last file that was read are kept."""
        known = self._bases.get(name)  # other threads may replace it
        if known is None:
            known = Records.decode(self._store.read(name), name)
            self._bases = {name: known}
        return known
