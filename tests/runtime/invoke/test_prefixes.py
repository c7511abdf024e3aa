"""What is asked while epochs run and queries come: every answer is that of one committed prefix, and prefixes never go back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.invoke.deferred_window import Invocation
from headrace.runtime.invoke.home_reader import Reader
from tests.laws.test_materialize import MODES, meant
from tests.runtime.rig import Rig, answer, canonical, cut, expected, made_rows

FILES = cut(made_rows(77, 90), *range(3, 90, 3))
BOUNDS = "BEGIN NOW - INTERVAL 12 SECONDS END NOW"
ROWS = f"SELECT k, x FROM s WHERE x > 0 AND g < 3 {BOUNDS}"
SUMS = f"SELECT g, COUNT(*) AS n, AVG(x) AS mean FROM s WHERE x > 0 {BOUNDS} GROUP BY g"
NOW = "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k"


def asked_while_running(rig: Rig, hub: Hub, names: list[str]) -> dict[str, list[Any]]:
    """Every answer of every query, in the order in which they were given, by the writer and by another reader."""
    seen: dict[str, list[Any]] = {name: [] for name in names}
    reader = Reader.at(rig.home)
    with hub.running():
        for number, file in enumerate(FILES):
            rig.drop(file)
            if number == len(FILES) // 2:
                hub.register(SUMS, "late")  # answers whole from the first moment, while it reads the archive
                seen["late"] = []
            for name, answers in seen.items():
                answers.append(canonical(hub.query(name).invoke().to_pylist()))
                answers.append(canonical(reader.invoke(name).to_pylist()))
        while hub.status()["streams"]["s"].get("rows", 0) < sum(map(len, FILES)):
            for name, answers in seen.items():
                answers.append(canonical(reader.invoke(name).to_pylist()))
    return seen


def assert_prefixes(hub: Hub, seen: dict[str, list[Any]]) -> int:
    """Each query's answers are those of prefixes, in order; how many different ones there were."""
    different = 0
    for name, answers in seen.items():
        whole = [[]] + [meant(hub, name, FILES[:count], 0) for count in range(1, len(FILES) + 1)]
        length = 0
        for prefix in answers:
            later = [at for at in range(length, len(whole)) if whole[at] == prefix]
            assert later, (name, length, prefix)
            different += later[0] != length
            length = later[0]
    return different


def test_every_answer_given_while_rows_arrive_is_that_of_a_prefix_and_prefixes_do_not_go_back(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(2, {"now": NOW}) as hub:
        for mode in MODES:
            hub.execute(f"CREATE QUERY rows_{mode} OPTIONS (materialize '{mode}') AS {ROWS}")
            hub.execute(f"CREATE QUERY sums_{mode} OPTIONS (materialize '{mode}') AS {SUMS}")
        hub.catch_up()
        names = [query.definition.name for query in hub.catalog.queries.values()]
        seen = asked_while_running(rig, hub, names)
        assert assert_prefixes(hub, seen) > len(FILES)


def test_an_answer_of_two_prefixes_at_once_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effects of a newer row before all of an older one: a file is read before the one that came before it."""
    rig, whole = Rig(tmp_path, {"maxFilesPerTrigger": "1"}), Invocation._archive_bounds

    def skipping(call: Invocation) -> tuple[int, int, int]:
        start, stop, bitmapped = whole(call)
        return (start, stop, bitmapped) if stop - start < 3 else (stop - 1, stop, bitmapped)

    monkeypatch.setattr(Invocation, "_archive_bounds", skipping)
    with rig.hub(2, {"q": ROWS}) as hub:
        seen: dict[str, list[Any]] = {"q": []}
        for file in FILES[:10]:
            rig.drop(file)
            hub.catch_up()
            seen["q"].append(canonical(hub.query("q").invoke().to_pylist()))
        with pytest.raises(AssertionError):
            assert_prefixes(hub, seen)


def test_windows_that_slide_are_emitted_once_each_whatever_is_asked_meanwhile(tmp_path: Path) -> None:
    """After every epoch, what was emitted so far is the beginning of what the reference emits of all."""
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    text = "SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k"
    with rig.hub(3, {"q": text}) as hub:
        query = hub.operator_and_query("q")[1]
        for count, file in enumerate(FILES, 1):
            rig.drop(file)
            hub.catch_up()
            closed = max(row["at"] for part in FILES[:count] for row in part)
            assert answer(hub, "q") == [row for row in expected(query, FILES[:count]) if row[0] <= closed]
