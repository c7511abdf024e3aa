"""What a home shows of epochs that were committed after its latest manifest: the newest manifests are missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.store.files.filesystem import Store

_RUNS: Final = ("state/", "results/")
"""Folders of files that an epoch writes; each is named by its epoch."""
_POSITIONS: Final = "sinks/"


def lost_manifests(store: Store, epoch: int, results: int) -> str | None:
    """The evidence that there were later epochs than `epoch`, with more than so many entries of results; None if there is none.

    An epoch is prepared under the number after the latest manifest, so a file of that number may be of an attempt that failed; one of a
    later number is not, nor is a position of a receiver beyond all results.
    """
    run = max(_runs(store), default=(0, ""))
    if run[0] > epoch + 1:
        return f"'{run[1]}' was written after epoch {run[0] - 1} was committed"
    names = [file.name for file in store.list(_POSITIONS)]
    positions = [(int(stem), name) for name in names if (stem := name.rpartition("/")[2]).isdecimal()]
    position = max(positions, default=(0, ""))
    if position[0] > results:
        return f"'{position[1]}' is a position behind all {results} entries of results"
    return None


def _runs(store: Store) -> Iterator[tuple[int, str]]:
    """The files of runs with their epochs; a merged run has none."""
    for folder in _RUNS:
        for file in store.list(folder):
            number = file.name.rpartition("/")[2].partition("-")[0]
            if number.isdecimal():
                yield int(number), file.name
