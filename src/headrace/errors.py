"""The package's common exceptions, each with the exit code of a command that it ends; also `Span`, the place of a
mistake in a statement's text, and `did_you_mean`, the hint that lists similar names.

A mistake of the user's is a `UserError` (exit code 2): what was expected, what was found, where, and what to do. The others derive
from `HeadraceError` (exit code 1, but for a home in use) and are mostly faults of Headrace or of the system.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple, Self, TypeAlias

WriteOutcome: TypeAlias = Literal["absent", "present", "unknown"]
"""The effect of a failed write: nothing, all of it, or one of the two, which the next call finds out."""

_OUTCOMES: Final = {
    "absent": "Nothing of it is there: once the cause is removed, repeat it.",
    "present": "It is there all the same, and durable: repeating it changes nothing.",
    "unknown": "Whether it is there is not known yet: the next statement finds out, and it may be repeated safely.",
}


class HeadraceError(Exception):
    """The root of all errors this package raises on purpose."""

    exit_code = 1


class StoreError(HeadraceError):
    """The home folder could not be read or written (disk full, permission, I/O).

    `outcome` is the effect of a write; None where nothing was to be written. The message ends with it.
    """

    outcome: WriteOutcome | None = None

    def __init__(self, message: str, *, outcome: WriteOutcome | None = None) -> None:
        super().__init__(message)
        if outcome is not None:
            self.outcome = outcome

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.outcome is None else f"{message}\n  {_OUTCOMES[self.outcome]}"


@contextmanager
def outcome_unless_known(outcome: WriteOutcome) -> Iterator[None]:
    """A block that gives this outcome to a `StoreError` without one."""
    try:
        yield
    except StoreError as error:
        if error.outcome is None:
            error.outcome = outcome
        raise


class CorruptStore(StoreError):
    """A file of the home does not hold the bytes that were written."""


class OtherVersion(StoreError):
    """A file of the home is whole, but another version of headrace wrote it in a way that this one does not read."""


class AlreadyPublished(StoreError):
    """Another writer has published this number: this writer has been superseded and must stop."""

    outcome: WriteOutcome | None = "absent"

    def __str__(self) -> str:
        return str(self.args[0])


class PushFailed(StoreError):
    """Pushed rows were not acknowledged.

    `outcome` is "absent" where none of them is in the ingest log, "unknown" where that could not be found out. Rows found
    there ("present") are acknowledged, so no error is raised for them. The same call with this `producer` and `sequence`
    may be repeated until it returns: rows that are there are not taken a second time.
    """

    def __init__(
        self, stream: str, producer: str, sequence: int, outcome: WriteOutcome, cause: Exception
    ) -> None:
        outcome_text = (
            "None of them is there (outcome: absent)."
            if outcome == "absent"
            else "Whether they are there is not known: the disk did not answer (outcome: unknown)."
        )
        super().__init__(
            f"rows for the stream '{stream}' were not acknowledged: {cause.args[0] if cause.args else cause}\n"
            f"  {outcome_text} Repeat the call until it returns, with these two arguments:\n"
            f"  hub.push({stream!r}, rows, producer={producer!r}, sequence={sequence})"
        )
        self.stream, self.producer, self.sequence, self.outcome = stream, producer, sequence, outcome
        self.exit_code = getattr(cause, "exit_code", self.exit_code)

    def __str__(self) -> str:
        return str(self.args[0])


class HomeInUse(HeadraceError):
    """Another process holds the writer's lock of this home."""

    exit_code = 2


class EpochFailed(HeadraceError):
    """An epoch failed; nothing of it counts. `lasting`: another attempt would fail in the same way."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class QueryFailed(HeadraceError):
    """One query cannot be computed: a kernel, its results' size, or code of the user's; no other query is affected."""


class Span(NamedTuple):
    """An interval of a statement's text: offsets in characters, end exclusive. A tuple: a script of thousands of statements
    makes a million of them.
    """

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The smallest span that holds both."""
        return Span(min(self.start, other.start), max(self.end, other.end))

    def position(self, text: str) -> tuple[int, int]:
        """Line and column of the start, both counted from 1."""
        line = text.count("\n", 0, self.start) + 1
        return line, self.start - (text.rfind("\n", 0, self.start) + 1) + 1


class UserError(HeadraceError):
    """A mistake of the user's: message, place and remedy.

    `span` refers to `text`; both may be absent for mistakes that have no place in a text.
    """

    exit_code = 2

    def __init__(
        self, message: str, *, span: Span | None = None, text: str | None = None, remedy: str | None = None
    ):
        super().__init__(message)
        self.message, self.span, self.text, self.remedy = message, span, text, remedy

    def within(self, text: str) -> UserError:
        """The same error, placed in `text` when it has a span but no text yet."""
        if self.text is None and self.span is not None:
            self.text = text
        return self

    @property
    def line_and_column(self) -> tuple[int, int] | None:
        """Where the mistake starts, counted from 1; None when it has no place."""
        if self.span is None or self.text is None:
            return None
        return self.span.position(self.text)

    def __str__(self) -> str:
        parts = [self.message]
        if (at := self.line_and_column) is not None and self.text is not None and self.span is not None:
            line, column = at
            parts[0] = f"line {line}, column {column}: {self.message}"
            shown, before = _excerpt(self.text.split("\n")[line - 1], column - 1)
            width = max(1, min(self.span.end - self.span.start, len(shown) - before))
            parts += [f"  {shown}", "  " + " " * before + "^" * width]
        if self.remedy:
            parts.append(f"  {self.remedy}")
        return "\n".join(parts)


_LONGEST_LINE: Final = 1_000
_EACH_SIDE: Final = 100


def _excerpt(line: str, at: int) -> tuple[str, int]:
    """A line with a mistake, and where in it the mistake begins; of a very long line what is around that."""
    if len(line) <= _LONGEST_LINE:
        return line, at
    start, end = max(0, at - _EACH_SIDE), at + _EACH_SIDE
    cut = "…" if start else ""
    return f"{cut}{line[start:end]}{'…' if end < len(line) else ''}", at - start + len(cut)


class UnknownName(UserError):
    """A statement names a stream, relation or query that does not exist."""


class NameTaken(UserError):
    """A definition has the name of something that exists and differs."""


class BatchTaken(UserError):
    """The number of a producer's batch is that of other rows, which were pushed before."""


class UnsupportedQuery(UserError):
    """A well-formed and meaningful statement that this version refuses; the message is the reason."""


class Listing(str):
    """A remedy that lists the names that exist."""

    __slots__ = ("names",)
    names: tuple[str, ...]

    def __new__(cls, names: Sequence[str]) -> Self:
        """The sentence about these names, of which it shows twelve."""
        listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        made = super().__new__(cls, f"There is: {listed}." if names else "There are none yet.")
        made.names = tuple(names)
        return made

    def without(self, gone: Container[str]) -> Listing:
        """The same without names that exist no more, given in lower case."""
        return Listing([name for name in self.names if name.lower() not in gone])


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A remedy that names candidates similar to `name`, or lists what exists."""
    names = sorted(candidates)
    folded = {candidate.lower(): candidate for candidate in names}
    from difflib import get_close_matches  # noqa: PLC0415 - only where a name is wrong

    near = [folded[match] for match in get_close_matches(name.lower(), list(folded), n=3, cutoff=0.6)]
    if near:
        return "Did you mean " + " or ".join(f"'{candidate}'" for candidate in near) + "?"
    return Listing(names)
