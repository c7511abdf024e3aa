"""What carrying out a statement gave."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.runtime.remarks import Remarks


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

    @staticmethod
    def answer(name: str, table: pa.Table) -> Outcome:
        """Of INVOKE, with a warning where the answer is not all that it could be."""
        told = ". ".join(Remarks.of(table).sentences(name))
        return Outcome("invoke", name, f"{table.num_rows} rows", table, told or None)
