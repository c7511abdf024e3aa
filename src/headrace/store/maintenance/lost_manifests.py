"""What a home shows of epochs that were committed after its latest manifest: the newest manifests are missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.store.files.filesystem import Store

_RUNS: Final = ("state/", "results/")
"""Folders of files that an epoch writes; each is named by its epoch."""
_POSITIONS: Final = "sinks/"


def lost_manifests(store: Store, epoch: int) -> str | None:
    """The evidence that there were later epochs than `epoch`; None if there is none.

    An epoch is prepared under the number after the latest manifest, so a file of that number may be of an attempt that failed; one of a
    later number is not.
    """
    written, name = max(_runs(store), default=(0, ""))
    return f"'{name}' was written after epoch {written - 1} was committed" if written > epoch + 1 else None


def positions_behind(store: Store, results: int) -> Iterator[str]:
    """The files of receivers that are beyond so many entries of results. A program may have acknowledged what it has not got."""
    for file in store.list(_POSITIONS):
        position = file.name.rpartition("/")[2]
        if position.isdecimal() and int(position) > results:
            yield file.name


def _runs(store: Store) -> Iterator[tuple[int, str]]:
    """The files of runs with their epochs; a merged run has none."""
    for folder in _RUNS:
        for file in store.list(folder):
            number = file.name.rpartition("/")[2].partition("-")[0]
            if number.isdecimal():
                yield int(number), file.name
