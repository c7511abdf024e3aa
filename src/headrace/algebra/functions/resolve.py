"""Resolution of functions: the function of a name and argument types, the casts of its arguments, and its result
type; the table of all functions and operators, and users' registered functions (`UserFunction`).

The rows are in `operators_and_math`, `text`, `time` and `structs`, the rules in `type_rules`, coercion in `coercion`.
Operators are functions of the same table. Implicit conversions of Spark appear as differing `Signature.arguments`: the binder
inserts a `Cast` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.algebra.expressions.aggregates import AGGREGATES, ALIASES, APPROXIMATE
from headrace.algebra.expressions.expression import Value
from headrace.algebra.functions.coercion import can_cast, common_type
from headrace.algebra.functions.entry import Function
from headrace.algebra.functions.operators_and_math import BITS, CHOICES, MATHEMATICS, OPERATORS
from headrace.algebra.functions.structs import STRUCTS
from headrace.algebra.functions.text import TEXTS
from headrace.algebra.functions.time import TIMES
from headrace.algebra.functions.type_rules import fixed
from headrace.algebra.windows.user_code import Code
from headrace.dataclass import dataclass
from headrace.errors import UserError, did_you_mean
from headrace.schema import Type

__all__ = [
    "FUNCTIONS",
    "TABLE",
    "Signature",
    "UserFunction",
    "can_cast",
    "canonical",
    "common_type",
    "resolve",
]

TABLE: Final = (*OPERATORS, *BITS, *CHOICES, *MATHEMATICS, *TEXTS, *TIMES, *STRUCTS)
"""Every function and operator; each row has an example that the tests execute."""

FUNCTIONS: Final[Mapping[str, Function]] = {row.name: row for row in TABLE}
"""The table by canonical name."""

_CANONICAL: Final = {name: row.name for row in TABLE for name in (row.name, *row.aliases)}


@dataclass(frozen=True, slots=True)
class Signature:
    """A function for arguments of some types: its canonical name, the types of its arguments after casts, the result's type."""

    function: str
    arguments: tuple[Type, ...]
    result: Type


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A registered Python function, allowed wherever a scalar function is.

    `body`, or the function that is loaded from it, takes one Arrow array per parameter and returns as many values (an Arrow
    array, numpy array or sequence); with `by_row` it takes one row's Python values and returns one. `strict` bodies never see
    NULL: such rows are NULL. An
    exception of a by-row body is an error of its row; one of an array body is an error of every row of the array.
    Contract: deterministic, without side effects; it may be evaluated for a part of the rows, and again.
    """

    name: str
    parameters: tuple[Type, ...]
    result: Type
    body: Callable[..., Any] | Code
    by_row: bool = False
    strict: bool = True

    @property
    def call(self) -> Callable[..., Any]:
        """The Python function: code is loaded at the first call, and an error of loading is no row's.

        Raises `UserError` when it cannot be loaded.
        """
        if not isinstance(self.body, Code):
            return self.body
        loaded: Callable[..., Any] = self.body.load(f"the function '{self.name}'")
        return loaded


def canonical(name: str) -> str | None:
    """The canonical name behind a name or alias of the table, in any case; None when there is no such function."""
    return _CANONICAL.get(name.lower())


def resolve(
    name: str,
    arguments: tuple[Type, ...],
    constants: tuple[Value, ...] | None = None,
    users: Mapping[str, UserFunction] | None = None,
) -> Signature:
    """The signature of a function or operator for arguments of these types.

    `constants` holds, for each argument, its value if it is a literal, else None: Spark types `price * 2` on DECIMALs and
    `round(price, 2)` by the value. `users` are registered functions by lowercase name; the table comes first.
    Raises `UserError` for an unknown name (with similar names) or for arguments that do not fit (with those that do).
    """
    function = canonical(name)
    values = constants if constants is not None else (None,) * len(arguments)
    if function is not None:
        row = FUNCTIONS[function]
        typed = row.rule(arguments, values)
        if typed is None:
            raise UserError(
                f"{name.upper()} does not take ({_listed(arguments)})",
                remedy=f"Expected: {row.usage}. {row.doc}",
            )
        return Signature(function, *typed)
    user = (users or {}).get(name.lower())
    if user is None:
        suggestions = [
            *(suggestion for suggestion in _CANONICAL if suggestion.isidentifier()),
            *AGGREGATES,
            *APPROXIMATE,
            *ALIASES,
            *(users or {}),
        ]
        raise UserError(f"there is no function '{name}'", remedy=did_you_mean(name, suggestions))
    typed = fixed(user.result, *user.parameters)(arguments, values)
    if typed is None:
        raise UserError(
            f"the registered function {user.name} does not take ({_listed(arguments)})",
            remedy=f"Expected: {user.name}({_listed(user.parameters)}).",
        )
    return Signature(name.lower(), *typed)


def _listed(types: tuple[Type, ...]) -> str:
    return ", ".join(map(str, types))
