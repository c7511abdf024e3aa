"""Headrace: thousands of standing queries over shared live streams and their archives, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, UserError

if TYPE_CHECKING:
    from headrace.algebra.user_windows import LinearWindow, UserWindow
    from headrace.algebra.window_contract import check_window
    from headrace.runtime.client import Client, connect
    from headrace.runtime.hub import Hub
    from headrace.runtime.opening import open_hub as open  # noqa: A004 - hr.open("home")
    from headrace.runtime.standing_query import StandingQuery
    from headrace.runtime.trial import test

__version__ = "0.1.0"
__all__ = [
    "Client",
    "HeadraceError",
    "Hub",
    "LinearWindow",
    "StandingQuery",
    "UserError",
    "UserWindow",
    "__version__",
    "check_window",
    "connect",
    "open",
    "test",
]

_PLACES = {
    "Client": ("headrace.runtime.client", "Client"),
    "LinearWindow": ("headrace.algebra.user_windows", "LinearWindow"),
    "UserWindow": ("headrace.algebra.user_windows", "UserWindow"),
    "check_window": ("headrace.algebra.window_contract", "check_window"),
    "connect": ("headrace.runtime.client", "connect"),
    "Hub": ("headrace.runtime.hub", "Hub"),
    "StandingQuery": ("headrace.runtime.standing_query", "StandingQuery"),
    "open": ("headrace.runtime.opening", "open_hub"),
    "test": ("headrace.runtime.trial", "test"),
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when they are first asked for: `headrace --version` need not wait for Arrow."""
    if name not in _PLACES:
        raise AttributeError(f"module 'headrace' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415

    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
