"""The files for many epochs that a home writes while its epochs run: joined runs of archives, joined rejects, and samples of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.home.home import Home
from headrace.runtime.samples import periodic_write
from headrace.runtime.samples.periodic_write import PeriodicWrite
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles


class Kinds(NamedTuple):
    """Each kind of such files."""

    joining: PeriodicWrite
    rejects: PeriodicWrite
    sampling: PeriodicWrite


@dataclass(slots=True)
class ArchiveFiles:
    """All of them, each in a thread of its own; the next epoch's manifest names what was written."""

    home: Home
    _kinds: Kinds | None = None

    @property
    def kinds(self) -> Kinds:
        """What writes them, made with the first that may be due: a short run has none."""
        if self._kinds is None:
            from headrace.runtime.samples.joined_rejects import JoiningRejects  # noqa: PLC0415
            from headrace.runtime.samples.joined_runs import Joining  # noqa: PLC0415
            from headrace.runtime.samples.run_samples import Sampling  # noqa: PLC0415

            self._kinds = Kinds(Joining(self.home), JoiningRejects(self.home), Sampling(self.home))
        return self._kinds

    def settled(self, planned: Manifest, lists: ListFiles) -> Manifest:
        """An epoch's manifest with what was written."""
        for kind in self._kinds or ():
            planned = kind.settled(planned, lists)
        return planned

    def look(self, manifest: Manifest, streams: Sequence[StreamDefinition], *, in_thread: bool) -> None:
        """Write what is due after an epoch, in threads with `in_thread`. Raises the failure of the last time."""
        if self._kinds is None and manifest.epoch < periodic_write.EVERY:
            return
        for kind in self.kinds:
            kind.look(manifest, streams, in_thread=in_thread)
