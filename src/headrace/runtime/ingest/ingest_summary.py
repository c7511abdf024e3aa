"""Summary of ingest records that are dropped: files listed, batches of producers, and how far micro-batches and rates had come.

The ingest log grows with every file and every push. Records that no epoch needs any more are summed up in a file that a
manifest names; then their chunks go. A summary is written when at least as many records have come since the last one as
it has names, so that what is written follows what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.records.producers import Producers
from headrace.connectors.sources.known_files import KnownFile
from headrace.store.files.envelope import seal, unseal
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles
from headrace.time import Instant

if TYPE_CHECKING:
    from headrace.runtime.home.home import Home

INTAKE: Final = "intake"
"""In a manifest's facts: the summary's file, how many records it stands for, and how many names it has."""
FEWEST: Final = 64
"""Records that are worth a summary."""
_KIND: Final = "intake summary"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Of one stream: `born` tells it from an earlier one of its name; files listed and when; the greatest micro-batch, -1 for
    none; when its rate began and how many rows it has given; the producers of pushed batches.
    """

    born: int
    seen: Mapping[str, KnownFile]
    batch: int = -1
    rate: tuple[Instant, int] | None = None
    producers: Producers = field(default_factory=Producers)

    def as_json(self) -> dict[str, Any]:
        """JSON values; the inverse is in `load`."""
        rate = None if self.rate is None else list(self.rate)
        seen = {uri: file.to_json() for uri, file in self.seen.items()}
        body = {"born": self.born, "seen": seen, "batch": self.batch, "rate": rate}
        return {**body, "producers": self.producers.as_json()} if self.producers.known else body


def summarised(
    summaries: Callable[[], Mapping[str, StreamSummary]], manifest: Manifest, files: ListFiles
) -> Manifest:
    """The manifest, with a new summary of the records before its `ingest` if there are enough of them."""
    known = manifest.facts.get(INTAKE, {"upto": 0, "names": 0})
    if manifest.ingest - known["upto"] < max(FEWEST, known["names"]):
        return manifest
    streams = summaries()
    body = {name: each.as_json() for name, each in streams.items()}
    fact = {
        "file": files.write(seal(_KIND, _VERSION, body)),
        "upto": manifest.ingest,
        "names": sum(len(each.seen) + each.producers.numbers for each in streams.values()),
    }
    return replace(manifest, facts={**manifest.facts, INTAKE: fact})


def load(home: Home, manifest: Manifest) -> tuple[int, dict[str, StreamSummary]]:
    """How many records are summed up, and what is known of the streams that are still there."""
    fact = manifest.facts.get(INTAKE)
    if fact is None:
        return 0, {}
    body = unseal(_KIND, _VERSION, home.store.read(fact["file"]), fact["file"])
    found = {}
    for name, each in body.items():
        if each["born"] == home.born(name) and home.catalog.stream(name) is not None:
            rate = None if each["rate"] is None else (each["rate"][0], each["rate"][1])
            producers = Producers.from_json(each.get("producers", {}))
            seen = {uri: KnownFile.from_json(file) for uri, file in each["seen"].items()}
            found[name] = StreamSummary(each["born"], seen, each["batch"], rate, producers)
    return fact["upto"], found
