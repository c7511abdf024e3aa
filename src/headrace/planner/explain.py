"""An operator told to people: what it reads, keeps and gives, and which class its window is of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.algebra.correlated import levels
from headrace.algebra.expressions import Call, Case, Cast, Column, Expression, Literal
from headrace.algebra.query import Ago
from headrace.operators.adaptive_panes import EVERY_ROW, few_rows, partial_bytes, row_bytes
from headrace.operators.approximate_instants import ApproximateInstants
from headrace.operators.approximate_windows import ApproximateWindows
from headrace.operators.around import Around
from headrace.operators.cells import Fed
from headrace.operators.finish import Finish
from headrace.operators.membership import Membership
from headrace.operators.operator import Operator
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.relation_join import RelationJoin
from headrace.operators.revising import Revising
from headrace.operators.revising_sessions import RevisingSessions
from headrace.operators.row_steps import Keep, RowStep
from headrace.operators.selection import Selection
from headrace.operators.synopsis_partial import Synopsis
from headrace.operators.window_changes import WindowChanges
from headrace.operators.window_costs import MOST_WINDOWS, cost, rows_for_panes_to_pay
from headrace.operators.window_join import WindowJoin
from headrace.planner.explain_settings import settings
from headrace.planner.lower import RULES
from headrace.synopses.canonical import Form
from headrace.time import Instant, render_duration, render_instant

_EXAMPLE = 1_000_000
"""For how many rows in a window the size of a synopsis is told."""


def explain(operator: Operator) -> str:
    """Indented lines, from the answer down to the stream."""
    return "\n".join(_lines(operator))


def _lines(operator: Operator) -> Iterator[str]:
    yield f"query {operator.query}"
    yield from _rule(operator)
    if isinstance(operator, WindowChanges):
        yield f"  {operator.kind}: what differs from each window to the next"
        operator = operator.inner
    if isinstance(operator, Revising | RevisingSessions):
        within = operator.revisions.within
        reach = "however late" if within is None else f"up to {render_duration(within)} late"
        yield f"  windows told again, what goes as -1 and what comes as +1, for rows {reach}"
        operator = operator.inner
    if isinstance(operator, PaneAggregate):
        yield from _pane_aggregate(operator)
    elif isinstance(operator, ApproximateWindows):
        yield from _approximate(operator)
    elif isinstance(operator, ApproximateInstants):
        yield from _approximate_instants(operator)
    elif isinstance(operator, Selection):
        yield from _selection(operator)
    elif isinstance(operator, WindowJoin | RelationJoin):
        yield from _join(operator)
    else:
        context = getattr(operator, "context", None)
        yield f"  {type(operator).__name__}{f', windows {context.value}' if context is not None else ''}"
        yield from (f"    {line}" for line in settings(operator, show))
        yield from _regrouping(getattr(operator, "finish", None))
    steps: tuple[RowStep, ...] = getattr(operator, "steps", ())
    for step in reversed(steps):
        if isinstance(step, Keep):
            yield f"  keep rows where {show(step.predicate)}"
        elif isinstance(step, Membership):
            yield f"  {_membership(step)}"
        else:
            how = "left join" if step.keep_unmatched else "join"
            pairs = zip(step.left_keys, step.right_keys, strict=True)
            on = " and ".join(f"{show(left)} = {step.alias}.{show(right)}" for left, right in pairs)
            yield f"  {how} relation {step.relation} on {on or 'every row'}"
    yield f"  read stream {operator.stream}: {', '.join(sorted(operator.columns)) or 'no columns'}"


def _rule(operator: Operator) -> Iterator[str]:
    """Why it is this operator, of all that answer queries."""
    while isinstance(operator, Around):
        operator = operator.inner
    rule = RULES.get(getattr(operator, "rule", ""))
    if rule is not None:
        yield f"  chosen by: {rule.name} — {rule.why}"


def _join(operator: WindowJoin | RelationJoin) -> Iterator[str]:
    """What pairs are, where rows meet, and how long they wait."""
    title, condition = type(operator).__name__, operator.spec.condition
    yield f"  {title}: pairs where {'rows hold together' if condition is None else show(condition)}"
    keys = operator.spec.sides[0].keys
    by = ", ".join(show(key) for key in keys) if keys else "nothing: all rows meet in one slot"
    what = "rows" if isinstance(operator, WindowJoin) else "changes"
    yield f"    {what} meet by {by}; new {what} search the other side's sorted runs"
    for name, side in zip(("left", "right"), operator.spec.sides, strict=True):
        reach = "with its pair" if side.ends is not None else "without end"
        reach = f"holds {render_duration(side.reach) if side.reach is not None else reach}"
        reach = "comes and goes as it is told" if side.changes is not None else reach
        until = "is kept until the other side has passed that"
        if isinstance(operator, RelationJoin):
            until = "is added to what is held when the other side has passed that"
        kept = f", only where {show(side.keeps[0].predicate)}" if side.keeps else ""
        yield f"    {name}: a row {reach} and {until}{kept}"


def _regrouping(finish: Finish | None) -> Iterator[str]:
    """Aggregates that take the rows of a window when it is known."""
    if finish is not None and finish.regroup is not None:
        level = levels(finish.regroup.aggregates)
        told = ", ".join(
            f"{item.call.function} (level {level[item.name]})" for item in finish.regroup.aggregates
        )
        yield f"    rows of a window are grouped when it closes, level by level: {told}"


def _membership(step: Membership) -> str:
    """What a subquery of WHERE asks, and which rows of its relation it asks."""
    pairs = zip(step.left_keys, step.right_keys, strict=True)
    tests = [f"{show(left)} = {step.alias}.{show(right)}" for left, right in pairs]
    tests += [show(part) for part in (step.own, step.residual) if part is not None]
    asked = (
        "exists in"
        if step.value is None or step.member is None
        else f"{show(step.value)} in {show(step.member)} of"
    )
    where = f" where {' and '.join(tests)}" if tests else ""
    return f"{step.name}: {asked} relation {step.relation}{where}"


def _pane_aggregate(operator: PaneAggregate) -> Iterator[str]:
    panes = operator.panes
    finish = operator.finish
    if finish.limit is not None:
        keys = ", ".join(show(key.expression) + (" DESC" if key.descending else "") for key in finish.order)
        yield f"  first {finish.limit} rows of each window{f' by {keys}' if keys else ''}"
    for predicate in finish.having:
        yield f"  keep groups where {show(predicate)}"
    yield f"  {window(operator)} (context free), combined from dyadic blocks"
    if panes.per_window is not None and panes.per_window > 1:
        yield from _costs(operator)
    cut = "" if not panes.cut else f", cut at {render_duration(panes.cut)}"
    yield f"  pane partials: {panes.per_slide} a slide{cut}; {', '.join(partials(operator))}"
    yield from _synopses(operator)
    yield from _few_rows(operator)
    where = "one slot" if operator.single_slot is not None else "by group"
    yield f"  group by {', '.join(show(key.expression) for key in operator.keys) or 'nothing'} (routed to {where})"
    if operator.sheds:
        yield "  answered from the rows that the stream keeps, maybe fewer than there are (WITH SHEDDING)"
    if operator.alone:
        yield "  shares its panes with no query (sharing 'off')"


def _few_rows(operator: PaneAggregate) -> Iterator[str]:
    """Whether groups of few rows lie as these, or when they would."""
    layout = operator.layouts[0]
    most = few_rows(layout)
    if not operator.adapts or operator.family is None or not most:
        return
    sizes = f"{row_bytes(layout)} bytes a row, {partial_bytes(layout)} a partial"
    few = f"groups of at most {most} {'row' if most == 1 else 'rows'} in a pane"
    if operator.keeps is not None and operator.keeps >= EVERY_ROW:
        yield f"  rows are not folded into panes as they come: too few share a group's pane ({sizes})"
    elif operator.keeps is not None:
        yield f"  {few} lie as their rows, since many are that small ({sizes})"
    else:
        yield f"  {few} are kept as their rows when many are that small ({sizes})"


def _selection(operator: Selection) -> Iterator[str]:
    kept = {
        "none": "nothing is kept: INVOKE tests the rows of the window",
        "partial": "bitmaps of the rows that pass: INVOKE fetches those of the window, and tests none",
    }[operator.materialize]
    begin, end = (_end_of(each) for each in (operator.window.begin, operator.window.end))
    reach = "" if operator.window.range is None else f", of the last {render_duration(operator.window.range)}"
    yield f"  materialize {operator.materialize} ({operator.why}): {kept}"
    yield f"  window applied when asked: {begin} to {end}{reach} ({operator.window.kind})"
    regroup = operator.finish.regroup
    if regroup is not None:
        keys = ", ".join(show(key.expression) for key in regroup.keys) or "nothing"
        yield f"  {', '.join(item.call.function for item in regroup.aggregates)} when asked, group by {keys}"
    yield f"  an answer reads {', '.join(sorted(operator.fetched)) or 'no columns'}"


def _end_of(bound: Instant | Ago) -> str:
    if isinstance(bound, Ago):
        return f"NOW - {render_duration(bound.duration)}" if bound.duration else "NOW"
    return render_instant(bound)


def _approximate(operator: ApproximateWindows) -> Iterator[str]:
    whole = operator.exactly
    yield f"  window every {render_duration(whole.panes.slide)} of {whole.panes.per_window} panes (context free)"
    kept = zip(operator.layout.feds, operator.forms, strict=True)
    yield from _histograms(kept, f"every pane: {8 * (whole.panes.per_window or 0):,}")
    where = "one slot" if whole.single_slot is not None else "by group"
    yield f"  group by {', '.join(show(key.expression) for key in whole.keys) or 'nothing'} (routed to {where})"


def _approximate_instants(operator: ApproximateInstants) -> Iterator[str]:
    grouped, length = operator.exactly.grouped, operator.exactly.validity.length
    assert length is not None
    yield f"  a relation at every instant, of the last {render_duration(length - 1)}"
    feds = operator.layout.feds
    kept = ((fed, form) for fed, form in zip(feds, operator.forms, strict=True) if form is not None)
    yield from _histograms(kept, f"every instant with a row: up to {16 * _EXAMPLE:,}")
    where = "by group" if operator.exactly.rows.routing is not None else "one slot"
    yield f"  group by {', '.join(show(key.expression) for key in grouped.keys) or 'nothing'} (routed to {where})"


def _histograms(kept: Iterable[tuple[Fed, Form]], instead: str) -> Iterator[str]:
    """A line for each number that is kept: how many buckets it takes, and how many bytes; `instead` is what exact ones would."""
    for fed, form in kept:
        argument = show(fed.expression) if fed.expression is not None else "*"
        buckets = form.most_buckets(_EXAMPLE)
        yield (
            f"  {type(fed.partial).__name__.lower()}({argument}) in an exponential histogram, k = {form.first}: for {_EXAMPLE:,} "
            f"at most {buckets} buckets, about {2 * buckets:,} bytes a group ({instead})"
        )


def _costs(operator: PaneAggregate) -> Iterator[str]:
    """What the cost model says of windows that close alone and of many that close together, and when panes pay."""
    subtracts = all(fed.partial.subtracts for layout in operator.layouts for fed in layout.feds)
    for many in (1, MOST_WINDOWS):
        found = cost(operator.panes, many)
        rolled = (
            f"{found.differences:,.0f} as differences" if subtracts else f"{found.rolling:,.0f} rolled over"
        )
        ways = f"{found.each:,.0f} from each pane, {found.blocks:,.0f} from blocks, {rolled}"
        together = "1 window alone" if many == 1 else f"{many} windows together"
        yield f"    cells a group, {together}: {ways}: {found.least(subtracts=subtracts)}"
    yield f"    panes pay from {rows_for_panes_to_pay(operator.panes):.1f} rows of a group in a window on"


def window(operator: PaneAggregate) -> str:
    """`window every 10 SECONDS of 6 panes`."""
    panes = operator.panes
    reach = (
        "all of the past"
        if panes.per_window is None
        else "1 pane"
        if panes.per_window == 1
        else f"{panes.per_window} panes"
    )
    return f"window every {render_duration(panes.slide)} of {reach}"


def partials(operator: PaneAggregate) -> list[str]:
    """What is kept in each pane: `count(*)`, `sum(price)`."""
    named = []
    for layout in operator.layouts:
        for fed in layout.feds:
            argument = show(fed.expression) if fed.expression is not None else "*"
            named.append(f"{_kind(fed)}({argument})")
    return named


def _kind(fed: Fed) -> str:
    partial = fed.partial
    if fed.encoding == "squares":
        return "squares"
    return type(partial.kind if isinstance(partial, Synopsis) else partial).__name__.lower()


def _synopses(operator: PaneAggregate) -> Iterator[str]:
    """A line for each synopsis: how much a group takes in a pane of many rows, and in a window."""
    for fed in operator.layouts[0].feds:
        if isinstance(fed.partial, Synopsis) and fed.expression is not None:
            size = fed.partial.kind.full_bytes
            yield f"  synopsis {_kind(fed)}({show(fed.expression)}): at most about {size:,} bytes a group and pane"


def show(expression: Expression) -> str:
    """An expression as text, close to SQL."""
    match expression:
        case Column(name=name):
            return name
        case Literal(value=value):
            return "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)
        case Cast(argument=argument, type=kind):
            return f"CAST({show(argument)} AS {kind})"
        case Case(branches=branches, otherwise=otherwise):
            whens = " ".join(f"WHEN {show(when)} THEN {show(then)}" for when, then in branches)
            return f"CASE {whens} ELSE {show(otherwise)} END"
        case Call(function=function, arguments=arguments):
            parts = [show(argument) for argument in arguments]
            if function.isidentifier() and function not in ("and", "or", "div"):
                return f"{function}({', '.join(parts)})"
            return f"({f' {function.upper()} '.join(parts)})"
