"""Records of parsed statements, a class for each (`CreateStream`, `AlterQuery`, `Show`, …), with the text as written
and its place in the script.
"""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from typing import Literal as Choice
from typing import TypeAlias

from headrace.catalog.definitions import (
    ActionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
)
from headrace.catalog.reductions import Reducer
from headrace.dataclass import dataclass
from headrace.errors import Span
from headrace.language.statements.query_filter import Selection
from headrace.language.statements.query_options import QuerySettings
from headrace.language.syntax.ast import Select
from headrace.time import Duration, Instant

Kind: TypeAlias = Choice["stream", "relation", "query"]
Form: TypeAlias = Choice["text", "dot", "svg"]
"""The format of an EXPLAIN."""


@dataclass(frozen=True, slots=True)
class _Written:
    text: str = field(default="", compare=False, kw_only=True)
    span: Span = field(default=Span(0, 0), compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class CreateStream(_Written):
    """`CREATE [OR REPLACE] STREAM`, all clauses checked and defaults filled in."""

    definition: StreamDefinition
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateRelation(_Written):
    """`CREATE [OR REPLACE] RELATION`."""

    definition: RelationDefinition
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateQuery(_Written):
    """`CREATE [OR REPLACE] QUERY name [FROM NOW] AS SELECT … [THEN …]`. `select` has places in the script, `definition.text` is
    the SELECT as written; `places` are those of its actions' targets.
    """

    definition: QueryDefinition
    select: Select = field(compare=False)
    replace: bool = False
    places: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class AlterQuery(_Written):
    """`ALTER QUERY name AS SELECT …`; `query` is the SELECT as written, `zone` its time zone."""

    name: str
    query: str
    select: Select = field(compare=False)
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class RenameQuery(_Written):
    """`ALTER QUERY name RENAME TO new_name`."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class SetQuery(_Written):
    """`ALTER QUERY name SET (retain '…', owner '…', tags '…')`: the options that it has."""

    name: str
    settings: QuerySettings


@dataclass(frozen=True, slots=True)
class SetActions(_Written):
    """`ALTER QUERY name THEN …` or `THEN NOTHING`: its actions from now on; `places` are those of their targets."""

    name: str
    actions: tuple[ActionDefinition, ...]
    places: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class SetStream(_Written):
    """`ALTER STREAM name SET (keep '0.25')`: the share of its rows for queries WITH SHEDDING from now on."""

    name: str
    keep: float


@dataclass(frozen=True, slots=True)
class CreateReducer(_Written):
    """`CREATE [OR REPLACE] REDUCER name ON stream AS 'uniform(0.9)'`; `at` is the place of the reduction."""

    stream: str
    reducer: Reducer
    replace: bool = False
    at: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class DropReducer(_Written):
    """`DROP REDUCER [IF EXISTS] name ON stream`."""

    stream: str
    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetWindow(_Written):
    """`ALTER QUERY name SET WINDOW [RANGE … SLIDE …]`; `window` is the brackets as written, `at` their place in the script."""

    name: str
    window: str
    at: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Drop(_Written):
    """`DROP STREAM | RELATION | QUERY [IF EXISTS] name`."""

    kind: Kind
    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class PauseQuery(_Written):
    """`PAUSE [QUERY] name`; with a `reason`, which has no syntax, the query is suspended."""

    name: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResumeQuery(_Written):
    """`RESUME [QUERY] name`."""

    name: str


@dataclass(frozen=True, slots=True)
class AllQueries(_Written):
    """`PAUSE | RESUME | DROP QUERIES [LIKE 'pattern'] [WHERE …]`: every query that matches, in one change."""

    verb: Choice["pause", "resume", "drop"]
    selection: Selection


@dataclass(frozen=True, slots=True)
class Show(_Written):
    """`SHOW STREAMS | RELATIONS | SINKS | ACTIONS [LIKE 'pattern']`, `SHOW QUERIES [LIKE 'pattern'] [WHERE …]`."""

    kind: Kind | Choice["sink", "action"]
    selection: Selection = ()


@dataclass(frozen=True, slots=True)
class ShowCreate(_Written):
    """`SHOW CREATE QUERY name`: the statement that defines it now."""

    name: str


@dataclass(frozen=True, slots=True)
class Describe(_Written):
    """`DESCRIBE [EXTENDED] name`: a stream, relation or query; extended: with the progress of a stream and its sources."""

    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True)
class ExplainQuery(_Written):
    """`EXPLAIN QUERY name [AS TEXT | DOT | SVG]`."""

    name: str
    form: Form = "text"


@dataclass(frozen=True, slots=True)
class ExplainAdaptive(_Written):
    """`EXPLAIN ADAPTIVE name [AS TEXT | SVG]`: the orders that were in force, and why they have changed; as a picture over time."""

    name: str
    form: Form = "text"


@dataclass(frozen=True, slots=True)
class ExplainAll(_Written):
    """`EXPLAIN ALL [AS TEXT | DOT | SVG]`: all running queries, and what they share."""

    form: Form = "text"


@dataclass(frozen=True, slots=True)
class ExplainSelect(_Written):
    """`EXPLAIN SELECT …`; `query` is the SELECT as written, `zone` its time zone; `asks` where it is a question."""

    query: str
    select: Select = field(compare=False)
    zone: str = "UTC"
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Ask(_Written):
    """`SELECT … [WITHIN p PERCENT] [IN d]`: a question over the archive; `within` is the accepted error as a fraction, 0 for
    none, and `duration` how long it may take, None as long as it needs.
    """

    query: str
    select: Select = field(compare=False)
    within: Fraction
    zone: str = "UTC"
    duration: Duration | None = None


@dataclass(frozen=True, slots=True)
class Invoke(_Written):
    """`INVOKE [QUERY] name [RANGE d]`: the current answer; `last` is the d, or None."""

    name: str
    last: Duration | None = None


@dataclass(frozen=True, slots=True)
class RefreshRelation(_Written):
    """`REFRESH RELATION name`: read it again."""

    name: str


@dataclass(frozen=True, slots=True)
class Punctuate(_Written):
    """`PUNCTUATE stream [AT TIMESTAMP '…'] [WHERE pattern]`: no row below that instant, or that matches, follows."""

    name: str
    at: Instant | None
    where: str | None = None
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class SetTimeZone(_Written):
    """`SET TIME ZONE 'zone'`; the zone exists."""

    zone: str


Statement: TypeAlias = (
    CreateStream
    | CreateRelation
    | CreateQuery
    | AlterQuery
    | Ask
    | SetStream
    | CreateReducer
    | DropReducer
    | SetWindow
    | RenameQuery
    | SetQuery
    | SetActions
    | Drop
    | PauseQuery
    | ResumeQuery
    | AllQueries
    | Show
    | ShowCreate
    | Describe
    | ExplainQuery
    | ExplainAdaptive
    | ExplainAll
    | ExplainSelect
    | Invoke
    | RefreshRelation
    | Punctuate
    | SetTimeZone
)
