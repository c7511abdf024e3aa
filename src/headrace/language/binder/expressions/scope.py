"""Resolution of names: the sources of FROM (`BoundSource`, `Scope`), the column that a name in an expression means,
and the interface by which the binder reads the catalog (`Names`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Final, NoReturn, Protocol

from headrace.algebra.expressions.expression import Column, Expression
from headrace.algebra.query import JoinKind, Query, QueryScan, RelationScan, StreamScan, UnionAll
from headrace.algebra.windows.window import Window, slides
from headrace.catalog.definitions import (
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.dataclass import dataclass
from headrace.errors import Span, UserError, did_you_mean
from headrace.language.syntax.ast import Name
from headrace.language.syntax.refusals import fail
from headrace.schema import BIGINT, OURS, STRING, TIMESTAMP, Field, Schema, Type

_WORDS_OF_OTHERS: Final = {
    "STREAM": "Leave STREAM out: a query emits results for as long as rows come.",
    "ALL": "Name the columns of GROUP BY.",
    **dict.fromkeys(
        ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP"),
        "Use the event time of the rows: a standing query must answer the same whenever it runs.",
    ),
    **{
        word: f"Write {word}(SELECT …), or {word}(k, v) as the whole list."
        for word in ("ISTREAM", "DSTREAM", "RSTREAM")
    },
}
"""Words that other dialects have where a column may be, and what is written here."""

WINDOW_COLUMNS: Final[dict[str, Type]] = {
    "window_start": TIMESTAMP,
    "window_end": TIMESTAMP,
    "window_id": BIGINT,
}
"""The columns that a sliding window adds to its rows."""

REJECTS: Final = Schema((Field("position", BIGINT), Field("text", STRING), Field("reason", STRING)))
"""The columns of a row in `REJECTS`."""


class NotInScope(UserError):
    """A name that FROM does not have."""

    def __init__(self, message: str, name: Name, remedy: str) -> None:
        super().__init__(message, span=name.span, remedy=remedy)
        self.name = name


class Names(Protocol):
    """The catalog as the binder sees it. Names are compared without case."""

    @property
    def former_names(self) -> bool:
        """Whether columns without alias are called as by an earlier version, which registered the query that is bound."""

    def stream(self, name: str) -> StreamDefinition | None:
        """The stream of that name."""

    def relation(self, name: str) -> RelationDefinition | None:
        """The relation of that name."""

    def query(self, name: str) -> tuple[QueryDefinition, Query] | None:
        """The query of that name, bound."""

    def window(self, name: str) -> WindowDefinition | None:
        """The registered kind of window of that name."""

    def known(self) -> Iterable[str]:
        """All names, for suggestions."""

    def built_in(self) -> Iterable[str]:
        """The names of the built-in streams, for suggestions."""


@dataclass(frozen=True, slots=True)
class BoundSource:
    """A source of FROM. `window` is None for relations; `bare` when none was written.

    `kind` is that of its join with the sources before it, and `on` the condition of that join, if one was written.
    `hidden` has the lower-case names of columns that USING joined with those of an earlier source; `doubled` has the bounds
    that both the window and its query have, so that a plain name is ambiguous.
    """

    scan: StreamScan | RelationScan | QueryScan | UnionAll
    window: Window | None
    bare: bool
    span: Span
    hidden: frozenset[str] = frozenset()
    doubled: frozenset[str] = frozenset()
    kind: JoinKind = "inner"
    on: Expression | None = None

    @property
    def alias(self) -> str:
        """The name by which the query reads it."""
        return self.scan.alias

    @property
    def sliding(self) -> bool:
        """True when its rows have window bounds."""
        return self.window is not None and slides(self.window)

    def find(self, name: str) -> Column | None:
        """The column of that name, window bounds included."""
        column = self.scan.table.find(name)
        if column is not None:
            return Column(f"{self.alias}.{column.name}", column.type)
        kind = WINDOW_COLUMNS.get(name.lower()) if self.sliding else None
        return None if kind is None else Column(f"{self.alias}.{name.lower()}", kind)

    def check_single(self, name: str, span: Span) -> None:
        """Raises `UserError` where both the query that is read and its window have a column of that name."""
        if name.lower() not in self.doubled:
            return
        bound = name.lower().removeprefix("window_")
        bounds = f"Write window.{bound} for the window's; for" if bound != "id" else "For"
        inner = f"SELECT {name.lower()} AS inner_{bound}"
        remedy = f"{bounds} the other give it another name in '{self.scan.name}': {inner}."
        if not isinstance(self.scan, QueryScan):
            remedy = f"Give the column another name: FROM ({inner}, … FROM {self.scan.name}) [RANGE …]."
        fail(f"'{self.scan.name}' has a column '{name.lower()}', and so has its window", span, remedy)


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources of one FROM."""

    sources: tuple[BoundSource, ...] = field(default=())

    def column(self, name: Name) -> Column:
        """The column a name means.

        Raises `UserError` when there is none, or more than one.
        """
        parts = name.parts
        if len(parts) > 2:
            self._fail(f"the name '{'.'.join(parts)}' has too many dots", name, "Write alias.column.")
        return self._plain(name, parts[0]) if len(parts) == 1 else self._qualified(name, *parts)

    def is_whole_window(self, name: Name) -> bool:
        """True for `window` and `session_window` where a window slides and no column has that name."""
        plain = name.parts[0].lower()
        if len(name.parts) > 1 or plain not in ("window", "session_window"):
            return False
        return any(source.sliding for source in self.sources) and all(
            source.find(plain) is None for source in self.sources
        )

    def _plain(self, name: Name, plain: str) -> Column:
        source, column = self._holder(name, plain)
        source.check_single(plain, name.span)
        return column

    def _holder(self, name: Name, plain: str) -> tuple[BoundSource, Column]:
        holders = [source for source in self.sources if plain.lower() not in source.hidden]
        candidates = [(source, column) for source in holders if (column := source.find(plain)) is not None]
        if len(candidates) > 1:
            where = " and in ".join(f"'{source.alias}'" for source, _ in candidates)
            choices = " or ".join(f"{source.alias}.{plain}" for source, _ in candidates)
            self._fail(f"the column '{plain}' is in {where}", name, f"Write {choices}.")
        if not candidates:
            self._unknown(name, plain)
        return candidates[0]

    def _qualified(self, name: Name, qualifier: str, plain: str) -> Column:
        source = self.source(qualifier)
        if source is None and qualifier.lower() in ("window", "session_window"):
            return self._bound_of_window(name, plain)
        if source is None:
            remedy = did_you_mean(qualifier, (source.alias for source in self.sources))
            raise NotInScope(f"there is no source '{qualifier}' in FROM", name, remedy)
        column = source.find(plain)
        if column is None:
            self._unknown(name, plain, source)
        source.check_single(plain, name.span)
        return column

    def _bound_of_window(self, name: Name, plain: str) -> Column:
        if plain.lower() not in ("start", "end"):
            self._fail(f"a window has no '{plain}'", name, "It has window.start and window.end.")
        return self._holder(name, f"window_{plain.lower()}")[1]

    def has_column(self, name: Name) -> bool:
        """True when one source or several have the column."""
        *qualifier, plain = name.parts
        sources = (
            (source for source in self.sources if [source.alias.lower()] == [q.lower() for q in qualifier])
            if qualifier
            else self.sources
        )
        return any(source.find(plain) is not None for source in sources)

    def source(self, alias: str) -> BoundSource | None:
        """The source of that alias."""
        return next((source for source in self.sources if source.alias.lower() == alias.lower()), None)

    def _unknown(self, name: Name, plain: str, within: BoundSource | None = None) -> NoReturn:
        if plain.lower() in WINDOW_COLUMNS:
            self._fail(
                f"'{plain.lower()}' needs a window with SLIDE",
                name,
                "Write for example FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE].",
            )
        if plain.lower() == "window" and any(source.sliding for source in self.sources):
            self._fail(
                "the whole window cannot be selected",
                name,
                "Select window.start and window.end, or window_start and window_end.",
            )
        sources = self.sources if within is None else (within,)
        columns = (column for source in sources for column in source.scan.table.names)
        suggestions = dict.fromkeys(column for column in columns if not column.startswith(OURS))
        where = "" if within is None else f" in '{within.alias}'"
        remedy = _WORDS_OF_OTHERS.get(plain.upper()) or did_you_mean(plain, suggestions)
        raise NotInScope(f"there is no column '{plain}'{where}", name, remedy)

    def _fail(self, message: str, name: Name, remedy: str) -> NoReturn:
        fail(message, name.span, remedy)
