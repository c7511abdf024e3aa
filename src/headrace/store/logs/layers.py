"""Immutable mapping of thousands of records, of which few change in an epoch, so that what a manifest stores follows
the changes; and the decision when the unchanged part is written again.

Records at rest are in a *base*, a file that many manifests name, and an *overlay* of those that changed after it. Records
that are not at rest are in every manifest. The value is immutable; a changed one shares the base.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Generic, TypeVar, overload

from headrace.dataclass import dataclass

_LEAST: Final = 64
_Record = TypeVar("_Record")
_Other = TypeVar("_Other")


@dataclass(frozen=True, slots=True, eq=False)
class Layers(Mapping[str, _Record], Generic[_Record]):
    """Records by name. `gone` are names of the base that have no record any more, or one that is not at rest."""

    is_at_rest: Callable[[str, _Record], bool]
    moving: Mapping[str, _Record] = field(default_factory=dict)
    """Records that are not at rest."""
    overlay: Mapping[str, _Record] = field(default_factory=dict)
    base: Mapping[str, _Record] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> _Record:
        for layer in (self.moving, self.overlay):
            if name in layer:
                return layer[name]
        if name in self.gone:
            raise KeyError(name)
        return self.base[name]

    @overload
    def get(self, name: str, /) -> _Record | None: ...

    @overload
    def get(self, name: str, /, default: _Record | _Other) -> _Record | _Other: ...

    def get(self, name: str, /, default: _Record | _Other | None = None) -> _Record | _Other | None:
        """The record of a name, or `default`: most names that are asked for have none, so this raises nothing."""
        for layer in (self.moving, self.overlay):
            if name in layer:
                return layer[name]
        return default if name in self.gone else self.base.get(name, default)

    def __contains__(self, name: object) -> bool:
        if name in self.moving or name in self.overlay:
            return True
        return name in self.base and name not in self.gone

    def __iter__(self) -> Iterator[str]:
        yield from self.moving
        yield from self.overlay
        for name in self.base:
            if name not in self.gone and name not in self.overlay:
                yield name

    def __len__(self) -> int:
        hidden = len(self.gone) + sum(name in self.base for name in self.overlay)
        return len(self.moving) + len(self.overlay) + len(self.base) - hidden

    def changed(self, records: Mapping[str, _Record], dropped: Iterable[str] = ()) -> Layers[_Record]:
        """With these records in place of former ones, and without the dropped ones."""
        dropped = tuple(dropped)
        if not records and not dropped:
            return self
        moving, overlay, gone = dict(self.moving), dict(self.overlay), set(self.gone)
        for name in dropped:
            moving.pop(name, None)
            overlay.pop(name, None)
            if name in self.base:
                gone.add(name)
        for name, record in records.items():
            if self.is_at_rest(name, record):
                moving.pop(name, None)
                gone.discard(name)
                overlay[name] = record
            else:
                overlay.pop(name, None)
                if name in self.base:
                    gone.add(name)
                moving[name] = record
        return Layers(self.is_at_rest, moving, overlay, self.base, frozenset(gone))

    def changed_since(self, earlier: Layers[_Record]) -> Iterator[str]:
        """Names with another record than in an earlier value, or in only one of the two; the cost follows what has changed.

        All records are compared where there is another base, which is written after many changes.
        """
        if self.base is earlier.base:
            changing = ((*layers.moving, *layers.overlay, *layers.gone) for layers in (self, earlier))
            names = itertools.chain(*changing)
        else:
            names = itertools.chain(self, earlier)
        for name in dict.fromkeys(names):
            if self.get(name) is not earlier.get(name):
                yield name

    def at_rest(self) -> dict[str, _Record]:
        """All records at rest: those of the next base."""
        records = {name: record for name, record in self.base.items() if name not in self.gone}
        return {**records, **self.overlay}

    def over(self, base: Mapping[str, _Record]) -> Layers[_Record]:
        """The same records, when `base` has all of those at rest."""
        return Layers(self.is_at_rest, self.moving, {}, base)

    @property
    def changes(self) -> int:
        """How many records differ from the base."""
        return len(self.overlay) + len(self.gone)


def needs_base(layers: Iterable[Layers[Any]]) -> bool:
    """Whether the changes are so many that a new base pays: each is written with every manifest until then.

    A base of n records is written after the square root of n changes, up to a factor: so both cost about the same.
    """
    parts = list(layers)
    changes, records = sum(part.changes for part in parts), sum(len(part.base) for part in parts)
    return changes > max(_LEAST, 2 * int((records + changes) ** 0.5))
