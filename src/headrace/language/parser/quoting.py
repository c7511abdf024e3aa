"""Quoting of names (backticks) and strings for the text of a statement, so that the parser reads the same back."""

from __future__ import annotations

import re
from typing import Final

from headrace.language.parser.primaries import RESERVED

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORD_LIST: Final = """
ALL ALTER ANTI CREATE CROSS CUMULATE DATE DESCRIBE DIV DROP DSTREAM EMPTY EXPLAIN FILTER HOP ILIKE
INTERVAL INVOKE ISTREAM LANDMARK LATE LATERAL LEFT MINUS NATURAL NOW NULL NULLS OFFSET ORIGIN OVER
PA PARTITION PAUSE QUERY RANGE RATTR REFRESH REGEXP REJECTS RELATION RESUME REVISIONS RIGHT RLIKE
ROWS RSTREAM SATTR SEMI SESSION SHEDDING SHOW SLIDE STREAM TABLE TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TRUE
FALSE TUMBLE TUMBLING UNBOUNDED WA WATTR WINDOW X R
"""
_KEYWORDS: Final = RESERVED | frozenset(_KEYWORD_LIST.split())


def identifier(name: str) -> str:
    """A name as it must be written: in backticks unless it is plain and no keyword."""
    if _PLAIN.fullmatch(name) and name.upper() not in _KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def string(text: str) -> str:
    """A string in quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
