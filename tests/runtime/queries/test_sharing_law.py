"""Law 6: standing queries on one stream answer each as the reference does, whichever queries are registered and dropped meanwhile.

Small crowds of every kind by hypothesis; a thousand of few shapes once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.runtime import rig as rigs
from tests.runtime.rig import Rig, answers, cut, expected, made_rows

QUERIES, EPOCHS, CHURN = 1000, 5, 200
WINDOWS = (
    "[RANGE 10 SECONDS SLIDE 5 SECONDS]",
    "[RANGE TUMBLING 10 SECONDS]",
    "[RANGE 13 SECONDS SLIDE 4 SECONDS]",
    "[LANDMARK SLIDE 15 SECONDS]",
)
MEASURES = ("COUNT(*) AS n", "SUM(x) AS sx", "AVG(x) AS ax", "MIN(y) AS ly", "MAX(x) AS mx", "COUNT(y) AS cy")


def condition(rng: np.random.Generator) -> str:
    """A conjunction of comparisons, as in the paper's experiments, with some of every other form."""
    low = int(rng.integers(-5, 8))
    factors = [
        f"x > {low}",
        f"x <= {low}",
        f"x BETWEEN {low} AND {low + int(rng.integers(0, 9))}",
        f"y < {rng.integers(-40, 40) / 4}",
        f"g = {rng.integers(1, 4)}",
        f"k IN ('a', '{rng.choice(['b', 'c'])}')",
        "k IS NULL",
        f"g <> {rng.integers(1, 4)}",
        f"k LIKE '{rng.choice(['a', 'b'])}%'",
        f"(x < {low} OR y > {rng.integers(-10, 10)})",
        f"x % {rng.integers(2, 4)} = 1",
    ]
    return " AND ".join(rng.choice(factors, rng.integers(1, 4), replace=False))


def generated(rng: np.random.Generator) -> str:
    """Mostly aggregates of few shapes with conditions of their own; some selections, windows of rows, and relations."""
    where = condition(rng)
    kind = rng.random()
    if kind < 0.1:
        return f"SELECT k, x, y FROM s WHERE {where}"
    if kind < 0.15:
        return f"SELECT g, COUNT(*) AS n FROM s [ROWS {rng.integers(2, 9)} SLIDE 3] WHERE {where} GROUP BY g"
    if kind < 0.2:
        return f"SELECT k, COUNT(*) AS n FROM s [RANGE {rng.integers(1, 9)} SECONDS] WHERE {where} GROUP BY k"
    if kind < 0.35:
        by = str(rng.choice(["JOIN", "LEFT JOIN"]))
        where += str(rng.choice(["", " AND names.name > 'o'", " AND names.name IS NULL"]))
        return (
            f"SELECT names.name, COUNT(*) AS n FROM s {rng.choice(WINDOWS[:2])} {by} names ON s.g = names.id "
            f"WHERE {where} GROUP BY names.name"
        )
    key = str(rng.choice(["k", "k", "g"]))
    measures = ", ".join(rng.choice(MEASURES, rng.integers(1, 4), replace=False))
    having = str(rng.choice(["", "", "HAVING COUNT(*) > 1"]))
    return f"SELECT {key}, {measures} FROM s {rng.choice(WINDOWS)} WHERE {where} GROUP BY {key} {having}"


@pytest.mark.timeout(1200)  # half a minute on a machine at rest
def test_a_thousand_queries_answer_each_as_if_alone_while_others_come_and_go(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    files = cut(made_rows(61, 60), *range(60 // EPOCHS, 60, 60 // EPOCHS))
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    standing = {f"q{number}": generated(rng) for number in range(QUERIES)}
    with rig.hub(2, {}) as hub:
        hub.register_many(standing)
        for epoch, file in enumerate(files):
            rig.drop(file)
            hub.catch_up()
            gone = [str(name) for name in rng.choice(list(standing), CHURN, replace=False)]
            fresh = {f"e{epoch}q{number}": generated(rng) for number in range(CHURN)}
            hub.log(*({"do": "drop", "kind": "query", "name": name} for name in gone))
            hub.register_many(fresh)
            standing = {name: text for name, text in standing.items() if name not in gone} | fresh
        answered = answers(hub, hub.run_once())
        assert set(answered) == set(standing)
        expected_of: dict[str, list] = {}
        for name, text in standing.items():
            if text not in expected_of:
                expected_of[text] = expected(hub.operator_and_query(name)[1], files)
            assert answered[name] == expected_of[text], text
        assert sum(map(bool, expected_of.values())) > QUERIES / 2  # most of them have emitted something


@st.composite
def texts(draw: st.DrawFn) -> str:
    """One of every kind there is, or an aggregate over any window of time with a condition of its own."""
    if draw(st.booleans()):
        return draw(st.sampled_from(list(rigs.QUERIES.values())))
    measures = draw(
        st.lists(st.sampled_from((*MEASURES, "COUNT(DISTINCT g) AS dg")), min_size=1, max_size=3, unique=True)
    )
    key = draw(st.sampled_from(("k", "g", "k, g", "")))
    where = draw(
        st.sampled_from(
            ("", "WHERE x > 0", "WHERE k = 'a' OR k IS NULL", "WHERE y < 2.5 AND x >= -2", "WHERE x % 3 = 1")
        )
    )
    window = draw(
        st.one_of(
            st.sampled_from(WINDOWS),
            st.builds("[RANGE {} SECONDS SLIDE {} SECONDS]".format, st.integers(1, 20), st.integers(1, 12)),
        )
    )
    listed = ", ".join([key, *measures] if key else measures)
    return f"SELECT {listed} FROM s {window} {where}" + (f" GROUP BY {key}" if key else "")


@examples(8, shares_fixtures=True)
@given(data=st.data())
def test_any_crowd_that_changes_from_epoch_to_epoch_answers_each_as_if_alone(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    crowd = st.lists(texts(), max_size=6)
    seed = data.draw(st.integers(0, 10**6), "seed of the rows")
    files = cut(made_rows(seed, 24), 8, 16)
    rig = Rig(tmp_path_factory.mktemp("home"), {"maxFilesPerTrigger": "1"})
    standing: dict[str, str] = {}
    with rig.hub(data.draw(st.integers(1, 3), "tasks"), {}) as hub:
        for epoch, file in enumerate(files):
            fresh = {f"e{epoch}q{n}": text for n, text in enumerate(data.draw(crowd, "registered"))}
            if data.draw(st.booleans(), "as one"):
                hub.register_many(fresh)
            else:
                for name, text in fresh.items():
                    hub.register(text, name)
            standing |= fresh
            rig.drop(file)
            hub.catch_up()
            for name in (
                data.draw(st.sets(st.sampled_from(sorted(standing)), max_size=3), "dropped")
                if standing
                else ()
            ):
                hub.drop_query(name)
                del standing[name]
        answered = answers(hub, hub.run_once())
        assert set(answered) == set(standing)
        for name, text in standing.items():
            assert answered[name] == expected(hub.operator_and_query(name)[1], files), text
