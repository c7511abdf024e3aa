"""Completion and history of the prompt of `headrace shell`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final

from headrace.dataclass import dataclass

_WORDS: Final = (
    *(
        "ALTER QUERY",
        "CREATE OR REPLACE QUERY",
        "CREATE QUERY",
        "CREATE RELATION",
        "CREATE STREAM",
        "DESCRIBE",
    ),
    *("DROP QUERY", "DROP RELATION", "DROP STREAM", "EXPLAIN ALL", "EXPLAIN QUERY", "INVOKE", "PAUSE QUERY"),
    *("REFRESH RELATION", "RESUME QUERY", "SHOW QUERIES", "SHOW RELATIONS", "SHOW STREAMS"),
)


def prepare_readline(names: Callable[[], list[str]]) -> None:
    """Give the prompt a history, and completion of words and of `names`; nothing where Python has no readline."""
    try:
        import readline  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    import atexit  # noqa: PLC0415 - only together with a history

    history = Path("~/.headrace_history").expanduser()
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(2000)
    atexit.register(_save_history, history)
    readline.set_completer_delims(" \t\n(,;")
    readline.set_completer(Completer(names))
    readline.parse_and_bind("tab: complete")


def _save_history(path: Path) -> None:
    import readline  # noqa: PLC0415 - was there at the start

    with suppress(OSError):
        readline.write_history_file(path)


@dataclass(slots=True)
class Completer:
    """Completes words of statements and names of the catalog, as readline asks: the n-th match, or None."""

    names: Callable[[], list[str]]
    _matches: list[str] = field(default_factory=list)

    def __call__(self, text: str, state: int) -> str | None:
        """The match number `state` for `text`."""
        if state == 0:
            words = sorted({word for phrase in _WORDS for word in phrase.split()})
            folded = text.lower()
            names = [name for name in self.names() if name.lower().startswith(folded)]
            self._matches = [
                f"{match} " for match in names + [w for w in words if w.lower().startswith(folded)]
            ]
        return self._matches[state] if state < len(self._matches) else None
