"""Past answers, and queries over results, where a part of the results has expired: whole, or with what they lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.results import result_log
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, SECOND, Instant
from tests.runtime.rig import Rig

KEYS = "abcdefgh"


def row(key: str, at: int) -> dict[str, Any]:
    return {"k": key, "g": 1, "x": at, "y": 1.0, "at": at * SECOND}


def as_of(hub: Hub, name: str, at: int) -> list[Any] | None:
    """The rows of an answer of then; None where they are refused."""
    try:
        return sorted(map(repr, hub.query(name).as_of(at * SECOND).to_pylist()))
    except UserError as error:
        if "are not retained" not in str(error):
            raise
        return None


def require_whole(hub: Hub, instants: range) -> int:
    """Each answer of the query that retains less is that of the one that retains all, or is refused; how many are not refused."""
    answers = {at: as_of(hub, "less", at) for at in instants}
    for at, answer in answers.items():
        assert answer in (None, as_of(hub, "all_of_it", at)), at
    return sum(answer is not None for answer in answers.values())


@pytest.mark.parametrize("window", ["[RANGE TUMBLING 10 SECONDS]", ""])
def test_the_entries_of_an_epoch_expire_together(tmp_path: Path, window: str) -> None:
    """Two state tasks have results of the same instants; one's last result is older than the other's."""
    text = f"SELECT k, COUNT(*) AS n FROM s {window} GROUP BY k"
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(2, {}) as hub:
        hub.execute(
            f"CREATE QUERY less OPTIONS (retain '15 SECONDS') AS {text}; CREATE QUERY all_of_it AS {text}"
        )
        rig.drop([row(key, at) for key in KEYS for at in (1, 2)] + [row("a", at) for at in range(3, 41)])
        hub.catch_up()
        for _ in range(20):
            rig.drop([row("a", 41)])
            hub.catch_up()
        assert require_whole(hub, range(42)) > 10


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, COUNT(*) AS n FROM s GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 2 SECONDS] GROUP BY k",
    ],
)
def test_results_that_stay_in_another_class_are_not_those_of_a_later_instant(
    tmp_path: Path, text: str
) -> None:
    """After ALTER a query's older results stay, while later ones expire."""
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(1, {}) as hub:
        hub.execute(f"CREATE QUERY less AS {text}; CREATE QUERY all_of_it AS {text}")
        for epoch in range(40):
            if epoch == 5:
                hub.execute("ALTER QUERY less SET (retain '10 SECONDS')")
            rig.drop([row("ab"[at % 2], 3 * epoch + at) for at in range(3)])
            hub.catch_up()
        answered = require_whole(hub, range(120))
        assert 8 < answered < 60


def test_the_first_query_over_results_is_complete_since_they_are_retained(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    counts = "SELECT k, COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY k"
    with rig.hub(1, {}) as hub:
        hub.execute(
            f"CREATE QUERY less OPTIONS (retain '10 SECONDS') AS {counts}; CREATE QUERY all_of_it AS {counts}"
        )
        for epoch in range(33):
            rig.drop([row("a", 3 * epoch + at) for at in range(3)])
            hub.catch_up()
        for name, source in (
            ("less", "less"),
            ("all_of_it", "all_of_it"),
            ("both", "all_of_it UNION ALL less"),
        ):
            hub.execute(
                f"CREATE QUERY over_{name} AS SELECT SUM(n) AS t FROM {source} [RANGE 40 SECONDS SLIDE 10 SECONDS]"
            )
        hub.catch_up()
        retained = hub.query("less").history()
        since = hub.query("over_less").completeness().complete_since
        first = 98 * SECOND - (retained.num_rows - 1) * 2 * SECOND
        assert (since, hub.query("over_all_of_it").completeness().complete_since) == (first - 1, BEGINNING)
        assert hub.query("over_both").completeness().complete_since == since
        assert b"complete_since" in hub.query("over_less").invoke().schema.metadata
        assert hub.query("over_all_of_it").invoke().to_pylist() == [{"t": 40}]


def test_many_queries_over_the_same_results_look_through_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    retained_since = result_log.retained_since

    def counted(home: Home, manifest: Manifest, operator: str) -> Instant:
        looked.append(operator)
        return retained_since(home, manifest, operator)

    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(1, {}) as hub:
        hub.execute(
            "CREATE QUERY read AS SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 2 SECONDS] GROUP BY k"
        )
        rig.drop([row("a", at) for at in range(9)])
        hub.catch_up()
        monkeypatch.setattr(result_log, "retained_since", counted)
        hub.register_many({f"over{number}": f"SELECT n FROM read WHERE n > {number}" for number in range(20)})
        hub.catch_up()
    assert len(looked) == 1
