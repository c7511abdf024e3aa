"""SQL text of PostgreSQL clients: its tokens, its single statements, its parameters replaced by constants, and a SELECT
rewritten from PostgreSQL's dialect into DuckDB's, with places of errors translated back.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from headrace.dataclass import dataclass
from headrace.server.postgres.protocol.parameters import elements_of

_TOKEN: Final = re.compile(
    r"""
      (?P<space>   \s+ | --[^\n]*)
    | (?P<comment> /\*)
    | (?P<string>  [eE]'(?:[^'\\]++|\\.|'')*+' | '(?:[^']++|'')*+' | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$)
    | (?P<quoted>  "(?:[^"]++|"")*+" | `[^`]*+`)
    | (?P<parameter> \$[0-9]+)
    | (?P<name>    [^\W\d]\w*)
    | (?P<number>  [0-9][0-9a-zA-Z_.]*)
    | (?P<sign>    :: | .)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """One token as it is written, and where it begins. Spaces and comments are of kind "space"."""

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """A name in capitals, the content of a quoted one; empty for other tokens."""
        if self.kind == "quoted":
            return self.text[1:-1].replace(self.text[0] * 2, self.text[0])
        return self.text.upper() if self.kind == "name" else ""


def tokens(text: str) -> Iterator[Token]:
    """All tokens; together they are the text."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None, "every character is a sign"
        kind, end = match.lastgroup or "", match.end()
        if kind == "comment":
            kind, end = "space", _after_comment(text, at)
        elif kind == "tag":
            kind = "string"
        yield Token(kind, text[at:end], at)
        at = end


def _after_comment(text: str, at: int) -> int:
    depth = 0
    for sign in _COMMENT.finditer(text, at):
        depth += 1 if sign[0] == "/*" else -1
        if not depth:
            return sign.end()
    return len(text)


@dataclass(frozen=True)
class Text:
    """One statement of a message: its text, and where in the message it begins."""

    text: str
    start: int = 0

    @cached_property
    def tokens(self) -> list[Token]:
        """Its tokens without spaces and comments."""
        return [token for token in tokens(self.text) if token.kind != "space"]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its first words in capitals, up to a token that is no name."""
        words = []
        for token in self.tokens[:6]:
            if token.kind != "name":
                break
            words.append(token.word)
        return tuple(words)

    def after(self, count: int) -> str:
        """The text after the first tokens."""
        return self.text[self.tokens[count].start :] if count < len(self.tokens) else ""


def statements(text: str) -> list[Text]:
    """The statements of a message, which `;` separates; empty ones are left out."""
    texts: list[Text] = []
    start: int | None = None
    for token in (*tokens(text), Token("sign", ";", len(text))):
        if token.kind == "sign" and token.text == ";":
            if start is not None:
                texts.append(Text(text[start : token.start], start))
            start = None
        elif start is None and token.kind != "space":
            start = token.start
    return texts


def parameters(text: str) -> int:
    """How many parameters a text has: the greatest number of `$n`."""
    return max((int(token.text[1:]) for token in tokens(text) if token.kind == "parameter"), default=0)


def cast_parameters(text: Text) -> dict[int, str]:
    """The types that a text itself gives its parameters: `$1::bigint`, `CAST($1 AS bigint)`."""
    types = {}
    for index, token in enumerate(text.tokens[:-2]):
        sign, kind = text.tokens[index + 1 : index + 3]
        if token.kind == "parameter" and (sign.text == "::" or sign.word == "AS"):
            types[int(token.text[1:])] = kind.text.lower()
    return types


def with_values(text: str, values: Sequence[str]) -> str:
    """A text with SQL of a value in place of each parameter."""
    return "".join(
        values[int(token.text[1:]) - 1] if token.kind == "parameter" else token.text for token in tokens(text)
    )


@dataclass(frozen=True, slots=True)
class Edited:
    """A text of which parts were replaced: `places` has (offset, offset in the original) after each of them."""

    text: str
    places: tuple[tuple[int, int], ...] = ()

    def place(self, offset: int) -> int:
        """An offset of the text as one of the original."""
        index = bisect_right(self.places, (offset, sys.maxsize)) - 1
        now, before = self.places[index] if index >= 0 else (0, 0)
        return before + offset - now


_CLAUSES: Final = ("FROM", "WHERE", "GROUP", "ORDER", "LIMIT", "UNION", "JOIN", "ON", "HAVING")
_COLLATIONS: Final = ("default", "c", "posix", "ucs_basic")
_RESERVED: Final = frozenset(
    [
        "anti",
        "asof",
        "at",
        "describe",
        "glob",
        "lambda",
        "pivot",
        "pivot_longer",
        "pivot_wider",
        "positional",
        "qualify",
        "semi",
        "show",
        "summarize",
        "unpack",
        "unpivot",
    ]
)
"""Names that PostgreSQL gives to columns, and the reader to clauses of its own."""


