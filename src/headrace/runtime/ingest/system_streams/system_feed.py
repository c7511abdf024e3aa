"""The feed of the built-in streams: the rows about an epoch are in its manifest, and are ingested before the next epoch.

So an epoch that is published has its rows, one that is not has none, and a kill between the two costs nothing: the driver that
continues ingests them under the same number of the same producer, which counts once (decision 41).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.catalog.system_streams import QUALITY
from headrace.dataclass import dataclass
from headrace.observation import EpochObservation
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.ingest.pushed_rows import ingest_once
from headrace.runtime.ingest.system_streams.quality_rows import changed, quality_values
from headrace.runtime.ingest.system_streams.system_rows import Measured, Row, as_table, has_rows
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.progress.failing_queries import FAILED_ROWS
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.store.files.envelope import json_text, seal_text, unseal
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import Write
from headrace.time import BEGINNING, FOREVER

FACT: Final = "system"
"""In a manifest's facts: the rows of the built-in streams about the last epoch that has any."""
PRODUCER: Final = "headrace"
"""The producer of these rows; the number of a batch is that of its epoch."""
_KIND: Final = "system rows"
_VERSION: Final = 1
_LARGE: Final = 1 << 14
"""Bytes from which on rows are in a file that the manifest names."""


@dataclass(slots=True)
class SystemFeed:
    """Puts rows into manifests, and ingests those of the manifest in force."""

    intake: Intake
    _fed: int = -1
    """The epoch whose rows were ingested last."""

    def has_rows(self, before: Manifest, after: Manifest, work: EpochWork, index: PlanIndex) -> bool:
        """Whether an epoch has rows, see `system_rows.has_rows`."""
        return has_rows(work, index, changes=before.querylog != after.querylog)

    def with_rows(
        self, before: Manifest, after: Manifest, seen: EpochObservation, index: PlanIndex, write: Write
    ) -> Manifest:
        """The manifest of an epoch with its rows in place of those in the manifest `before`, which are ingested first.

        Their event times never decrease. Raises `PushFailed`.
        """
        self.ingest(before)
        home, last = self.intake.home, before.facts.get(FACT, {})
        at = max(self.intake.clock(), last.get("at", BEGINNING))
        entries = home.query_log.read(before.querylog) if before.querylog != after.querylog else ()
        new = [entry for position, entry in entries if position < after.querylog]
        counts_before = before.facts.get(FAILED_ROWS, {})
        counts = after.facts.get(FAILED_ROWS, {})
        failed = {name: count - counts_before.get(name, 0) for name, count in counts.items()}
        known, quality = last.get("quality", {}), dict[str, Any]()
        if QUALITY in index.system_streams_read:
            quality = quality_values(after, index.plan, home.catalog)
        rows = Measured(seen, at, index, home.catalog, failed, new, changed(quality, known)).rows()
        created = {name: home.created(name) for name in rows}
        fact = {"epoch": after.epoch, "at": at, "created": created, **_stored(rows, write)}
        if quality:
            fact["quality"] = quality
        return replace(after, facts={**after.facts, FACT: fact})

    def is_behind(self, manifest: Manifest, streams: Iterable[str]) -> bool:
        """Whether rows of built-in streams wait for an epoch, in a manifest or in the log."""
        fact = manifest.facts.get(FACT)
        is_ingested = fact is None or fact["epoch"] == self._fed
        return not is_ingested or any(self.intake.waiting(name) for name in streams)

    def ingest(self, manifest: Manifest) -> None:
        """Ingest the rows in a manifest, if they are not in the log yet. Raises `PushFailed`."""
        fact = manifest.facts.get(FACT)
        if fact is None or fact["epoch"] == self._fed:
            return
        home = self.intake.home
        for name, rows in _loaded(fact, home.store.read).items():
            stream = home.catalog.stream(name)
            is_same = stream is not None and home.created(name) == fact["created"][name]
            if stream is not None and is_same and rows and manifest.stream(name).punctuation < FOREVER:
                ingest_once(self.intake, stream, as_table(stream, rows), PRODUCER, fact["epoch"])
        self._fed = fact["epoch"]


def _stored(rows: Mapping[str, Sequence[Row]], write: Write) -> dict[str, Any]:
    """Rows as a part of the fact: themselves, or the name of a file that has them."""
    text = json_text(_KIND, {"rows": rows})
    return {"rows": rows} if len(text) < _LARGE else {"file": write(seal_text(_KIND, _VERSION, text))}


def _loaded(fact: Mapping[str, Any], read: Callable[[str], bytes]) -> Mapping[str, Sequence[Row]]:
    """The inverse."""
    body = fact if "file" not in fact else unseal(_KIND, _VERSION, read(fact["file"]), fact["file"])
    rows: Mapping[str, Sequence[Row]] = body["rows"]
    return rows
