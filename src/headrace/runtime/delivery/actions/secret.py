"""Secrets of actions: read when they are needed, from the environment or from a file of the home, never from a statement."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from headrace.catalog.definitions import ActionDefinition
from headrace.errors import UserError

FOLDER: Final = "secrets"
"""Of a home."""
_OTHERS: Final = 0o077


def secret_of(action: ActionDefinition, home: Path) -> bytes | None:
    """The secret that an action names; None where it names none.

    Raises `UserError` when it is not there, or when other users may read its file.
    """
    variable, name = action.option("secretenv", ""), action.option("secretfile", "")
    if variable:
        value = os.environ.get(variable, "")
        if not value:
            raise UserError(
                f"the environment variable {variable} is not set", remedy="Set it where the hub runs."
            )
        return value.encode()
    if not name:
        return None
    path = home / FOLDER / name
    try:
        mode, content = path.stat().st_mode, path.read_bytes().strip()
    except OSError as error:
        raise UserError(f"cannot read the secret {path}: {error.strerror}") from None
    if mode & _OTHERS:
        raise UserError(
            f"other users may read the secret {path}", remedy=f"Change its mode: chmod 600 {path}."
        )
    if not content:
        raise UserError(f"the secret {path} is empty")
    return content
