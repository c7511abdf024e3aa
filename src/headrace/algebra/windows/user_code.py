"""Pickled Python code of users (functions and window classes), and its loading: the only bytes in a home that run
when they are loaded.

A function or a class of windows is pickled by value when it is registered. Everything else in a home is data. These bytes
have a separate type, so that the places that hold them are visible.
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

_BUILT_IN: Final = {kind.__name__: kind for kind in (Cumulate, JoinedWindows)}


class Code(bytes):
    """A pickled function or class of a user. Only `load` runs it."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        """The name of its content."""
        return hashlib.sha256(self).hexdigest()[:32]

    def load(self, what: str) -> Any:
        """The function or class, loaded once per process; `what` names its owner in an error.

        Raises `UserError` when a module that it needs is missing.
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
        """A class of Headrace that user code names, such as a base class: modules may have moved, public names have not."""
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            if module.partition(".")[0] != "headrace":
                raise
            return _BUILT_IN.get(name) or getattr(import_module("headrace"), name)
