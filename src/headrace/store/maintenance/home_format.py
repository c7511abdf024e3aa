"""Format of a home: the number in `home.json`, and whether this program reads it.

The number increases when older programs would misread a home. The file is written once, by the first writer, and its own
form never changes. A home without the file was made before there was a number, and has the first format.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.errors import CorruptStore, StoreError, UserError
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import MissingFile, Store

FORMAT: Final = 1
"""What this program writes. It reads formats 1 to this."""
FILE: Final = "home.json"

_KIND: Final = "home"
_VERSION: Final = 1
_UNNUMBERED: Final = 1


class UnknownFormat(UserError):
    """A home that another, most likely a newer, Headrace wrote."""


def require_format(store: Store) -> int:
    """The format of a home, also of one that is still to be made.

    Raises `UnknownFormat` when this program does not read it, and `CorruptStore` when the file is damaged.
    """
    try:
        data = store.read(FILE)  # other errors are raised as they are: they are not about the format
    except MissingFile:
        return _UNNUMBERED
    try:
        body = unseal(_KIND, _VERSION, data, FILE)
    except CorruptStore:
        raise
    except StoreError as error:
        raise _unknown(store, "that it records in a way that this program does not know") from error
    number = body.get("format") if isinstance(body, dict) else None
    if not isinstance(number, int) or not 1 <= number <= FORMAT:
        raise _unknown(store, repr(number))
    return number


def put_format(store: Store) -> None:
    """Write the number into a home that has none; the writer does that when it opens it."""
    if not store.exists(FILE):
        body: dict[str, Any] = {"format": FORMAT}
        store.put_if_absent(FILE, seal(_KIND, _VERSION, body))


def _unknown(store: Store, number: str) -> UnknownFormat:
    return UnknownFormat(
        f"the home {store.root} has format {number}, this Headrace reads formats up to {FORMAT}",
        remedy="Use the Headrace that wrote it, or a newer one; nothing in the home was changed.",
    )
