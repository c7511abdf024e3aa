"""A list of JSON entries, appended at the end and dropped at the front, as a tree of immutable files; its value in a
manifest has the newest entries and a few names of files, and so stays small.

The newest entries (fewer than `FANOUT`) are in the value itself; every `FANOUT` entries become a sealed file, every
`FANOUT` sealed files are named by one more file, and so forth. The value is immutable and small; an older manifest's value
still describes the older list.

Entries of a sealed file may be replaced by others that mean the same: the value then names another file in its place. Such a file
is *flat*: whatever its height, it has all of its entries itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.store.files.envelope import json_text, seal, unseal
from headrace.store.files.filesystem import Store

FANOUT: Final = 64
_KIND: Final = "list segment"
_VERSION: Final = 1
_FLAT_VERSION: Final = 2

Write = Callable[[bytes], str]
"""Writes a segment under a fresh name and returns the name."""
Read = Callable[[str], bytes]
"""Reads a segment."""


class ListFiles:
    """The folder of list segments in a home, and the new ones to sync before a manifest names them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.unsynced: list[str] = []

    def write(self, data: bytes) -> str:
        """Write a segment under a name of its own, not yet durable."""
        name = f"lists/{uuid.uuid4().hex}.json"
        self._store.write_once(name, [data], durable=False)
        self.unsynced.append(name)
        return name

    def read(self, name: str) -> bytes:
        """The bytes of a segment."""
        return self._store.read(name)


