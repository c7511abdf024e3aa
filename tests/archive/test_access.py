"""One access method for the archive: only the room `archive` opens its files, and only it encodes them."""

from __future__ import annotations

import ast
from pathlib import Path

import headrace

PACKAGE = Path(headrace.__file__).parent
ELSEWHERE = {
    "connectors": "files of sources, relations and answers",
    "examples": "the rows of the demo",
    "runtime/home/reject_files.py": "rejected rows",
    "runtime/introspection/loss_report.py": "rejected rows",
    "store/files/checksums/chunk_checksums.py": "where columns are in a finished file, from its footer",
    "store/maintenance/integrity_check.py": "footers of any file, for `headrace check`",
}
"""Who else reads or writes Parquet, and what."""


def uses_parquet(code: str) -> bool:
    """Whether a module imports `pyarrow.parquet` or `pyarrow.dataset`."""
    names = {"pyarrow.parquet", "pyarrow.dataset"}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import) and names & {alias.name for alias in node.names}:
            return True
        if isinstance(node, ast.ImportFrom) and (
            node.module in names or {f"{node.module}.{alias.name}" for alias in node.names} & names
        ):
            return True
    return False


def test_no_other_room_opens_or_encodes_runs_of_the_archive() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if uses_parquet(path.read_text(encoding="utf-8"))
    }
    others = {
        name
        for name in found
        if not name.startswith("archive/") and not any(name.startswith(each) for each in ELSEWHERE)
    }
    assert others == set()
    assert {"archive/run_file.py", "archive/runs.py", "archive/prefixes.py"} <= found


def test_an_import_is_found() -> None:
    assert uses_parquet("import pyarrow.parquet as pq")
    assert uses_parquet("from pyarrow import parquet")
    assert uses_parquet("def f():\n    from pyarrow.parquet import ParquetFile")
    assert not uses_parquet("import pyarrow as pa")
