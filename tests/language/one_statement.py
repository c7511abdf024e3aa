"""One statement from its text."""

from headrace.language.statements.parse_script import parse_script
from headrace.language.statements.statement import Statement


def parse_statement(text: str) -> Statement:
    (statement,) = parse_script(text)
    return statement