@dataclass(frozen=True, slots=True)
class RadixList:
    """`length` entries were ever appended; those before `start` are dropped.

    `levels[k]` names, oldest first, the sealed files that cover `FANOUT ** (k + 1)` entries each and that no file of a
    higher level names. None replaces a file of which every entry is dropped.
    """

    start: int = 0
    length: int = 0
    tail: tuple[Any, ...] = ()
    levels: tuple[tuple[str | None, ...], ...] = ()
    _tail_text: str | None = field(default=None, compare=False, repr=False)
    """The JSON of the tail's entries, where it is known: an epoch encodes only those that it adds."""

    def __len__(self) -> int:
        return self.length - self.start

    def append(self, entries: Iterable[Any], write: Write) -> RadixList:
        """The list with more entries. `write` is called once for each segment that is sealed."""
        tail, text = list(self.tail), self._text()
        levels = [list(level) for level in self.levels]
        length = self.length
        for entry in entries:
            tail.append(entry)
            length += 1
            if len(tail) == FANOUT:
                _push(levels, 0, write(seal(_KIND, _VERSION, {"height": 0, "of": tail})), write)
                tail, text = [], ""
            else:
                text += ("," if text else "") + json_text(_KIND, entry)
        return RadixList(self.start, length, tuple(tail), tuple(map(tuple, levels)), text)

    def drop_before(self, index: int) -> RadixList:
        """The list without the entries before `index`. Positions of the others stay as they are."""
        start = max(self.start, min(index, self.length))
        levels = list(self.levels)
        for node in self._nodes():
            if node.end <= start:
                position = (node.first - self._first_of(node.height)) // covered(node.height)
                levels[node.height] = (
                    *levels[node.height][:position],
                    None,
                    *levels[node.height][position + 1 :],
                )
        return RadixList(start, self.length, self.tail, tuple(levels), self._tail_text)

    def iterate(self, read: Read, from_index: int = 0, *, reverse: bool = False) -> Iterator[tuple[int, Any]]:
        """(index, entry) from `from_index` on, or with `reverse` from the newest down to `from_index`."""
        low = max(self.start, from_index)
        base = self.length - len(self.tail)
        if reverse:
            yield from _entries(self.tail, base, low, reverse)
        nodes = list(self._nodes())
        for node in reversed(nodes) if reverse else nodes:
            yield from _inside(read, node, low, reverse)
        if not reverse:
            yield from _entries(self.tail, base, low, reverse)

    def first_where(self, holds: Callable[[Any], bool], read: Read) -> int:
        """Index of the first entry, of those not dropped, for which something holds that holds for all later ones; else the length.

        Reads a number of files that grows with the logarithm of the length.
        """
        low, high = self.start, self.length
        while low < high:
            middle = (low + high) // 2
            if holds(next(self.iterate(read, middle))[1]):
                high = middle
            else:
                low = middle + 1
        return low

    def newest(self) -> Iterator[tuple[int, Any]]:
        """(index, entry) of the entries not dropped that are in no sealed file yet."""
        return _entries(self.tail, self.length - len(self.tail), self.start, False)

    def segments(self, read: Read) -> Iterator[str]:
        """Names of all sealed files that hold entries not dropped, or name such files."""
        for node in self._nodes():
            yield from _names(read, node, self.start)

    def segments_before(self, read: Read, index: int) -> Iterator[str]:
        """Names of the sealed files that hold entries not dropped, or name such files, none of them at `index` or later."""
        for node in self._nodes():
            if node.first < index:
                yield from _names_before(read, node, self.start, index)

    def leaves(self, read: Read) -> Iterator[tuple[int, str]]:
        """(index of the first entry, name) of the sealed files that have entries themselves, not all of them dropped; oldest first."""
        for node in self._nodes():
            yield from _leaves(read, node, self.start)

    def sealed(self, height: int, first: int, read: Read) -> Sealed | None:
        """The sealed file of a height whose first entry is `first`; None where all its entries are dropped, or it is not there."""
        node = self._find(height, first, read)
        if node is None or node.name is None or node.height != height or node.end <= self.start:
            return None
        return Sealed(node.name, tuple(_all(read, node)))

    def segment_at(self, height: int, first: int, read: Read) -> str | None:
        """The name of that sealed file alone."""
        node = self._find(height, first, read)
        return None if node is None or node.height != height or node.end <= self.start else node.name

    def with_segment(self, height: int, first: int, name: str, write: Write, read: Read) -> RadixList:
        """The list with another sealed file of the same entries; the files that lead to it are written again."""
        levels = list(self.levels)
        for node in self._nodes():
            if node.height >= height and node.first <= first < node.end:
                at = (node.first - self._first_of(node.height)) // covered(node.height)
                new = _with_below(read, write, node, (height, first), name)
                levels[node.height] = (*levels[node.height][:at], new, *levels[node.height][at + 1 :])
        return RadixList(self.start, self.length, self.tail, tuple(levels), self._tail_text)

    def replacements(self, later: RadixList, read: Read) -> Replacements:
        """What a later value of the list has replaced: sealed files of entries that are there, but in other files."""
        replaced = Replacements([], [], [])
        if self.levels == later.levels:
            return replaced
        named = {(node.height, node.first): node for node in later._nodes()}
        for node in self._nodes():
            other = named.get((node.height, node.first)) or later._find(node.height, node.first, read)
            if other is not None:
                replaced.add(read, node, other, later.start)
        return replaced

    def _find(self, height: int, first: int, read: Read) -> _Node | None:
        """The sealed file of a height, and entry, that is named by the value or by files below it; a flat one above it counts."""
        nodes = list(self._nodes())
        while True:
            above = [node for node in nodes if node.height >= height and node.first <= first < node.end]
            if not above or above[0].height == height or above[0].name is None:
                return above[0] if above else None
            nodes = above[0].children(read)
            if not nodes:
                return above[0]

    def json(self) -> str:
        """JSON text; see `from_json`."""
        counts = f'"start":{self.start},"length":{self.length}'
        return f'{{{counts},"tail":[{self._text()}],"levels":{json_text(_KIND, self.levels)}}}'

    def _text(self) -> str:
        if self._tail_text is not None:
            return self._tail_text
        return ",".join(json_text(_KIND, entry) for entry in self.tail)

    @staticmethod
    def from_json(value: dict[str, Any]) -> RadixList:
        """The inverse of `json`, from its values."""
        levels = tuple(tuple(level) for level in value["levels"])
        return RadixList(value["start"], value["length"], tuple(value["tail"]), levels)

    def _first_of(self, level: int) -> int:
        """Index of the first entry below the names of a level: the higher levels hold all older ones."""
        return sum(len(self.levels[above]) * covered(above) for above in range(level + 1, len(self.levels)))

    def _nodes(self) -> Iterator[_Node]:
        """All sealed files that this value names itself, oldest first."""
        for level in reversed(range(len(self.levels))):
            first = self._first_of(level)
            for position, name in enumerate(self.levels[level]):
                yield _Node(level, first + position * covered(level), name)


