"""f of a sliding window in few buckets: within the bracket at every instant, for many keys at once, and why not as printed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.histograms.general_histogram import Doubles, GeneralHistograms
from benchmarks.baselines.histograms.norms import PowerOfNorm, PowerOfSketchedNorm
from headrace.operators.base.group_codes import hashes
from headrace.synopses.sketches.stable_sketch import StableSketch
from tests.benchmarks.baselines.general_one_by_one import GeneralOneByOne

_SIZE = 20


def rows(name: str, many: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Items and amounts."""
    items = {
        "uniform": random.integers(0, _SIZE, many),
        "skewed": random.zipf(1.5, many) % _SIZE,
        "runs": np.arange(many) // 50 % _SIZE,
    }[name]
    amounts = random.integers(0, 10, many) if name != "runs" else np.where(np.arange(many) % 97 == 0, 5000, 1)
    return items, amounts.astype(float)


def true_powers(
    p: float, keys: Doubles, items: Doubles, amounts: Doubles, held: Doubles, many: int
) -> Doubles:
    vectors = np.zeros((many, _SIZE))
    np.add.at(vectors, (keys[held], items[held]), amounts[held])
    return (vectors**p).sum(axis=1)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("name", ["uniform", "skewed", "runs"])
def test_the_truth_is_in_the_bracket_at_every_instant_and_for_every_smaller_window(
    name: str, p: float
) -> None:
    many, length = 250, 80
    measure, one = PowerOfNorm(p, _SIZE), np.zeros(many, np.int64)
    for seed in range(2):
        items, amounts = rows(name, many, np.random.default_rng(seed))
        histograms = GeneralHistograms.empty(measure, 10, 1)
        for now in range(many):
            row = slice(now, now + 1)
            histograms = histograms.absorb(one[row], np.array([now]), measure.rows(items[row], amounts[row]))
            histograms = histograms.since(now - length + 1)
            for size in (length, 1 + now % length):
                held = np.arange(max(now - size + 1, 0), now + 1)
                true = true_powers(p, one, items, amounts, held, 1)
                least, most = histograms.answer(now - size + 1)
                assert least[0] <= true[0] * (1 + 1e-9)
                assert true[0] <= most[0] * (1 + 1e-9)
        assert len(histograms.sizes) < length


@given(data=st.data())
def test_any_cut_into_batches_of_many_keys_keeps_bracket_and_invariants(data: st.DataObject) -> None:
    keys, k = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 12))
    measure = PowerOfNorm(data.draw(st.sampled_from((1.0, 1.3, 2.0))), _SIZE)
    drawn = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, keys - 1),
                st.integers(0, 2),
                st.integers(0, 3),
                st.sampled_from((0, 1, 1, 2, 900)),
            ),
            max_size=70,
        )
    )
    owner, steps, items, amounts = (np.array([row[index] for row in drawn], np.int64) for index in range(4))
    times = np.cumsum(steps)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(drawn)), max_size=5)))
    histograms, kept_from = GeneralHistograms.empty(measure, k, keys), 0
    for start, stop in zip([0, *cuts], [*cuts, len(drawn)], strict=True):
        part = slice(start, stop)
        summaries = measure.rows(items[part], amounts[part].astype(float))
        histograms = histograms.absorb(owner[part], times[part], summaries)
        check_invariants(histograms)
        if not stop:
            continue
        since = max(int(times[stop - 1]) - data.draw(st.integers(0, 40)), kept_from)
        if data.draw(st.booleans()):
            histograms, kept_from = histograms.since(since), since
        held = np.flatnonzero(times[:stop] >= since)
        true = true_powers(measure.p, owner, items, amounts.astype(float), held, keys)
        least, most = histograms.answer(since)
        assert (least <= true * (1 + 1e-9)).all()
        assert (true <= most * (1 + 1e-9)).all()


def check_invariants(histograms: GeneralHistograms) -> None:
    for key in range(histograms.keys):
        low, high = histograms.offsets[key], histograms.offsets[key + 1]
        sizes = histograms.sizes[low:high]
        newer = np.r_[0.0, np.cumsum(sizes)]
        several = histograms.oldest[low:high] < histograms.newest[low:high]
        bound = histograms.measure.factor / histograms.k * newer[:-1] * (1 + 1e-9)
        assert (sizes <= bound)[several].all(), "Invariant 3"
        assert (histograms.k * (sizes[:-1] + sizes[1:]) > newer[:-2]).all(), "Invariant 4"
        assert (np.diff(histograms.newest[low:high]) <= 0).all()


