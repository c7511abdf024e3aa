"""Which files outside the home has this home written? So that those of queries that are gone can go too, and no others.

`exports.json` in the home says for each folder of `--output` each file, its query, and the size and modification time it was
left with. A file that somebody has changed or replaced since is theirs: it is never removed.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

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
        """Read what earlier runs have written; a damaged record is as good as none."""
        try:
            known = json.loads(self.record.read_text(encoding="utf-8"))
            self._files = dict(known.pop(self._key, {}))
            self._others = known
        except (FileNotFoundError, ValueError, AttributeError):
            self._files, self._others = {}, {}
        except OSError as error:  # it would be written over, and the files it names never removed
            raise StoreError(f"cannot read {self.record}: {error.strerror}") from error

    @property
    def _key(self) -> str:
        return str(self.folder.resolve())

    def wrote(self, path: Path, query: str) -> None:
        """A file was written, with a query's answers."""
        status = path.stat()
        self._files[path.name] = [query, status.st_size, status.st_mtime_ns]
        self._changed = True

    def settle(self, queries: Container[str]) -> list[str]:
        """Remove the files of queries that are no more, as far as they are still ours, and keep the record; their names."""
        gone = [name for name, (query, *_) in self._files.items() if query not in queries]
        removed = [name for name in gone if self._is_ours(name)]
        for name in removed:
            (self.folder / name).unlink(missing_ok=True)
        for name in gone:
            del self._files[name]
        if gone or self._changed:
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
