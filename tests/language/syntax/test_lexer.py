"""Tokens: what each piece of text means, and where it is."""

import pytest

from headrace.errors import Span, UserError
from headrace.language.syntax.lexer import tokens


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ('"double ""quoted"" \'too\'"', "double \"quoted\" 'too'"),
        (r"'tab\there\nnext'", "tab\there\nnext"),
        (r"'\\'", "\\"),
        (r"'100\% \_'", r"100\% \_"),
        (r"'\u00e9\U0001F600\101'", "é😀A"),
        (r"'\uD800'", "uD800"),
        (r"r'raw\n'", r"raw\n"),
        ("''", ""),
        ("'-- no comment /* */'", "-- no comment /* */"),
    ],
)
def test_a_string_is_read_as_spark_reads_it(written: str, value: str) -> None:
    token, end = tokens(written)
    assert (token.kind, token.text, token.span) == ("string", value, Span(0, len(written)))
    assert end.kind == "end"


def test_names_numbers_and_signs_know_their_places() -> None:
    lexed = tokens("a.`b``c` -- to the end\n<=> /* nested /* twice */ */ 1.5D .5 1e-3 2BD")
    assert [(token.kind, token.text) for token in lexed] == [
        ("name", "a"),
        ("sign", "."),
        ("quoted", "b`c"),
        ("sign", "<=>"),
        ("number", "1.5D"),
        ("number", ".5"),
        ("number", "1e-3"),
        ("number", "2BD"),
        ("end", ""),
    ]
    assert [token.span for token in lexed[:4]] == [Span(0, 1), Span(1, 2), Span(2, 8), Span(23, 26)]


@pytest.mark.parametrize(
    "written", ["'open", '"open', "`open", "/* open", "r'open", "'open\\'", "12abc", "#", "é"]
)
def test_what_is_never_closed_or_begins_nothing_is_refused(written: str) -> None:
    with pytest.raises(UserError) as raised:
        tokens(f"SELECT\n  {written}")
    assert raised.value.line_and_column == (2, 3)
