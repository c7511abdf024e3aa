"""Whatever is typed, the answer is a statement or a `UserError` with a place: never another exception, never a long wait."""

import re
import string
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import UserError
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.language.binder.query_binder import bind_query
from headrace.language.parser.query import parse_select
from headrace.language.statements.parse_script import parse_script
from headrace.language.statements.statement import CreateQuery
from tests.language.catalog import SCRIPT, Catalog
from tests.language.texts import selects

CATALOG = Catalog()

SOUP = """SELECT FROM bids b category c WHERE GROUP BY HAVING ORDER LIMIT AND OR NOT ( ) [ ] , . * + - / % = <> < > || :: ; CASE
WHEN THEN ELSE END CAST AS INT DECIMAL STRING IN IS NULL LIKE BETWEEN DISTINCT RANGE ROWS SLIDE 5 10 MINUTES SECONDS '1 day' NOW
UNBOUNDED PARTITION LANDMARK ORIGIN WATTR PA auction price at name id count ( * ) sum max window window_end start INTERVAL TIMESTAMP
DATE '2020-01-01' TRUE 1.5 2L 1e3 -1 ISTREAM RSTREAM EMIT EMPTY WITH REVISIONS BEGIN JOIN LEFT ON USING LATE REJECTS TUMBLE HOP TABLE
DESCRIPTOR FILTER EXTRACT YEAR MONTH CREATE STREAM RELATION QUERY OR REPLACE USING csv OPTIONS path 'x' TIMESTAMP BY SLACK PUNCTUATED
IDLE TIMEOUT (SELECT EXISTS bids [NOW] UNION EXCEPT INTERSECT MINUS ALTER RENAME TO SET DROP IF EXISTS SHOW STREAMS DESCRIBE EXPLAIN ALL INVOKE dear REFRESH PAUSE RESUME TIME ZONE 'UTC'
` ' " -- /* */ ? # é 99999999999999999999999999999999999999999 1e999999999"""
WORDS = SOUP.split()


def refusal(text: str) -> UserError | None:
    """Parse, and bind what binds: the error a user would see."""
    try:
        for statement in parse_script(text):
            if isinstance(statement, CreateQuery):
                bind_query(statement.select, CATALOG, text)
    except UserError as error:
        return error
    return None


def attempt(text: str) -> None:
    """Accepted, or refused at a place of the text."""
    error = refusal(text)
    if error is not None:
        assert error.line_and_column is not None, error
        assert error.span is not None
        assert 0 <= error.span.start <= error.span.end <= len(text)
        assert str(error)


@given(st.text(max_size=200))
@example("1e999999999 SECONDS")
@example("\\")
@example("'\\")
def test_random_text_is_refused_with_a_place(text: str) -> None:
    attempt(text)
    attempt(f"CREATE QUERY q AS SELECT {text} FROM bids")
    attempt(f"CREATE QUERY q AS SELECT auction FROM bids [RANGE {text}]")


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_token_soup_is_refused_with_a_place(words: list[str]) -> None:
    attempt(" ".join(words))
    attempt("CREATE QUERY q AS SELECT " + " ".join(words))


TOKEN = re.compile(r"\w+|'[^']*'|\s+|.")


@given(selects(), st.data())
def test_mutated_queries_bind_or_are_refused_with_a_place(text: str, data: st.DataObject) -> None:
    tokens = TOKEN.findall(f"CREATE QUERY q AS {text}")
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(tokens) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                del tokens[index]
            case 1:
                tokens.insert(index, tokens[data.draw(st.integers(0, len(tokens) - 1))])
            case 2:
                tokens[index] = " " + data.draw(st.sampled_from(WORDS)) + " "
            case _:
                tokens[index] = data.draw(st.text(string.printable, max_size=3))
        tokens = tokens or [" "]
    attempt("".join(tokens))


