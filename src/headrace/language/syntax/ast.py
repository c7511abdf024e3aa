"""The syntax tree of SELECTs: sources, windows and expressions with their places in the text, before names are
resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from typing import Literal as Choice
from typing import TypeAlias

from headrace.algebra.expressions.expression import Constants, Value
from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import Ago
from headrace.dataclass import dataclass
from headrace.errors import Span
from headrace.schema import Type
from headrace.time import Duration, Instant

# --------------------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Name:
    """`price`, `b.price`, `window.start`."""

    parts: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. `shown` is the name in Spark of a column that holds it."""

    value: Value
    type: Type
    shown: str
    span: Span


@dataclass(frozen=True, slots=True)
class Prefix:
    """`-x`, `+x`, `~x`, `NOT x` (`not`)."""

    operator: str
    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Infix:
    """`a + b`; comparisons too. The operator of `a != b` is `<>`, that of `a == b` is `=`."""

    operator: str
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Chain:
    """`a AND b AND c`, however long: one node."""

    operator: Choice["and", "or"]
    operands: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Between:
    """`a BETWEEN low AND high`."""

    operand: Expr
    low: Expr
    high: Expr
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class OneOf:
    """`a IN (b, c)`."""

    operand: Expr
    items: tuple[Expr, ...]
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class ConstantList:
    """The candidates of a long IN, when all are constants: the only item of their `OneOf`."""

    constants: Constants
    span: Span


@dataclass(frozen=True, slots=True)
class InSelect:
    """`a IN (SELECT …)`, `(a, b) IN (SELECT …)`."""

    operands: tuple[Expr, ...]
    select: Select
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Exists:
    """`EXISTS (SELECT …)`."""

    select: Select
    span: Span


@dataclass(frozen=True, slots=True)
class ScalarSelect:
    """`(SELECT MAX(x) FROM …)` as a value."""

    select: Select
    span: Span


@dataclass(frozen=True, slots=True)
class Quantified:
    """`a < ALL (SELECT …)` (`every`), `a < ANY (SELECT …)`."""

    operator: str
    operand: Expr
    select: Select
    every: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Matches:
    """`a LIKE b [ESCAPE c]`, `a ILIKE b [ESCAPE c]`, `a RLIKE b`."""

    kind: Choice["like", "ilike", "rlike"]
    operand: Expr
    pattern: Expr
    escape: Constant | None
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Is:
    """`a IS [NOT] NULL | TRUE | FALSE`."""

    operand: Expr
    what: Choice["null", "true", "false"]
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """`f(a, b)`, `COUNT(*)` (`star`), `COUNT(DISTINCT x) FILTER (WHERE c)`, `APPROX_COUNT(*) WITHIN 1 PERCENT`."""

    name: str
    arguments: tuple[Expr, ...]
    span: Span
    distinct: bool = False
    star: bool = False
    condition: Expr | None = None
    within: Fraction | None = None
    """`WITHIN p PERCENT` as a fraction; `BUCKETS n` as half of 1/n."""
    ignores_nulls: bool | None = None
    """Of `IGNORE NULLS` after the call true, of `RESPECT NULLS` false."""
    field: str | None = None
    """Of `window(…).start` the name after the dot."""


@dataclass(frozen=True, slots=True)
class CastTo:
    """`CAST(a AS t)`; TRY_CAST when `safe`."""

    operand: Expr
    type: Type
    safe: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CaseWhen:
    """Both forms of CASE; `operand` is None in the searched one."""

    operand: Expr | None
    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Extract:
    """`EXTRACT(field FROM operand)`."""

    field: str
    operand: Expr
    span: Span


Expr: TypeAlias = (
    Name
    | Constant
    | Prefix
    | Infix
    | Chain
    | Between
    | OneOf
    | ConstantList
    | InSelect
    | Exists
    | ScalarSelect
    | Quantified
    | Matches
    | Is
    | FunctionCall
    | CastTo
    | CaseWhen
    | Extract
)


