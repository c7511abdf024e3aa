"""What INVOKE of a window reads does not grow with the number of epochs that have emitted results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke import current_answer
from headrace.runtime.results import result_log

WINDOW = "SELECT k, COUNT(*) AS n FROM s [RANGE 3 SECONDS SLIDE 1 SECOND] {} GROUP BY k"
CORRECTED = "SELECT window_end, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] WITH REVISIONS"


@pytest.fixture
def read_epochs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs of the entries of the results list that were read."""
    epochs: list[int] = []
    plain = result_log.entry_of

    def counting(entry: Mapping[str, Any], store: Any) -> Mapping[str, Any]:
        epochs.append(entry["epoch"])
        return plain(entry, store)

    monkeypatch.setattr(result_log, "entry_of", counting)
    return epochs


def test_as_many_entries_are_read_epochs_after_many_epochs(tmp_path: Path, read_epochs: list[int]) -> None:
    """The last window of a query that answers in each epoch, and of one whose last answer is some epochs old."""
    counts: dict[str, list[int]] = {"each": [], "rare": []}
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, k BIGINT) USING push TIMESTAMP BY at")
        hub.register(WINDOW.format(""), "each")
        hub.register(WINDOW.format("WHERE k = 7"), "rare")
        for second in range(90):
            hub.push(
                "s",
                [
                    {
                        "at": f"2024-05-01 12:{second // 60:02}:{second % 60:02}",
                        "k": 7 if second % 10 == 0 else 1,
                    }
                ],
            )
            hub.catch_up()
            if second in (24, 84):
                for name, counted in counts.items():
                    read_epochs.clear()
                    answer = hub.query(name).invoke().to_pylist()
                    counted.append(len(read_epochs))
                    assert answer == ([{"k": 1, "n": 3}] if name == "each" else [])
    assert counts["each"][1] == counts["each"][0] <= 3
    assert counts["rare"][1] == counts["rare"][0] <= 8


def test_windows_that_are_corrected_later_are_searched_in_all_epochs(
    tmp_path: Path, read_epochs: list[int]
) -> None:
    """The newest epoch corrects an older window; the last one was emitted before."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, k BIGINT) USING push TIMESTAMP BY at")
        hub.register(CORRECTED, "q")
        for second in (1, 11, 21, 22, 2):
            hub.push("s", [{"at": f"2024-05-01 12:00:{second:02}", "k": 1}])
            hub.catch_up()
        changes = [row["n"] for row in hub.query("q").history().to_pylist()]
        assert sorted(changes) == [1, 1, 1, 2], "the correction is a retraction and an insertion"
        assert [row["n"] for row in hub.query("q").invoke().to_pylist()] == [1]


def test_all_tasks_of_an_epoch_are_read(tmp_path: Path) -> None:
    """Two windows end in one epoch: of some queries one task has the first of them alone, and another one the second."""
    text = (
        "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS]"
        " WHERE k = {} AND at < TIMESTAMP'2024-05-01 12:00:10' OR k = {} AND at >= TIMESTAMP'2024-05-01 12:00:10' GROUP BY k"
    )
    with open_hub(tmp_path / "home", local=True, tasks=2) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, k BIGINT) USING push TIMESTAMP BY at")
        pairs = [pair for key in range(1, 8) for pair in ((0, key), (key, 0))]
        for first, second in pairs:
            hub.register(text.format(first, second), f"q{first}_{second}")
        seconds = [(second, key) for second in (1, 11) for key in range(8)]
        hub.push(
            "s", [{"at": f"2024-05-01 12:00:{second:02}", "k": key} for second, key in [*seconds, (25, 9)]]
        )
        hub.catch_up()
        for first, second in pairs:
            assert hub.query(f"q{first}_{second}").invoke().to_pylist() == [{"k": second, "n": 1}]


def test_of_each_relation_only_the_newest_answer_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Recent[tuple[str, str], Any](4 << 20, lambda cached: cached.size)
    monkeypatch.setattr(current_answer, "_answers", cache)
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        for name in ("first", "second"):
            hub.register(f"SELECT v, '{name}' AS name FROM s [RANGE 10 HOURS]", name)
        for second in range(5):
            hub.push("s", [{"at": f"2024-05-01 12:00:{second:02}", "v": second}])
            hub.catch_up()
            for name in ("first", "second"):
                answer = hub.query(name).invoke()
                assert sorted(answer["v"].to_pylist()) == list(range(second + 1))
                assert hub.query(name).invoke() is answer
        assert len(cache.present()) == 2
        for number in range(9):  # of less than 1 MiB each, which count for so much
            hub.register(f"SELECT v + {number} AS w FROM s [RANGE 10 HOURS]", f"q{number}")
        hub.catch_up()
        for number in range(9):
            assert hub.query(f"q{number}").invoke().num_rows == 5
        assert len(cache.present()) == 4
