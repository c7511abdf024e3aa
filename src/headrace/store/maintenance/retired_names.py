"""Names of files that one manifest needs and a later one does not: what an epoch makes garbage, found from what differs
between the two instead of by listing all files.

Of folders in which a name is used once, in one place of a manifest; others are left to the full collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.store.logs.committed import NEW_STREAM
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList, Read
from headrace.store.maintenance.garbage_collection import names_in
from headrace.store.maintenance.retention_classes import EXPIRED, class_of, expired_of
from headrace.time import FOREVER

FOLDERS: Final = ("archive/", "lists/", "results/", "state/")


def retired(before: Manifest, after: Manifest, read: Read, root: str) -> set[str]:
    """Names in `FOLDERS` that `before` needs and `after`, a later manifest of the same home, does not."""
    names = _of_state(before, after) - _of_state(after, before)
    for fact, value in before.facts.items():
        if value != (changed := after.facts.get(fact)):
            names |= set(names_in(value, root)) - set(names_in(changed, root))
    expiring = (*before.facts.get(EXPIRED, {}), *after.facts.get(EXPIRED, {}))
    for name in {*after.lists.changed_since(before.lists), *expiring}:
        listed, shorter = before.lists.get(name), after.lists.get(name)
        if listed is None:
            continue
        start = FOREVER if shorter is None else shorter.start
        names.update(listed.segments_before(read, start))
        for entry in _dropped(listed, expired_of(before, name), start, expired_of(after, name), read):
            names.update(names_in(entry, root))
    return {name for name in names if name.startswith(FOLDERS)}


def _of_state(manifest: Manifest, other: Manifest) -> set[str]:
    """State runs, and the files of keys of streams whose record is another one in the other manifest."""
    changed = (
        manifest.streams.get(name, NEW_STREAM) for name in manifest.streams.changed_since(other.streams)
    )
    return {run.name for run in manifest.state} | {file.name for stream in changed for file in stream.keys}


def _dropped(
    listed: RadixList, expired: Mapping[str, int], start: int, expired_after: Mapping[str, int], read: Read
) -> Iterator[object]:
    """Entries that were needed and no longer are: each class from its bound before to its bound after."""
    classes = expired.keys() | expired_after.keys()
    for retention_class in (*classes, None):  # None: all classes without a bound of their own
        low = max(listed.start, expired.get(retention_class or "", 0))
        high = max(start, expired_after.get(retention_class or "", 0))
        for index, entry in listed.iterate(read, low) if low < high else ():
            if index >= high:
                break
            if class_of(entry) == retention_class or (
                retention_class is None and class_of(entry) not in classes
            ):
                yield entry
