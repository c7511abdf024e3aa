"""Kill a process group that runs epochs, again and again, while input arrives; then see that nothing is wrong."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headrace.time import SECOND
from tests.runtime.rig import Rig, Row, answers, cut, expected, faults, made_rows

ROWS_A_FILE = 6
SLACK = 3 * SECOND


@dataclass
class Assassin:
    """One home, killed `kills` times at moments that `seed` draws."""

    folder: Path
    seed: int
    executor: str = "local"
    committed: list[int] = field(default_factory=list)
    """How many epochs each victim had said before it died."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rig = Rig(self.folder, {"maxFilesPerTrigger": "1"}, SLACK)
        self.files: list[list[Row]] = cut(
            made_rows(self.seed, 3000, disorder=6 * SECOND), *range(ROWS_A_FILE, 3000, ROWS_A_FILE)
        )

    def arrive(self, count: int) -> None:
        """More input."""
        self.rig.drop(*self.files[self.rig.written : self.rig.written + count])

    def kill_one(self) -> None:
        """Start a victim at some number of tasks, let it commit a few epochs while files come in, and kill it all."""
        tasks, epochs = self.random.randint(1, 4), self.random.randint(3, 6)
        self.arrive(2)
        victim = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.runtime.victim",
                str(self.folder),
                str(tasks),
                self.executor,
                str(SLACK),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
        assert victim.stdout is not None
        assert victim.stderr is not None
        said = 0
        try:
            while said < epochs:
                line = victim.stdout.readline()
                assert line, victim.stderr.read()
                said += line.strip().isdigit()
                self.arrive(1)
            time.sleep(self.random.uniform(0, 0.5 if self.executor == "spark" else 0.2))
            members = [each for each in psutil.process_iter() if _group_of(each) == victim.pid]
        finally:
            os.killpg(victim.pid, signal.SIGKILL)
            victim.communicate()
        _, alive = psutil.wait_procs(members, timeout=20)
        assert not alive
        self.committed.append(said)

    def assert_nothing_happened(self) -> None:
        """Finish at yet another number of tasks; every answer is the reference's over the files, one epoch each."""
        with self.rig.hub(self.random.randint(1, 5)) as hub:
            self.arrive(2)
            files = self.files[: self.rig.written]
            found = answers(hub, hub.run_once())
            assert len(found) == 8
            for name, rows in found.items():
                assert rows == expected(hub.operator_and_query(name)[1], files, SLACK), (
                    f"{name}, seed {self.seed}"
                )
            assert hub.status()["streams"]["s"]["rows"] == sum(map(len, files))
            hub.loop.engine.housekeeping.grace = -1
            hub.loop.engine.collect()
            assert faults(hub) == []


def _group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None
