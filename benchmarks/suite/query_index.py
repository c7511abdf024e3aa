"""The query index and shared aggregation alone, without Spark: million rows a second by number of standing queries.

Predicates as in PSoup's experiments: one to four of four integer attributes in 0..255, equalities or intervals; and
intervals over constants of 64 bits. The yardstick is the plain way: one mask a query, one group-by a query.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.models.row_matching import route
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.algebra.expressions.expression import Call, Column, Expression, Literal
from headrace.operators.partials import encoding as at_rest
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching.match import Kernel, match
from headrace.operators.shared_aggregation.strategy import Strategy, fold
from headrace.schema import BIGINT, BOOLEAN

QUERIES = (1, 10, 100, 1000, 10_000)
KEYS = 100
VALUE = Column("v", BIGINT)
MOST_ROWS = 1 << 18
_BRUTE_PAIRS = 4e7


@dataclass(frozen=True, slots=True)
class Workload:
    """Predicates as (attribute, low, high) triples, and the widest value of an attribute."""

    name: str
    predicates: tuple[tuple[tuple[int, int, int], ...], ...]
    values: int

    def expressions(self) -> dict[str, Expression | None]:
        return {f"q{n}": _predicate(factors) for n, factors in enumerate(self.predicates)}


def query_index(rows: int, rounds: int) -> Report:
    """All kernels and strategies that make sense for a workload, interleaved; the best round of each counts."""
    rows = min(rows, MOST_ROWS)
    measured = []
    for name in ("interval", "equality", "continuous"):
        for count in QUERIES:
            measured += _measured(_workload(name, count), rows, rounds)
    rate = {(one["workload"], one["queries"], one["kernel"]): one["million_rows_per_s"] for one in measured}
    best = {count: rate["interval", count, "COUNT and SUM: chosen"] for count in QUERIES}
    ratios = [
        Ratio("million rows/s on a core, COUNT and SUM by 100 keys, 1000 interval queries", best[1000], 1.5),
        *(
            Ratio(f"million rows/s on a core, matched by {way}, {count:,} interval queries", rate_of, least)
            for way, count, least in (("rows", 1000, 10), ("rows", 10_000, 1), ("columns", 10_000, 0.5))
            for rate_of in [rate["interval", count, f"match: {way}"]]
        ),
        Ratio("10,000 interval queries to 1000 of them", best[10_000] / best[1000], 0.1),
        Ratio(
            "1000 interval queries shared to one by one",
            best[1000] / rate["interval", 1000, "COUNT and SUM: one by one"],
            5,
        ),
    ]
    drawn = [
        Bar(f"{count:,} · {label}", rate["interval", count, f"COUNT and SUM: {kernel}"], kind)
        for count in QUERIES
        for label, kernel, kind in (("shared", "chosen", "ours"), ("one by one", "one by one", "yardstick"))
    ]
    return Report(
        "query_index",
        "Shared aggregation on one core by number of interval queries",
        measured,
        ratios,
        drawn,
        "M rows/s",
        [
            (
                f"{rows:,} rows a batch, {KEYS} keys, no Spark. 'One by one' evaluates a numpy mask and two bincounts a "
                "query, on fewer rows where it would take minutes. 'Chosen' is what a sample of the batch picks."
            )
        ],
    )


def _workload(name: str, count: int) -> Workload:
    rng = np.random.default_rng(count)
    span = 1 << 62 if name == "continuous" else 256

    def constant() -> int:
        if name != "continuous" and rng.random() < 0.2:
            return int(rng.integers(0, 8)) * 32
        return int(rng.integers(0, span))

    def factor(attribute: int) -> tuple[int, int, int]:
        low = constant()
        return attribute, low, low if name == "equality" else low + int(rng.integers(0, span))

    chosen = (rng.choice(4, rng.integers(1, 5), replace=False).tolist() for _ in range(count))
    return Workload(name, tuple(tuple(map(factor, sorted(names))) for names in chosen), span)


def _predicate(factors: tuple[tuple[int, int, int], ...]) -> Expression:
    parts = []
    for attribute, low, high in factors:
        column = Column(f"a{attribute}", BIGINT)
        parts.append(Call(">=", (column, Literal(low, BIGINT)), BOOLEAN))
        parts.append(Call("<=", (column, Literal(high, BIGINT)), BOOLEAN))
    return Call("and", tuple(parts), BOOLEAN)


def _measured(work: Workload, rows: int, rounds: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    columns = {f"a{n}": pa.array(rng.integers(0, work.values, rows)) for n in range(4)}
    values, codes = pa.array(rng.integers(0, 256, rows)), rng.integers(0, KEYS, rows)
    start = time.perf_counter()
    index = QueryIndex().changed(work.expressions())
    index.sides[0].plain  # noqa: B018  # compiled when first asked for
    built = time.perf_counter() - start
    kernels = _kernels(work, index, columns, values, codes)
    spent: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(rounds + 1):  # the first warms up
        for name, (run, row_count) in kernels.items():
            start = time.perf_counter()
            run()
            spent[name].append(row_count / (time.perf_counter() - start) / 1e6)
    return [
        {
            "workload": work.name,
            "queries": len(work.predicates),
            "kernel": name,
            "million_rows_per_s": float(f"{max(rates[1:]):.3g}"),
            "ms_to_compile": round(built * 1e3, 1),
        }
        for name, rates in spent.items()
    ]


Runs = dict[str, tuple[Callable[[], object], int]]


def _kernels(
    work: Workload, index: QueryIndex, columns: dict[str, pa.Array], values: pa.Array, codes: np.ndarray
) -> Runs:
    """What is run, by name, and on how many rows."""
    rows = len(codes)
    partial_columns = (at_rest.rows_partial(), at_rest.sum_partial(VALUE))
    kernels: Runs = {}

    def matching(kernel: Kernel | None, few: int) -> None:
        some = {name: one.slice(0, few) for name, one in columns.items()}
        kernels[f"match: {kernel or 'chosen'}"] = partial(match, index, some, few, kernel), few

    def scan_group(strategy: Strategy | None, few: int) -> None:
        some = {name: one.slice(0, few) for name, one in columns.items()}
        arguments = {VALUE: values.slice(0, few)}
        run = partial(fold, index, some, partial_columns, arguments, codes[:few], KEYS, strategy)
        kernels[f"COUNT and SUM: {strategy or 'chosen'}"] = run, few

    queries = len(work.predicates)
    few = min(
        rows, 1 << 16 if queries < 10_000 else 1 << 14
    )  # bitmaps of ten thousand queries over more are large
    for kernel in ("columns", "pairs") if work.name == "equality" else ("columns",):
        matching(kernel, few)
    if work.name != "continuous":
        some = {name: one.slice(0, few) for name, one in columns.items()}
        kernels["match: rows"] = partial(route, index, some, few), few
        if queries <= 100:
            scan_group("signatures", rows)
    for strategy in ("bitmaps", "probing") if work.name == "equality" else ("bitmaps",):
        scan_group(strategy, rows)
    scan_group(None, rows)
    least = min(rows, max(1024, int(_BRUTE_PAIRS / queries)))
    arrays = [columns[f"a{n}"].to_numpy()[:least] for n in range(4)]
    one_by_one = partial(_one_by_one, work, arrays, values.to_numpy()[:least], codes[:least])
    kernels["match: one by one"] = partial(_masks, work, arrays), least
    kernels["COUNT and SUM: one by one"] = one_by_one, least
    return kernels


def _masks(work: Workload, arrays: list[np.ndarray]) -> int:
    return sum(int(np.count_nonzero(_mask(factors, arrays))) for factors in work.predicates)


def _mask(factors: tuple[tuple[int, int, int], ...], arrays: list[np.ndarray]) -> np.ndarray:
    mask = np.ones(len(arrays[0]), bool)
    for attribute, low, high in factors:
        mask &= (arrays[attribute] >= low) & (arrays[attribute] <= high)
    return mask


def _one_by_one(work: Workload, arrays: list[np.ndarray], values: np.ndarray, codes: np.ndarray) -> int:
    total = 0
    for factors in work.predicates:
        mask = _mask(factors, arrays)
        mine = codes[mask]
        np.bincount(mine, minlength=KEYS)
        total += int(np.bincount(mine, weights=values[mask], minlength=KEYS).sum())
    return total
