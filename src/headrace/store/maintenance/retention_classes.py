"""Classes of retention in a manifest's lists: of each class of entries the index up to which they are expired, read
from and stored in the manifest's facts. Lists are dropped from the front only, but their entries may expire at
different ages.

The manifest's fact `forgotten` maps a list, class by class, to the index up to which its entries are expired. An entry
names its class under `class`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList

EXPIRED: Final = "forgotten"
CLASS: Final = "class"
PART: Final = "part"
"""In an entry: which part of a file it is that successive entries of its class share."""
WITHIN: Final = "within"
"""In an entry: the file that it shares with its neighbours, whether it has rows in it or not."""
RETAIN_ALL: Final = "all"
"""The class of entries that do not name one."""


def expired_of(manifest: Manifest, name: str) -> Mapping[str, int]:
    """Class → index of its first retained entry, for a list of a manifest."""
    expired: Mapping[str, int] = manifest.facts.get(EXPIRED, {}).get(name, {})
    return expired


def is_expired(expired: Mapping[str, int], index: int, entry: Any) -> bool:
    """True for an expired entry: files that it names may be deleted."""
    return bool(expired) and index < expired.get(class_of(entry), 0)


def may_share(entry: Any) -> bool:
    """Whether an entry may have its file together with others."""
    return _shared_file(entry) is not None


def is_of_one_file(entry: Any, other: Any) -> bool:
    """Whether two entries are parts of the same file."""
    file = _shared_file(entry)
    return file is not None and file == _shared_file(other)


def _shared_file(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    name: str | None = entry.get("name") if PART in entry else entry.get(WITHIN)
    return name


def class_of(entry: Any) -> str:
    """The name of an entry's retention class."""
    name: str = entry.get(CLASS, RETAIN_ALL) if isinstance(entry, dict) else RETAIN_ALL
    return name


def with_classes(
    facts: Mapping[str, Any], name: str, listed: RadixList, entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Facts with the classes of entries about to be appended to a list."""
    expired = dict(facts.get(EXPIRED, {}).get(name, {RETAIN_ALL: listed.start}))
    for entry in entries:
        expired.setdefault(entry.get(CLASS, RETAIN_ALL), listed.length)
    return with_expired(facts, name, expired)


def with_expired(facts: Mapping[str, Any], name: str, expired: Mapping[str, int]) -> dict[str, Any]:
    """Facts with new expiry indexes of a list, class by class."""
    return {**facts, EXPIRED: {**facts.get(EXPIRED, {}), name: dict(expired)}}
