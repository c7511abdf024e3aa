"""Stars of four streams with a key for each arm in homes without a JVM: in every fixed order of the arms, and in an order that adapts.

Rows of the hub find few partners in one arm, two in another, and four in the third; which arm is which changes after each phase.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.expected import WrongAnswer
from headrace.adaptive.joins import tree_choice
from headrace.adaptive.joins.join_trees import Tree
from headrace.catalog.definitions import JoinTree
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.plan.adaptive.join_trees import entry_of, graph_of

ARMS = "xyz"
QUERY = "SELECT ISTREAM(f.v, x.v AS a, y.v AS b, z.v AS c) FROM f [RANGE 5 SECONDS] " + " ".join(
    f"JOIN {arm} [RANGE 5 SECONDS] ON {arm}.k = f.{arm}" for arm in ARMS
)
ROWS, PHASES, EPOCHS_OF_PHASE = 3_000, 3, 80
PARTNERS = (0.02, 2.0, 4.0)
"""Rows of an arm's window that a row of the hub finds, by how far the arm is behind the rare one."""
_START, _SECOND = 1_700_000_000_000_000, 1_000_000
_OUTERMOST = re.compile(r"q\d+\.inner(~\d+)?")


@dataclass(frozen=True, slots=True)
class TreeRun:
    """By epoch the rows that inner joins made and the seconds of the processor; of these rows those of trees that were not in force yet."""

    inner: tuple[int, ...]
    seconds: tuple[float, ...]
    growing: int
    answers: int
    switches: int


def rows_of(epoch: int) -> dict[str, dict[str, np.ndarray]]:
    """The columns of each stream in an epoch: keys are drawn so that a window of five epochs has the partners of the phase."""
    rng, phase = np.random.default_rng(epoch), epoch // EPOCHS_OF_PHASE
    columns: dict[str, dict[str, np.ndarray]] = {"f": {}}
    for number, arm in enumerate(ARMS):
        partners = PARTNERS[(number - phase) % len(ARMS)]
        domain = round(5 * ROWS / max(1.0, partners))
        columns["f"][arm], keys = rng.integers(0, domain, (2, ROWS))
        keys[rng.random(ROWS) >= partners] = -1
        columns[arm] = {"k": keys}
    return columns


def all_trees() -> list[Tree]:
    """Every order of the arms."""
    with tempfile.TemporaryDirectory() as folder:
        hub = _opened(Path(folder) / "home")
        graph = graph_of(hub.catalog, hub.catalog.require_query("q"))
        hub.close()
    assert graph is not None, "a star with a key for each arm has a choice"
    return list(graph.trees())


def run(tree: Tree | None) -> TreeRun:
    """All epochs with one tree; None: with one that adapts."""
    least = tree_choice.LEAST
    with tempfile.TemporaryDirectory() as folder:
        hub = _opened(Path(folder) / "home")
        try:
            if tree is not None:
                tree_choice.LEAST = 1 << 40
                definition = hub.catalog.require_query("q").definition
                with hub.loop.lock:
                    hub.loop.engine.log(entry_of(definition, (JoinTree(0, tree, 0),)))
            return _ran(hub)
        finally:
            tree_choice.LEAST = least
            hub.close()


def _opened(folder: Path) -> Hub:
    hub = open_hub(folder, local=True)
    hub.execute(
        "CREATE STREAM f (at TIMESTAMP, x BIGINT, y BIGINT, z BIGINT, v BIGINT) USING push TIMESTAMP BY at"
    )
    for arm in ARMS:
        hub.execute(f"CREATE STREAM {arm} (at TIMESTAMP, k BIGINT, v BIGINT) USING push TIMESTAMP BY at")
    hub.register(QUERY, "q")
    return hub


def _ran(hub: Hub) -> TreeRun:
    inner, seconds, growing = list[int](), list[float](), 0
    for epoch in range(PHASES * EPOCHS_OF_PHASE):
        at = _START + epoch * _SECOND + np.arange(ROWS) * (_SECOND // ROWS)
        for name, columns in rows_of(epoch).items():
            times = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
            hub.push(name, pa.table({"at": times, **columns, "v": np.arange(ROWS)}))
        grows = hub.catalog.require_query("q").definition.growing_tree
        started, first = time.process_time(), hub.home.latest().epoch
        hub.catch_up()
        seconds.append(time.process_time() - started)
        made = _made(hub, hub.home.latest().epoch - first)
        inner.append(sum(made.values()))
        mark = "" if grows is None else f"~{grows.number}"
        growing += sum(rows for name, rows in made.items() if mark and mark in name)
    answers = hub.query("q").history().num_rows
    trees = hub.catalog.require_query("q").definition.join_trees
    return TreeRun(tuple(inner), tuple(seconds), growing, answers, max(0, len(trees) - 1))


def _made(hub: Hub, epochs: int) -> Mapping[str, int]:
    """The rows that each join but the outermost ones has made in the newest epochs."""
    made = dict[str, int]()
    for line in last_lines(Path(hub.home.store.root), epochs):
        for name, figures in line["operators"].items():
            if ".inner" in name and not _OUTERMOST.fullmatch(name):
                made[name] = made.get(name, 0) + figures["results"]
    return made


def by_phase(values: Sequence[float]) -> list[float]:
    """The sums of the phases."""
    return [sum(values[phase * EPOCHS_OF_PHASE :][:EPOCHS_OF_PHASE]) for phase in range(PHASES)]


def checked(runs: Sequence[TreeRun]) -> None:
    """Raises where runs answer differently."""
    if len({one.answers for one in runs}) != 1 or not runs[0].answers:
        raise WrongAnswer(f"trees answer differently: {[one.answers for one in runs]}")