@given(
    st.integers(0, len(SCRIPT) - 1),
    st.integers(0, 20),
    st.sampled_from(["", "'", "(", ";", "`", " 1 ", "--"]),
)
def test_damaged_scripts_are_refused_with_a_place(start: int, length: int, instead: str) -> None:
    attempt(SCRIPT[:start] + instead + SCRIPT[start + length :])


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_string_can_be_quoted_and_comes_back(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    bound = bind_expression(f"'{escaped}'", CATALOG.streams["bids"].schema)
    assert getattr(bound, "value", None) == value


NESTED = {
    "parentheses": ("(", "price", ")"),
    "NOT": ("NOT ", "price > 1", ""),
    "signs": ("- ", "price", ""),
    "calls": ("abs(", "price", ")"),
    "CASE": ("CASE WHEN true THEN ", "price", " END"),
    "CASE operands": ("CASE ", "price", " WHEN 1 THEN 1 END"),
    "CAST": ("CAST(", "price", " AS INT)"),
    "IN": ("1 IN (", "price", ")"),
    "right operands": ("price + (1 * ", "price", ")"),
    "comparisons": ("1 = (2 > ", "price", ")"),
    "mixed": ("NOT (true OR 1 = abs(-(", "price", ")))"),
    "brackets": ("[", "price", "]"),
    "window calls": ("window(at, ", "price", ")"),
    "FILTER": ("count(*) FILTER (WHERE ", "price", ")"),
    "ISTREAM": ("ISTREAM(", "SELECT price", ")"),
    "SELECTs": ("1 IN (SELECT ", "price", " FROM bids)"),
    "SELECTs in SELECTs": ("((1, (2)) IN (SELECT 1, max((", "price", ")) FROM bids [NOW]))"),
    "SELECTs in parentheses": ("1 IN ((", "SELECT price", " FROM bids [NOW]))"),
    "set operators": (
        "1 IN ((SELECT 1 FROM bids [NOW]) UNION (SELECT ",
        "price",
        " FROM bids [NOW] EXCEPT SELECT 1 FROM bids [NOW]))",
    ),
    "SELECTs of EXISTS": ("EXISTS (SELECT 1 FROM (SELECT price FROM bids WHERE ", "true", "))"),
}


@pytest.mark.parametrize("what", NESTED)
@pytest.mark.parametrize("levels", [500, 3_000])
def test_deep_nesting_is_a_clear_error(what: str, levels: int) -> None:
    before, inside, after = NESTED[what]
    nested = before * levels + inside + after * levels
    for text in (
        f"SELECT {nested} AS v FROM bids",
        f"SELECT 1 FROM bids WHERE {nested}",
        f"{nested} FROM bids",
    ):
        with pytest.raises(UserError) as raised:
            bind_query(text, CATALOG)
        assert raised.value.line_and_column is not None


@pytest.mark.parametrize(
    "operators", [("UNION", "EXCEPT"), ("UNION", "UNION ALL"), ("EXCEPT", "MINUS", "UNION")]
)
def test_long_rows_of_set_operators_are_clear_errors(operators: tuple[str, ...]) -> None:
    row = "SELECT price FROM bids [NOW]"
    row += "".join(f" {word} SELECT price FROM bids [NOW]" for _ in range(1_000) for word in operators)
    for text in (row, f"{'(' * 1_000}{row}{')' * 1_000}", f"{'(' * 3_000}SELECT price FROM bids"):
        with pytest.raises(UserError, match="SELECTs nest deeper than 10 levels here") as raised:
            bind_query(text, CATALOG)
        assert raised.value.line_and_column is not None


def test_set_operators_that_nest_as_deep_as_they_may_are_bound() -> None:
    text = "SELECT price FROM bids [NOW]"
    for level in range(8):
        text = f"({text}) {('UNION', 'EXCEPT', 'INTERSECT')[level % 3]} SELECT price FROM bids [ROWS {level + 1}]"
    assert bind_query(text, CATALOG).emission == "relation"


def test_the_error_of_deep_nesting_says_how_deep_is_too_deep() -> None:
    with pytest.raises(UserError, match="expressions nest deeper than 100 levels here"):
        parse_select("SELECT " + "(" * 500 + "1" + ")" * 500 + " FROM bids")


@pytest.mark.parametrize("operator", ["+", "*", "||", "=", "-"])
def test_long_chains_of_other_operators_are_a_clear_error(operator: str) -> None:
    chain = f" {operator} ".join(["auction"] * 10_000)
    with pytest.raises(UserError, match="nests deeper than 100 levels, here through a long chain"):
        bind_query(f"SELECT {chain} AS v FROM bids", CATALOG)


@pytest.mark.parametrize("levels", [60, 90])
def test_what_nests_less_deep_is_bound_well_within_the_stack(levels: int) -> None:
    limit = sys.getrecursionlimit()
    nested = "(" * levels + "price" + " + 1)" * levels
    query = bind_query(f"SELECT {nested} AS v FROM bids", CATALOG)
    assert query.schema.names == ("v",)
    assert sys.getrecursionlimit() == limit


def test_long_lists_and_chains_are_no_nesting() -> None:
    conditions = " OR ".join(f"(auction = {number} AND price > 1)" for number in range(5_000))
    items = ", ".join(f"price + {number} AS v{number}" for number in range(500))
    candidates = ", ".join(str(number) for number in range(5_000))
    branches = " ".join(f"WHEN auction = {number} THEN {number}" for number in range(1_000))
    text = f"SELECT {items}, CASE {branches} END AS v FROM bids WHERE ({conditions}) AND auction IN ({candidates})"
    assert len(bind_query(text, CATALOG).schema.names) == 501
