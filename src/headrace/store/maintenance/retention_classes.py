"""Which entries of a list are given up although older ones are kept? Lists are cut in front only, but their entries may
belong to classes that are kept for different lengths of time.

A manifest's fact `forgotten` says for a list, class by class, up to which index its entries are given up. An entry names
its class under `class`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList

EXPIRED: Final = "forgotten"
CLASS: Final = "class"
RETAIN_ALL: Final = "all"
"""The class of entries that do not name one."""


def expired_of(manifest: Manifest, name: str) -> Mapping[str, int]:
    """Class → index of the first entry of it that is kept, for a list of a manifest."""
    found: Mapping[str, int] = manifest.facts.get(EXPIRED, {}).get(name, {})
    return found


def is_expired(expired: Mapping[str, int], index: int, entry: Any) -> bool:
    """True for an entry that is given up: what it names may be gone."""
    return bool(expired) and index < expired.get(class_of(entry), 0)


def class_of(entry: Any) -> str:
    """How long an entry is kept, by the name of its class."""
    found: str = entry.get(CLASS, RETAIN_ALL) if isinstance(entry, dict) else RETAIN_ALL
    return found


def with_classes(
    facts: Mapping[str, Any], name: str, listed: RadixList, entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Facts that know the classes of entries about to be appended to a list."""
    known = dict(facts.get(EXPIRED, {}).get(name, {RETAIN_ALL: listed.start}))
    for entry in entries:
        known.setdefault(entry.get(CLASS, RETAIN_ALL), listed.length)
    return with_expired(facts, name, known)


def with_expired(facts: Mapping[str, Any], name: str, expired: Mapping[str, int]) -> dict[str, Any]:
    """Facts that say of a list, class by class, up to where it is given up."""
    return {**facts, EXPIRED: {**facts.get(EXPIRED, {}), name: dict(expired)}}
