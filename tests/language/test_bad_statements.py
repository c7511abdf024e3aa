"""Every mistake has its exact message: what was expected, what was found, where, and what to do.

`bad_statements.txt` is the table. A case is a statement (`>`, or `~` when it is refused as not available yet, continued on
lines that begin with `|`) and below it exactly what the user reads.
"""

from pathlib import Path

import pytest

from headrace.errors import UnsupportedQuery, UserError
from headrace.language.binder.query_binder import bind_query
from headrace.language.statements.parse_script import parse_script
from headrace.language.statements.statement import CreateQuery
from tests.language.catalog import Catalog

CATALOG = Catalog()
LONG_LIST = ", ".join(map(str, range(1_000)))


def cases() -> list[tuple[str, str, str]]:
    table = []
    for block in (Path(__file__).parent / "bad_statements.txt").read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip("\n").split("\n")
        statement = [lines[0][2:], *(line[2:] for line in lines[1:] if line.startswith("|"))]
        said = [line for line in lines[1:] if not line.startswith("|")]
        table.append((lines[0][0], "\n".join(statement), "\n".join(said)))
    return table


def run(text: str) -> None:
    for statement in parse_script(text):
        if isinstance(statement, CreateQuery):
            bind_query(statement.select, CATALOG, text)


def test_the_table_is_not_empty() -> None:
    assert len(cases()) >= 150


@pytest.mark.parametrize(("mark", "statement", "said"), cases(), ids=[case[1] for case in cases()])
def test_the_message_is_exactly_this(mark: str, statement: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        run(statement)
    assert str(raised.value) == said
    assert isinstance(raised.value, UnsupportedQuery) == (mark == "~")


@pytest.mark.parametrize(
    ("before", "after"),
    [("", LONG_LIST), (LONG_LIST, ""), (LONG_LIST, LONG_LIST)],
    ids=("first", "last", "amid"),
)
def test_issue_18_item_4_of_a_very_long_line_an_error_shows_what_is_around_it(
    before: str, after: str
) -> None:
    listed = "CREATE QUERY q AS SELECT auction FROM bids WHERE auction IN ({}) AND {} = 1 AND auction IN ({})"
    with pytest.raises(UserError) as raised:
        run(listed.format(before or "1", "nothing", after or "1"))
    message, shown, caret, *_ = str(raised.value).split("\n")
    assert message.endswith("there is no column 'nothing'")
    assert f"column {listed.format(before or '1', 'nothing', '').index('nothing') + 1}:" in message
    assert shown[caret.index("^") : caret.index("^") + caret.count("^")] == "nothing"
    assert len(shown) <= 210
    assert shown.strip().startswith("…") == bool(before)
    assert shown.endswith("…") == bool(after)
