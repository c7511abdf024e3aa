"""What EXPLAIN shows of operators that read others."""

from headrace.language.binder.query_binder import bind_query
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.explain.operator_text import explain
from headrace.planner.lowering.lower import lower
from headrace.planner.lowering.materialization import Source, materialized
from tests.language.catalog import Catalog

HOURLY = "SELECT auction, COUNT(*) AS n FROM bids [RANGE TUMBLING 1 HOUR] GROUP BY auction"


def explained(text: str) -> list[str]:
    """The lines but that which shows why it is this operator: `tests/planner` has those of every rule."""
    lines = explain(lower("q", bind_query(text, Catalog()), "q")).splitlines()
    assert lines.pop(1).startswith("  chosen by: ")
    return lines


def test_windows_over_panes_say_when_small_groups_lie_as_their_rows() -> None:
    operator = lower("q", bind_query(HOURLY, Catalog()), "q1")
    assert isinstance(operator, PaneAggregate)
    sizes = "(18 bytes a row, 26 a partial)"
    assert (
        f"  groups of at most 1 row in a pane are stored as rows when many are that small {sizes}"
        in explain(operator).splitlines()
    )
    assert (
        f"  groups of at most 1 row in a pane are stored as rows, since many are that small {sizes}"
        in explain(operator.with_row_layout()).splitlines()
    )


def test_how_rows_are_aggregated_follows_from_the_window_and_is_shown() -> None:
    count = "SELECT auction, COUNT(*) AS n FROM bids {} GROUP BY auction"
    sliding = "\n".join(explained(count.format("[RANGE 1 HOUR SLIDE 1 MINUTE]")))
    assert "window every 1 MINUTE of 60 panes (context free)" in sliding
    assert "1 window alone: 120 from each pane, 14 from blocks, 121 as differences: blocks" in sliding
    assert "61,440 from each pane, 3,055 from blocks, 1,654 as differences: differences" in sliding
    assert "panes pay from 5.4 rows of a group in a window on" in sliding
    buffered = explained(count.format("[ROWS 100 SLIDE 10]"))
    assert buffered[1] == "  RowSlides, windows forward-context aware"
    assert "    stored of each row: auction" in buffered
    assert explained(count.format("[RANGE 1 HOUR]"))[1] == "  InstantAggregate"
    bound = bind_query(count.format("[RANGE 1 HOUR SLIDE 1 MINUTE]"), Catalog())
    panes = lower("q", bound, "q1")
    assert isinstance(panes, PaneAggregate)
    assert "rows are not folded into panes as they come" in explain(panes.with_row_layout(folds=False))


def test_revisions_say_how_late_a_row_may_be() -> None:
    line = "  closed windows are revised (retractions -1, insertions +1) for rows "
    assert explained(f"{HOURLY} WITH REVISIONS")[1] == f"{line}however late"
    assert explained(f"{HOURLY} WITH REVISIONS FOR INTERVAL 1 DAY")[1] == f"{line}up to 1 DAY late"
    assert explained(f"{HOURLY} WITH REVISIONS")[2:-2] == explained(HOURLY)[1:-2]
    assert explained(f"{HOURLY} WITH REVISIONS")[-2] == "  group by auction (routed to one slot)"


def test_a_window_applied_when_asked_is_shown_also_without_begin() -> None:
    query = bind_query("SELECT auction FROM bids [RANGE UNBOUNDED] WHERE price > 3", Catalog())
    lines = explain(materialized("q", query, "q1", "partial", Source(archived=True))).splitlines()
    assert "  window applied when asked: -infinity to NOW (landmark)" in lines


def test_sessions_and_windows_of_users_show_their_class() -> None:
    session = explained(
        "SELECT auction, COUNT(*) AS n FROM bids GROUP BY session_window(at, '5 minutes'), auction"
    )
    assert any("forward-context aware" in line for line in session)
    months = explained("SELECT auction, COUNT(*) AS n FROM bids [WINDOW months(2)] GROUP BY auction")
    assert any("context free" in line for line in months)


