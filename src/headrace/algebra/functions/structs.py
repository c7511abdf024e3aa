"""The row of the function table for `named_struct`, with its type rule."""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import Value
from headrace.algebra.functions.entry import nonstrict
from headrace.algebra.functions.type_rules import Typed
from headrace.errors import UserError
from headrace.schema import STRING, Field, Type, struct


def _named(types: tuple[Type, ...], constants: tuple[Value, ...]) -> Typed | None:
    """Names are constants before their values."""
    names, values = constants[::2], types[1::2]
    if not types or len(types) % 2 or any(kind != STRING for kind in types[::2]):
        return None
    if not all(isinstance(name, str) and name for name in names):
        return None
    written = [str(name) for name in names]
    twice = next((name for index, name in enumerate(written) if name in written[:index]), None)
    if twice is not None:
        raise UserError(f"a struct has two fields '{twice}'", remedy="Give each field a name of its own.")
    return types, struct(*(Field(name, kind) for name, kind in zip(written, values, strict=True)))


STRUCTS: Final = (
    nonstrict(
        "named_struct",
        "named_struct('name', value, …)",
        _named,
        "One value of several, which files show as JSON. `struct(a, b)` names them after their columns.",
        "named_struct('a', 1, 'b', 'x')",
    ),
)
