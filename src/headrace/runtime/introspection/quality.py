"""What queries WITH QOS are worth and how loaded the hub is, for status, SHOW QUERIES and EXPLAIN: as the manifest of the last
epoch has it, so that a reading process shows the same as the one that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.algebra.quality_of_service import Point, QualityOfService
from headrace.catalog.catalog import Catalog
from headrace.overload.controller import HEADROOM, Worth
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.overload_control import OverloadReport, chosen_shares, overload_report
from headrace.store.logs.manifest import Manifest


def quality_status(manifest: Manifest, catalog: Catalog) -> dict[str, Any] | None:
    """The total utility, the load, and each query's own; None where no query states a quality of service."""
    report = overload_report(manifest)
    if report is None:
        return None
    worth, shares = worth_by_query(manifest, catalog), _by_name(chosen_shares(manifest), catalog)
    names = _names(catalog)
    sketched = {names.get(derived_streams.owner_of(operator)) for operator in report.sketched}
    return {
        "utility": sum(query_worth.utility for query_worth in worth.values()),
        "best": len(worth),
        "load": report.load,
        "demand": report.demand,
        "headroom": HEADROOM,
        "saturation": report.saturation or None,
        "changes": report.changes,
        "turns": dict(report.turns),
        "queries": {
            name: {
                "utility": query_worth.utility,
                "delay": query_worth.delay,
                "lost": query_worth.lost,
                "shares": _seen(shares.get(name, (1.0,)), is_sketched=name in sketched),
                "sketched": name in sketched,
            }
            for name, query_worth in worth.items()
        },
    }


def worth_by_query(manifest: Manifest, catalog: Catalog) -> dict[str, Worth]:
    """What the answers of each query WITH QOS are worth; of one with several SELECTs that state it, the least."""
    report = overload_report(manifest)
    worth: dict[str, Worth] = {}
    if report is None:
        return worth
    names = _names(catalog)
    for operator, operator_worth in report.worth.items():
        name = names.get(derived_streams.owner_of(operator))
        if name is not None and (name not in worth or operator_worth.utility < worth[name].utility):
            worth[name] = operator_worth
    return worth


def quality_lines(quality: QualityOfService, operator: str, manifest: Manifest) -> Iterator[str]:
    """Lines of EXPLAIN QUERY: the graphs, what the answers are worth now, and what the hub can take."""
    yield "  quality of service:"
    if quality.delay is not None:
        yield f"    utility by delay: {_points(quality.delay.points, _seconds)}"
    if quality.loss is not None:
        yield f"    utility by loss: {_points(quality.loss.points, _percent)}"
    if quality.importance is not None:
        levels = zip(quality.importance.intervals, quality.importance.levels, strict=True)
        of_answers = (
            f" of rows, by {quality.importance.answers} of answers" if quality.importance.answers else ""
        )
        yield f"    importance{of_answers}: {', '.join(f'{level:g} where {interval}' for interval, level in levels)}"
    if quality.sketches is not None:
        yield f"    utility of answers from sketches: {quality.sketches:g}"
    if quality.error is not None:
        yield f"    utility by error: {_points(quality.error.points, _times)} the error of WITHIN"
    report = overload_report(manifest)
    worth = None if report is None else report.worth.get(operator)
    if report is None or worth is None:
        yield "    nothing is measured yet: figures come with the first epoch"
        return
    yield f"    now: utility {worth.utility:.2f}, {worth.delay:.3g} s late, {_percent(worth.lost)} lost"
    shares = chosen_shares(manifest).get(operator)
    if operator in report.sketched:
        yield "    its rows are sketched until there is time again: windows that hold such rows are answered within their bounds"
        (seen,) = _seen(shares or (0.0,), is_sketched=True)
        if seen < 1:
            yield f"    {_percent(seen)} of them are: the rest is lost, and the bounds are wider"
    elif shares is not None:
        yield f"    answered from {' and '.join(map(_percent, shares))} of its rows{_of_each(quality)}"
    yield f"    {_load(report)}"


def load_line(manifest: Manifest) -> Iterator[str]:
    """The line of EXPLAIN ALL, if a query states a quality of service."""
    report = overload_report(manifest)
    if report is not None:
        yield f"utility {report.utility:.2f} of {len(report.worth)}; {_load(report)}"
        if report.turns:
            rows = (
                f"{stream} {rows:,} rows" if rows else f"{stream} waits"
                for stream, rows in report.turns.items()
            )
            yield f"the next epoch has no time for all that waits: {', '.join(rows)}"


def _load(report: OverloadReport) -> str:
    saturated = f", saturated at {report.saturation:,.0f} rows/s" if report.saturation else ""
    return (
        f"load: {_percent(report.demand)} of the time at the present rates, {_percent(report.load)} with what is dropped, "
        f"{_percent(HEADROOM)} may be used{saturated}"
    )


def _seen(shares: tuple[float, ...], *, is_sketched: bool) -> list[float]:
    """The shares of rows that are seen: of sketched ones, all or the second share."""
    return [min(shares[1:], default=1.0)] if is_sketched else list(shares)


def _of_each(quality: QualityOfService) -> str:
    return "" if quality.importance is None else " in these intervals"


def _points(points: tuple[Point, ...], render: Callable[[float], str]) -> str:
    return ", ".join(f"{utility:g} at {render(at)}" for at, utility in points)


def _seconds(value: float) -> str:
    return f"{value:g} s"


def _times(value: float) -> str:
    return f"{value:g} times"


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _by_name(by_operator: Mapping[str, tuple[float, ...]], catalog: Catalog) -> dict[str, tuple[float, ...]]:
    names = _names(catalog)
    owners = {operator: names.get(derived_streams.owner_of(operator)) for operator in by_operator}
    return {name: by_operator[operator] for operator, name in owners.items() if name is not None}


def _names(catalog: Catalog) -> dict[str, str]:
    return {query.operator_id: query.definition.name for query in catalog.queries.values()}
