"""What carrying out a statement gave."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import UserError
from headrace.runtime.invoke.answer_caveats import AnswerCaveats


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
        told = ". ".join(AnswerCaveats.of(table).sentences(name))
        return Outcome("invoke", name, f"{table.num_rows} rows", table, told or None)


def moved(error: UserError, offset: int) -> UserError:
    """An error placed in a query's own text, moved to where that text stands in the script."""
    if error.span is not None and error.text is not None:
        error.span = type(error.span)(error.span.start + offset, error.span.end + offset)
        error.text = None
    return error
