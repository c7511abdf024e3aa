"""Law 4, disorder: whatever a stream's progress rests on, any order its promise allows gives the answers of order."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.time import SECOND
from tests.examples import examples
from tests.runtime.progressing import COUNT, SLIDING, T0, PushedRow, emitted, known, push, stream

QUERIES = (
    COUNT,
    SLIDING,
    "SELECT COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 15 SECONDS SLIDE 4 SECONDS]",
    "SELECT k, x FROM s [RANGE TUMBLING 20 SECONDS] WHERE x > 2",
)
Shuffled = list[tuple[str, int, int]]


def after(rows: Shuffled) -> list[int]:
    """The least event time among the rows after each one."""
    later = [at for _, _, at in rows[1:]] + [10**6]
    return list(reversed(list(itertools.accumulate(reversed(later), min))))


def slack_needed(rows: Shuffled) -> int:
    highest = list(itertools.accumulate((at for _, _, at in rows), max))
    return max(top - at for top, (_, _, at) in zip(highest, rows, strict=True))


def rows_needed(rows: Shuffled) -> int:
    """The most rows between a row and the first one above it: so many may be behind the greatest."""
    at = np.array([instant for _, _, instant in rows])
    first = [
        int(np.argmax(at[: index + 1] > instant)) if (at[:index] > instant).any() else index
        for index, instant in enumerate(at)
    ]
    return max(index - instant for index, instant in enumerate(first))


def by_source(rows: Shuffled) -> Shuffled:
    """Each source's rows in order, where the sources' rows are as they were."""
    waiting = {
        key: sorted((row for row in rows if row[0] == key), key=lambda row: row[2]) for key, _, _ in rows
    }
    return [waiting[key].pop(0) for key, _, _ in rows]


GENERATORS = {
    "slack": lambda rows: (f"SLACK {slack_needed(rows)} SECONDS", rows, None),
    "rows": lambda rows: (f"SLACK {rows_needed(rows)} ROWS", rows, None),
    "step": lambda rows: (f"SLACK {slack_needed(rows)} SECONDS PROGRESS STEP 7 SECONDS", rows, None),
    "promises of rows": lambda rows: (
        "PUNCTUATED BY done",
        rows,
        lambda place: after(rows)[place] >= rows[place][2],
    ),
    "a program": lambda rows: ("PUNCTUATED EXTERNALLY", rows, None),
    "the slowest source": lambda rows: (
        f"PROGRESS PER (k) EXPECT {len({key for key, _, _ in rows})}",
        by_source(rows),
        None,
    ),
    "the skew of sources": lambda rows: (
        f"PROGRESS PER (k) EXPECT 4 SKEW {slack_needed(rows)} SECONDS",
        rows,
        None,
    ),
    "nothing for the past": lambda rows: (
        "PUNCTUATED EXTERNALLY DEDUPLICATE BY (k, x)",
        list(dict.fromkeys(rows)),
        None,
    ),
}


@pytest.mark.parametrize("generator", GENERATORS)
@examples(5, shares_fixtures=True)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 50)), min_size=1, max_size=25
    ),
    data=st.data(),
)
def test_any_order_that_the_promise_allows_gives_the_answers_of_order(
    tmp_path_factory: pytest.TempPathFactory, generator: str, rows: Shuffled, data: st.DataObject
) -> None:
    clauses, rows, promises = GENERATORS[generator](rows)
    pushed: list[PushedRow] = [
        (*row, promises is not None and promises(index)) for index, row in enumerate(rows)
    ]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(pushed)), max_size=5)) | {len(pushed)})
    kill = data.draw(st.integers(0, len(cuts)))
    folder, start, least = tmp_path_factory.mktemp("law"), 0, after(rows)
    for part in (cuts[:kill], cuts[kill:]):  # the home is left and opened again between the two
        with stream(folder, clauses, QUERIES, tasks=1 + len(part) % 2) as hub:
            for stop in part:
                push(hub, *pushed[start:stop])
                start = stop
                if generator == "a program":
                    hub.punctuate("s", T0 + min(least[stop - 1], 86_000) * SECOND)
                    hub.loop.drain()
            assert known(hub).late == 0 if part else True
            answered = [
                emitted(hub, f"q{number}", closing=start == len(pushed)) for number in range(len(QUERIES))
            ]
    with contextlib.ExitStack() as opened:
        ordered = opened.enter_context(stream(tmp_path_factory.mktemp("order"), "", QUERIES))
        push(ordered, *sorted(pushed, key=lambda row: row[2]))
        assert answered == [emitted(ordered, f"q{number}", closing=True) for number in range(len(QUERIES))]
