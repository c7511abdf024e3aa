"""`headrace check`: the store's integrity check, and a trial of opening the home, as a report for people.

Opening a home folds its query log, binds every query and plans it. All of that is tried here, on committed files alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, OtherVersion, StoreError, UserError
from headrace.runtime.home.home import Home
from headrace.runtime.plan.epoch_planner import make_plan, operator_of
from headrace.runtime.plan.plan_files import read_afresh
from headrace.store.files.filesystem import LocalStore, Store
from headrace.store.logs.manifest import ManifestLog
from headrace.store.logs.record_log import QUERY_LOG
from headrace.store.maintenance.home_format import require_format
from headrace.store.maintenance.integrity_check import Finding, check_home
from headrace.time import HOUR, Instant, now

_GRACE: Final = HOUR
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Report:
    """Lines to show, and how many of them are faults."""

    lines: tuple[str, ...]
    faults: int


def check(path: Path, *, at: Instant | None = None) -> Report:
    """Verify a home without changing it. Files that nothing names are only counted: a home that is closed leaves some to its next start.

    Raises `UserError` when there is no home, or one of a format that this program does not read.
    """
    if not (path / "manifests").is_dir():
        raise UserError(f"there is no home in {path}", remedy="headrace run SCRIPT --home DIR makes one.")
    store = LocalStore(path)
    require_format(store)
    findings = check_home(store, now=now() if at is None else at, grace=_GRACE)
    opening = [*_catalog(path), *_plans(store)]
    faults = [finding for finding in (*findings, *opening) if finding.severity == "fault"]
    notes = sum(finding.severity == "note" for finding in findings)
    lines = [f"FAULT {finding.name}: {finding.message}" for finding in faults]
    lines += [f"NOTE {finding.name}: {finding.message}" for finding in opening if finding.severity == "note"]
    if notes:
        lines.append(
            f"{notes} file{'' if notes == 1 else 's'} that no manifest names yet, not old enough to be collected"
        )
    garbage = sum(finding.severity == "garbage" for finding in findings)
    if garbage:
        lines.append(
            f"{garbage} file{'' if garbage == 1 else 's'} that no manifest names: the next start collects {'it' if garbage == 1 else 'them'}"
        )
    lines.append(f"{path} has {len(faults)} faults" if faults else f"{path} is whole")
    return Report(tuple(lines), len(faults))


def _catalog(path: Path) -> Iterator[Finding]:
    """Fold the query log and plan every query, as opening the home does."""
    try:
        catalog = Home.at(path).catalog
    except Exception as error:  # noqa: BLE001 - opening the home would end with it too
        yield _fault(
            f"{QUERY_LOG}/", "it cannot be folded", error, "Put its files back from a copy of the home."
        )
        return
    if catalog.ignored_entries:
        shown = ", ".join(map(str, catalog.ignored_entries[:_SHOWN])) + (
            ", …" if len(catalog.ignored_entries) > _SHOWN else ""
        )
        reason = "appended twice, or about what was dropped by then; it changes nothing, and nothing needs to be done"
        yield Finding(
            "note", f"{QUERY_LOG}/", f"{len(catalog.ignored_entries)} of its entries ({shown}): {reason}"
        )
    yield from _planned(catalog)


def _planned(catalog: Catalog) -> Iterator[Finding]:
    try:
        make_plan(catalog)
    except Exception as whole:  # noqa: BLE001 - as above
        for name, standing in catalog.queries.items():
            try:
                operator_of(catalog, standing)
            except Exception as error:  # noqa: BLE001 - as above
                yield _fault(
                    f"{QUERY_LOG}/, query {name}",
                    "it cannot be planned",
                    error,
                    "Use the version of Headrace, and the modules, with which it was registered, and drop it there.",
                )
                return
        yield _fault(f"{QUERY_LOG}/", "its queries cannot be planned together", whole, "Report this, please.")


def _plans(store: Store) -> Iterator[Finding]:
    """Read every plan that a manifest names; those of another version are replaced by the next driver."""
    try:
        plans = sorted({manifest.plan for manifest in ManifestLog(store).retained() if manifest.plan})
    except StoreError:
        return  # a manifest that cannot be read is among the findings of the store
    for name in plans:
        try:
            read_afresh(store, name)
        except OtherVersion:
            continue  # the next driver replaces it
        except StoreError as error:
            remedy = "Once no epoch runs, delete it and open the home: a driver writes a new one."
            yield _fault(name, "the plan cannot be read", error, remedy)


def _fault(name: str, what: str, error: Exception, remedy: str) -> Finding:
    message = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    return Finding("fault", name, f"{what}: {message}. {remedy}")
