"""Check of file paths in statements that arrive over the network: they must be below one of the allowed folders
(roots), and never in the hub's home.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Final

from headrace.connectors.sources.listing import written_out
from headrace.dataclass import dataclass
from headrace.server.problems import Refused

_PATTERN: Final = re.compile(r"[*?\[{]")
_MOST_ALTERNATIVES: Final = 100


@dataclass(frozen=True, slots=True)
class Roots:
    """Folders with all below them, but for the home: it has tokens, secrets and the rows of all owners."""

    folders: tuple[Path, ...]
    home: Path

    def require(self, path: str) -> None:
        """Refuse a file, folder or glob that is not below a root, wherever symbolic links lead. Raises `Refused`."""
        alternatives = list(islice(written_out(re.sub(r"^file:/*", "/", path)), _MOST_ALTERNATIVES + 1))
        if len(alternatives) > _MOST_ALTERNATIVES:
            raise Refused(
                403, f"the path '{path}' has more than {_MOST_ALTERNATIVES} alternatives", "Name a folder."
            )
        for text in alternatives:
            self._require(path, text)

    def _require(self, path: str, text: str) -> None:
        """Refuse one of the paths that a path with `{a,b}` means."""
        parts = (Path.cwd() / Path(text).expanduser()).parts
        if ".." in parts:
            raise Refused(403, f"the path '{path}' has a '..'", "Over the network, write it without.")
        plain = [part for part, is_plain in _until_pattern(parts) if is_plain]
        actual = Path(*plain).resolve()
        home = self.home.resolve()
        if actual.is_relative_to(home) or (len(plain) < len(parts) and home.is_relative_to(actual)):
            raise Refused(403, f"the path '{path}' may be in the hub's home", "Name files elsewhere.")
        if not any(actual.is_relative_to(root.resolve()) for root in self.folders):
            raise Refused(
                403,
                f"statements over the network may not use the path '{path}'",
                "headrace serve --allow-root names the folders that they may use.",
            )


def _until_pattern(parts: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Parts of a path, and whether each is before the first with a pattern."""
    first = next((index for index, part in enumerate(parts) if _PATTERN.search(part)), len(parts))
    return [(part, index < first) for index, part in enumerate(parts)]
