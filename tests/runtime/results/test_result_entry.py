"""What an entry of the results list holds of its queries is the same however many there are, and small."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.families.numbering import is_numbered, number_of
from headrace.runtime.messages import result_entry
from headrace.runtime.messages.result_entry import FactsOfRun, answered, with_file
from headrace.runtime.results.result_log import epochs_of
from headrace.time import BEGINNING, FOREVER
from tests.runtime.rig import Rig, answer, expected, faults_once_tidy, made_rows

names = st.one_of(
    st.integers(0, 10**18 - 1).map("q{}".format),
    st.integers(0, 99).map("q{}.inner".format),
    st.sampled_from(["q", "q01", "q-1", "x7", "q1e3", "Q3"]),
)
instants = st.one_of(st.integers(BEGINNING, FOREVER), st.sampled_from([BEGINNING, FOREVER, 0]))
facts = st.tuples(st.integers(0, 2**40), instants, instants)


def facts_of_run(queries: dict[str, tuple[int, int, int]], random: Random) -> FactsOfRun:
    """Some by name, and of those that have a number some in columns, in two parts."""
    given = FactsOfRun(dict(queries))
    for _ in range(2):
        moved = [name for name in given.named if is_numbered(name) and random.random() < 0.5]
        columns = np.array([(number_of(name), *given.named.pop(name)) for name in moved], np.int64)
        given.add(*columns.reshape(-1, 4).T)
    return given


class Files:
    """A store with these files alone."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.read = files.__getitem__


few = st.dictionaries(names, facts, max_size=40)
many = st.dictionaries(names, facts, min_size=33, max_size=90)


@given(few | many, st.lists(names, max_size=5), st.randoms())
def test_an_entry_says_of_every_query_what_it_was_given(
    queries: dict[str, tuple[int, int, int]], others: list[str], random: Random
) -> None:
    entry = json.loads(json.dumps({"name": "r", **facts_of_run(queries, random).as_entry()}))
    files: dict[str, bytes] = {}

    def write(data: bytes) -> str:
        files["f"] = data
        return "f"

    result_entry._opened.clear()
    brief = json.loads(json.dumps(with_file(entry, write)))
    assert len(json.dumps(brief)) < result_entry._LARGE + 30
    assert brief == entry or files
    result_entry._opened.clear()
    read = answered(brief, Files(files))
    assert {name: tuple(results) for name, results in read.items()} == queries
    assert len(read) == len(queries)
    for name in others:
        assert (name in read) == (name in queries)


def test_ten_thousand_queries_that_answer_alike_take_few_bytes() -> None:
    queries = {f"q{n}": (100 - n % 3, 60_000_000, 70_000_000) for n in range(5, 10_005)}
    assert len(json.dumps(FactsOfRun(queries).as_entry())) < 2000


def test_results_of_many_queries_are_found_by_each(tmp_path: Path) -> None:
    rig, rows = Rig(tmp_path, {"maxFilesPerTrigger": "1"}), made_rows(5, 60)
    texts = {
        f"w{n}": f"SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] WHERE x > {n % 12 - 6} GROUP BY k"
        for n in range(120)
    }
    with rig.hub(2, texts) as hub:
        rig.drop(rows[:30], rows[30:])
        hub.catch_up()
        manifest = hub.home.latest()
        entries = hub.home.entries(manifest, "results")
        assert entries
        assert all("many" in entry or "facts" in entry for entry in entries)
        closing = hub.run_once()
        for name in ("w0", "w63", "w119"):
            operator, meaning = hub.operator_and_query(name)
            assert any(part.table.num_rows for part in epochs_of(hub.home, manifest, operator.id))
            assert answer(hub, name, closing) == expected(meaning, [rows[:30], rows[30:]])
        assert faults_once_tidy(hub) == []
