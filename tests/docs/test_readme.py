"""The README's example runs to the output it shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"```python run\n(?P<code>.*?)```\s*```output\n(?P<output>.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str, str]]:
    """(page, code, output) of every block marked to be run."""
    return [
        (page.name, found["code"], found["output"])
        for page in PAGES
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("page", "code", "output"), examples())
def test_blocks_marked_run_print_what_the_page_says(
    page: str, code: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == output


def test_there_are_examples() -> None:
    """A page that lost its marks would test nothing."""
    assert any(page == "README.md" for page, _, _ in examples())


def test_links_between_pages_lead_somewhere() -> None:
    """Relative links of the top pages name files that exist."""
    seen = 0
    for page in (*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
                seen += 1
    assert seen > 5
