"""Base class of the values that pass between driver and tasks: pickled as the arguments of their class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, Self, cast


class Message:
    """A dataclass with slots. By itself, it would look up its fields each time that it is pickled or read."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Its class, and the values of its fields in their order."""
        kind: Any = type(self)
        return type(self), _values_of(kind)(self)


@cache
def _values_of(kind: type[Message]) -> Callable[[Message], tuple[Any, ...]]:
    names = [field.name for field in fields(cast("Any", kind))]
    values = attrgetter(*names)
    return values if len(names) > 1 else lambda message: (values(message),)
