"""The files for many epochs that a home writes while its epochs run: joined runs of archives, joined rejects, and samples of runs."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.home.home import Home
from headrace.runtime.samples.joined_rejects import JoiningRejects
from headrace.runtime.samples.joined_runs import Joining
from headrace.runtime.samples.run_samples import Sampling
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """All of them, each in a thread of its own; the next epoch's manifest names what was written."""

    joining: Joining
    rejects: JoiningRejects
    sampling: Sampling

    @staticmethod
    def of(home: Home) -> ArchiveFiles:
        """Those of a home."""
        return ArchiveFiles(Joining(home), JoiningRejects(home), Sampling(home))

    def settled(self, planned: Manifest, lists: ListFiles) -> Manifest:
        """An epoch's manifest with what was written."""
        joined = self.rejects.settled(self.joining.settled(planned, lists), lists)
        return self.sampling.settled(joined, lists)

    def look(self, manifest: Manifest, streams: Sequence[StreamDefinition], *, in_thread: bool) -> None:
        """Write what is due after an epoch, in threads with `in_thread`. Raises the failure of the last time."""
        self.joining.look(manifest, streams, in_thread=in_thread)
        self.rejects.look(manifest, streams, in_thread=in_thread)
        self.sampling.look(manifest, streams, in_thread=in_thread)
