"""Paths and names of the pages on the architecture: each path exists, and each function is defined in its file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"
LIVES = ("docs/life-of-a-query.md", "docs/life-of-a-row.md")
PAGES = ("ARCHITECTURE.md", *LIVES)
_PATH = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`")
_STEP = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
_NAMED = re.compile(r"`([\w/]+\.py)` \(`([\w.]+)`\)")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def definitions(path: Path) -> set[str]:
    """Functions, classes, methods (`Class.method`) and constants that a module defines."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@pytest.mark.parametrize("name", PAGES)
def test_paths_of_a_page_exist(name: str) -> None:
    paths = _PATH.findall(page(name))
    assert len(paths) > 20
    assert [path for path in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_functions_of_a_page_are_defined_in_their_files(name: str) -> None:
    steps = _STEP.findall(page(name)) + _NAMED.findall(page(name))
    assert steps
    assert [step for step in steps if step[1] not in definitions(PACKAGE / step[0])] == []


@pytest.mark.parametrize("name", LIVES)
def test_every_row_of_a_table_has_a_file_and_a_function(name: str) -> None:
    rows = [line for line in page(name).splitlines() if line.startswith("| `")]
    assert len(rows) == len(_STEP.findall(page(name))) > 30


def test_the_architecture_is_one_page() -> None:
    assert len(page("ARCHITECTURE.md").splitlines()) <= 75


def test_names_are_found() -> None:
    names = definitions(Path(__file__))
    assert {"page", "test_names_are_found"} <= names
    assert "missing" not in names
