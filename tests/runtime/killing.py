"""Kill a driver and all it has started, again and again, while input arrives; then see that nothing is wrong."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headrace.time import SECOND
from tests.runtime.rig import Rig, Row, answers, cut, expected, faults, made_rows
from tests.runtime.victim import QUERIES_OF_VICTIM

ROWS_A_FILE = 6
SLACK = 3 * SECOND


@dataclass
class Assassin:
    """One home, killed `kills` times at moments that `seed` draws."""

    folder: Path
    seed: int
    executor: str = "local"
    committed: list[int] = field(default_factory=list)
    """How many epochs each victim had printed before it died."""
    tasks: list[int] = field(default_factory=list)
    """The number of state tasks of each, never that of the one before."""
    workers: list[int] = field(default_factory=list)
    """How many Python processes each had besides itself: Spark's daemon and its workers, in groups of their own."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rig = Rig(self.folder, {"maxFilesPerTrigger": "1"}, SLACK)
        self.files: list[list[Row]] = cut(
            made_rows(self.seed, 3000, disorder=6 * SECOND), *range(ROWS_A_FILE, 3000, ROWS_A_FILE)
        )

    def arrive(self, count: int) -> None:
        """More input."""
        self.rig.drop(*self.files[self.rig.written : self.rig.written + count])

    def another_number_of_tasks(self) -> int:
        """Any from 1 to 5 but the last."""
        chosen = self.random.choice([tasks for tasks in range(1, 6) if tasks not in self.tasks[-1:]])
        self.tasks.append(chosen)
        return chosen

    def kill_one(self) -> None:
        """Start a victim at another number of tasks, let it commit a few epochs while files come in, and kill it.

        By turns with all of its descendants, and with its process group alone: Spark's Python workers are in another, and
        have to end by themselves.
        """
        tasks, epochs = self.another_number_of_tasks(), self.random.randint(3, 6)
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
            time.sleep(self.random.uniform(0, 0.5 if self.executor != "local" else 0.2))
        finally:
            family = all_of(victim.pid)
            workers = sum(is_python(process) for process in family[1:])
            at_once = len(self.committed) % 2 == 0
            for process in family:
                with suppress(psutil.NoSuchProcess, ProcessLookupError):
                    if at_once or os.getpgid(process.pid) == victim.pid:
                        process.kill()
                    else:
                        process.resume()  # no test kills it: it sees that it is alone, and ends
            victim.communicate()
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive
        self.workers.append(workers)
        self.committed.append(said)

    def assert_nothing_happened(self) -> None:
        """Finish at yet another number of tasks; every answer is the reference's over the files, one epoch each."""
        with self.rig.hub(self.another_number_of_tasks()) as hub:
            self.arrive(2)
            files = self.files[: self.rig.written]
            answered = answers(hub, hub.run_once())
            assert len(answered) == len(QUERIES_OF_VICTIM)
            for name, rows in answered.items():
                assert rows == expected(hub.operator_and_query(name)[1], files, SLACK), (
                    f"{name}, seed {self.seed}"
                )
            assert hub.status()["streams"]["s"]["rows"] == sum(map(len, files))
            hub.loop.engine.housekeeping.grace = -1
            hub.loop.engine.collect()
            assert faults(hub) == []


def all_of(pid: int) -> list[psutil.Process]:
    """A process and its descendants, stopped from the top down, so that none starts another while they are listed.

    By descent, not by process group: Spark's Python daemon makes a group of its own, in which its workers are.
    """
    processes = [psutil.Process(pid)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            processes += process.children()
    return processes


def is_python(process: psutil.Process) -> bool:
    """Whether it runs Python, whatever it calls itself."""
    with suppress(psutil.NoSuchProcess):
        return "python" in Path(process.exe()).name
    return False
