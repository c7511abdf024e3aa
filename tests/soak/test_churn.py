"""A long run in which a fifth of the queries are others after every minute: all answer as the reference does, at every epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.runtime.queries.test_sharing_law import generated
from tests.runtime.rig import Rig, answers, cut, expected, faults_once_tidy, made_rows

QUERIES, MINUTES, EPOCHS_A_MINUTE, ROWS = 300, 5, 12, 10
CHURN = QUERIES // 5 // EPOCHS_A_MINUTE
LOOKED_AT = 8
"""Queries compared with the reference after each epoch; after the last one, all."""


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
def test_queries_come_and_go_for_a_long_time_and_all_answer_as_if_alone(tmp_path: Path, seed: int) -> None:
    rng, epochs = np.random.default_rng(seed), MINUTES * EPOCHS_A_MINUTE
    files = cut(made_rows(seed, epochs * ROWS), *range(ROWS, epochs * ROWS, ROWS))
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    standing = {f"q{number}": generated(rng) for number in range(QUERIES)}
    with rig.hub(2, {}) as hub:
        hub.register_many(standing)
        for epoch, file in enumerate(files):
            rig.drop(file)
            hub.catch_up()
            found = answers(hub, {})
            for name in rng.choice(list(standing), LOOKED_AT, replace=False).tolist():
                meaning = hub.operator_and_query(name)[1]
                assert found[name] == expected(meaning, files[: epoch + 1]), standing[name]
            gone = rng.choice(list(standing), CHURN, replace=False).tolist()
            hub.execute("".join(f"DROP QUERY {name};" for name in gone))
            names = [gone[0], *(f"e{epoch}q{number}" for number in range(CHURN - 1))]  # a name may come again
            fresh = {name: generated(rng) for name in names}
            hub.register_many(fresh)
            standing = {name: text for name, text in standing.items() if name not in gone} | fresh
        hub.catch_up()
        found, expected_of = answers(hub, {}), dict[str, list]()
        for name, text in standing.items():
            if text not in expected_of:
                expected_of[text] = expected(hub.operator_and_query(name)[1], files)
            assert found[name] == expected_of[text], text
        assert faults_once_tidy(hub) == []
