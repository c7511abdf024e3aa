"""The text and the place of each statement of a script."""

from headrace.language.statements.parse_script import parse_script


def test_a_statement_has_its_text_and_its_place_in_the_script() -> None:
    script = "SHOW STREAMS; -- all\n  DROP QUERY IF EXISTS q\n;"
    first, second = parse_script(script)
    assert [statement.text for statement in (first, second)] == ["SHOW STREAMS", "DROP QUERY IF EXISTS q"]
    assert [statement.span.position(script) for statement in (first, second)] == [(1, 1), (2, 3)]
    assert all(script[one.span.start : one.span.end] == one.text for one in (first, second))
