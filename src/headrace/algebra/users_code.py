"""Code of users at rest: the one kind of bytes in a home that runs when it is loaded.

A function or a class of windows is pickled by value when it is registered. Everything else in a home is data. So these bytes
have a type of their own, which says where they are and keeps them apart from the values that refer to them.
"""

from __future__ import annotations

import hashlib
import pickle
from functools import lru_cache
from typing import Any

from headrace.errors import UserError


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
                remedy="Make the module it was registered from importable again, or register it anew.",
            ) from None


@lru_cache(maxsize=512)
def _loaded(code: Code) -> Any:
    return pickle.loads(code)  # noqa: S301 - what the user registered, when a query of theirs uses it
