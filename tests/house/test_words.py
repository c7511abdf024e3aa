"""Plain words: pages, sources, benchmarks and tests use the terms of `docs/glossary.md`.

A folder of the source is added to `CLEAN` when its docstrings and messages have been rewritten, and a page is removed from
`NOT_YET`. Of tests the docstrings and comments are checked, of benchmarks also the messages and the pages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"

CLEAN: frozenset[str] = frozenset(
    {
        "__init__.py",
        "__main__.py",
        "adaptive",
        "algebra",
        "archive",
        "catalog",
        "cli",
        "connectors",
        "constructors.py",
        "dataclass.py",
        "errors.py",
        "examples",
        "language",
        "observation.py",
        "operators",
        "overload",
        "planner",
        "reference",
        "remote",
        "runtime",
        "schema.py",
        "server",
        "store",
        "synopses",
        "time.py",
        "zones.py",
    }
)
"""Folders and modules below `src/headrace` whose docstrings and messages are checked, such as "store" or "time.py"."""

NOT_YET: frozenset[str] = frozenset()
"""Pages that still use the old words."""

REPORT_KEYS = ("pu anew", "bits looked at", "rows handed over", "epochs of the past")
"""Keys of reports below `benchmarks/results`, which keep their names as pages of earlier runs have them."""

BANNED = {
    r"told|tells?|telling|untold|retell\w*": "emit (rows), show, report",
    r"(?:comes?|coming) and (?:goes|go|going)|what (?:comes|came|goes|went)": "insert and retract, changelog",
    r"stands?|stood": "is",
    r"lies?|lay|lain": "is, is stored",
    r"(?:is|are|was|were|be|as) far|far behind": "progress, punctuation, lag",
    r"mends?|mended|mending": "correct, revise",
    r"whoever|somebody|someone|nobody|anybody|anyone": "the role: a caller, a client, a query",
    r"for ever|forever": "permanently, without end",
    r"anew": "again, from scratch",
    r"beside": "besides, with, compared with",
    r"at hand": "available",
    r"apart|alike": "separate; equal, the same",
    r"says?|said": "define, show, report, return",
    r"speak(?:s|ing)?|spoke|spoken": "apply, emit",
    r"look(?:s|ed|ing)? (?:at|into)": "read",
    r"(?:go|goes|going|went|gone) on": "continue",
    r"of ours|a fault of ours": "Headrace's, internal",
    r"the past": "archive, archived rows, backfill",
    r"forgets?|forgot|forgotten|forgetting": "expire, retention",
    r"newcomers?|donors?": "new query, source query",
    r"members?": "a query of a family, an input of a union",
    r"meetings?": "union",
    r"census": "row counts",
    r"harvests?": "output of a scan",
    r"stretch(?:es)?": "interval",
    r"ripe|woven|setbacks?|twins?": "see the glossary",
    r"hand(?:s|ed|ing)? (?:out|over|in|on)": "return, pass, push",
    r"the CQL reading": "the instantaneous relation",
}
"""Words that readers had to read twice, as patterns of whole words, and what to write instead."""

_SPACE = r"\s+"
_PATTERN = re.compile(
    "|".join(rf"(?P<w{n}>\b(?:{words.replace(' ', _SPACE)})\b)" for n, words in enumerate(BANNED)),
    re.IGNORECASE,
)
_INSTEAD = tuple(BANNED.values())
_FENCED = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`(?:[^`\n]|\n(?!\n))*`")
_TARGET = re.compile(r"\]\([^)\s]*\)")
_KEYS = re.compile("|".join(map(re.escape, REPORT_KEYS)))
_QUESTION = re.compile(r"^#+ .*\?\s*$", re.MULTILINE)


def pages() -> list[str]:
    """Names of all pages, from the root of the project."""
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    folders = (ROOT / "docs", ROOT / "benchmarks")
    return [
        str(path.relative_to(ROOT))
        for path in (*top, *(page for at in folders for page in sorted(at.rglob("*.md"))))
    ]


def prose(page: str) -> str:
    """The page with fenced blocks, inline code, link targets and keys of reports blanked out; lines stay where they are."""
    for pattern in (_FENCED, _CODE, _TARGET, _KEYS):
        page = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), page)
    return page


def findings(text: str, first_line: int = 1) -> list[str]:
    """`line: word (what to write instead)` of every banned word of a text."""
    return [
        f"{first_line + text.count(chr(10), 0, match.start())}: '{match[0]}' ({_INSTEAD[int(match.lastgroup[1:])]})"
        for match in _PATTERN.finditer(text)
    ]


def questions(page: str) -> list[str]:
    """Headings that are questions."""
    return [match[0].strip() for match in _QUESTION.finditer(page)]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every docstring and every string literal with a space, without its inline code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, prose(node.value)


def remarks(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every docstring, also below a value, and of every comment, without its inline code."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, prose(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], prose(token.string)


def sources() -> list[str]:
    """Names of the modules in `CLEAN`, from the package."""
    paths = [
        path
        for name in sorted(CLEAN)
        for path in ([PACKAGE / name] if name.endswith(".py") else sorted((PACKAGE / name).rglob("*.py")))
    ]
    return [str(path.relative_to(PACKAGE)) for path in paths]


@pytest.mark.parametrize("page", [page for page in pages() if page not in NOT_YET])
def test_a_page_uses_plain_words(page: str) -> None:
    text = prose((ROOT / page).read_text(encoding="utf-8"))
    assert findings(text) == []
    assert questions(text) == [], "a heading is a noun phrase"


@pytest.mark.parametrize("module", sources())
def test_docstrings_and_messages_of_a_clean_folder_use_plain_words(module: str) -> None:
    source = (PACKAGE / module).read_text(encoding="utf-8")
    assert [word for line, text in texts(source) for word in findings(text, line)] == []
    first = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    assert not first.endswith("?"), "the first line of a module is a noun phrase"


@pytest.mark.parametrize("folder", ["benchmarks", "tests"])
def test_benchmarks_and_tests_use_plain_words(folder: str) -> None:
    wrong, read = [], 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name, read = path.relative_to(ROOT), read + 1
        read_texts = (*texts(source), *remarks(source)) if folder == "benchmarks" else remarks(source)
        wrong += [f"{name}:{word}" for line, text in read_texts for word in findings(text, line)]
        if (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].endswith("?"):
            wrong.append(f"{name}: the first line of a module is a noun phrase")
    assert wrong == []
    assert read > 50


def test_the_lists_name_what_exists() -> None:
    assert set(pages()) >= NOT_YET
    assert [name for name in CLEAN if not (PACKAGE / name).exists()] == []
    assert len(pages()) > 30


def test_banned_words_are_found_in_prose_only() -> None:
    page = "# How is it told?\n\nA row `told` [here](told.md) stands.\n\n```\ntold\n```\n\nWhoever\n"
    assert [word.partition(" (")[0] for word in findings(prose(page))] == [
        "1: 'told'",
        "3: 'stands'",
        "9: 'Whoever'",
    ]
    assert questions(prose(page)) == ["# How is it told?"]
    assert findings("A standing query retells nothing besides its outlay.") == [
        "1: 'retells' (emit (rows), show, report)"
    ]


def test_banned_words_are_found_in_docstrings_and_messages() -> None:
    source = '"""What is told?"""\n\nSECTION = "told"\nMESSAGE = f"row {1} stands at `told`"\n'
    assert [word for line, text in texts(source) for word in findings(text, line)] == [
        "1: 'told' (emit (rows), show, report)",
        "4: 'stands' (is)",
    ]


def test_banned_words_are_found_in_remarks_and_not_in_strings_or_keys() -> None:
    source = '"""It was told."""\n\nX = "it stands"  # what lies there\n"""Of X, anew."""\n'
    assert [word.partition(" (")[0] for line, text in remarks(source) for word in findings(text, line)] == [
        "1: 'told'",
        "4: 'anew'",
        "3: 'lies'",
    ]
    assert findings(prose("| pu anew | rows handed over |\n")) == []
