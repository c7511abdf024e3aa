"""`headrace explain`: the plan of a home, to a terminal or a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.errors import UserError
from headrace.language.statements.statement import Form
from headrace.runtime.introspection.explain import explain_all, explain_query
from headrace.runtime.invoke.home_reader import Reader

_ENDINGS: Final[Mapping[str, Form]] = {".svg": "svg", ".dot": "dot", ".gv": "dot"}


def explain_to(path: Path, query: str | None, form: Form | None, output: Path | None) -> None:
    """Explain a home or one query, on standard output or in a file; without a form by the ending of the file's name.

    Raises `UserError` when there is no such home or query, or the file cannot be written.
    """
    home = Reader.at(path).home
    if form is None:
        form = _ENDINGS.get(output.suffix.lower(), "text") if output is not None else "text"
    text = explain_all(home, form) if query is None else explain_query(home, query, form)
    if output is None:
        print(text)  # noqa: T201 - what was asked for
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror}") from error
