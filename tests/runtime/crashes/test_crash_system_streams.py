"""A driver that is killed between an epoch and the rows about it: none of these rows is lost, and none is there twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from headrace.time import SECOND
from tests.runtime.ingest.test_repeated_push import again, on
from tests.runtime.introspection.test_system_streams import (
    ORDINARY,
    READERS,
    assert_sums,
    opened,
    push,
    script,
    some_rows,
)
from tests.soak.ledger import digest
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points, share_of


def work(home: Path, disk: FaultyDisk) -> None:
    """An epoch with rows, and the one that reads the rows about it."""
    with suppress(SimulatedCrash), opened(home) as hub, on(hub, disk):
        push(hub, [{"k": "a", "v": 1, "at": 4 * SECOND}])
        hub.loop.drain()


def test_killed_at_any_call_the_next_driver_has_each_row_once(tmp_path: Path) -> None:
    """At a third of the calls at a time, all of them in `make soak`."""
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        push(hub, [{"k": "a", "v": 1, "at": 0}])
        hub.loop.drain()
    traced = FaultyDisk()
    work(again(tmp_path / "home", "traced"), traced)
    points = list(kill_points(traced.trace))
    assert len(points) > 30
    for number, fault in enumerate(share_of(points, 3, digest() + "system")):
        place = again(tmp_path / "home", f"home{number}")
        work(place, FaultyDisk(fault=fault))
        with opened(place) as hub:
            push(hub, [{"k": "b", "v": 2, "at": 12 * SECOND}])
            hub.run_once()
            assert_sums(hub)


VICTIM = """
import random, sys
from pathlib import Path
from tests.runtime.introspection.test_system_streams import opened, push, some_rows

rng = random.Random(int(sys.argv[2]))
with opened(Path(sys.argv[1])) as hub:
    second = hub.home.latest().epoch
    while True:
        push(hub, some_rows(rng, second, rng.randrange(1, 4)))
        second += 1
        if hub.loop.step() is not None:
            print(hub.home.latest().epoch, flush=True)
"""


def test_processes_that_are_killed_have_each_row_once(tmp_path: Path) -> None:
    home, rng = tmp_path / "home", random.Random(7)
    with opened(home) as hub:
        hub.execute(script(ORDINARY, READERS))
    for life in range(5):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(home), str(life)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert victim.stdout is not None
        for _ in range(rng.randrange(2, 9)):
            assert victim.stdout.readline(), victim.communicate()
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    with opened(home) as hub:
        push(hub, some_rows(rng, hub.home.latest().epoch, 3))
        hub.run_once()
        assert hub.home.latest().epoch > 15
        assert_sums(hub)
