"""Pages of a query's results, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UserError
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


def test_a_cursor_beyond_the_results_is_refused(tmp_path: Path) -> None:
    """That of another home, or of a later copy of it: a page after it would leave out what is committed until then."""
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (v BIGINT) USING push")
        hub.register("SELECT v FROM s", "q")
        hub.push("s", [{"v": 1}])
        hub.catch_up()
        last = page_of_results(hub, "q", None, None, 10).next
        assert page_of_results(hub, "q", None, last, 10).next == last
        with pytest.raises(UserError, match="the cursor 999 is beyond what is committed"):
            page_of_results(hub, "q", None, "999.0", 10)
