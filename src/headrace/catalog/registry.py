"""What bears which name, when there are thousands and one of them changes? A mapping whose changed copy costs the change.

A copy shares what it had with the one it was made of, and keeps beside it what is new, other or gone. When that has become
many beside the square root of the whole, both are made one: n changes of q names cost n times the root of q, however
they come. Iteration is in the order in which names came, as in a dict: a new value keeps its name's place.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from math import isqrt
from typing import Final, TypeVar

_Value = TypeVar("_Value")
_LEAST_APART: Final = 32
"""So many changes are never worth a new whole."""


class Registry(Mapping[str, _Value]):
    """Values by name. Immutable: `edit` makes changed copies."""

    __slots__ = ("_parts",)

    def __init__(
        self,
        whole: Mapping[str, _Value] | None = None,
        later: dict[str, _Value] | None = None,
        gone: AbstractSet[str] = frozenset(),
    ) -> None:
        """`whole` without the names in `gone`, then `later`; whoever hands over a dict leaves it as it is."""
        self._parts = (whole if isinstance(whole, dict) else dict(whole or {}), later or {}, gone)

    def __getitem__(self, name: str) -> _Value:
        whole, later, gone = self._parts
        if name in later:
            return later[name]
        if name in gone:
            raise KeyError(name)
        return whole[name]

    def __contains__(self, name: object) -> bool:
        whole, later, gone = self._parts
        return name in later or (name in whole and name not in gone)

    def __len__(self) -> int:
        whole, later, gone = self._parts
        return len(whole) - len(gone) + sum(name in gone or name not in whole for name in later)

    def __iter__(self) -> Iterator[str]:
        return iter(self._one())

    def keys(self) -> KeysView[str]:
        """The names in the order in which they came."""
        return self._one().keys()

    def values(self) -> ValuesView[_Value]:
        """The values in that order."""
        return self._one().values()

    def items(self) -> ItemsView[str, _Value]:
        """Both."""
        return self._one().items()

    def __repr__(self) -> str:
        return f"Registry({self._one()!r})"

    def edit(self) -> Edit[_Value]:
        """What takes changes and makes a copy that has them."""
        whole, later, gone = self._parts
        return Edit(whole, dict(later), set(gone))

    def _one(self) -> dict[str, _Value]:
        """All as one dict, from which later copies start too."""
        whole, later, gone = self._parts
        if later or gone:
            whole = _together(whole, later, gone)
            self._parts = (whole, {}, frozenset())
        return whole


class Edit(Mapping[str, _Value]):
    """A registry in the making: changes count at once."""

    __slots__ = ("_gone", "_later", "_whole")

    def __init__(self, whole: dict[str, _Value], later: dict[str, _Value], gone: set[str]) -> None:
        self._whole, self._later, self._gone = whole, later, gone

    def __getitem__(self, name: str) -> _Value:
        if name in self._later:
            return self._later[name]
        if name in self._gone:
            raise KeyError(name)
        return self._whole[name]

    def __contains__(self, name: object) -> bool:
        return name in self._later or (name in self._whole and name not in self._gone)

    def __len__(self) -> int:
        return len(Registry(self._whole, self._later, self._gone))

    def __iter__(self) -> Iterator[str]:
        return iter(_together(self._whole, self._later, self._gone))

    def put(self, name: str, value: _Value) -> None:
        """Give a name a value: in its place, or at the end."""
        self._later[name] = value

    def remove(self, name: str) -> _Value:
        """Take a name out; its value. Raises `KeyError` for one that is not there."""
        value = self[name]
        self._later.pop(name, None)
        if name in self._whole:
            self._gone.add(name)
        return value

    def done(self) -> Registry[_Value]:
        """The copy. It has what was handed in; the edit must not go on."""
        if len(self._later) + len(self._gone) > max(_LEAST_APART, isqrt(len(self._whole))):
            return Registry(_together(self._whole, self._later, self._gone))
        return Registry(self._whole, self._later, self._gone)


def _together(
    whole: dict[str, _Value], later: Mapping[str, _Value], gone: AbstractSet[str]
) -> dict[str, _Value]:
    """What came again after it had gone stands at the end."""
    kept = {name: value for name, value in whole.items() if name not in gone} if gone else whole
    return {**kept, **later}
