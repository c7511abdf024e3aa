"""The outcome of a statement: a message, a table, a warning; and an error in a query's text, moved to its place in the
script.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.runtime.invoke.answer_caveats import AnswerCaveats


@dataclass(frozen=True, slots=True)
class Outcome:
    """A message for people, and a table for statements that show something.

    `warning` is shown too, also where messages are not.
    """

    kind: str
    name: str | None
    message: str
    table: pa.Table | None = None
    warning: str | None = None

    @staticmethod
    def answer(name: str, table: pa.Table) -> Outcome:
        """The outcome of INVOKE, with a warning where the answer has caveats."""
        warning = ". ".join(AnswerCaveats.of(table).sentences(name))
        return Outcome("invoke", name, f"{table.num_rows} rows", table, warning or None)


def moved(error: UserError, offset: int) -> UserError:
    """An error placed in a query's own text, moved to the place of that text in the script."""
    if error.span is not None and error.text is not None:
        error.span = type(error.span)(error.span.start + offset, error.span.end + offset)
        error.text = None
    return error
