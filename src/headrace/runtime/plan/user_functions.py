"""Definitions of users' Python functions: made and checked from a callable, with their code, as an entry of the query log,
so that they outlive the program that registered them; and made callable again for binding and for tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.algebra.functions.resolve import UserFunction, canonical
from headrace.catalog.catalog import Catalog
from headrace.catalog.definition_json import to_json
from headrace.catalog.definitions import FunctionDefinition
from headrace.errors import UserError
from headrace.language.parser.type_names import column_type
from headrace.language.syntax.cursor import Cursor
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan.code_fingerprint import fingerprint
from headrace.runtime.plan.update_guards import refuse_if_called_by_changes
from headrace.runtime.plan.user_code import code_of
from headrace.schema import Type


def define(
    name: str,
    body: Callable[..., Any],
    parameters: Sequence[str | Type],
    result: str | Type,
    *,
    by_row: bool = True,
    strict: bool = True,
) -> FunctionDefinition:
    """A function's definition; types may be written as in SQL.

    Raises `UserError` for a name that is taken by a built-in function, or a body that cannot be called or pickled.
    """
    if not callable(body):
        raise UserError(
            f"the function '{name}' is made of a Python function, not of {body!r}",
            remedy="Pass one that takes the parameters.",
        )
    if isinstance(parameters, str):
        raise UserError(
            f"the parameters of '{name}' are a list of types, not the text '{parameters}'",
            remedy=f"Pass ['{parameters}'].",
        )
    if not name.isidentifier():
        raise UserError(f"'{name}' is no name for a function", remedy="Use letters, digits and underscores.")
    if canonical(name) is not None:
        raise UserError(f"'{name}' is a built-in function", remedy="Give yours another name.")
    code = code_of(body, f"the function '{name}'")
    types = tuple(_type(parameter) for parameter in parameters)
    return FunctionDefinition(name, types, _type(result), code, by_row, strict, fingerprint(body))


def entry(catalog: Catalog, plan: EpochPlan, definition: FunctionDefinition) -> dict[str, Any]:
    """The log entry of a function. Raises `UserError` where it would replace a function that must stay."""
    refuse_if_called_by_changes(catalog, plan, definition)
    return {"do": "put_function", "function": to_json(definition)}


def _type(written: str | Type) -> Type:
    return written if isinstance(written, Type) else column_type(Cursor(written))


def callable_by_name(definitions: Mapping[str, FunctionDefinition]) -> dict[str, UserFunction]:
    """The functions by lower-case name. The code of each is loaded when it is first called."""
    return {
        name: UserFunction(
            definition.name,
            definition.parameters,
            definition.result,
            definition.body,
            definition.by_row,
            definition.strict,
        )
        for name, definition in definitions.items()
    }
