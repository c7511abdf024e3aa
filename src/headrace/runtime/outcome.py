"""What carrying out a statement gave."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Outcome:
    """A message for people, and a table for statements that show something.

    `warning` is told beside it, also where messages are not wanted.
    """

    kind: str
    name: str | None
    message: str
    table: pa.Table | None = None
    warning: str | None = None
