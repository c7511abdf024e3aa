"""A query of which a row would be in very many windows is refused, and the option that allows it is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (a INT, at TIMESTAMP) USING push TIMESTAMP BY at")
        yield hub


COUNT = "SELECT COUNT(*) AS n FROM s"
TOO_MANY = {
    f"{COUNT} [RANGE 1 DAY SLIDE 1 MICROSECOND]": 86_400_000_000,
    "SELECT a FROM s [RANGE 1000001 SECONDS SLIDE 1 SECOND]": 1_000_001,
    f"{COUNT} GROUP BY window(at, '1 day', '1 millisecond')": 86_400_000,
    "SELECT COUNT(*) AS n FROM HOP(TABLE s, DESCRIPTOR(at), INTERVAL 1 MILLISECOND, INTERVAL 1 DAY) GROUP BY window_end": 86_400_000,
    "SELECT COUNT(*) AS n FROM CUMULATE(TABLE s, DESCRIPTOR(at), INTERVAL 1 MILLISECOND, INTERVAL 1 DAY)"
    " GROUP BY window_end": 86_400_000,
    "SELECT a FROM s [ROWS 2000000 SLIDE 1]": 2_000_000,
    f"SELECT SUM(n) AS m FROM ({COUNT} [RANGE 1 DAY SLIDE 1 MICROSECOND]) AS t [RANGE 1 DAY SLIDE 1 DAY]": 86_400_000_000,
}


@pytest.mark.parametrize("text", TOO_MANY)
def test_a_slide_that_is_too_short_is_refused(hub: Hub, text: str) -> None:
    count = TOO_MANY[text]
    with pytest.raises(
        UserError, match=f"a row would be in {count:,} windows of 'q', and at most 1,000,000"
    ) as refused:
        hub.execute(f"CREATE QUERY q AS {text}")
    assert f"OPTIONS (maxWindowsPerRow '{count}')" in str(refused.value.remedy)
    with pytest.raises(UserError, match="a row would be in"):
        hub.register(text, "q")
    assert hub.catalog.query("q") is None


def test_the_option_allows_more_and_is_kept(hub: Hub) -> None:
    text = f"{COUNT} [RANGE 2000 SECONDS SLIDE 1 MILLISECOND]"
    create = f"CREATE QUERY q OPTIONS (maxWindowsPerRow '2000000') AS {text}"
    hub.execute(create)
    assert "already" in hub.execute(create)[0].message
    with pytest.raises(UserError, match=r"differs in maxWindowsPerRow \(2000000 there, 3000000 here\)"):
        hub.execute(create.replace("'2000000'", "'3000000'"))
    with pytest.raises(UserError, match="a row would be in 2,010,000 windows of 'q', and at most 2,000,000"):
        hub.execute("ALTER QUERY q SET WINDOW [RANGE 2010 SECONDS SLIDE 1 MILLISECOND]")
    with pytest.raises(UserError, match="a row would be in 2,010,000 windows"):
        hub.execute(f"ALTER QUERY q AS {COUNT} [RANGE 2010 SECONDS SLIDE 1 MILLISECOND]")
    hub.execute("ALTER QUERY q SET (maxWindowsPerRow '3000000')")
    hub.execute("ALTER QUERY q SET WINDOW [RANGE 2010 SECONDS SLIDE 1 MILLISECOND]")
    with pytest.raises(UserError, match="maxWindowsPerRow is a whole number of at least 1, not '0'"):
        hub.execute("ALTER QUERY q SET (maxWindowsPerRow '0')")


def test_aggregates_over_rows_and_ordinary_windows_are_not_refused(hub: Hub) -> None:
    for number, window in enumerate(
        (
            "[RANGE 1 DAY SLIDE 1 SECOND]",
            "[ROWS 2000000 SLIDE 1]",
            "[RANGE 1 DAY]",
            "[RANGE 1000000 SECONDS SLIDE 1 SECOND]",
        )
    ):
        hub.register(f"{COUNT} {window}", f"q{number}")
