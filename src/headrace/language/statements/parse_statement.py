"""The parser of statements and scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from typing import Literal as Choice

from headrace.catalog.definitions import QueryDefinition
from headrace.errors import Span, did_you_mean
from headrace.language.parser.durations import instant
from headrace.language.parser.expressions import expression
from headrace.language.parser.set_operators import select
from headrace.language.parser.subqueries import at_select
from headrace.language.parser.windows import bracket, part_of_window
from headrace.language.statements.definitions import checked_zone, relation, stream, stream_options
from headrace.language.statements.query_filter import Selection, selection
from headrace.language.statements.query_options import query_options
from headrace.language.statements.statement import (
    AllQueries,
    AlterQuery,
    CreateQuery,
    CreateRelation,
    CreateStream,
    Describe,
    Drop,
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
    SetQuery,
    SetStream,
    SetTimeZone,
    SetWindow,
    Show,
    Statement,
)
from headrace.language.syntax.ast import Expr, Select
from headrace.language.syntax.cursor import Cursor
from headrace.language.syntax.lexer import statement_tokens


def parse_script(text: str, zone: str = "UTC") -> tuple[Statement, ...]:
    """The statements of a script, each ended by `;` (optional after the last one).

    `zone` is the session's at its start; SET TIME ZONE applies to the statements after it. Raises `UserError` with line and
    column of the first mistake.
    """
    statements: list[Statement] = []
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
        return parser(cursor)
    if at_select(cursor):
        raise cursor.unsupported(
            "a SELECT is not a statement of its own",
            token.span,
            "Register it: CREATE QUERY name AS SELECT …; INVOKE name;",
        )
    if token.kind == "name":
        raise cursor.error(
            f"no statement begins with '{token.text}'", token.span, did_you_mean(token.text, _PARSERS)
        )
    raise cursor.expected("a statement", _STATEMENTS)


def _written(cursor: Cursor, start: Span) -> tuple[str, Span]:
    span = cursor.since(start)
    return cursor.text[span.start : span.end], span


def _create(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("STREAM"):
        _no_condition(cursor)
        definition = stream(cursor)
        return CreateStream(*_written(cursor, start), definition, replace)
    if cursor.accept("RELATION"):
        _no_condition(cursor)
        table = relation(cursor)
        return CreateRelation(*_written(cursor, start), table, replace)
    if cursor.accept("QUERY"):
        _no_condition(cursor)
        return _create_query(cursor, start, replace)
    raise cursor.expected("STREAM, RELATION or QUERY after CREATE")


def _no_condition(cursor: Cursor) -> None:
    if cursor.at_word("IF", "NOT", "EXISTS"):
        raise cursor.error(
            "CREATE takes no IF NOT EXISTS",
            cursor.token.span,
            "A CREATE equal to what is there does nothing: leave it out.",
        )


def _create_query(cursor: Cursor, start: Span, replace: bool) -> CreateQuery:
    name = cursor.name("the query's name")
    from_now = cursor.accept("FROM", "NOW")
    settings = query_options(cursor) if cursor.accept("OPTIONS") else {}
    cursor.zone = settings.setdefault("zone", cursor.zone)
    cursor.expect("AS", purpose=" and a SELECT")
    selected = _select(cursor, "AS")
    from_now = cursor.accept("FROM", "NOW") or from_now
    query = QueryDefinition(name, _text(cursor, selected), from_now, **settings)
    return CreateQuery(*_written(cursor, start), query, selected, replace)


def _select(cursor: Cursor, after: str) -> Select:
    if not at_select(cursor):
        raise cursor.expected(f"SELECT after {after}")
    return select(cursor)


def _text(cursor: Cursor, node: Select | Expr) -> str:
    return cursor.text[node.span.start : node.span.end]


def _alter(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    if cursor.accept("STREAM"):
        name = cursor.name("the stream's name")
        if not cursor.accept("SET"):
            raise cursor.expected(
                "SET and options: ALTER STREAM … SET (keep '0.25')",
                "Nothing else of a stream can be altered: drop it and create it.",
            )
        keep = stream_options(cursor)
        return SetStream(*_written(cursor, start), name, keep)
    if not cursor.accept("QUERY"):
        raise cursor.expected(
            "QUERY or STREAM after ALTER", "Relations cannot be altered: drop and create them."
        )
    name = cursor.name("the query's name")
    if cursor.accept("AS"):
        query = _select(cursor, "AS")
        return AlterQuery(*_written(cursor, start), name, _text(cursor, query), query, cursor.zone)
    if cursor.accept("RENAME"):
        cursor.expect("TO", purpose=" and the new name after RENAME")
        new_name = cursor.name("the new name")
        return RenameQuery(*_written(cursor, start), name, new_name)
    if cursor.accept("SET", "WINDOW"):
        opening = cursor.token.span
        bracket(cursor)
        span = cursor.since(opening)
        return SetWindow(*_written(cursor, start), name, cursor.text[span.start : span.end], span)
    if cursor.accept("SET"):
        settings = query_options(cursor)
        return SetQuery(*_written(cursor, start), name, settings)
    raise cursor.expected("AS and a SELECT, RENAME TO, SET or SET WINDOW")


_KINDS: Final[dict[str, Kind]] = {"STREAM": "stream", "RELATION": "relation", "QUERY": "query"}
_SHOWN: Final[dict[str, Kind | Choice["sink"]]] = {
    "STREAMS": "stream",
    "RELATIONS": "relation",
    "QUERIES": "query",
    "SINKS": "sink",
}


def _of_many(cursor: Cursor, verb: Choice["pause", "resume", "drop"], start: Span) -> AllQueries:
    """The rest of `VERB QUERIES`; a condition is required, or it would apply to the queries of all owners."""
    chosen = selection(cursor)
    if not chosen:
        raise cursor.expected(
            f"LIKE or WHERE after {verb.upper()} QUERIES", "LIKE '%' means all queries there are."
        )
    return AllQueries(*_written(cursor, start), verb, chosen)


_FORMS: Final[dict[str, Form]] = {"TEXT": "text", "DOT": "dot", "SVG": "svg"}


def _drop(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    if cursor.accept("QUERIES"):
        return _of_many(cursor, "drop", start)
    kind = _KINDS.get(cursor.token.upper)
    if kind is None:
        raise cursor.expected("STREAM, RELATION or QUERY after DROP")
    cursor.advance()
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name(f"the {kind}'s name")
    return Drop(*_written(cursor, start), kind, name, if_exists)


def _query_name(cursor: Cursor, start: Span) -> tuple[str, Span]:
    """The rest of `VERB [QUERY] name`: the name, and where the statement began."""
    if cursor.at_word("QUERY") and cursor.ahead().kind in ("name", "quoted"):
        cursor.advance()
    return cursor.name("the query's name"), start


def _is_of_many(cursor: Cursor) -> bool:
    """At `QUERIES LIKE` or `QUERIES WHERE`; a query may be named `queries`."""
    return cursor.at_word("QUERIES") and cursor.ahead().kind != "end" and cursor.ahead().text != ";"


def _pause(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    if _is_of_many(cursor):
        cursor.advance()
        return _of_many(cursor, "pause", start)
    name, start = _query_name(cursor, start)
    return PauseQuery(*_written(cursor, start), name)


def _resume(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    if _is_of_many(cursor):
        cursor.advance()
        return _of_many(cursor, "resume", start)
    name, start = _query_name(cursor, start)
    return ResumeQuery(*_written(cursor, start), name)


def _invoke(cursor: Cursor) -> Invoke:
    if cursor.ahead().text == "(" or cursor.ahead().upper == "SELECT":
        raise cursor.unsupported(
            "INVOKE of a SELECT is not available yet: only a standing query has an answer to fetch",
            cursor.ahead().span,
            "Register it: CREATE QUERY name AS SELECT …; INVOKE name;",
        )
    name, start = _query_name(cursor, cursor.advance().span)
    last = part_of_window(cursor) if cursor.at_sign("[") else None
    return Invoke(*_written(cursor, start), name, last)


def _show(cursor: Cursor) -> Show:
    start = cursor.advance().span
    kind = _SHOWN.get(cursor.token.upper)
    if kind is None:
        raise cursor.expected("STREAMS, RELATIONS, QUERIES or SINKS after SHOW")
    cursor.advance()
    chosen = selection(cursor) if kind == "query" else _like(cursor)
    return Show(*_written(cursor, start), kind, chosen)


def _like(cursor: Cursor) -> Selection:
    """`[LIKE 'pattern']`, of streams, relations and sinks, which have no owner, tags or state."""
    if cursor.at_word("WHERE"):
        raise cursor.unsupported(
            "WHERE chooses among queries only", cursor.token.span, "SHOW … LIKE 'pattern' chooses by name."
        )
    return selection(cursor)


def _describe(cursor: Cursor) -> Describe:
    start = cursor.advance().span
    extended = cursor.at_word("EXTENDED") and cursor.ahead().kind in ("name", "quoted")
    if extended:
        cursor.advance()
    if cursor.token.upper in _KINDS and cursor.ahead().kind in ("name", "quoted"):
        cursor.advance()
    name = cursor.name("the name of a stream, relation or query")
    return Describe(*_written(cursor, start), name, extended)


def _punctuate(cursor: Cursor) -> Punctuate:
    start = cursor.advance().span
    if cursor.at_word("STREAM") and cursor.ahead().kind in ("name", "quoted"):
        cursor.advance()
    name = cursor.name("the stream's name")
    at = instant(cursor, "an instant") if cursor.accept("AT") else None
    where = None
    if cursor.accept("WHERE"):
        where = _text(cursor, expression(cursor))
    if at is None and where is None:
        raise cursor.expected("AT and the instant below which no row follows, or WHERE and a pattern")
    return Punctuate(*_written(cursor, start), name, at, where, cursor.zone)


def _explain(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    if at_select(cursor):
        query = select(cursor)
        return ExplainSelect(*_written(cursor, start), _text(cursor, query), query, cursor.zone)
    if cursor.accept("ALL"):
        form = _form(cursor)
        return ExplainAll(*_written(cursor, start), form)
    cursor.expect("QUERY", purpose=" and a name, ALL or a SELECT after EXPLAIN")
    name = cursor.name("the query's name")
    form = _form(cursor)
    return ExplainQuery(*_written(cursor, start), name, form)


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
    start = cursor.advance().span
    cursor.expect("RELATION", purpose=" after REFRESH")
    name = cursor.name("the relation's name")
    return RefreshRelation(*_written(cursor, start), name)


def _set(cursor: Cursor) -> SetTimeZone:
    start = cursor.advance().span
    cursor.expect("TIME", "ZONE", purpose=" after SET")
    at = cursor.token.span
    zone = cursor.string("a time zone in quotes")
    return SetTimeZone(*_written(cursor, start), checked_zone(cursor, zone, at))


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
