"""Code of users at rest: the one kind of bytes in a home that runs when it is loaded.

A function or a class of windows is pickled by value when it is registered. Everything else in a home is data. So these bytes
have a type of their own, which says where they are and keeps them apart from the values that refer to them.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from headrace.algebra.windows.cumulate import Cumulate
from headrace.algebra.windows.joined_windows import JoinedWindows
from headrace.errors import UserError

_BUILT_IN: Final = {each.__name__: each for each in (Cumulate, JoinedWindows)}


class Code(bytes):
    """A pickled function or class of a user. To have it, compare it or store it runs nothing; `load` does."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        """The name of its content."""
        return hashlib.sha256(self).hexdigest()[:32]

    def load(self, what: str) -> Any:
        """The function or class, once a process; `what` says in an error whose it is.

        Raises `UserError` when the module it is in is gone.
        """
        try:
            return _loaded(self)
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"{what} cannot be loaded: {error}",
                remedy="Make the module it was registered from importable again, or register it again.",
            ) from None


@lru_cache(maxsize=512)
def _loaded(code: Code) -> Any:
    return _Loader(io.BytesIO(code)).load()


class _Loader(pickle.Unpickler):  # of what a user registered, when a query of theirs uses it
    def find_class(self, module: str, name: str) -> Any:
        """What code of users says of ours, as the base of a window: modules may have moved, public names stay."""
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            if module.partition(".")[0] != "headrace":
                raise
            return _BUILT_IN.get(name) or getattr(import_module("headrace"), name)
