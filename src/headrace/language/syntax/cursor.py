"""The parser's cursor over the tokens of a text: tests and steps, errors at a token, and limits of nesting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headrace.errors import Span, UnsupportedQuery, UserError
from headrace.language.syntax.ast import Select
from headrace.language.syntax.lexer import Token, tokens, tokens_of_list

DEEPEST = 100
DEEPEST_SELECT = 10
"""The maximum depth of expressions: enough for handwritten text, and within Python's stack in all later steps."""


class Cursor:
    """A position in a text's tokens that moves forward."""

    __slots__ = ("_at", "_base", "_depth", "_selects", "_tokens", "read_select", "text", "token", "zone")

    def __init__(self, text: str, part: Sequence[Token] | None = None, zone: str = "UTC") -> None:
        """`part` are some of the text's tokens and one of kind "end"; by default all of them."""
        self.text = text
        self.zone = zone
        """The time zone of times without one."""
        self._tokens = tokens(text) if part is None else part
        self._at = 0
        self._base = 0
        self._depth = 0
        self._selects = 0
        self.token = self._tokens[0]
        """The token at the cursor."""
        self.read_select: Callable[[Cursor], Select] | None = None
        """The parser of a SELECT, set by it: conditions may hold another one."""

    @property
    def at_end(self) -> bool:
        """True after the last token."""
        return self.token.kind == "end"

    @property
    def nested(self) -> bool:
        """True inside an expression of the SELECT that is read."""
        return self._depth > self._base

    @property
    def before(self) -> Token:
        """The token last passed."""
        return self._tokens[max(0, self._at - 1)]

    def ahead(self, count: int = 1) -> Token:
        """The token `count` positions after the cursor."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def advance(self) -> Token:
        """Pass the token at the cursor."""
        passed = self.token
        if passed.kind != "end":
            self._go(1)
        return passed

    def _go(self, count: int) -> None:
        self._at += count
        self.token = self._tokens[self._at]

    def split_list(self) -> None:
        """Replace the list of constants at the cursor by the tokens of its constants."""
        pieces = tokens_of_list(self.text, self.token)
        self._tokens = (*self._tokens[: self._at], *pieces, *self._tokens[self._at + 1 :])
        self._go(0)

    def at_word(self, *words: str) -> bool:
        """True when the next tokens are these keywords."""
        if self.token.upper != words[0]:
            return False
        return len(words) == 1 or all(self.ahead(offset).upper == word for offset, word in enumerate(words))

    def at_any(self, *words: str) -> bool:
        """True when the next token is one of these keywords."""
        return self.token.upper in words

    def at_sign(self, *signs: str) -> bool:
        """True when the next token is one of these signs."""
        return self.token.kind == "sign" and self.token.text in signs

    def accept(self, *words: str) -> bool:
        """Pass these keywords, if they are next."""
        if self.token.upper != words[0] or (len(words) > 1 and not self.at_word(*words)):
            return False
        self._go(len(words))
        return True

    def accept_sign(self, sign: str) -> bool:
        """Pass this sign, if it is next."""
        token = self.token
        if accepted := token.text == sign and token.kind == "sign":
            self._go(1)
        return accepted

    def expect(self, *words: str, purpose: str = "") -> None:
        """Pass these keywords; raises `UserError` when something else is next."""
        for word in words:
            if not self.accept(word):
                raise self.expected(word + purpose)

    def expect_sign(self, sign: str, purpose: str = "") -> Token:
        """Pass this sign; raises `UserError` when something else is next."""
        if not self.at_sign(sign):
            raise self.expected(f"'{sign}'{purpose}")
        return self.advance()

    def name(self, what: str) -> str:
        """Pass a name, bare or in backticks."""
        if self.token.kind not in ("name", "quoted"):
            raise self.expected(what)
        return self.advance().text

    def dotted_name(self, what: str) -> str:
        """Pass a name, or names with dots between them: `system.epochs`."""
        name = self.name(what)
        while self.at_sign(".") and self.ahead().kind in ("name", "quoted"):
            self.advance()
            name = f"{name}.{self.advance().text}"
        return name

    def string(self, what: str) -> str:
        """Pass a string."""
        if self.token.kind != "string":
            raise self.expected(what)
        return self.advance().text

    def whole_number(self, what: str) -> int:
        """Pass digits without sign, fraction or suffix; at most 18 of them."""
        token = self.token
        if token.kind != "number" or not token.text.isdigit():
            raise self.expected(what)
        if len(token.text) > 18:
            raise self.error(f"the number {token.text[:20]}… is too large here", token.span)
        return int(self.advance().text)

    def expected(self, what: str, remedy: str | None = None) -> UserError:
        """An error: something else is next. Without a remedy it has one for what other dialects write here."""
        from headrace.language.syntax.other_dialects import instead_of  # noqa: PLC0415 - only where it is used

        remedy = remedy or instead_of(_word(self.before), _word(self.token))
        return self.error(f"expected {what}, found {self.described()}", self.token.span, remedy)

    def described(self) -> str:
        """The token at the cursor, for a message."""
        if self.token.kind == "end":
            return "the end of the text"
        written = self.text[self.token.span.start : self.token.span.end]
        shown = written if len(written) <= 40 else written[:39] + "…"
        return shown if self.token.kind == "string" else f"'{shown}'"

    def error(self, message: str, span: Span, remedy: str | None = None) -> UserError:
        """A `UserError` at a place of this text."""
        return UserError(message, span=span, text=self.text, remedy=remedy)

    def unsupported(self, message: str, span: Span, remedy: str | None = None) -> UserError:
        """`UnsupportedQuery` at a place of this text."""
        return UnsupportedQuery(message, span=span, text=self.text, remedy=remedy)

    def since(self, start: Span) -> Span:
        """From `start` to the token last passed."""
        return start.to(self.before.span)

    @contextmanager
    def inside_select(self, start: Span) -> Iterator[None]:
        """A SELECT inside another one; raises `UserError` below the maximum depth."""
        self.check_selects(1, start)
        self._selects += 1
        base, self._base = self._base, self._depth
        try:
            yield
        finally:
            self._base, self._selects = base, self._selects - 1

    def check_selects(self, levels: int, at: Span) -> None:
        """Raises `UserError` where this many more levels of SELECTs are too many."""
        if self._selects + levels > DEEPEST_SELECT:
            raise self.error(
                f"SELECTs nest deeper than {DEEPEST_SELECT} levels here",
                at,
                "Register an inner SELECT as a query and name it in FROM.",
            )

    def down(self) -> None:
        """Enter a level of nesting, until `up`; raises `UserError` below the maximum depth."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.error(
                f"expressions nest deeper than {DEEPEST} levels here",
                self.token.span,
                "Split the expression, or compute parts of it in a query of their own.",
            )

    def up(self) -> None:
        """Leave a level."""
        self._depth -= 1


def _word(token: Token) -> str:
    """A word in capitals, or a sign; nothing for what is in quotes."""
    return token.text if token.kind == "sign" else token.upper
