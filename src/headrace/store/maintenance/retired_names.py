"""Names of files that one manifest needs and a later one does not: what an epoch makes garbage, found from what differs
between the two instead of by listing all files.

Of folders in which a name is used once, in one place of a manifest, or by successive entries of one class in a list; others are
left to the full collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from headrace.store.logs.committed import NEW_STREAM
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList, Read
from headrace.store.maintenance.garbage_collection import names_in
from headrace.store.maintenance.retention_classes import (
    EXPIRED,
    class_of,
    expired_of,
    is_expired,
    is_of_one_file,
    may_share,
)
from headrace.time import FOREVER

_NAMED_TWICE: Final = {"archive": "rejects/"}
"""By kind of list the folder of files that entries of earlier versions name, and entries of another list too: that one counts."""
FOLDERS: Final = ("archive/", "lists/", "rejects/", "results/", "samples/", "state/")


def retired(before: Manifest, after: Manifest, read: Read, root: str) -> set[str]:
    """Names in `FOLDERS` that `before` needs and `after`, a later manifest of the same home, does not."""
    names = _of_state(before, after) - _of_state(after, before)
    changed = [value for fact, value in before.facts.items() if value != after.facts.get(fact)]
    if gone := {name for value in changed for name in names_in(value, root)}:
        names |= gone - set(names_in(dict(after.facts), root))  # several facts may name one file
    expiring = (*before.facts.get(EXPIRED, {}), *after.facts.get(EXPIRED, {}))
    for name in {*after.lists.changed_since(before.lists), *expiring}:
        listed, shorter = before.lists.get(name), after.lists.get(name)
        if listed is None:
            continue
        start = FOREVER if shorter is None else shorter.start
        gone = set(listed.segments_before(read, start))
        for entry in _dropped(listed, expired_of(before, name), start, expired_of(after, name), read):
            gone.update(names_in(entry, root))
        if shorter is not None:
            gone |= _replaced(listed, expired_of(before, name), shorter, expired_of(after, name), read, root)
        names |= {one for one in gone if not one.startswith(_NAMED_TWICE.get(name.partition(":")[0], ()))}
    return {name for name in names if name.startswith(FOLDERS)}


def _replaced(
    listed: RadixList,
    expired: Mapping[str, int],
    later: RadixList,
    expired_after: Mapping[str, int],
    read: Read,
    root: str,
) -> set[str]:
    """Segments whose entries other segments have now, and what these entries named and no longer do."""
    replaced = listed.replacements(later, read)
    needed = (
        (index, entry)
        for index, entry in replaced.before
        if index >= listed.start and not is_expired(expired, index, entry)
    )
    still = (
        (index, entry)
        for index, entry in replaced.after
        if index >= later.start and not is_expired(expired_after, index, entry)
    )
    return {*replaced.names, *_names_of(needed, root)} - _names_of(still, root)


def _names_of(entries: Iterable[tuple[int, object]], root: str) -> set[str]:
    return {name for _, entry in entries for name in names_in(entry, root)}


def _of_state(manifest: Manifest, other: Manifest) -> set[str]:
    """State runs, and the files of keys of streams whose record is another one in the other manifest."""
    changed = (
        manifest.streams.get(name, NEW_STREAM) for name in manifest.streams.changed_since(other.streams)
    )
    return {run.name for run in manifest.state} | {file.name for stream in changed for file in stream.keys}


def _dropped(
    listed: RadixList, expired: Mapping[str, int], start: int, expired_after: Mapping[str, int], read: Read
) -> Iterator[object]:
    """Entries that were needed and no longer are, but those whose file a retained one has too.

    Each class from its bound before to its bound after.
    """
    classes = expired.keys() | expired_after.keys()
    for retention_class in (*classes, None):  # None: all classes without a bound of their own
        low = max(listed.start, expired.get(retention_class or "", 0))
        high = max(start, expired_after.get(retention_class or "", 0))
        if low < high:
            is_of_class = (
                (lambda of: of not in classes) if retention_class is None else retention_class.__eq__
            )
            yield from _without_shared(listed.iterate(read, low), high, is_of_class)


def _without_shared(
    entries: Iterable[tuple[int, Any]], high: int, is_of_class: Callable[[str], bool]
) -> Iterator[object]:
    """The entries of a class below `high`, without the last ones if their file is also that of the next entry."""
    last: list[Any] = []
    for index, entry in entries:
        if index >= high and not (last and may_share(last[-1])):
            break
        if not is_of_class(class_of(entry)):
            continue
        if last and not is_of_one_file(last[-1], entry):
            yield from last
            last = []
        if index >= high:
            if last:
                return
            break
        last.append(entry)
    yield from last
