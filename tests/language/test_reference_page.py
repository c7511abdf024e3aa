"""Every example of the page about the language parses, and every query in it binds."""

import re
from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from headrace.language.statements import statement as statements
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.language.catalog import Catalog
from tests.language.rendering.query_text import render

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "language.md"
EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

DROPS = {
    "DROP STREAM unused": "CREATE STREAM unused (a INT) USING push",
    "DROP RELATION unused": "CREATE RELATION unused (id INT, name STRING)"
    " USING csv OPTIONS (path 'data/people.csv', header 'true')",
}
"""What the page does not make before it drops it."""


def bound() -> Catalog:
    return Catalog("".join(EXAMPLES))


def test_every_example_parses_and_every_query_binds_and_survives_being_rendered() -> None:
    catalog = bound()
    assert len(catalog.queries) > 30
    for _, query in catalog.queries.values():
        assert bind_query(render(query), catalog) == query


def test_every_statement_of_the_page_is_carried_out(tmp_path: Path, monkeypatch) -> None:
    """Also what only planning, reading a relation or the files of a stream would refuse."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "bids").mkdir(parents=True)
    for name in ("category", "people"):
        (tmp_path / "data" / f"{name}.csv").write_text("id,name\n1,a\n")
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        refused = []
        for statement in (parsed for text in EXAMPLES for parsed in parse_script(text)):
            try:
                if statement.text in DROPS:
                    hub.execute(DROPS[statement.text])
                hub.execute(statement.text)
            except UserError as error:
                refused.append(f"{statement.text}: {error}")
        assert not refused
        hub.catch_up()


@pytest.mark.parametrize("kind", statements.Statement.__args__, ids=lambda kind: kind.__name__)
def test_every_statement_has_an_example(kind: type) -> None:
    assert any(isinstance(statement, kind) for text in EXAMPLES for statement in parse_script(text))


def test_a_statement_knows_its_text_and_its_place() -> None:
    for text in EXAMPLES:
        for statement in parse_script(text):
            assert text[statement.span.start : statement.span.end] == statement.text
            if isinstance(statement, statements.CreateQuery):
                assert statement.definition.text in statement.text
