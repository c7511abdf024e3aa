"""The parser of scripts: each statement is recognised by its first words, and becomes a record of `statement`
(`CreateQuery`, `Drop`, `Invoke`, …). SELECTs and most clauses are parsed by other modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final
from typing import Literal as Choice

from headrace.catalog.definitions import QueryDefinition
from headrace.catalog.reductions import Reducer
from headrace.errors import did_you_mean
from headrace.language.parser.durations import instant
from headrace.language.parser.expressions import expression
from headrace.language.parser.query import select
from headrace.language.parser.subqueries import at_select
from headrace.language.parser.windows import bracket, part_of_window
from headrace.language.statements.actions import then_clauses
from headrace.language.statements.clauses.accepted_error import accepted_error
from headrace.language.statements.clauses.reductions import reduction
from headrace.language.statements.definitions import relation, stream, stream_options
from headrace.language.statements.options import checked_zone, known_zone
from headrace.language.statements.query_filter import selection
from headrace.language.statements.query_options import query_options
from headrace.language.statements.statement import (
    AllQueries,
    AlterQuery,
    Ask,
    CreateQuery,
    CreateReducer,
    CreateRelation,
    CreateStream,
    Describe,
    Drop,
    DropReducer,
    ExplainAdaptive,
    ExplainAll,
    ExplainQuery,
    ExplainSelect,
    Form,
    Invoke,
    Kind,
    PauseQuery,
    Punctuate,
    RefreshRelation,
    RenameQuery,
    ResumeQuery,
    SetActions,
    SetQuery,
    SetStream,
    SetTimeZone,
    SetWindow,
    Show,
    ShowCreate,
    Statement,
)
from headrace.language.syntax.ast import Expr, Select
from headrace.language.syntax.cursor import Cursor
from headrace.language.syntax.lexer import statement_tokens

_VIEW: Final = "CREATE QUERY name AS SELECT … stores a result and updates it as rows come."
_CREATED_BY_OTHERS: Final = {
    "TABLE": "CREATE STREAM has rows that come, CREATE RELATION those that a query looks up.",
    "VIEW": _VIEW,
    "MATERIALIZED": _VIEW,
}
"""What other dialects create, and what is written here."""


def parse_script(text: str, zone: str = "UTC") -> tuple[Statement, ...]:
    """The statements of a script, each ended by `;` (optional after the last one).

    `zone` is the session's at its start; SET TIME ZONE applies to the statements after it. Raises `UserError` with line and
    column of the first mistake, and for a `zone` that does not exist.
    """
    zone, statements = known_zone(zone), list[Statement]()
    for part in statement_tokens(text):
        cursor = Cursor(text, part, zone)
        while cursor.accept_sign(";"):
            pass
        if not cursor.at_end:
            statements.append(_statement(cursor))
            if isinstance(statements[-1], SetTimeZone):
                zone = statements[-1].zone
            if not cursor.at_end:
                cursor.expect_sign(";", " after the statement")
    return tuple(statements)


def _statement(cursor: Cursor) -> Statement:
    token = cursor.token
    parser = _PARSERS.get(token.upper)
    if parser is not None:
        start = cursor.advance().span
        statement = parser(cursor)
        span = cursor.since(start)
        return replace(statement, text=cursor.text[span.start : span.end], span=span)
    if at_select(cursor):
        statement = _ask(cursor)
        span = cursor.since(token.span)
        return replace(statement, text=cursor.text[span.start : span.end], span=span)
    if token.kind == "name":
        from headrace.language.syntax.other_dialects import instead_of_statement  # noqa: PLC0415 - only where it is used

        remedy = instead_of_statement(token.upper) or did_you_mean(token.text, _PARSERS)
        raise cursor.error(f"no statement begins with '{token.text}'", token.span, remedy)
    raise cursor.expected("a statement", _STATEMENTS)


def _create(cursor: Cursor) -> Statement:
    replacing = cursor.accept("OR", "REPLACE")
    if not cursor.at_any("STREAM", "RELATION", "QUERY", "REDUCER"):
        raise cursor.expected(
            "STREAM, RELATION, QUERY or REDUCER after CREATE", _CREATED_BY_OTHERS.get(cursor.token.upper)
        )
    kind = cursor.advance().upper
    _no_condition(cursor)
    if kind == "REDUCER":
        return _create_reducer(cursor, replacing)
    if kind == "STREAM":
        return CreateStream(stream(cursor), replacing)
    return (
        CreateRelation(relation(cursor), replacing)
        if kind == "RELATION"
        else _create_query(cursor, replacing)
    )


def _create_reducer(cursor: Cursor, replacing: bool) -> CreateReducer:
    name, stream_name = _reducer_of(cursor)
    cursor.expect("AS", purpose=" and a reduction in quotes")
    at = cursor.token.span
    text = cursor.string("a reduction in quotes: AS 'rows(100 PER host EVERY 1 HOUR)'")
    return CreateReducer(stream_name, Reducer(name, reduction(cursor, text, at)), replacing, at)


def _reducer_of(cursor: Cursor) -> tuple[str, str]:
    """`name ON stream`."""
    name = cursor.name("the reducer's name")
    cursor.expect("ON", purpose=" and the stream of the reducer")
    return name, cursor.name("the stream's name")


def _no_condition(cursor: Cursor) -> None:
    if cursor.at_word("IF", "NOT", "EXISTS"):
        raise cursor.error(
            "CREATE takes no IF NOT EXISTS",
            cursor.token.span,
            "A CREATE equal to what is there does nothing: leave it out.",
        )


def _create_query(cursor: Cursor, replacing: bool) -> CreateQuery:
    name = cursor.name("the query's name")
    from_now = cursor.accept("FROM", "NOW")
    settings = query_options(cursor) if cursor.accept("OPTIONS") else {}
    cursor.zone = settings.setdefault("zone", cursor.zone)
    cursor.expect("AS", purpose=" and a SELECT")
    selected = _select(cursor, "AS")
    from_now = cursor.accept("FROM", "NOW") or from_now
    actions, places = then_clauses(cursor)
    definition = QueryDefinition(name, _text(cursor, selected), from_now, actions=actions, **settings)
    return CreateQuery(definition, selected, replacing, places)


def _select(cursor: Cursor, after: str) -> Select:
    if not at_select(cursor):
        raise cursor.expected(f"SELECT after {after}")
    return select(cursor)


def _text(cursor: Cursor, node: Select | Expr) -> str:
    return cursor.text[node.span.start : node.span.end]


def _alter(cursor: Cursor) -> Statement:
    if cursor.accept("STREAM"):
        name = cursor.name("the stream's name")
        if not cursor.accept("SET"):
            raise cursor.expected(
                "SET and options: ALTER STREAM … SET (keep '0.25')",
                "Nothing else of a stream can be altered: drop it and create it.",
            )
        return SetStream(name, stream_options(cursor))
    if not cursor.accept("QUERY"):
        raise cursor.expected(
            "QUERY or STREAM after ALTER", "Relations cannot be altered: drop and create them."
        )
    name = cursor.name("the query's name")
    if cursor.accept("AS"):
        query = _select(cursor, "AS")
        return AlterQuery(name, _text(cursor, query), query, cursor.zone)
    if cursor.accept("RENAME"):
        cursor.expect("TO", purpose=" and the new name after RENAME")
        return RenameQuery(name, cursor.name("the new name"))
    if cursor.accept("SET", "WINDOW"):
        opening = cursor.token.span
        bracket(cursor)
        span = cursor.since(opening)
        return SetWindow(name, cursor.text[span.start : span.end], span)
    if cursor.accept("SET"):
        return SetQuery(name, query_options(cursor))
    if cursor.accept("THEN", "NOTHING"):
        return SetActions(name, ())
    if cursor.at_any("THEN"):
        return SetActions(name, *then_clauses(cursor))
    raise cursor.expected("AS and a SELECT, RENAME TO, SET, SET WINDOW or THEN")


_KINDS: Final[dict[str, Kind]] = {"STREAM": "stream", "RELATION": "relation", "QUERY": "query"}
_SHOWN: Final[dict[str, Kind | Choice["sink", "action"]]] = {
    "STREAMS": "stream",
    "RELATIONS": "relation",
    "QUERIES": "query",
    "SINKS": "sink",
    "ACTIONS": "action",
}


def _of_many(cursor: Cursor, verb: Choice["pause", "resume", "drop"]) -> AllQueries:
    """The rest of `VERB QUERIES`; a condition is required, or it would apply to the queries of all owners."""
    chosen = selection(cursor)
    if not chosen:
        raise cursor.expected(
            f"LIKE or WHERE after {verb.upper()} QUERIES", "LIKE '%' means all queries there are."
        )
    return AllQueries(verb, chosen)


_FORMS: Final[dict[str, Form]] = {"TEXT": "text", "DOT": "dot", "SVG": "svg"}


def _drop(cursor: Cursor) -> Statement:
    if cursor.accept("QUERIES"):
        return _of_many(cursor, "drop")
    if cursor.accept("REDUCER"):
        if_exists = cursor.accept("IF", "EXISTS")
        name, stream_name = _reducer_of(cursor)
        return DropReducer(stream_name, name, if_exists)
    kind = _KINDS.get(cursor.token.upper)
    if kind is None:
        raise cursor.expected("STREAM, RELATION, QUERY or REDUCER after DROP")
    cursor.advance()
    if_exists = cursor.accept("IF", "EXISTS")
    return Drop(kind, cursor.dotted_name(f"the {kind}'s name"), if_exists)


def _pass_before_name(cursor: Cursor, *words: str) -> bool:
    """Pass one of these words, if a name follows: it may be a name itself."""
    passed = cursor.at_any(*words) and cursor.ahead().kind in ("name", "quoted")
    if passed:
        cursor.advance()
    return passed


def _query_name(cursor: Cursor) -> str:
    """The rest of `VERB [QUERY] name`."""
    _pass_before_name(cursor, "QUERY")
    return cursor.name("the query's name")


def _accept_many(cursor: Cursor) -> bool:
    """Pass the QUERIES of `QUERIES LIKE` or `QUERIES WHERE`; a query may be named `queries`."""
    return cursor.ahead().kind != "end" and cursor.ahead().text != ";" and cursor.accept("QUERIES")


def _pause(cursor: Cursor) -> Statement:
    return _of_many(cursor, "pause") if _accept_many(cursor) else PauseQuery(_query_name(cursor))


def _resume(cursor: Cursor) -> Statement:
    return _of_many(cursor, "resume") if _accept_many(cursor) else ResumeQuery(_query_name(cursor))


def _invoke(cursor: Cursor) -> Invoke:
    if cursor.token.text == "(" or cursor.at_any("SELECT"):
        raise cursor.unsupported(
            "INVOKE of a SELECT is not available yet: only a standing query has an answer to fetch",
            cursor.token.span,
            "Register it: CREATE QUERY name AS SELECT …; INVOKE name;",
        )
    name = _query_name(cursor)
    return Invoke(name, part_of_window(cursor) if cursor.at_sign("[") else None)


def _ask(cursor: Cursor) -> Ask:
    start = cursor.token.span
    query = select(cursor)
    text = _text(cursor, query)
    accepted = accepted_error(cursor)
    if accepted is None:
        raise cursor.unsupported(
            "a SELECT is not a statement of its own",
            start,
            "Register it: CREATE QUERY name AS SELECT …; INVOKE name; or ask the archive: SELECT … WITHIN 2 PERCENT;",
        )
    return Ask(text, query, accepted.within, cursor.zone, accepted.duration)


def _show(cursor: Cursor) -> Show | ShowCreate:
    if cursor.accept("CREATE"):
        cursor.expect("QUERY", purpose=" and a name after SHOW CREATE")
        return ShowCreate(cursor.name("the query's name"))
    kind = _SHOWN.get(cursor.token.upper)
    if kind is None:
        raise cursor.expected("STREAMS, RELATIONS, QUERIES, SINKS or ACTIONS after SHOW")
    cursor.advance()
    if kind != "query" and cursor.at_word(
        "WHERE"
    ):  # streams, relations, sinks and actions have no owner, tags or state
        raise cursor.unsupported(
            "WHERE chooses among queries only", cursor.token.span, "SHOW … LIKE 'pattern' chooses by name."
        )
    return Show(kind, selection(cursor))


def _describe(cursor: Cursor) -> Describe:
    extended = _pass_before_name(cursor, "EXTENDED")
    _pass_before_name(cursor, *_KINDS)
    return Describe(cursor.dotted_name("the name of a stream, relation or query"), extended)


def _punctuate(cursor: Cursor) -> Punctuate:
    _pass_before_name(cursor, "STREAM")
    name = cursor.name("the stream's name")
    at = instant(cursor, "an instant") if cursor.accept("AT") else None
    where = _text(cursor, expression(cursor)) if cursor.accept("WHERE") else None
    if at is None and where is None:
        raise cursor.expected("AT and the instant below which no row follows, or WHERE and a pattern")
    return Punctuate(name, at, where, cursor.zone)


def _explain(cursor: Cursor) -> Statement:
    if at_select(cursor):
        query = select(cursor)
        text = _text(cursor, query)
        return ExplainSelect(text, query, cursor.zone, asks=accepted_error(cursor) is not None)
    if cursor.accept("ALL"):
        return ExplainAll(_form(cursor))
    if cursor.accept("ADAPTIVE"):
        name = cursor.name("the query's name")
        return ExplainAdaptive(name, _form(cursor))
    cursor.expect("QUERY", purpose=" and a name, ALL or a SELECT after EXPLAIN")
    name = cursor.name("the query's name")
    return ExplainQuery(name, _form(cursor))


def _form(cursor: Cursor) -> Form:
    """`[AS TEXT | DOT | SVG]`."""
    if not cursor.accept("AS"):
        return "text"
    form = _FORMS.get(cursor.token.upper)
    if form is None:
        raise cursor.expected("TEXT, DOT or SVG after AS")
    cursor.advance()
    return form


def _refresh(cursor: Cursor) -> RefreshRelation:
    cursor.expect("RELATION", purpose=" after REFRESH")
    return RefreshRelation(cursor.name("the relation's name"))


def _set(cursor: Cursor) -> SetTimeZone:
    cursor.expect("TIME", "ZONE", purpose=" after SET")
    at = cursor.token.span
    return SetTimeZone(checked_zone(cursor, cursor.string("a time zone in quotes"), at))


_PARSERS: Final[dict[str, Callable[[Cursor], Statement]]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "PAUSE": _pause,
    "RESUME": _resume,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "EXPLAIN": _explain,
    "INVOKE": _invoke,
    "REFRESH": _refresh,
    "PUNCTUATE": _punctuate,
    "SET": _set,
}
_STATEMENTS: Final = f"A statement begins with {', '.join(_PARSERS)}."
