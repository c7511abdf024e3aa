"""The window classes that have the contract of user windows and need no registration, by name: CUMULATE, and that of
joined rows. Also the construction of a window object, of one of these or of a user's class, from constants. Tumbling,
sliding, session and other windows are in `window`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Final

from headrace.algebra.windows.cumulate import Cumulate
from headrace.algebra.windows.joined_windows import JoinedWindows
from headrace.algebra.windows.user_code import Code
from headrace.algebra.windows.user_windows import UserWindow
from headrace.errors import UserError

JOINED: Final = "joined"
BUILT_IN: Final[Mapping[str, type[UserWindow]]] = {"cumulate": Cumulate, JOINED: JoinedWindows}
"""Kinds that need no registration, by their names in plans: a class may be renamed, its name here may not."""
WRITTEN: Final = frozenset({"cumulate"})
"""Kinds that a query can name; users may not register others of these names."""


@lru_cache(maxsize=256)
def instance(name: str, body: Code | None, arguments: tuple[Hashable, ...]) -> UserWindow:
    """The kind of window for these constants; `body` is the class of a user's window, None for one that is built in.

    Raises `UserError` with the error of its constructor.
    """
    kind = BUILT_IN[name] if body is None else body.load(f"the window '{name}'")
    try:
        window: UserWindow = kind(*arguments)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 whatever a user's constructor raises
        raise UserError(
            f"the window '{name}' does not take ({', '.join(map(repr, arguments))}): {error}"
        ) from None
    return window
