"""The kills of a long run that are done, shown on the terminal, and kept so that a run that was cut short continues.

A line of `.soak/kills.jsonl` names a seed that has passed with which sources (a digest of `src` and of the tests that kill). Other
sources begin again; so does a checkout without the file.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".soak" / "kills.jsonl"


@cache
def digest() -> str:
    """Of all that decides whether a seed passes."""
    found = hashlib.sha256()
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests" / "runtime").glob("*.py"), Path(__file__)]
    for path in sorted(sources):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


@dataclass
class Ledger:
    """Counts kills of `total`; `say` prints a line past what pytest captures."""

    total: int
    file: Path = FILE
    say: Callable[[str], None] = print
    clock: Callable[[], float] = time.monotonic
    killed: int = 0
    _skipped: int = 0
    _started: float | None = None
    _finished: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.exists():
            lines = [json.loads(line) for line in self.file.read_text().splitlines()]
            self._finished = {line["seed"]: line["kills"] for line in lines if line["sources"] == digest()}

    def is_finished(self, seed: int, kills: int) -> bool:
        """Whether an earlier run with these sources has passed it; then its kills count."""
        if self._finished.get(seed) != kills:
            return False
        self._skipped += kills
        return True

    def kill(self, seed: int, committed: int) -> None:
        """One more; a line shows how long the rest will take."""
        self.killed += 1
        done, now = self.killed + self._skipped, self.clock()
        if self._started is None:
            self._started, estimate = now, ""
        else:
            left = (now - self._started) / (self.killed - 1) * (self.total - done)
            estimate = f", about {max(0, round(left / 60))} min left"
        self.say(f"kill {done} of {self.total} (seed {seed}, after {committed} epochs){estimate}")

    def passed(self, seed: int, kills: int) -> None:
        """All its kills changed no answer."""
        self.file.parent.mkdir(exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps({"seed": seed, "kills": kills, "sources": digest()}) + "\n")
        self._finished[seed] = kills
        self.say(f"seed {seed}: {kills} kills changed no answer")
