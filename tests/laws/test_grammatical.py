"""Every edge of a plan keeps what it has promised: no row is below the punctuation that held before it came (Li 2008, section 4).

The checker reads finite recordings: the low-watermark after an epoch is the least event time still to come, a running
minimum from the end; punctuation is grammatical where it is never above that, and it never goes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headrace.runtime.plan import derived_streams
from headrace.runtime.results import result_log
from headrace.time import BEGINNING, FOREVER, SECOND, Instant
from tests.runtime.rig import Rig, Row, cut, made_rows

QUERIES = {
    "counted": "SELECT k, COUNT(*) AS n FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "passed": "SELECT k, x, at FROM s WHERE x > 2",
    "visits": "SELECT k, COUNT(*) AS n FROM s GROUP BY session_window(at, '2 seconds'), k",
    "lately": "SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS]",
    "of_windows": "SELECT COUNT(*) AS m, SUM(n) AS total FROM counted [RANGE 5 SECONDS SLIDE 3 SECONDS]",
    "of_rows": "SELECT k, COUNT(*) AS m FROM passed [ROWS 5 SLIDE 3] GROUP BY k",
    "of_visits": "SELECT MAX(n) AS longest FROM visits [RANGE 9 SECONDS SLIDE 4 SECONDS]",
    "of_windows_of_windows": "SELECT SUM(m) AS m FROM of_windows [RANGE TUMBLING 12 SECONDS]",
}
Edge = tuple[list[Instant], list[list[Instant]]]
"""Punctuation after each epoch, and the event times of the rows of each."""


def ungrammatical(edge: Edge) -> list[int]:
    """The epochs after which the punctuation was above a row still to come, or below an earlier one."""
    punctuations, rows = edge
    least = [min(epoch, default=FOREVER) for epoch in rows]
    to_come = [*[*itertools.accumulate(reversed(least), min)][::-1][1:], FOREVER]
    earlier = [BEGINNING, *punctuations]
    return [
        epoch
        for epoch, (bound, low) in enumerate(zip(punctuations, to_come, strict=True))
        if bound > low or bound < earlier[epoch]
    ]


def edges_of(rig: Rig, files: Sequence[Sequence[Row]]) -> Mapping[str, Edge]:
    """The traffic of each edge while a home read the files, an epoch each."""
    edges: dict[str, Edge] = {"s": ([], [])}
    with rig.hub(2, QUERIES) as hub:
        read = {name for name in QUERIES if any(f"FROM {name} " in text for text in QUERIES.values())}
        operators = {name: hub.operator_and_query(name) for name in read}
        recorded = dict.fromkeys(read, 0)
        late = 0
        for number in itertools.count():
            if hub.loop.step() is None:
                break
            manifest = hub.home.latest()
            before = edges["s"][0][-1] if edges["s"][0] else BEGINNING
            punctuations, rows = edges["s"]
            came = [row["at"] for row in files[number]] if number < len(files) else []
            late += sum(at < before for at in came)
            rows.append([at for at in came if at >= before])
            punctuations.append(manifest.stream("s").punctuation)
            for name, (operator, query) in operators.items():
                tables = [part.table for part in result_log.epochs_of(hub.home, manifest, operator.id)]
                at = [instant for table in tables for instant in table.column("__at").to_pylist()]
                shift = 1 if query.emission == "windows" else 0
                edge = edges.setdefault(name, ([], []))
                edge[0].append(manifest.stream(derived_streams.name_of(operator.id)).punctuation)
                edge[1].append([instant - shift for instant in at[recorded[name] :]])
                recorded[name] = len(at)
        assert manifest.stream("s").late == late
    return edges


@pytest.mark.parametrize("slack", [0, 2 * SECOND, 20 * SECOND])
def test_no_edge_carries_a_row_below_what_it_has_promised(slack: int, tmp_path: Path) -> None:
    rows = made_rows(17, 120, disorder=6 * SECOND)
    files = cut(rows, *range(9, 120, 9))
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, slack)
    rig.drop(*files)
    edges = edges_of(rig, files)
    assert set(edges) == {"s", "counted", "passed", "visits", "of_windows"}
    for name, edge in edges.items():
        assert ungrammatical(edge) == [], name
        assert any(edge[1]), name
        moved = [one for one, other in itertools.pairwise(edge[0]) if other > one]
        assert len(moved) > 3, "progress comes through"


def test_the_checker_finds_a_promise_that_is_broken_and_one_that_is_taken_back() -> None:
    assert ungrammatical(([5, 7], [[1], [5, 9]])) == []
    assert ungrammatical(([6, 7], [[1], [5, 9]])) == [0]
    assert ungrammatical(([5, 4, 4], [[1], [9], [9]])) == [1]
