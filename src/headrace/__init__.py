"""Headrace: standing queries over shared live streams and their archives, on Spark. This file has the package's public
names (`open`, `connect`, `test`, `Hub`, `Client`, windows, errors), most of them imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, UserError

if TYPE_CHECKING:
    from headrace.algebra.windows.contract_check import check_window
    from headrace.algebra.windows.user_windows import LinearWindow, UserWindow
    from headrace.runtime.delivery.client import Client
    from headrace.runtime.hub.hub import Hub
    from headrace.runtime.hub.query_handle import QueryHandle
    from headrace.runtime.hub.trial import test
    from headrace.server.open_or_connect import connect
    from headrace.server.open_or_connect import open_hub as open  # noqa: A004 - hr.open("home")

__version__ = "0.1.0"
__all__ = [
    "Client",
    "HeadraceError",
    "Hub",
    "LinearWindow",
    "QueryHandle",
    "UserError",
    "UserWindow",
    "__version__",
    "check_window",
    "connect",
    "open",
    "test",
]

_PLACES = {
    "Client": ("headrace.runtime.delivery.client", "Client"),
    "LinearWindow": ("headrace.algebra.windows.user_windows", "LinearWindow"),
    "UserWindow": ("headrace.algebra.windows.user_windows", "UserWindow"),
    "check_window": ("headrace.algebra.windows.contract_check", "check_window"),
    "connect": ("headrace.server.open_or_connect", "connect"),
    "Hub": ("headrace.runtime.hub.hub", "Hub"),
    "QueryHandle": ("headrace.runtime.hub.query_handle", "QueryHandle"),
    "open": ("headrace.server.open_or_connect", "open_hub"),
    "test": ("headrace.runtime.hub.trial", "test"),
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when they are first asked for: `headrace --version` need not wait for Arrow."""
    if name not in _PLACES:
        raise AttributeError(f"module 'headrace' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415

    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
