"""The tree over panes in place of PSoup's ranked n-ary tree: any window of leaves from a logarithm of partials.

Figure 12 keeps leaves in their order with the aggregate of every subtree; here leaves are panes, the fan-out is two, and a node is made when
its last pane is sealed (append) and is dropped when no window reaches it (expire).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.aggregates.cell_table import Layout
from headrace.operators.panes.panes import Panes
from headrace.operators.window_assembly import assemble, mixed_windows
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.schema import DOUBLE
from headrace.time import SECOND
from tests.operators.panes.test_window_cost_model import emitted, layout_of, sealed
from tests.papers.test_psoup_examples import VALUES

LEFT_OUT_BY_B = (20, 15, 19, 22, 21)


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many partials were read, each time some were."""
    seen: list[int] = []
    original = assemble.gather

    def counting(layout: Layout, held: Any) -> Any:
        gathered = original(layout, held)
        seen.append(gathered.rows)
        return gathered

    for way in (assemble, mixed_windows):
        monkeypatch.setattr(way, "gather", counting)
    return seen


@pytest.mark.parametrize("leaves", [27, 64, 1000, 4097])
def test_a_window_of_any_number_of_leaves_reads_a_logarithm_of_them(leaves: int, visited: list[int]) -> None:
    """MAX has no inverse, so nothing but nodes can save reading every leaf."""
    value = np.random.default_rng(leaves).random(2 * leaves + 3)
    grouped, panes = layout_of(("max", DOUBLE)), Panes(1, 0, 0, leaves)
    tables = sealed(grouped, panes, np.arange(len(value)), np.zeros(len(value), np.int64), pa.array(value))
    for first in (1, 2, 3, leaves // 2):
        visited.clear()
        (cells,) = emitted(grouped.layouts[0], panes, tables, range(first + leaves, first + leaves + 1))
        assert value[first : first + leaves].max() in cells
        assert 0 < sum(visited) <= 2 * math.ceil(math.log2(leaves))


def leaves_of(hub: Hub, first: int, last: int) -> None:
    """Leaf t_i comes at second i; punctuation follows the last one."""
    at = pa.array([number * SECOND for number in range(first, last + 1)]).cast(pa.timestamp("us", "UTC"))
    hub.push("r", pa.table({"a": pa.array(VALUES[first - 1 : last], pa.int64()), "at": at}))
    hub.punctuate("r", (last + 1) * SECOND)
    hub.catch_up()


def test_golden_3_over_the_nodes_that_two_queries_keep(tmp_path: Path, visited: list[int]) -> None:
    """Figure 12: A over [t8, t20] is 22, and B, which counts other leaves, has nodes of its own and answers 16."""
    window = "[RANGE 32 SECONDS SLIDE 1 SECOND]"
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM r (a BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at PUNCTUATED EXTERNALLY"
        )
        hub.register(f"SELECT MAX(a) AS top FROM r {window}", "a")
        hub.register(f"SELECT MAX(a) AS top FROM r {window} WHERE a NOT IN {LEFT_OUT_BY_B}", "b")
        leaves_of(hub, 1, 9)
        leaves_of(hub, 10, 20)
        for name, top in (("a", 22), ("b", 16)):
            visited.clear()
            assert hub.query(name).invoke(last="13 SECONDS").to_pylist() == [{"top": top}]
            assert 0 < sum(visited) <= 5, "the figure reads five annotations for these thirteen leaves"
        leaves_of(hub, 21, 27)
        for length in range(1, 28):
            last_values = VALUES[27 - length :]
            assert hub.query("a").invoke(last=f"{length} SECONDS").to_pylist() == [{"top": max(last_values)}]
