"""Pages of a query's results, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.server.paging import page_of_results


@pytest.mark.parametrize("window", ["", " [RANGE 1 HOUR]", " [RANGE TUMBLING 1 HOUR] WITH REVISIONS"])
def test_a_page_without_rows_has_the_columns_of_every_page(tmp_path: Path, window: str) -> None:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register(f"SELECT v FROM s{window}", "q")
        before = page_of_results(hub, "q", None, None, 10)
        hub.push("s", [{"v": 1, "at": "2024-01-01"}])
        hub.push("s", [{"v": 2, "at": "2024-01-02"}])
        hub.catch_up()
        page = page_of_results(hub, "q", None, before.next, 10)
        after = page_of_results(hub, "q", None, page.next, 10)
        assert page.rows.num_rows > 0
        assert before.rows.schema == page.rows.schema == after.rows.schema
