"""Every synopsis that is stored in panes: the same bytes from the same rows, nothing changes nothing, and bounds that hold once merged."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.base.group_codes import hashes
from headrace.operators.partials.synopsis_partial import Synopsis
from headrace.synopses.sketches.distinct_sketch import DistinctSketch
from headrace.synopses.sketches.frequent_sketch import FrequentSketch
from headrace.synopses.sketches.rank_sketch import Ranking, decode
from headrace.synopses.sketches.sampled_ranks import SampledRanking
from headrace.synopses.sketches.sketch_kind import Kind, empty
from headrace.synopses.sketches.stable_sketch import StableSketch

KINDS: dict[str, Kind] = {
    "ranks": Ranking(Fraction(1, 20)),
    "distinct": DistinctSketch.within(Fraction(1, 20)),
    "frequent": FrequentSketch.within(Fraction(1, 10)),
    "norm": StableSketch(64),
    "sampled": SampledRanking(Ranking(Fraction(1, 20))),
}


def values(kind: str, rows: int, random: np.random.Generator) -> np.ndarray:
    drawn = random.zipf(1.4, rows) % 5000
    if kind == "frequent":
        return drawn.astype(str).astype(object)
    return hashes(pa.array(drawn)) if kind in ("distinct", "norm") else drawn.astype(float)


@pytest.mark.parametrize("name", KINDS)
def test_the_same_rows_give_the_same_bytes_and_many_cells_what_each_gives_alone(name: str) -> None:
    kind, random = KINDS[name], np.random.default_rng(3)
    rows, cells = values(name, 4000, random), random.integers(0, 5, 4000)
    made = kind.made(rows, None, cells, 6)
    assert made.tolist() == kind.made(rows.copy(), None, cells, 6).tolist()
    assert made[5] == b""
    for cell in range(5):
        mine = cells == cell
        assert kind.made(rows[mine], None, np.zeros(mine.sum(), np.int64), 1)[0] == made[cell]
    twice, codes = np.concatenate([made, made]), np.r_[np.arange(6), np.arange(6)]
    merged = kind.merged(twice, codes, 6)
    assert merged.tolist() == kind.merged(twice, codes, 6).tolist()
    assert merged[5] == b""
    assert all(len(blob) <= kind.full_bytes for blob in (*made, *merged))


@pytest.mark.parametrize("name", KINDS)
def test_as_a_partial_nothing_is_neutral_and_running_combinations_are_reductions(name: str) -> None:
    partial, random = Synopsis(KINDS[name]), np.random.default_rng(4)
    made = KINDS[name].made(values(name, 900, random), None, random.integers(0, 12, 900), 12)
    made[[2, 3, 7]] = b""
    assert partial.combine((made,), partial.identity((12,)))[0].tolist() == made.tolist()
    assert partial.combine(partial.identity((12,)), (made,))[0].tolist() == made.tolist()
    running = partial.accumulate((made.reshape(4, 3),))[0]
    for column in range(3):
        assert estimate(name, running[-1, column]) == pytest.approx(
            estimate(name, partial.reduce((made.reshape(4, 3)[:, column],), np.zeros(4, np.int64), 1)[0][0]),
            rel=0.06,
        )
    lone = partial.reduce((made,), np.arange(12), 12)[0]
    assert lone.tolist() == made.tolist()
    assert partial.reduce((made,), np.zeros(12, np.int64) + 1, 3)[0][[0, 2]].tolist() == [b"", b""]


def estimate(name: str, blob: bytes) -> Any:
    """One number of a synopsis."""
    cell = empty(1)
    cell[0] = blob
    if name == "ranks":
        return float(decode(cell).totals[0])
    if name == "distinct":
        return DistinctSketch.within(Fraction(1, 20)).estimates(cell)[0][0]
    if name == "frequent":
        return dict(FrequentSketch.within(Fraction(1, 10)).most(cell, 1)[0][0]).get("1", 0)
    return StableSketch(64).estimates(cell)[0][0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.float64(), pa.decimal128(20, 2), pa.timestamp("us"), pa.binary()]
)
def test_distinct_values_of_every_type_are_counted_within_three_standard_errors(
    kind: pa.DataType, seed: int
) -> None:
    random = np.random.default_rng(seed)
    drawn = random.integers(0, 20_000, 60_000)
    column = (
        pa.array(drawn).cast(pa.string()).cast(kind)
        if not pa.types.is_timestamp(kind)
        else pa.array(drawn).cast(kind)
    )
    sketch, cells = DistinctSketch.within(Fraction(1, 20)), random.integers(0, 9, 60_000)
    parts = sketch.made(hashes(column), None, cells, 9)
    whole = sketch.merged(parts, np.zeros(9, np.int64), 1)
    (value,), (bound,) = sketch.estimates(whole)
    true = len(np.unique(drawn))
    assert abs(value - true) <= bound <= 0.06 * true
    assert len(whole[0]) < 3000


def test_few_distinct_values_are_counted_exactly() -> None:
    sketch = DistinctSketch.within(Fraction(1, 100))
    for many in (0, 1, 2, 7, 100, 1000):
        made = sketch.made(hashes(pa.array(np.arange(many))), None, np.zeros(many, np.int64), 1)
        assert sketch.estimates(made)[0].tolist() == [many]


@pytest.mark.parametrize("seed", range(4))
def test_frequent_values_are_found_and_their_counts_are_at_most_the_bound_too_high(seed: int) -> None:
    random = np.random.default_rng(seed)
    sketch = FrequentSketch.within(Fraction(1, 50))
    texts = (random.zipf(1.2, 30_000) % 100_000).astype(str).astype(object)
    cells = random.integers(0, 20, len(texts))
    parts = sketch.made(texts, None, cells, 20)
    while len(parts) > 1:
        parts = sketch.merged(parts, np.arange(len(parts)) // 2, -(-len(parts) // 2))
    (items,), (bound,) = sketch.most(parts, 5)
    true = Counter(texts.tolist())
    assert bound <= len(texts) / 50
    assert all(0 <= count - true[text] <= bound for text, count in items)
    listed, least = {text for text, _ in items}, min(count for _, count in items)
    assert all(count <= least for text, count in true.items() if text not in listed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_norms_come_out_of_the_registers(p: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    items, weights = random.integers(0, 500, 4000), random.normal(1, 3, 4000)
    sketch = StableSketch(2000, p, seed)
    codes = hashes(pa.array(items))
    half = [
        sketch.made(codes[part], weights[part], np.zeros(2000, np.int64), 1)
        for part in (slice(2000), slice(2000, None))
    ]
    (value,), (bound,) = sketch.estimates(sketch.merged(np.concatenate(half), np.zeros(2, np.int64), 1))
    vector = np.bincount(items, weights)
    true = (np.abs(vector) ** p).sum() ** (1 / p)
    assert abs(value - true) <= bound
    assert bound < 0.12 * value


def test_the_error_of_a_norm_falls_with_the_root_of_the_registers() -> None:
    codes = hashes(pa.array(np.arange(300)))
    counts = np.r_[np.full(100, 9.0), np.ones(200)]
    true = np.sqrt((counts**2).sum())
    spread = []
    for registers in (25, 400):
        sketches = [StableSketch(registers, 2.0, seed) for seed in range(60)]
        estimates = [s.estimates(s.made(codes, counts, np.zeros(300, np.int64), 1))[0][0] for s in sketches]
        spread.append(np.std(estimates) / true)
        within = np.mean(np.abs(np.array(estimates) - true) <= true * 3.5 / np.sqrt(registers))
        assert within >= 0.95, "three standard errors"
    assert 0.15 < spread[1] / spread[0] < 0.4, "a quarter, for sixteen times as many"


@pytest.mark.parametrize("doubled", [1, 2, 3])
@pytest.mark.parametrize("name", KINDS)
def test_a_coarser_one_is_what_the_coarser_kind_makes_and_not_larger_than_it_may_be(
    name: str, doubled: int
) -> None:
    fine, random = KINDS[name], np.random.default_rng(6)
    coarse, rows = fine.coarser(doubled), values(name, 20_000, random)
    assert fine.coarser(0) == fine or name == "norm"
    one = np.zeros(len(rows), np.int64)
    fitted = coarse.fitted(fine.made(rows, None, one, 1))
    assert len(fitted[0]) <= coarse.full_bytes < fine.full_bytes
    assert coarse.fitted(fitted).tolist() == fitted.tolist(), "what fits stays as it is"
    assert fine.fitted(fitted).tolist() == fitted.tolist()
    assert coarse.fitted(empty(2)).tolist() == [b"", b""]
    found, bound = kind_estimate(coarse, fitted)
    wanted, usual = kind_estimate(coarse, coarse.made(rows, None, one, 1))
    assert abs(found - wanted) <= bound + usual
    if name in ("distinct", "norm"):
        assert bound == pytest.approx(usual, rel=0.3)


def kind_estimate(kind: Kind, blobs: Any) -> tuple[float, float]:
    """What a sketch shows of its rows, and the bound: a number of values, a norm, a median, or how often the most frequent value is there."""
    if isinstance(kind, Ranking):
        value, bound = decode(blobs).quantile(0.5)
        return float(value[0]), float(bound[0])
    if isinstance(kind, SampledRanking):
        value, bound = kind.quantile(blobs, 0.5)
        return float(value[0]), float(bound[0])
    if isinstance(kind, FrequentSketch):
        ranked, excess = kind.most(blobs, 1)
        return float(ranked[0][0][1]), float(excess[0])
    value, bound = kind.estimates(blobs)  # type: ignore[attr-defined]
    return float(value[0]), float(bound[0])


def exactly(name: str, rows: np.ndarray) -> float:
    counts = np.array(sorted(Counter(rows.tolist()).values()), float)
    if name in ("ranks", "sampled"):
        return float(np.percentile(rows, 50))
    return {"distinct": len(counts), "frequent": counts[-1], "norm": np.sqrt((counts**2).sum())}[name]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", KINDS)
def test_fine_and_coarse_ones_together_are_within_the_bound_that_they_state(name: str, seed: int) -> None:
    """Merged by the finest or a coarser kind, fitted or not; of the distinct ones with their probability, for these seeds always."""
    random = np.random.default_rng(seed)
    kinds = [KINDS[name].coarser(int(times)) for times in random.integers(0, 4, 5)]
    parts = [values(name, int(random.integers(0, 4000)), random) for _ in kinds]
    made = [
        kind.made(part, None, np.zeros(len(part), np.int64), 1)[0]
        for kind, part in zip(kinds, parts, strict=True)
    ]
    rows, blobs = np.concatenate(parts), np.array([*made, b""], object)
    for kind in (KINDS[name], *kinds):
        merged = kind.merged(blobs, np.zeros(len(blobs), np.int64), 1)
        for each in (merged, kind.fitted(merged)):
            value, bound = kind_estimate(kind, each)
            assert abs(value - exactly(name, rows)) <= bound * (1 + 1e-9) + 1e-9 * abs(value)


def test_norms_of_several_cells_have_as_many_registers_as_all_of_their_parts() -> None:
    fine = StableSketch(64)
    coarse, rows = fine.coarser(1), values("norm", 500, np.random.default_rng(1))
    one, other = (kind.made(rows, None, np.zeros(500, np.int64), 1)[0] for kind in (fine, coarse))
    assert (len(one), len(other)) == (512, 128)
    assert one[:128] == other, "the first registers of the same draws"
    merged = fine.merged(np.array([one, other, one, one], object), np.array([0, 0, 1, 2]), 3)
    assert [len(blob) for blob in merged] == [128, 512, 512]
    assert merged[0] == fine.merged(np.array([other, other], object), np.array([0, 0]), 1)[0]
    assert merged[2] == one
    assert coarse.fitted(merged).tolist() == [merged[0], other, other]
    value, bound = fine.estimates(merged)
    assert bound[0] / value[0] == pytest.approx(2 * bound[1] / value[1])
