"""What users of other SQL dialects write where the parser expects something else, and what is written here: `instead_of`."""

from __future__ import annotations

from typing import Final

_LATEST: Final = "Write FROM s [PARTITION BY k ROWS 1], which holds the latest row of each k, or ORDER BY … LIMIT for the first ones."
_FLAT: Final = "Rows are flat, and LATERAL is not available: declare a column for each value."
_SHOWN: Final = "Write SHOW STREAMS, SHOW RELATIONS or SHOW QUERIES."
_DROPPED: Final = "Write DROP STREAM, DROP RELATION or DROP QUERY."
_PLAN: Final = "Write EXPLAIN QUERY name, EXPLAIN SELECT … or EXPLAIN ALL, which have what is measured."
_MATCHED: Final = "Write k RLIKE 'pattern' for a regular expression."

_AFTER: Final = {
    "QUALIFY": _LATEST,
    "MATCH_RECOGNIZE": "Patterns of rows are not available: join the stream with its window, FROM s [NOW] AS a, s [RANGE 1 MINUTE] AS b.",
    "LATERAL": _FLAT,
    "TABLESAMPLE": "A question reads a sample: SELECT … WITHIN 1 PERCENT. A query of shares is WITH SHEDDING.",
    "FETCH": "Write LIMIT 5.",
    "FORMATTED": "Write DESCRIBE EXTENDED name.",
    "SIMILAR": _MATCHED,
    "SYMMETRIC": "Write BETWEEN with the smaller value first.",
}
"""Words of clauses of other dialects. The error is at the word, or after it where it may be an alias."""

_PAIRS: Final = {
    (
        "FOR",
        "SYSTEM_TIME",
    ): "Leave FOR SYSTEM_TIME out: a stream meets the version of a relation in force when its row came.",
    (
        "AT",
        "TIME",
    ): "Write from_utc_timestamp(at, 'Europe/Berlin') for local time, or SET TIME ZONE for all queries after it.",
    (
        "WITHIN",
        "GROUP",
    ): "For percentile_cont write PERCENTILE(x, 0.5), for mode MODE(x). For listagg select the rows of the window: texts are not joined.",
    ("DISTINCT", "ON"): _LATEST,
    ("*", "EXCEPT"): "Name the columns that are selected.",
    ("*", "EXCLUDE"): "Name the columns that are selected.",
    ("SHOW", "TABLES"): _SHOWN,
    ("SHOW", "VIEWS"): _SHOWN,
    ("SHOW", "SOURCES"): _SHOWN,
    ("DROP", "TABLE"): _DROPPED,
    ("DROP", "VIEW"): _DROPPED,
    ("DROP", "MATERIALIZED"): _DROPPED,
    ("DROP", "SOURCE"): _DROPPED,
    ("EXPLAIN", "ANALYZE"): _PLAN,
    ("EXPLAIN", "EXTENDED"): _PLAN,
    ("EXPLAIN", "FORMATTED"): _PLAN,
    ("EXPLAIN", "VERBOSE"): _PLAN,
    ("CREATE", "SOURCE"): "Write CREATE STREAM name (columns) USING format.",
    ("CREATE", "FUNCTION"): "Functions are registered in Python: hub.register_function.",
    ("CREATE", "INDEX"): "Leave it out: conditions of all queries are indexed together.",
}
"""The word before the place of an error and the word at it."""

_AT: Final = {
    "~": _MATCHED,
    "->": "Declare a column for each value: USING json reads fields by name.",
    **_AFTER,
}


def instead_of(before: str, at: str) -> str | None:
    """What to write here; None where the words are not known from other dialects.

    `before` and `at` are the words or signs at the place of an error, in capitals.
    """
    return _PAIRS.get((before, at)) or _AT.get(at) or _AFTER.get(before)


_STARTED: Final = {
    "INSERT": "Rows are pushed: hub.push(name, rows), POST /v1/streams/NAME/rows, or INSERT over PostgreSQL's protocol.",
    **dict.fromkeys(
        ("DELETE", "UPDATE", "MERGE", "TRUNCATE"),
        "Rows of a stream stay as they came: OPTIONS (retain '30 DAYS') drops old ones.",
    ),
    **dict.fromkeys(("TERMINATE", "STOP", "CANCEL"), "Write PAUSE QUERY name or DROP QUERY name."),
    **dict.fromkeys(
        ("SUBSCRIBE", "TAIL", "PRINT"),
        "Follow a query: headrace fetch NAME, query.follow(), GET /v1/queries/NAME/follow.",
    ),
    "USE": "Leave it out: a home has one catalog, and --home names another home.",
}


def instead_of_statement(word: str) -> str | None:
    """What to do in place of a statement of other dialects; None for other words."""
    return _STARTED.get(word)
