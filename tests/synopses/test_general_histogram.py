"""f of a sliding window in few buckets: within the bracket at every instant, and why the printed rules are not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.grouping import hashes
from headrace.synopses.general_histogram import Bucket, GeneralHistogram
from headrace.synopses.stable_sketch import StableSketch

Vector = np.ndarray
_SIZE = 20


@dataclass(frozen=True)
class PowerNorm:
    """f = L_p to the p, of exact vectors."""

    p: float

    @property
    def factor(self) -> float:
        return float(2 ** (self.p - 1))

    def joined(self, one: Vector, other: Vector) -> Vector:
        return one + other

    def size(self, summary: Vector) -> float:
        return float((summary**self.p).sum())


def rows(name: str, many: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Items and amounts."""
    items = {
        "uniform": random.integers(0, _SIZE, many),
        "skewed": random.zipf(1.5, many) % _SIZE,
        "runs": np.arange(many) // 50 % _SIZE,
    }[name]
    amounts = random.integers(0, 10, many) if name != "runs" else np.where(np.arange(many) % 97 == 0, 5000, 1)
    return items, amounts.astype(float)


def vector(item: int, amount: float) -> Vector:
    found = np.zeros(_SIZE)
    found[item] = amount
    return found


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("name", ["uniform", "skewed", "runs"])
def test_the_truth_is_in_the_bracket_at_every_instant_and_for_every_smaller_window(
    name: str, p: float
) -> None:
    length, measure = 150, PowerNorm(p)
    for seed in range(2):
        items, amounts = rows(name, 600, np.random.default_rng(seed))
        found = GeneralHistogram(measure, 10, length)
        for now in range(600):
            found.add(now, [vector(items[now], amounts[now])])
            for size in {length, 40} if now % 7 == 0 else {length}:
                held = slice(max(now - size + 1, 0), now + 1)
                true = measure.size(np.bincount(items[held], amounts[held], _SIZE))
                least, most = found.answer(now - size + 1)
                assert least <= true * (1 + 1e-9)
                assert true <= most * (1 + 1e-9)
        assert len(found.buckets) < length


def test_buckets_keep_the_two_invariants() -> None:
    measure, found = PowerNorm(2.0), GeneralHistogram(PowerNorm(2.0), 8, 300)
    items, amounts = rows("skewed", 900, np.random.default_rng(3))
    for now in range(900):
        found.add(now, [vector(items[now], amounts[now])])
        newer = 0.0
        for place, bucket in enumerate(found.buckets):
            if bucket.oldest != bucket.newest:
                assert bucket.size <= measure.factor / found.k * newer * (1 + 1e-9), "Invariant 3"
            if place + 1 < len(found.buckets):
                assert found.k * (bucket.size + found.buckets[place + 1].size) > newer, "Invariant 4"
            newer += bucket.size


def test_leaving_out_a_single_heavy_row_as_printed_breaks_the_bracket() -> None:
    """R9: the text always leaves out the oldest bucket, and one row may outweigh all that is newer."""
    found = GeneralHistogram(PowerNorm(1.0), 10, 10)
    found.add(0, [vector(0, 1000.0)])
    for now in range(1, 9):
        found.add(now, [vector(1, 1.0)])
    least, most = found.answer(-1)
    assert least == most == 1008
    printed = replace(found, buckets=found.buckets[:-1]).answer(-1)[0]
    assert (1 + 1 / 10) * printed < 1008, "the factor of p = 1"
    assert found.buckets[-1] == Bucket(0, 0, found.buckets[-1].summary, 1000.0)


def test_for_p_2_the_error_is_a_factor_and_no_small_part_as_the_text_calls_it() -> None:
    """R8: what lies across the edge may be far more than 1/k of the answer, as for p = 1; the bracket allows for it."""
    found = GeneralHistogram(PowerNorm(2.0), 4, 100)
    for now in range(60):
        found.add(now, [vector(0, 1.0)])
    found.add(60, [vector(0, 80.0)])
    worst = 0.0
    for start in range(61):
        least, most = found.answer(start)
        true = (60 - start + 80.0) ** 2
        assert least <= true <= most
        worst = max(worst, true / least)
    assert worst > 2, "1 + 1/4 is what p = 1 would keep to"


@dataclass(frozen=True)
class Sketched:
    """f = L_2 squared of stable sketches, rows as hashes."""

    sketch: StableSketch
    factor: float = 2.0

    def joined(self, one: bytes, other: bytes) -> bytes:
        blobs = np.empty(2, object)
        blobs[:] = [one, other]
        return bytes(self.sketch.merged(blobs, np.zeros(2, np.int64), 1)[0])

    def size(self, summary: bytes) -> float:
        blobs = np.empty(1, object)
        blobs[:] = [summary]
        return float(self.sketch.estimates(blobs)[0][0] ** 2)


def test_norms_of_windows_from_stable_sketches_are_within_the_bracket_widened_by_the_sketch() -> None:
    covered = []
    for seed in range(4):
        sketch, length = StableSketch(200, 2.0, seed), 200
        found, random = GeneralHistogram(Sketched(sketch), 6, length), np.random.default_rng(seed)
        items = random.zipf(1.6, 500) % 50
        for now in range(0, 500, 10):
            part = hashes(pa.array(items[now : now + 10]))
            found.add(now + 9, [bytes(sketch.made(part, None, np.zeros(10, np.int64), 1)[0])])
            true = np.linalg.norm(np.bincount(items[max(now + 10 - length, 0) : now + 10]))
            least, most = (np.sqrt(each) for each in found.answer(now + 10 - length))
            off = 3.5 / np.sqrt(200)
            covered.append(least * (1 - off) <= true <= most * (1 + off))
    assert np.mean(covered) > 0.97