def test_approximate_aggregates_say_what_they_take_and_what_exact_ones_would() -> None:
    counted = (
        "SELECT auction, APPROX_COUNT(*) {} AS n FROM bids [RANGE 1 HOUR SLIDE 1 SECOND] GROUP BY auction"
    )
    lines = explained(counted.format("WITHIN 10 PERCENT"))
    assert lines[1:3] == [
        "  window every 1 SECOND of 3600 panes (context free)",
        (
            "  count(*) in an exponential histogram, k = 10: for 1,000,000 at most 113 buckets, "
            "about 226 bytes a group (every pane: 28,800)"
        ),
    ]
    assert (
        explained(counted.format("WITHIN 0.01 PERCENT"))[1:]
        == explained(counted.format("").replace("APPROX_COUNT(*)", "COUNT(*)"))[1:]
    )


def test_an_approximate_relation_says_what_it_takes_too() -> None:
    lines = explained(
        "SELECT auction, APPROX_COUNT(*) WITHIN 10 PERCENT AS n, ERROR_BOUND(n) AS b, APPROX_SUM(bidder) WITHIN 1 PERCENT AS s "
        "FROM bids [RANGE 1 HOUR] WHERE price > 3 GROUP BY auction"
    )
    assert lines[1] == "  a relation at every instant, of the last 1 HOUR"
    instead = "(every instant with a row: up to 16,000,000)"
    kept = [line for line in lines if "exponential histogram" in line]
    assert kept[0] == (
        "  count(*) in an exponential histogram, k = 10: for 1,000,000 at most 113 buckets, "
        f"about 226 bytes a group {instead}"
    )
    assert any("k = 100: for 1,000,000 at most 815 buckets, about 1,630 bytes" in line for line in kept[1:])
    assert any(line.startswith("  group by ") and "auction" in line for line in lines)
    assert "  keep rows where" in "".join(lines), "the WHERE is shown as for any query"


def test_sketches_say_how_much_they_take_by_the_accuracy_asked_for() -> None:
    asked = "SELECT auction, APPROX_DISTINCT(bidder) WITHIN {} PERCENT AS n FROM bids [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY auction"
    assert "  synopsis distinctsketch(bidder): at most about 65,600 bytes a group and pane" in explained(
        asked.format(1)
    )
    assert "  synopsis distinctsketch(bidder): at most about 576 bytes a group and pane" in explained(
        asked.format(10)
    )
    above = (
        "SELECT COUNT(*) FILTER (WHERE price > AVG(price)) {} AS n FROM bids [RANGE 1 HOUR SLIDE 1 MINUTE]"
    )
    assert "  synopsis ranking(price): at most about 1,440 bytes a group and pane" in explained(
        above.format("BUCKETS 10")
    )
    assert any("level by level" in line for line in explained(above.format("")))
    other_form = "SELECT COUNT(*) FILTER (WHERE price + AVG(price) > 5) WITHIN 1 PERCENT AS n FROM bids [RANGE 1 HOUR SLIDE 1 MINUTE]"
    assert any("level by level" in line for line in explained(other_form)), "answered exactly"
    rows = "SELECT auction, COUNT(*) FILTER (WHERE price > AVG(price)) WITHIN 1 PERCENT AS n FROM bids [ROWS 10] GROUP BY auction"
    assert any("level by level" in line for line in explained(rows)), "rows have no panes"


def test_aggregates_that_depend_on_others_are_shown_with_their_levels() -> None:
    lines = explained("SELECT COUNT_IF(price > AVG(price)) AS n FROM bids [RANGE TUMBLING 1 HOUR]")
    assert any("level by level: avg (level 0), count (level 1)" in line for line in lines)


def test_changes_of_windows_say_so_and_what_they_are_changes_of() -> None:
    lines = explained(f"ISTREAM({HOURLY})")
    assert lines[1] == "  istream: differences between each window and the next"
    assert any("combined from dyadic blocks" in line for line in lines)