def late_or_rejects(text: str) -> Iterator[tuple[Token, Token]]:
    """The names in FROM that LATE or REJECTS follows without AS, each with that word."""
    seen = [token for token in tokens(text) if token.kind != "space"]
    clauses = [""]
    for before, token in pairwise(seen):
        if token.text == "(":
            clauses.append(clauses[-1])
        elif token.text == ")" and len(clauses) > 1:
            clauses.pop()
        elif token.kind == "name" and token.word in (*_CLAUSES, "SELECT"):
            clauses[-1] = token.word
        elif clauses[-1] in ("FROM", "JOIN") and token.kind == "name" and token.word in ("LATE", "REJECTS"):
            yield before, token


def for_reader(text: str) -> Edited:
    """A SELECT in the words of the reader of tables.

    `pg_catalog.` is left out, for that schema is on the search path; `OPERATOR(pg_catalog.~)` is `~`; PostgreSQL's
    collations are left out; `'name'::regclass` is a call of a function; `ANY ('{a,b}')` has a list; names that are
    keywords of the reader alone are quoted; a function of arrays in FROM is a subquery.
    """
    seen = [token for token in tokens(text) if token.kind != "space"]
    parts, places = list[str](), list[tuple[int, int]]()
    aliases = dict[int, tuple[int, str]]()
    written = length = index = 0
    while index < len(seen):
        count, new = aliases.get(index, (0, ""))
        if not count and (alias := _alias_of_call(seen, index)):
            as_ = "" if seen[alias - 1].word == "AS" else "AS "
            aliases[alias] = 1, f"{as_}{seen[alias].text}) {seen[alias].text}"
            count, new = 1, f"(SELECT {seen[index].text}"
        if not count:
            count, new = _in_place_of(seen[index : index + 8])
        if count:
            start, last = seen[index].start, seen[index + count - 1]
            parts += [text[written:start], new]
            length += start - written + len(new)
            written = last.start + len(last.text)
            places.append((length, written))
        index += max(count, 1)
    return Edited("".join(parts) + text[written:], tuple(places))


def _alias_of_call(seen: Sequence[Token], index: int) -> int:
    """The token that names the rows of a `string_to_array(…)` in FROM; 0 where there is none."""
    is_call = (
        seen[index].word == "STRING_TO_ARRAY" and index > 0 and seen[index - 1].text.upper() in (",", "FROM")
    )
    depth = 0
    for at in range(index + 1, len(seen) - 1 if is_call else 0):
        depth += {"(": 1, ")": -1}.get(seen[at].text, 0)
        if not depth:
            alias = at + 1 + (seen[at + 1].word == "AS")
            is_name = alias < len(seen) and seen[alias].kind == "name"
            return alias if is_name and seen[alias].word not in _CLAUSES else 0
    return 0


def _in_place_of(window: Sequence[Token]) -> tuple[int, str]:
    """How many of these tokens get another text, and which; 0 for none."""
    match [(token.word or token.text).lower() for token in window]:
        case ["operator", "(", "pg_catalog", ".", *rest] if ")" in rest:
            end = rest.index(")")
            return 5 + end, f" {''.join(rest[:end])} "
        case ["collate", "pg_catalog", ".", _, *_]:
            return 4, ""
        case ["collate", name, *_] if name in _COLLATIONS:
            return 2, ""
        case ["pg_catalog", ".", *_]:
            return 2, ""
        case ["json_build_object" | "jsonb_build_object", "(", *_]:
            return 1, "json_object"
        case ["information_schema", ".", *_]:
            return 2, "info_schema."
        case [_, "::", "regclass", *_] if window[0].kind == "string":
            return 3, f"oid_of({window[0].text})"
        case [_, "::", "pg_catalog", ".", "regclass", *_] if window[0].kind == "string":
            return 5, f"oid_of({window[0].text})"
        case ["any", "(", listed, *_] if listed.startswith("'{") and listed.endswith("}'"):
            return 3, f"ANY([{', '.join(map(_constant, elements_of(window[2].text[1:-1])))}]"
        case ["at", "time", *_]:
            return 0, ""
        case [name, *_] if name in _RESERVED and window[0].kind == "name":
            return 1, f'"{window[0].text}"'
    return 0, ""


def _constant(element: str | None) -> str:
    """An element as it is written in a list: a number, or a quoted text (whose quotes are doubled already)."""
    if element is None:
        return "NULL"
    return element if re.fullmatch(r"-?[0-9]+", element) else f"'{element}'"
