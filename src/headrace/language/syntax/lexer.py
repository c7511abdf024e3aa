r"""The lexer: the tokens of a text (words, numbers, strings, signs; the constants of a long IN as one) with their
places; of a script, statement by statement.

Literals follow Spark SQL: `'it''s'` and `'it\'s'`, strings in double quotes, raw strings `r'\d'`,
identifiers in backticks, numbers with suffixes such as `1L`, `1.5D`, `2BD`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from typing import Literal as Choice

from headrace.errors import Span, UserError

Kind = Choice["name", "quoted", "number", "string", "sign", "list", "end"]


class Token(NamedTuple):
    """One token. `text` is its meaning: a string's value, a quoted name's content, else the text as written.

    The constants between the parentheses of a long IN are one token, of kind "list".
    """

    kind: Kind
    text: str
    span: Span
    upper: str = ""
    """The word in capitals when it may be a keyword, else the empty string."""


_new: Final = tuple.__new__
"""Makes a token of values in order: half of the time of calling its class, once per token."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIECE: Final = re.compile(
    r"""(?:
      (?P<name>  [A-Za-z_][A-Za-z0-9_]*)
    | (?P<space> \s+ | --[^\n]*)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[LSYDFlsydf](?![A-Za-z0-9_]))?)
    | (?P<comment>/\*)
    | (?P<sign>  <=>|<=|>=|<>|!=|==|\|\||::|->|<<|>>>|>>|[-<>=+*/%()\[\],.;!~&|^:?])
    | (?P<opened>['"`])
    )\s*""",
    re.VERBOSE,
)
"""The beginning of a token, and white space after it; of comments, strings and quoted names only the first sign."""
_NUMBER: Final = r"-?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+(?:[bB][dD]|[LSYDFlsydf])?+(?![A-Za-z0-9_])"
_TEXT: Final = r"(?:(?i:DATE|TIMESTAMP(?:_NTZ|_LTZ)?+)\s*+)?+'[^'\\]*+(?:(?:''|\\.)[^'\\]*+)*+'"
_NULL: Final = r"(?i:NULL)(?![A-Za-z0-9_])"
CONSTANT: Final = re.compile(f"{_NUMBER}|{_TEXT}|{_NULL}", re.DOTALL)
"""One constant of a list."""
FEWEST: Final = 32
"""A shorter list has a token, and a node of the syntax tree, for each of its constants."""


def _list_of(one: str) -> str:
    """Constants of one form or NULL, and commas between them."""
    return rf"\s*+(?:{one}|{_NULL})(?:\s*+,\s*+(?:{one}|{_NULL})){{{FEWEST - 1},}}+"


_LIST: Final = re.compile(rf"\s*+\(({_list_of(_NUMBER)}|{_list_of(_TEXT)})\s*+(?=\))", re.DOTALL)
"""The constants after IN, up to the closing parenthesis. No quantifier gives anything back, so the time is linear."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_LARGEST_CODE_POINT: Final = 0x10FFFF


def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a text, the last one of kind "end".

    Raises `UserError` for an unexpected character and for quotes and comments that are not closed.
    """
    return (*_pieces(text), _end(text))


def statement_tokens(text: str) -> Iterator[tuple[Token, ...]]:
    """The tokens of a script, statement by statement: up to each `;` and one of kind "end".

    Thousands of statements need not be in memory together. Raises `UserError` as `tokens`, at the statement.
    """
    statement: list[Token] = []
    for token in _pieces(text):
        statement.append(token)
        if token.kind == "sign" and token.text == ";":
            yield (*statement, Token("end", "", Span(token.span.end, token.span.end)))
            statement.clear()
    yield (*statement, _end(text))


def tokens_of_list(text: str, listed: Token) -> list[Token]:
    """The tokens of the constants of a token of kind "list", in their places."""
    return list(_pieces(text[: listed.span.end], listed.span.start))


def _end(text: str) -> Token:
    return Token("end", "", Span(len(text), len(text)))


