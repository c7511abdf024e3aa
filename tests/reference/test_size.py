"""The reference stays small enough to be read in one sitting: what is short can be obviously right."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import headrace.reference

ROOM = Path(headrace.reference.__file__).parent
SCALAR = {"scalar.py", "conversion.py"}
STATISTICS = {"statistical_aggregates.py"}
ESTIMATES = {"questions.py", "shedding.py", "repairs.py"}
SILENT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor comment, docstring or import."""
    text = path.read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in SILENT
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        is_text = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def test_queries_stay_within_nine_hundred_and_fifty_lines_scalars_three_hundred_and_fifty_statistics_seventy_estimates_two_hundred_and_sixty():
    counts = {path.name: lines_of_code(path) for path in ROOM.rglob("*.py") if path.name != "__init__.py"}
    assert len(counts) >= 8
    others = SCALAR | STATISTICS | ESTIMATES
    assert sum(count for name, count in counts.items() if name not in others) <= 950, counts
    assert sum(counts[name] for name in SCALAR) <= 350, counts
    assert sum(counts[name] for name in STATISTICS) <= 70, counts
    assert sum(counts[name] for name in ESTIMATES) <= 260, counts
