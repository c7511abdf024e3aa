"""Summaries, in a file, of ingest records that no epoch needs any more: listed files, batches of producers, and the
progress of micro-batches and rates, by which the queue knows what was read before.

The ingest log grows with every file and every push. Records that no epoch needs any more are summarised in a file that a
manifest names; then their chunks are deleted. A summary is written when at least as many records were added since the last
one as it has names, so that the bytes written follow the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.records.producers import Producer
from headrace.connectors.sources.known_files import KnownFile
from headrace.dataclass import dataclass
from headrace.store.files.envelope import seal, unseal
from headrace.store.logs.manifest import SUMMARISED, Manifest
from headrace.store.logs.radix_list import ListFiles
from headrace.time import Instant

if TYPE_CHECKING:
    from headrace.runtime.home.home import Home

FEWEST: Final = 64
"""The least number of records for a new summary."""
_KIND: Final = "intake summary"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """The summary of one stream.

    `born` distinguishes it from an earlier stream of the same name; `seen` are files and when they were listed; `batch` is the
    last micro-batch, -1 for none; `rate` when its rate began and the rows it has given; `producers` those of pushed batches, as
    `Producers.as_json` has them: values that later batches do not change.
    """

    born: int
    seen: Mapping[str, KnownFile]
    batch: int = -1
    rate: tuple[Instant, int] | None = None
    producers: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON values; the inverse is in `load`."""
        rate = None if self.rate is None else list(self.rate)
        seen = {uri: file.to_json() for uri, file in self.seen.items()}
        body = {"born": self.born, "seen": seen, "batch": self.batch, "rate": rate}
        return {**body, "producers": self.producers} if self.producers else body

    @property
    def names(self) -> int:
        """How many files and batches it names."""
        return len(self.seen) + sum(map(Producer.batches_of, self.producers.values()))


def summarised(
    summaries: Callable[[], Mapping[str, StreamSummary]], manifest: Manifest, files: ListFiles
) -> Manifest:
    """The manifest, with a new summary of the records before its `ingest` if there are enough of them."""
    previous = manifest.facts.get(SUMMARISED, {"upto": 0, "names": 0})
    if manifest.ingest - previous["upto"] < max(FEWEST, previous["names"]):
        return manifest
    streams = summaries()
    body = {name: summary.as_json() for name, summary in streams.items()}
    fact = {
        "file": files.write(seal(_KIND, _VERSION, body)),
        "upto": manifest.ingest,
        "names": sum(summary.names for summary in streams.values()),
    }
    return replace(manifest, facts={**manifest.facts, SUMMARISED: fact})


def load(home: Home, manifest: Manifest) -> tuple[int, dict[str, StreamSummary]]:
    """The number of summarised records, and the summaries of the streams that still exist."""
    fact = manifest.facts.get(SUMMARISED)
    if fact is None:
        return 0, {}
    body = unseal(_KIND, _VERSION, home.store.read(fact["file"]), fact["file"])
    summaries = {}
    for name, summary in body.items():
        if summary["born"] == home.born(name) and home.catalog.stream(name) is not None:
            rate = None if summary["rate"] is None else (summary["rate"][0], summary["rate"][1])
            producers = summary.get("producers", {})
            seen = {uri: KnownFile.from_json(file) for uri, file in summary["seen"].items()}
            summaries[name] = StreamSummary(summary["born"], seen, summary["batch"], rate, producers)
    return fact["upto"], summaries
