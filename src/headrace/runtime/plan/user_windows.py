"""Definitions of user-defined windows: made and checked from a class, with its code, so that they outlive the program that
defined them; another class of a name is refused while a query uses it.
"""

from __future__ import annotations

from headrace.algebra.query import Windowed, walk
from headrace.algebra.windows.user_windows import UserWindow
from headrace.algebra.windows.window import Custom
from headrace.algebra.windows.window_kinds import WRITTEN
from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import WindowDefinition
from headrace.errors import UserError
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.code_fingerprint import fingerprint
from headrace.runtime.plan.user_code import code_of


def define(name: str, kind: object) -> WindowDefinition:
    """A window's definition. Raises `UserError` for a value that is no class of windows, or cannot be pickled."""
    if name.lower() in WRITTEN:
        raise UserError(f"'{name}' is a built-in window", remedy="Give yours another name.")
    if not name.isidentifier():
        raise UserError(f"'{name}' is no name for a window", remedy="Use letters, digits and underscores.")
    if not (isinstance(kind, type) and issubclass(kind, UserWindow)):
        raise UserError(
            f"the window '{name}' is made of a class, not of {kind!r}",
            remedy="Derive one from headrace.UserWindow and pass the class itself.",
        )
    missing = sorted(kind.__abstractmethods__)
    if missing:
        raise UserError(
            f"the window '{name}' does not define {', '.join(missing)}",
            remedy="See help(headrace.UserWindow).",
        )
    return WindowDefinition(name, code_of(kind, f"the window '{name}'"), fingerprint(kind))


def is_new(catalog: Catalog, window: WindowDefinition) -> bool:
    """False when the catalog has it already; raises `UserError` when another one of its name is in use."""
    previous = catalog.window(window.name)
    if previous is None:
        return True
    if previous.fingerprint == window.fingerprint:
        return False
    for catalog_query in catalog.queries.values():
        if any(
            isinstance(node, Windowed)
            and isinstance(node.window, Custom)
            and node.window.name.lower() == window.name.lower()
            for node in walk(bound(catalog, catalog_query).root)
        ):
            raise UserError(
                f"the window '{window.name}' is in use by the query '{catalog_query.definition.name}', with another class",
                remedy="Give the new class another name, or drop the query first.",
            )
    return True