@dataclass(frozen=True, slots=True)
class _Node:
    """A sealed file: its height, the index of its first entry, and its name unless all its entries are dropped."""

    height: int
    first: int
    name: str | None

    @property
    def end(self) -> int:
        return self.first + covered(self.height)

    def children(self, read: Read) -> list[_Node]:
        """The files that it names; none if it has its entries itself."""
        names, is_flat = _content(read, self)
        return [] if is_flat else self.named(names)

    def named(self, names: Sequence[str | None]) -> list[_Node]:
        """The files with these names below it."""
        step = covered(self.height - 1)
        return [
            _Node(self.height - 1, self.first + position * step, name) for position, name in enumerate(names)
        ]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed file, and all its entries; `{}` in place of one whose file was dropped."""

    name: str
    entries: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Replacements:
    """Names of replaced files; the entries that they have themselves, and those in their place: (index, entry)."""

    names: list[str]
    before: list[tuple[int, Any]]
    after: list[tuple[int, Any]]

    def add(self, read: Read, node: _Node, other: _Node, start: int) -> None:
        """Add a file that `other` replaces, if it is another one and not all of its entries are dropped, and those below it."""
        if node.name is None or other.name in (None, node.name) or node.end <= start:
            return
        self.names.append(node.name)
        children = node.children(read)
        others = other.children(read) if children else []
        if not others:  # one file, or several, by a flat one
            self.before.extend(enumerate(_all(read, node), node.first))
            self.after.extend(enumerate(_all(read, other), other.first))
            self.names.extend(name for child in children for name in _names(read, child, start))
            return
        for child, its in zip(children, others, strict=True):
            self.add(read, child, its, start)


def covered(height: int) -> int:
    """How many entries a sealed file of a height covers."""
    return int(FANOUT ** (height + 1))


def _push(levels: list[list[str | None]], level: int, name: str | None, write: Write) -> None:
    if level == len(levels):
        levels.append([])
    levels[level].append(name)
    if len(levels[level]) == FANOUT:
        full, levels[level] = levels[level], []
        whole = None if not any(full) else write(seal(_KIND, _VERSION, {"height": level + 1, "of": full}))
        _push(levels, level + 1, whole, write)


def flat_segment(height: int, entries: Sequence[Any]) -> bytes:
    """The bytes of a sealed file with all of its entries."""
    return seal(_KIND, _FLAT_VERSION, {"height": height, "flat": list(entries)})


def _content(read: Read, node: _Node) -> tuple[list[Any], bool]:
    """What a sealed file has, and whether these are entries: all of its height, or those of a leaf."""
    if node.name is None:
        raise CorruptStore(f"the list segment of the entries {node.first} to {node.end - 1} is not named")
    height, content, is_flat = _unsealed(read, node.name)
    expected = covered(node.height) if is_flat else FANOUT
    if height != node.height or len(content) != expected:
        raise CorruptStore(
            f"the list segment '{node.name}' is damaged: expected {expected} entries at height {node.height}, "
            f"found {len(content)} at height {height}"
        )
    return content, is_flat


def _unsealed(read: Read, name: str) -> tuple[int, list[Any], bool]:
    body = unseal(_KIND, _FLAT_VERSION, read(name), name, oldest=_VERSION)
    is_flat = "flat" in body
    return body["height"], body["flat" if is_flat else "of"], is_flat or not body["height"]


def _all(read: Read, node: _Node) -> Iterator[Any]:
    """The entries of a sealed file; `{}` for those of a dropped one."""
    content, is_flat = ([], False) if node.name is None else _content(read, node)
    if is_flat:
        yield from content
    elif node.name is None:
        yield from ({} for _ in range(covered(node.height)))
    else:
        for child in node.children(read):
            yield from _all(read, child)


def _with_below(read: Read, write: Write, node: _Node, target: tuple[int, int], name: str) -> str:
    """The name of a sealed file, written again where it is above the target (height, first entry)."""
    height, first = target
    if node.height == height:
        return name
    names = [child.name for child in node.children(read)]
    at = (first - node.first) // covered(node.height - 1)
    child = _Node(node.height - 1, node.first + at * covered(node.height - 1), names[at])
    names[at] = _with_below(read, write, child, target, name)
    return write(seal(_KIND, _VERSION, {"height": node.height, "of": names}))


def _entries(entries: Iterable[Any], first: int, low: int, reverse: bool) -> Iterator[tuple[int, Any]]:
    selected = [(index, entry) for index, entry in enumerate(entries, first) if index >= low]
    return reversed(selected) if reverse else iter(selected)


def _inside(read: Read, node: _Node, low: int, reverse: bool) -> Iterator[tuple[int, Any]]:
    if node.end <= low:
        return
    content, is_flat = _content(read, node)
    if is_flat:
        yield from _entries(content, node.first, low, reverse)
        return
    children = node.named(content)
    for child in reversed(children) if reverse else children:
        yield from _inside(read, child, low, reverse)


def _names(read: Read, node: _Node, start: int) -> Iterator[str]:
    if node.end <= start or node.name is None:
        return
    yield node.name
    if node.height:
        for child in node.children(read):
            yield from _names(read, child, start)


def _names_before(read: Read, node: _Node, start: int, stop: int) -> Iterator[str]:
    if node.end <= start or node.first >= stop or node.name is None:
        return
    if node.height:
        for child in node.children(read):
            yield from _names_before(read, child, start, stop)
    if node.end <= stop:
        yield node.name


def _leaves(read: Read, node: _Node, start: int) -> Iterator[tuple[int, str]]:
    if node.end <= start or node.name is None:
        return
    children = node.children(read) if node.height else []
    if not children:
        yield node.first, node.name
        return
    for child in children:
        yield from _leaves(read, child, start)


def leaf_entries(read: Read, name: str) -> list[Any]:
    """The entries of a sealed file that `leaves` named."""
    _, entries, is_flat = _unsealed(read, name)
    if not is_flat:
        raise CorruptStore(f"the list segment '{name}' has names of others where entries are expected")
    return entries