def _pieces(text: str, at: int = 0) -> Iterator[Token]:
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise _unexpected(text, at)
        kind = piece.lastgroup or ""
        if kind == "comment":
            at = _after_comment(text, at)
        elif kind == "opened" or (kind == "name" and _is_raw(text, piece.end("name"), piece.group("name"))):
            quoted = _quoted(text, at)
            at = quoted.span.end
            yield quoted
        else:
            start, at = at, piece.end()
            if kind == "space":
                continue
            word = piece.group(kind)
            end = start + len(word)
            if kind == "name":
                upper = word.upper()
                yield _new(Token, ("name", word, _new(Span, (start, end)), upper))
                if upper == "IN" and (listed := _LIST.match(text, at)) is not None:
                    yield from _listed(text, listed)
                    at = listed.end()
            elif kind == "sign":
                yield _new(Token, ("sign", word, _new(Span, (start, end)), ""))
            else:
                yield _number(text, start, end)


def _listed(text: str, listed: re.Match[str]) -> Iterator[Token]:
    """The opening parenthesis, and the constants after it as one token."""
    start, end = listed.span(1)
    yield Token("sign", "(", Span(start - 1, start))
    yield Token("list", text[start:end], Span(start, end))


def _is_raw(text: str, end: int, word: str) -> bool:
    """Whether a word that ends here begins a raw string."""
    return word in ("r", "R") and text.startswith(("'", '"'), end)


def _after_comment(text: str, start: int) -> int:
    depth, at = 1, start + 2
    while depth:
        opened, closed = text.find("/*", at), text.find("*/", at)
        if closed < 0:
            raise UserError(
                "this comment is never closed",
                span=Span(start, start + 2),
                text=text,
                remedy="Close it with */.",
            )
        if 0 <= opened < closed:
            depth, at = depth + 1, opened + 2
        else:
            depth, at = depth - 1, closed + 2
    return at


def _quoted(text: str, at: int) -> Token:
    """A string, a raw string or a quoted name."""
    first = text[at]
    if first == "`":
        return _quoted_name(text, at)
    return _string(text, at) if first in "'\"" else _raw_string(text, at)


def _unexpected(text: str, at: int) -> UserError:
    return UserError(
        f"no token begins with the character {text[at]!r}",
        span=Span(at, at + 1),
        text=text,
        remedy="Put names with other characters than letters, digits and _ in backticks.",
    )


def _number(text: str, at: int, end: int) -> Token:
    if match := _NAME.match(text, end):
        raise UserError(
            f"the number {text[at:end]} runs into the word '{match.group()}'",
            span=Span(at, match.end()),
            text=text,
            remedy="Put a space between them, or the whole name in backticks.",
        )
    return Token("number", text[at:end], Span(at, end))


def _string(text: str, start: int) -> Token:
    quote, at = text[start], start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] != quote:
            at += 1
        elif text.startswith(quote, at + 1):
            at += 2
        else:
            return Token("string", unescaped(text[start + 1 : at], quote), Span(start, at + 1))
    raise _unclosed(text, start, "string", quote)


def _raw_string(text: str, start: int) -> Token:
    quote = text[start + 1]
    end = text.find(quote, start + 2)
    if end < 0:
        raise _unclosed(text, start, "string", quote)
    return Token("string", text[start + 2 : end], Span(start, end + 1))


def _unclosed(text: str, start: int, what: str, quote: str) -> UserError:
    return UserError(
        f"this {what} is never closed",
        span=Span(start, start + 1),
        text=text,
        remedy=f"Close it with {quote}.",
    )


def unescaped(body: str, quote: str) -> str:
    """The text between the quotes, with doubled quotes and backslashes resolved in one pass, left to right."""
    if "\\" not in body:
        return body.replace(quote * 2, quote)
    parts, at = [], 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[at : match.start()].replace(quote * 2, quote))
        parts.append(_escaped(match))
        at = match.end()
    return "".join((*parts, body[at:].replace(quote * 2, quote)))


def _escaped(match: re.Match[str]) -> str:
    short, long, octal, letter = match.groups()
    if short or long:
        code = int(short or long, 16)
        return (
            chr(code) if code <= _LARGEST_CODE_POINT and not 0xD800 <= code <= 0xDFFF else match.group()[1:]
        )
    if octal:
        return chr(int(octal, 8))
    return _ESCAPED.get(letter, letter)


def _quoted_name(text: str, start: int) -> Token:
    at = start + 1
    while (end := text.find("`", at)) >= 0:
        if not text.startswith("`", end + 1):
            name = text[start + 1 : end].replace("``", "`")
            if not name:
                raise UserError("a name cannot be empty", span=Span(start, end + 1), text=text)
            return Token("quoted", name, Span(start, end + 1))
        at = end + 2
    raise _unclosed(text, start, "name", "`")
