"""`hub.status()`: progress of all streams and queries, archives, what failed, the states of sinks and actions, and the newest
epoch's measurements, as plain values.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.connectors.records.ingest_record import SourceChanged
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.introspection.describe import reduced_archives
from headrace.runtime.introspection.quality import quality_status
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.key_samples import samples_by_query
from headrace.runtime.plan.adaptive.memory_use import memory_status
from headrace.runtime.plan.adaptive.partner_bounds import bounds_by_query
from headrace.runtime.plan.adaptive.spilled_rows import spilled_by_query
from headrace.runtime.repair.repair_report import repairs_status


def status(
    pipeline: Pipeline, sinks: Iterable[Mapping[str, Any]], actions: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The newest epoch's measurements, each stream's totals, and the state of each sink and action, as plain values."""
    manifest, catalog = pipeline.home.latest(), pipeline.catalog
    return {
        "epoch": manifest.epoch,
        "running": pipeline.loop.is_running,
        "engine": pipeline.loop.engine.executor.as_status(),
        "streams": {
            stream.name: manifest.stream(stream.name).as_json() if stream.name in manifest.streams else {}
            for stream in catalog.streams.values()
        },
        "queries": {
            query.definition.name: None if progress is None else progress.as_json()
            for query in catalog.queries.values()
            for progress in (manifest.find_operator(query.operator_id),)
        },
        "failed": failed(pipeline),
        "unread": {name: str(error) for name, error in unread(pipeline).items()},
        "sources": pipeline.source_warnings(),
        "changed_files": {name: len(files) for name, files in pipeline.loop.engine.intake.changed.items()},
        "archives": reduced_archives(pipeline.home, manifest, catalog.streams.values()),
        "rejected": failed_rows(pipeline),
        "key_samples": left_out(pipeline),
        "found_constraints": found_constraints(pipeline),
        "spilled": {
            name: asdict(spilled)
            for name, spilled in spilled_by_query(pipeline.home.store, manifest, catalog).items()
        },
        "closing_rejected": {name: len(reasons) for name, reasons in pipeline.closing_rejects.items()},
        "state_bytes": sum(run.bytes for run in manifest.state),
        "result_files": _result_files(Path(pipeline.home.store.root)),
        "synopsis_budget": pipeline.synopsis_bytes,
        "synopses": synopses(pipeline),
        "overload": quality_status(manifest, catalog),
        "memory": memory_status(pipeline.home.store, manifest, pipeline.plan, catalog),
        "repairs": dict(repairs_status(manifest, pipeline.plan, catalog)),
        "sinks": {sink["sink"]: sink for sink in sinks},
        "actions": {action["id"]: action for action in actions},
        "failures": pipeline.loop.supervisor.as_status(),
        "last_epoch": pipeline.last.as_dict() if pipeline.last is not None else None,
    }


def _result_files(home: Path) -> int:
    """How many files the home's results are in, with those that are deleted soon."""
    with suppress(FileNotFoundError):  # nothing has answered yet
        return sum(1 for _ in os.scandir(home / "results"))
    return 0


def failed_rows(pipeline: Pipeline) -> dict[str, int]:
    """Query → on how many rows its expressions failed, those of SELECTs in its FROM and of its joins included."""
    named = {query.operator_id: query.definition.name for query in pipeline.catalog.queries.values()}
    failed: dict[str, int] = {}
    for operator, rows in pipeline.home.latest().facts.get("rejected", {}).items():
        name = named.get(derived_streams.owner_of(operator))
        if name is not None:
            failed[name] = failed.get(name, 0) + rows
    return failed


def left_out(pipeline: Pipeline) -> dict[str, dict[str, float]]:
    """Query → of a join with a limit of rows that it has passed: the share of keys that are joined, and how many results are missing."""
    samples = samples_by_query(pipeline.home.latest())
    return {
        query.definition.name: {"share": sample.share, "missing": sample.missing, "error": sample.error}
        for query in pipeline.catalog.queries.values()
        for sample in (samples.get(query.operator_id),)
        if sample is not None
    }


def found_constraints(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Query → of a join that finds constraints: its bounds in microseconds, and the combinations that were left out.

    A bound is named "e to p": rows of e wait so long for those of p; "clustered p": so long after a row of a key of p its last one comes; "ordered p":
    so long after a larger key.
    """
    reports: dict[str, dict[str, Any]] = {}
    named = {query.operator_id: query.definition.name for query in pipeline.catalog.queries.values()}
    for operator, joins in bounds_by_query(pipeline.home.latest()).items():
        for join, known in joins:
            if operator in named and join in pipeline.plan.operators:
                sides = pipeline.plan.operators[join].joined_sides
                waits = {
                    _name(bound, sides): bound.within for bound in known.bounds if bound.within is not None
                }
                report = reports.setdefault(named[operator], {"bounds": {}, "noticed": 0, "left_out": 0})
                report["bounds"] |= waits
                report["noticed"] += known.noticed
                report["left_out"] += known.estimated
    return reports


def _name(bound: PartnerBound, sides: Sequence[str]) -> str:
    parent, child = sides[bound.parent], sides[bound.child]
    return f"{parent} to {child}" if bound.kind == "partner" else f"{bound.kind} {parent}"


def unread(pipeline: Pipeline) -> dict[str, SourceChanged]:
    """Queries whose archived rows cannot be read, with the error."""
    owners = {
        derived_streams.owner_of(operator): error for operator, error in pipeline.loop.engine.unread.items()
    }
    named = {query.operator_id: query.definition.name for query in pipeline.catalog.queries.values()}
    return {named[owner]: error for owner, error in owners.items() if owner in named}


def failed(pipeline: Pipeline) -> dict[str, str]:
    """Queries that were suspended after a failure, or failed in the last provisional closing, with the reason."""
    suspended = {
        query.definition.name: query.definition.failure
        for query in pipeline.catalog.queries.values()
        if query.definition.failure is not None
    }
    return {**pipeline.closing_failures, **suspended}


def synopses(pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """By query with synopses: how many bytes each may take for one group."""
    operators = pipeline.plan.operators
    sizes_of = {
        query.definition.name: dict(operators[query.operator_id].synopsis_bytes)
        for query in pipeline.catalog.queries.values()
        if query.operator_id in operators
    }
    return {name: sizes for name, sizes in sizes_of.items() if sizes}