def test_many_keys_are_kept_as_each_alone_and_in_about_as_many_buckets_as_row_by_row() -> None:
    random, measure = np.random.default_rng(4), PowerOfNorm(2.0, _SIZE)
    keys, times = random.integers(0, 40, 4000), np.arange(4000)
    items, amounts = rows("skewed", 4000, random)
    histograms = GeneralHistograms.empty(measure, 8, 40)
    for part in np.array_split(times, 7):
        histograms = histograms.absorb(keys[part], part, measure.rows(items[part], amounts[part])).since(
            part[-1] - 2500
        )
    for key in (0, 39):
        alone = GeneralHistograms.empty(measure, 8, 1)
        slow = GeneralOneByOne(measure, 8)
        for part in np.array_split(times, 7):
            mine = part[keys[part] == key]
            fresh = measure.rows(items[mine], amounts[mine])
            alone = alone.absorb(np.zeros(len(mine), np.int64), mine, fresh).since(part[-1] - 2500)
            for time, summary in zip(mine.tolist(), fresh, strict=True):
                slow.insert(time, summary)
            slow.expire(part[-1] - 2500)
        low, high = histograms.offsets[key], histograms.offsets[key + 1]
        assert histograms.newest[low:high].tolist() == alone.newest.tolist()
        assert histograms.answer(1800)[0][key] == alone.answer(1800)[0][0]
        assert high - low <= 1.3 * len(slow.buckets)


def test_leaving_out_a_single_heavy_row_as_printed_breaks_the_bracket() -> None:
    """R9: the text always leaves out the oldest bucket, and one row may outweigh all that is newer."""
    measure = PowerOfNorm(1.0, _SIZE)
    histograms, printed = (
        GeneralHistograms.empty(measure, 10, 1),
        GeneralOneByOne(measure, 10, always_leaves_out=True),
    )
    items, amounts = np.r_[0, np.ones(8, np.int64)], np.r_[1000.0, np.ones(8)]
    summaries = measure.rows(items, amounts)
    histograms = histograms.absorb(np.zeros(9, np.int64), np.arange(9), summaries)
    for time, summary in enumerate(summaries):
        printed.insert(time, summary)
    least, most = histograms.answer(-1)
    assert least[0] == most[0] == 1008
    assert (1 + 1 / 10) * printed.answer(-1) < 1008, "the factor of p = 1"
    assert (histograms.oldest[-1], histograms.newest[-1], histograms.sizes[-1]) == (0, 0, 1000.0)


def test_for_p_2_the_error_is_a_factor_and_no_small_part_as_the_text_calls_it() -> None:
    """R8: what is across the edge may be much more than 1/k of the answer, as for p = 1; the bracket allows for it."""
    measure = PowerOfNorm(2.0, 1)
    amounts = np.r_[np.ones(60), 80.0]
    histograms = GeneralHistograms.empty(measure, 4, 1)
    for time, amount in enumerate(amounts.tolist()):
        fresh = measure.rows(np.zeros(1, np.int64), np.array([amount]))
        histograms = histograms.absorb(np.zeros(1, np.int64), np.array([time]), fresh)
    worst = 0.0
    for start in range(61):
        (least,), (most,) = histograms.answer(start)
        true = (60 - start + 80.0) ** 2
        assert least <= true <= most
        worst = max(worst, true / least)
    assert worst > 1.5, "1 + 1/4 is what p = 1 would keep to"


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_norms_of_windows_from_stable_sketches_are_within_the_bracket_widened_by_the_sketch(p: float) -> None:
    covered, length, registers = [], 200, 200
    off = {1.0: 4.75, 1.5: 4.75, 2.0: 3.5}[p] / np.sqrt(registers)
    for seed in range(3):
        measure = PowerOfSketchedNorm(StableSketch(registers, p, seed))
        random = np.random.default_rng(seed)
        items, keys = random.zipf(1.6, 500) % 50, random.integers(0, 2, 500)
        histograms = GeneralHistograms.empty(measure, 6, 2)
        for now in range(0, 500, 25):
            part = slice(now, now + 25)
            fresh = measure.rows(hashes(pa.array(items[part])), np.ones(25))
            histograms = histograms.absorb(keys[part], np.arange(now, now + 25), fresh).since(
                now + 25 - length
            )
            least, most = (moments ** (1 / p) for moments in histograms.answer(now + 25 - length))
            for key in range(2):
                held = slice(max(now + 25 - length, 0), now + 25)
                counts = np.bincount(items[held][keys[held] == key]).astype(float)
                true = (counts**p).sum() ** (1 / p)
                covered.append(least[key] * (1 - off) <= true <= most[key] * (1 + off))
    assert np.mean(covered) > 0.97
