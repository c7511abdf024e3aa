"""Killed by the system while queries are registered, changed, filled from the archive, invoked and acknowledged: nothing lasts by half."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.time import BEGINNING
from tests.laws.test_materialize import invoked, meant
from tests.runtime.rig import Rig, cut, expected, faults_once_tidy
from tests.runtime.standing_victim import FIRST
from tests.runtime.statements.test_alter_window import ONE_FILE, SLACK, after, all_answers, disordered

KILLS = 4


class Assassin:
    """One home, killed at moments that `seed` draws; `said` is all that its victims printed before they died."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.folder, self.said = random.Random(seed), folder, list[list[str]]()
        self.rig = Rig(folder, ONE_FILE, SLACK)
        self.files = cut(disordered(seed, 400), *range(4, 400, 4))

    def arrive(self, count: int) -> None:
        self.rig.drop(*self.files[self.rig.written : self.rig.written + count])

    def kill_one(self, number: int) -> None:
        self.arrive(3)
        command = [sys.executable, "-m", "tests.runtime.standing_victim", str(self.folder), str(number)]
        victim = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[3],
        )
        assert victim.stdout is not None
        assert victim.stderr is not None
        try:
            for count in range(self.random.randint(15, 60)):
                line = victim.stdout.readline()
                assert line, victim.stderr.read()
                self.said.append(line.split(" ", 2))
                if count % 6 == 5:
                    self.arrive(1)
            time.sleep(self.random.uniform(0, 0.1))
        finally:
            os.killpg(victim.pid, signal.SIGKILL)
            rest, _ = victim.communicate()
        self.said += [line.split(" ", 2) for line in rest.splitlines() if line]

    def names(self, verb: str) -> set[str]:
        return {line[1].strip() for line in self.said if line[0] == verb}


def changed_at(assassin: Assassin, hub: Hub) -> int:
    """The punctuation at which the window of q was changed to what it is."""
    text = hub.catalog.require_query("q").definition.text
    tried = [(int(line[1]), line[2].strip()) for line in assassin.said if line[0] == "altering"]
    return next((at for at, window in reversed(tried) if window in text), BEGINNING)


@pytest.mark.parametrize("seed", [401, 402])
def test_whatever_was_said_to_be_done_lasts_and_the_rest_is_whole_or_not_there(
    seed: int, tmp_path: Path
) -> None:
    assassin = Assassin(tmp_path, seed)
    for number in range(KILLS):
        assassin.kill_one(number)
    rig = assassin.rig
    with rig.hub(3) as hub:
        there = {query.definition.name for query in hub.catalog.queries.values()} - set(FIRST)
        assert assassin.names("registered") - assassin.names("dropping") <= there
        assert there <= assassin.names("registering") - assassin.names("dropped")
        hub.catch_up()
        files = assassin.files[: rig.written]
        answered = all_answers(hub)
        for standing in hub.catalog.queries.values():
            name = standing.definition.name
            query = hub.operator_and_query(name)[1]
            if query.emission == "relation":
                assert invoked(hub, name) == meant(hub, name, files, SLACK), name
                continue
            whole = expected(query, files, SLACK)
            since = changed_at(assassin, hub) if name == "q" else BEGINNING
            assert answered[name] == after(whole, since), name
        assert hub.status()["streams"]["s"]["rows"] == sum(map(len, files))
        client = hub.query("kept").client("victim")
        taken = [int(line) for line in (tmp_path / "taken").read_text().split()]
        rest = [pending.position for pending in client.pending()]
        assert not {int(position) for position in assassin.names("acknowledged")} & set(rest)
        whole = [pending.position for pending in hub.query("kept").client("whole").pending()]
        assert sorted({*taken, *rest}) == whole
        assert taken == sorted(taken)
        assert faults_once_tidy(hub) == []
