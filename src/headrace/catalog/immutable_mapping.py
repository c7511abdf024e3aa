"""An immutable mapping by name, of which a changed copy costs only the change; for the catalog's thousands of queries.

A copy shares a base mapping with the original, and stores changed values and removed names separately. When these are
more than the square root of the base, both are merged: n changes of q names cost n times the root of q in any
order. Iteration is in order of insertion, as in a dict: a new value keeps its name's position.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from math import isqrt
from typing import Final, TypeVar

_Value = TypeVar("_Value")
_MIN_CHANGES: Final = 32
"""The number of changes that are never merged."""


class ImmutableMapping(Mapping[str, _Value]):
    """Values by name. Immutable: `edit` makes changed copies."""

    __slots__ = ("_parts",)

    def __init__(
        self,
        base: Mapping[str, _Value] | None = None,
        later: dict[str, _Value] | None = None,
        removed: AbstractSet[str] = frozenset(),
    ) -> None:
        """`base` without the names in `removed`, then `later`; a dict that is passed must not be changed afterwards."""
        self._parts = (base if isinstance(base, dict) else dict(base or {}), later or {}, removed)

    def __getitem__(self, name: str) -> _Value:
        base, later, removed = self._parts
        if name in later:
            return later[name]
        if name in removed:
            raise KeyError(name)
        return base[name]

    def __contains__(self, name: object) -> bool:
        base, later, removed = self._parts
        return name in later or (name in base and name not in removed)

    def __len__(self) -> int:
        base, later, removed = self._parts
        return len(base) - len(removed) + sum(name in removed or name not in base for name in later)

    def __iter__(self) -> Iterator[str]:
        return iter(self._one())

    def keys(self) -> KeysView[str]:
        """The names in order of insertion."""
        return self._one().keys()

    def values(self) -> ValuesView[_Value]:
        """The values in that order."""
        return self._one().values()

    def items(self) -> ItemsView[str, _Value]:
        """Both."""
        return self._one().items()

    def __repr__(self) -> str:
        return f"ImmutableMapping({self._one()!r})"

    def edit(self) -> Edit[_Value]:
        """An edit, which takes changes and makes a copy with them."""
        base, later, removed = self._parts
        return Edit(base, dict(later), set(removed))

    def _one(self) -> dict[str, _Value]:
        """All names as one dict, the base of later copies."""
        base, later, removed = self._parts
        if later or removed:
            base = _together(base, later, removed)
            self._parts = (base, {}, frozenset())
        return base


class Edit(Mapping[str, _Value]):
    """Changes to an immutable mapping; they are visible at once."""

    __slots__ = ("_base", "_later", "_removed")

    def __init__(self, base: dict[str, _Value], later: dict[str, _Value], removed: set[str]) -> None:
        self._base, self._later, self._removed = base, later, removed

    def __getitem__(self, name: str) -> _Value:
        if name in self._later:
            return self._later[name]
        if name in self._removed:
            raise KeyError(name)
        return self._base[name]

    def __contains__(self, name: object) -> bool:
        return name in self._later or (name in self._base and name not in self._removed)

    def __len__(self) -> int:
        return len(ImmutableMapping(self._base, self._later, self._removed))

    def __iter__(self) -> Iterator[str]:
        return iter(_together(self._base, self._later, self._removed))

    def put(self, name: str, value: _Value) -> None:
        """Set the value of a name: at its position, or at the end."""
        self._later[name] = value

    def remove(self, name: str) -> _Value:
        """Remove a name; returns its value. Raises `KeyError` for an unknown one."""
        value = self[name]
        self._later.pop(name, None)
        if name in self._base:
            self._removed.add(name)
        return value

    def done(self) -> ImmutableMapping[_Value]:
        """The copy. It shares the edit's mappings, so the edit must not be used afterwards."""
        if len(self._later) + len(self._removed) > max(_MIN_CHANGES, isqrt(len(self._base))):
            return ImmutableMapping(_together(self._base, self._later, self._removed))
        return ImmutableMapping(self._base, self._later, self._removed)


def _together(
    base: dict[str, _Value], later: Mapping[str, _Value], removed: AbstractSet[str]
) -> dict[str, _Value]:
    """One dict; a name that was removed and added again is at the end."""
    remaining = {name: value for name, value in base.items() if name not in removed} if removed else base
    return {**remaining, **later}