def parts_of(node: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, left to right, without those inside a SELECT."""
    match node:
        case Name() | Constant() | ConstantList() | Exists() | ScalarSelect():
            return ()
        case InSelect():
            return node.operands
        case Prefix() | Is() | CastTo() | Extract() | Quantified():
            return (node.operand,)
        case Infix():
            return (node.left, node.right)
        case Chain():
            return node.operands
        case Between():
            return (node.operand, node.low, node.high)
        case OneOf():
            return (node.operand, *node.items)
        case Matches():
            return (node.operand, node.pattern, *(() if node.escape is None else (node.escape,)))
        case FunctionCall():
            return (*node.arguments, *(() if node.condition is None else (node.condition,)))
        case CaseWhen():
            pairs = tuple(part for branch in node.branches for part in branch)
            return (
                *(() if node.operand is None else (node.operand,)),
                *pairs,
                *(() if node.otherwise is None else (node.otherwise,)),
            )


# ------------------------------------------------------------------------------------------------------------- selects


@dataclass(frozen=True, slots=True)
class Source:
    """A stream, relation or query in FROM, by name, or a derived table; with `others` several streams as one: UNION ALL.

    With `sets` it is several SELECTs, all that the SELECT around them reads.
    """

    name: str
    alias: str | None
    window: WindowClause | None
    channel: Choice["rows", "late", "rejects"]
    span: Span
    select: Select | None = None
    others: tuple[Source, ...] = ()
    sets: Sets | None = None
    reducer: str | None = None
    """REDUCED BY: whose copy of a stream's archive is read."""


SetOperator: TypeAlias = Choice["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"]


@dataclass(frozen=True, slots=True)
class Sets:
    """`A UNION ALL B UNION ALL C`: SELECTs with one operator between them, whose first place is `span`.

    `counts`: of EXCEPT ALL and INTERSECT ALL, the distinct rows with how often each is in the result.
    """

    operator: SetOperator
    operands: tuple[Select, ...]
    span: Span
    counts: bool = False


@dataclass(frozen=True, slots=True)
class JoinClause:
    """What follows the first source: `, s`, `JOIN s ON c`, `LEFT JOIN s USING (a)`. A comma has neither ON nor USING."""

    kind: Choice["inner", "left", "right", "full"]
    source: Source
    condition: Expr | None
    using: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a select list."""

    expression: Expr
    alias: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class AllColumns:
    """`*` or `alias.*`."""

    qualifier: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One item of ORDER BY."""

    expression: Expr
    descending: bool
    nulls_first: bool
    span: Span


@dataclass(frozen=True, slots=True)
class RevisionsClause:
    """`WITH REVISIONS [FOR INTERVAL d]`."""

    within: Duration | None
    span: Span


@dataclass(frozen=True, slots=True)
class QualityClause:
    """`WITH QOS (…)`; `spans` are the places of its parts by name: delay, loss, value, sketches."""

    quality: QualityOfService
    spans: Mapping[str, Span]
    span: Span


@dataclass(frozen=True, slots=True)
class SheddingClause:
    """`WITH SHEDDING [(repair)]`; `repair` is the place of that word."""

    span: Span
    repair: Span | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT. `window` is the `window(...)` item of GROUP BY, which is not among `group_by`.

    `beyond` is the place of the first clause besides items, one source without a window, and WHERE.
    """

    items: tuple[Item | AllColumns, ...]
    source: Source
    span: Span
    distinct: bool = False
    emit: Choice["istream", "dstream", "rstream"] | None = None
    joins: tuple[JoinClause, ...] = ()
    where: Expr | None = None
    bounds: tuple[Instant | Ago, Instant | Ago] | None = None
    group_by: tuple[Expr, ...] = ()
    window: StartingWindow | SessionWindow | None = None
    having: Expr | None = None
    order_by: tuple[OrderItem, ...] = ()
    limit: int | None = None
    limit_span: Span | None = None
    emit_empty: Span | None = None
    revisions: RevisionsClause | None = None
    shedding: SheddingClause | None = None
    quality: QualityClause | None = None
    having_span: Span | None = field(default=None, compare=False)
    bounds_span: Span | None = field(default=None, compare=False)
    beyond: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """`[RANGE r SLIDE e ORIGIN o]`; `range` None is UNBOUNDED, `slide` None is no SLIDE; `[NOW]` is a range of 0."""

    range: Duration | None
    slide: Duration | None
    origin: Instant
    attribute: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class RowNumber:
    """`rank(t)`, or `row_num` when `attribute` is None: what the rows of a window are numbered by."""

    attribute: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """`[PARTITION BY p ROWS n SLIDE m]`; `count` None is UNBOUNDED."""

    count: int | None
    slide: int | None
    partition: tuple[Expr, ...]
    span: Span
    numbered: RowNumber | None = None


@dataclass(frozen=True, slots=True)
class TupleWindow:
    """`[RANGE r SLIDE n ROWS PA p]`: a window of time that ends at every n-th row."""

    range: Duration
    every: int
    partition: tuple[Expr, ...]
    attribute: Name | None
    numbered: RowNumber | None
    span: Span


@dataclass(frozen=True, slots=True)
class DeltaWindow:
    """`[PARTITION BY p DELTA d ON x]`."""

    threshold: float
    on: Expr
    partition: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class LandmarkWindow:
    """`[LANDMARK SLIDE e ORIGIN o]`."""

    slide: Duration
    origin: Instant
    attribute: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class StartingWindow:
    """`window(t, r, s, o)`, `TUMBLE(TABLE s, DESCRIPTOR(t), r)`, HOP: windows that start at `origin + i*slide`."""

    attribute: Name
    range: Duration
    slide: Duration
    origin: Instant
    span: Span


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """`session_window(t, gap)` in GROUP BY; `[PARTITION BY p SESSION gap]`, `SESSION(TABLE s PARTITION BY p, DESCRIPTOR(t), gap)`."""

    attribute: Name | None
    gap: Duration
    partition: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class NamedWindow:
    """`[WINDOW name(constants) ON x, y]`: a user's own kind of window; CUMULATE, which names its event time."""

    name: str
    arguments: tuple[Expr, ...]
    on: tuple[Expr, ...]
    span: Span
    attribute: Name | None = None


WindowClause: TypeAlias = (
    RangeWindow
    | RowsWindow
    | TupleWindow
    | DeltaWindow
    | LandmarkWindow
    | StartingWindow
    | SessionWindow
    | NamedWindow
)
Measure: TypeAlias = "Name | RowNumber"
