"""`headrace check`: what the store's own check finds, told to a person."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.errors import UserError
from headrace.store.check import check_home
from headrace.store.filesystem import LocalStore
from headrace.store.home_format import require_format
from headrace.time import HOUR, Instant, now

_GRACE: Final = HOUR


@dataclass(frozen=True, slots=True)
class Report:
    """Lines to show, and how many of them are faults."""

    lines: tuple[str, ...]
    faults: int


def check(path: Path, *, at: Instant | None = None) -> Report:
    """Verify a home without changing it. Files younger than an hour that nothing names are only counted.

    Raises `UserError` when there is no home, or one of a format that this program does not read.
    """
    if not (path / "manifests").is_dir():
        raise UserError(f"there is no home in {path}", remedy="headrace run SCRIPT --home DIR makes one.")
    require_format(LocalStore(path))
    findings = check_home(LocalStore(path), now=now() if at is None else at, grace=_GRACE)
    faults = [finding for finding in findings if finding.severity == "fault"]
    notes = len(findings) - len(faults)
    lines = [f"FAULT {finding.name}: {finding.message}" for finding in faults]
    if notes:
        lines.append(
            f"{notes} file{'' if notes == 1 else 's'} that no manifest names yet, not old enough to be collected"
        )
    lines.append(f"{path} has {len(faults)} faults" if faults else f"{path} is whole")
    return Report(tuple(lines), len(faults))
