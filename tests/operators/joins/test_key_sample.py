"""The join with a limit of rows, operator alone: which keys it joins, that each is joined wholly or not at all, and how well it
knows what it has left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count, pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.operator import Advance, Sections
from headrace.operators.joins.key_sample import in_sample, sample_counts
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.rows.sorted_rows import key_hashes
from headrace.time import BEGINNING
from tests.operators.joins.test_key_promises import Row, batch, join, loops
from tests.operators.local_driver import _of, _owners

SHARES = (1.0, 0.7, 0.4, 0.1)


def hash_of(key: int) -> np.ndarray:
    return key_hashes([pa.array([key])], 1)


def of_sample(every: Sequence[Sequence[Row]], share: float) -> list[list[Row]]:
    """The rows whose key is in the sample of a share."""
    return [[row for row in rows if in_sample(hash_of(row[0]), share)[0]] for rows in every]


def test_samples_are_nested_and_have_their_share_of_keys() -> None:
    hashes = key_hashes([pa.array(np.arange(100_000))], 100_000)
    samples = [in_sample(hashes, share) for share in SHARES]
    assert all((smaller <= larger).all() for larger, smaller in pairwise(samples))
    assert all(
        abs(sample.mean() - share) < 0.01 for sample, share in zip(samples[1:], SHARES[1:], strict=True)
    )


def epoch(
    operator: WindowJoin, runs: list[Sections], rows: Sequence[Sequence[Row]], share: float, tasks: int
) -> tuple[Counter[tuple[int, ...]], int, float]:
    """What an epoch emits, the rows that may still be joined, and what it estimates to have left out."""
    deltas = []
    for side, part in enumerate(rows):
        if part:
            scanner = operator.scanner({})
            scanner.add(batch(part, side, pa.int64()))
            deltas.append(scanner.finish().deltas)
    advance = Advance(BEGINNING, 0, 0, input_punctuations=(0,) * len(rows), key_shares=(share, share))
    emitted, joinable, missing, made = Counter[tuple[int, ...]](), 0, 0.0, list[Sections]()
    for owned in _owners(tasks):
        step = operator.advance(_of(runs, owned), _of(deltas, owned), advance)
        if step.results is not None:
            names = operator.spec.shown.names[:-1]
            emitted.update(zip(*(step.results.column(name).to_pylist() for name in names), strict=True))
        assert step.key_sample is not None
        joinable, missing = joinable + step.key_sample.joinable, missing + step.key_sample.missing
        made += [step.state] if step.state else []
    runs += made
    return emitted, joinable, missing


@given(data=st.data(), many=st.integers(2, 3))
def test_a_key_in_the_sample_is_joined_as_by_loops_and_another_not_at_all(
    data: st.DataObject, many: int
) -> None:
    """Shares fall from epoch to epoch; rows of keys that were left out are in no state after a merge."""
    operator, numbers = join([5] * many).with_most_rows(10), count()
    rows = st.tuples(st.integers(0, 12), st.builds(lambda: next(numbers)), st.integers(0, 12))
    runs, every = list[Sections](), [list[Row]() for _ in range(many)]
    emitted, expected = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    shares = data.draw(st.lists(st.sampled_from(SHARES), min_size=1, max_size=4), "shares")
    for share in sorted(shares, reverse=True):
        parts = [data.draw(st.lists(rows, max_size=6), "rows") for _ in range(many)]
        before = loops(of_sample(every, share), operator)
        every = [stored + part for stored, part in zip(every, parts, strict=True)]
        sampled = of_sample(every, share)
        seen, joinable, _ = epoch(operator, runs, parts, share, data.draw(st.integers(1, 3), "tasks"))
        emitted += seen
        expected += loops(sampled, operator) - before
        assert joinable == sum(map(len, sampled)), "no punctuation has passed a row"
        if data.draw(st.booleans(), "merged"):
            advance = Advance(BEGINNING, 0, 0, input_punctuations=(0,) * many, key_shares=(share, share))
            names = sorted({name for run in runs for name in run})
            merged = {
                name: operator.compact(name, [run[name] for run in runs if name in run], advance)
                for name in names
            }
            runs = [merged] if merged else []
            assert sum(table.num_rows for table in merged.values()) == sum(map(len, sampled))
    assert emitted == expected


def test_rows_of_keys_that_are_stored_and_not_joined_yet_are_found_by_none_and_search_none() -> None:
    """A share that grows: first rows of more keys are stored, then these keys are joined."""
    operator, runs = join([5, 5]).with_most_rows(10), list[Sections]()
    rows = [[(key, key, 3) for key in range(50)], [(key, 100 + key, 4) for key in range(50)]]
    deltas = []
    for side, part in enumerate(rows):
        scanner = operator.scanner({})
        scanner.add(batch(part, side, pa.int64()))
        deltas.append(scanner.finish().deltas)
    waiting = Advance(BEGINNING, 0, 0, input_punctuations=(0, 0), key_shares=(0.3, 0.6))
    step = operator.advance(runs, deltas, waiting)
    assert step.results is not None
    assert step.key_sample is not None
    joined, stored = (of_sample(rows, share) for share in (0.3, 0.6))
    assert step.results.num_rows == len(joined[0]) < len(stored[0])
    assert step.key_sample.joinable == sum(map(len, stored))
    assert sum(table.num_rows for table in step.state.values()) == sum(map(len, stored))
    whole = Advance(BEGINNING, 0, 0, input_punctuations=(0, 0), key_shares=(0.6, 0.6))
    later = operator.advance([step.state], [deltas[1]], whole)
    assert later.results is not None
    assert later.results.num_rows == len(stored[0])


def test_estimates_are_unbiased_and_their_intervals_hold_what_is_missing() -> None:
    """Of 400 samples of keys with unequal numbers of pairs: the mean error is small, and 95 % of intervals hold the truth."""
    rng = np.random.default_rng(5)
    pairs = rng.integers(1, 40, 600)
    inside, errors = 0, []
    for _ in range(400):
        hashes = rng.integers(-(2**63), 2**63, len(pairs), np.int64)
        chosen = in_sample(hashes, 0.3)
        counts = sample_counts(0, [np.repeat(hashes[chosen], pairs[chosen])], 0.3)
        truth = int(pairs[~chosen].sum())
        errors.append((counts.missing - truth) / truth)
        inside += abs(counts.missing - truth) <= 1.96 * counts.variance**0.5
    assert abs(float(np.mean(errors))) < 0.02
    assert inside >= 0.92 * 400


def test_nothing_is_missing_where_every_key_is_joined() -> None:
    assert sample_counts(5, [np.arange(9)], 1.0) == (5, 0.0, 0.0)
    assert sample_counts(5, [], 0.5) == (5, 0.0, 0.0)
