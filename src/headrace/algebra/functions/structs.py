"""The table of functions: several values as one."""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import Value
from headrace.algebra.functions.entry import own
from headrace.algebra.functions.type_rules import Typed
from headrace.errors import UserError
from headrace.schema import STRING, Field, Type, struct


def _named(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """Names stand before their values, as constants."""
    names, values = constants[::2], types[1::2]
    if not types or len(types) % 2 or any(kind != STRING for kind in types[::2]):
        return None
    if not all(isinstance(name, str) and name for name in names):
        return None
    told = [str(name) for name in names]
    twice = next((name for place, name in enumerate(told) if name in told[:place]), None)
    if twice is not None:
        raise UserError(f"a struct has two fields '{twice}'", remedy="Give each field a name of its own.")
    return types, struct(*(Field(name, kind) for name, kind in zip(told, values, strict=True)))


STRUCTS: Final = (
    own(
        "named_struct",
        "named_struct('name', value, …)",
        _named,
        "One value of several, which files show as JSON. `struct(a, b)` names them after their columns.",
        "named_struct('a', 1, 'b', 'x')",
    ),
)
