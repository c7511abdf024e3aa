"""Record of the files that `--output` has written outside of the home, and deletion of those whose queries were dropped,
and of no others.

`exports.json` in the home has for each folder of `--output` each file, its query, and the size and modification time it was
left with. A file that was changed or replaced since is not removed.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import field
from pathlib import Path
from typing import Final

from headrace.dataclass import dataclass
from headrace.errors import StoreError

RECORD: Final = "exports.json"


@dataclass(slots=True)
class Exports:
    """The record of one home for one folder."""

    record: Path
    folder: Path
    _files: dict[str, list[str | int]] = field(default_factory=dict)
    _others: dict[str, dict[str, list[str | int]]] = field(default_factory=dict)
    _changed: bool = False

    def __post_init__(self) -> None:
        """Read the record of earlier runs; a damaged one counts as empty."""
        try:
            folders = json.loads(self.record.read_text(encoding="utf-8"))
            self._files = dict(folders.pop(self._key, {}))
            self._others = folders
        except (FileNotFoundError, ValueError, AttributeError):
            self._files, self._others = {}, {}
        except OSError as error:  # else it would be overwritten, and the files it names never removed
            raise StoreError(f"cannot read {self.record}: {error.strerror}") from error

    @property
    def _key(self) -> str:
        return str(self.folder.resolve())

    def wrote(self, path: Path, query: str) -> None:
        """Record a written file, with its query."""
        status = path.stat()
        self._files[path.name] = [query, status.st_size, status.st_mtime_ns]
        self._changed = True

    def settle(self, queries: Container[str]) -> list[str]:
        """Remove the files of other queries that are unchanged since they were written, and save the record; their names."""
        obsolete = [name for name, (query, *_) in self._files.items() if query not in queries]
        removed = [name for name in obsolete if self._is_ours(name)]
        for name in removed:
            (self.folder / name).unlink(missing_ok=True)
        for name in obsolete:
            del self._files[name]
        if obsolete or self._changed:
            self._save()
        return removed

    def _is_ours(self, name: str) -> bool:
        try:
            status = (self.folder / name).lstat()
        except OSError:
            return False
        return [status.st_size, status.st_mtime_ns] == self._files[name][1:]

    def _save(self) -> None:
        unfinished = self.record.with_name(f".{self.record.name}.unfinished")
        unfinished.write_text(json.dumps({**self._others, self._key: self._files}), encoding="utf-8")
        unfinished.replace(self.record)
        self._changed = False
