"""EXPLAIN shows what is shared with which queries, what it costs, and what of that each query pays: for one, ten and ten thousand."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from headrace.cli.explain_command import explain_to
from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from headrace.observation import OperatorObservation, WorkObservation
from headrace.planner.explain.cost_attribution import Measured, attributed
from headrace.planner.explain.diagram import dot, picture
from headrace.planner.explain.diagram_svg import svg
from headrace.planner.explain.plan_graph import Explained, bytes_of, percent_of, time_of
from headrace.planner.explain.plan_text import all_lines, query_lines
from headrace.planner.explain.work_sharing import Sharing, sharing
from headrace.planner.lowering.lower import lower
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.explain import explained, measured
from headrace.time import SECOND
from tests.language.catalog import Catalog
from tests.runtime.rig import Row

STREAM = "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
ALERT = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE v > {} GROUP BY k"


@pytest.fixture
def hub(tmp_path: Path):
    with open_hub(tmp_path / "home", local=True) as opened:
        opened.execute(STREAM)
        yield opened


def push(hub: Hub, *seconds: int) -> None:
    rows: Sequence[Row] = [
        {"k": "ab"[second % 2], "v": second % 50, "at": second * SECOND} for second in seconds
    ]
    hub.push("s", list(rows))
    hub.loop.drain()


@cache
def made(text: str, count: int) -> Sharing:
    """The work of so many queries, of which as many as `DISTINCT` differ in a number."""
    catalog = Catalog()
    few = [lower(f"n{n}", bind_query(text.format(n), catalog), f"q{n}") for n in range(min(count, DISTINCT))]
    operators = {f"q{n}": replace(few[n % DISTINCT], id=f"q{n}", query=f"n{n}") for n in range(count)}
    return sharing(operators, {}, {}, {})


DISTINCT = 500
BIDS = "SELECT auction, COUNT(*) AS n FROM bids [RANGE 1 HOUR SLIDE 1 HOUR] WHERE price > {} GROUP BY auction"


def test_what_is_shared_is_what_the_tasks_share(hub: Hub) -> None:
    """Each name of work that an epoch reports is known to EXPLAIN, with the queries that took part in it."""
    hub.register_many({f"a{n}": ALERT.format(n) for n in range(20)})
    hub.register_many({f"b{n}": ALERT.format(5).replace("COUNT(*)", "SUM(v)") for n in range(2)})
    hub.register("SELECT k, v FROM s [ROWS 3]", "rows")
    hub.register("SELECT k FROM s LATE", "late")
    hub.register("SELECT SUM(n) AS n FROM a3 [RANGE 1 HOUR SLIDE 1 HOUR]", "over")
    push(hub, *range(100))
    push(hub, *range(100, 200))
    report = explained(hub.home)
    line = hub.status()["last_epoch"]
    assert {report.sharing.place_of(key) is None for key in line["work"]} == {False}
    for key, work in line["work"].items():
        position = report.sharing.place_of(key)
        assert report.sharing.works[position].kind == key.split(" ")[0], work
    (index,) = [shared for shared in report.sharing.works if "one index" in shared.label]
    assert set(report.queries_of(index.users)) == {
        f"{x}{n}" for x, m in (("a", 20), ("b", 2)) for n in range(m)
    }
    assert "match 20 conditions in one index, fold by k" in index.label
    states = {
        shared.users for shared in report.sharing.works if shared.kind == "state" and len(shared.users) > 1
    }
    assert sorted(map(len, states)) == [2, 20]


def test_values_of_many_queries_are_folded_together_as_explain_says(hub: Hub) -> None:
    """Medians with twenty conditions, over batches of a few rows."""
    text = ALERT.replace("COUNT(*)", "PERCENTILE(v, 0.5)")
    hub.register_many({f"q{n}": text.format(n) for n in range(20)})
    for first in range(0, 180, 7):
        push(hub, *range(first, min(first + 7, 180)))
    (index,) = [work for work in explained(hub.home).sharing.works if "one index" in work.label]
    assert len(index.users) == 20
    assert "match 20 conditions in one index, fold by k" in index.label
    for n in range(20):
        medians = [(row["k"], row["n"]) for row in hub.query(f"q{n}").history().to_pylist()]
        kept = [[s for s in range(low, low + 60) if s % 50 > n] for low in (0, 60)]
        wanted = [("ab"[k], median(s % 50 for s in window if s % 2 == k)) for window in kept for k in (0, 1)]
        assert sorted(medians) == sorted(wanted)


def test_what_is_read_only_together_is_nobody_elses(hub: Hub) -> None:
    """Relations, pairs and streams that are joined or united: reading them is work of the query that is there."""
    hub.execute(STREAM.replace(" s ", " b "))
    hub.register("SELECT x.k, y.v FROM s x [ROWS 2], b y [RANGE 1 MINUTE] WHERE x.k = y.k", "met")
    hub.register("SELECT COUNT(*) AS n FROM (s UNION ALL b) AS u [RANGE 1 MINUTE]", "united")
    hub.register("SELECT x.v FROM s x, b y, s z [ROWS 1] WHERE x.k = y.k AND y.k = z.k", "three")
    for start in (0, 20, 40):
        push(hub, *range(start, start + 20))
    report = explained(hub.home)
    assert {report.sharing.place_of(key) is None for key in hub.status()["last_epoch"]["work"]} == {False}
    assert report.seen is not None
    assert not report.seen.elsewhere
    assert "no more" not in hub.explain("met")


def test_costs_of_queries_add_up_to_what_was_measured(hub: Hub) -> None:
    hub.register_many({f"a{n}": ALERT.format(n) for n in range(20)})
    hub.register("SELECT k, v FROM s [ROWS 3]", "rows")
    push(hub, *range(100))
    push(hub, *range(100, 300))
    report = explained(hub.home)
    assert report.seen is not None
    costs = report.costs
    assert len(costs) == 21
    assert sum(cost.nanoseconds for cost in costs) == pytest.approx(
        report.seen.nanoseconds / report.seen.epochs
    )
    assert [cost.nanoseconds for cost in costs] == sorted((cost.nanoseconds for cost in costs), reverse=True)


def test_a_shared_operators_time_is_split_by_the_stated_rule() -> None:
    shares = made(
        BIDS.replace("price >", "price % 7 >"), 3
    )  # what is computed of a row, each query does by itself
    read, *folds, state = range(len(shares.works))
    assert [shares.works[position].kind for position in (read, *folds, state)] == [
        "read",
        "fold",
        "fold",
        "fold",
        "state",
    ]
    works = [WorkObservation()] * len(shares.works)
    works[read] = WorkObservation(nanoseconds=300)
    works[folds[1]] = WorkObservation(nanoseconds=50)
    works[state] = WorkObservation(nanoseconds=1000)
    observed = {"q0": OperatorObservation(state_rows=3, results=1), "q2": OperatorObservation(state_rows=10)}
    seen = Measured(2, 1, 2, 10, works, observed, [0] * len(works), {})
    # two epochs: a part for each, 2 + 4 rows, 2 + 0, 2 + 10, of 20
    assert attributed(shares, seen) == pytest.approx({"q0": 100 + 300, "q1": 100 + 50 + 100, "q2": 100 + 600})


def test_lines_of_several_epochs_add_up_and_state_is_the_last_ones() -> None:
    shares = made(BIDS, 2)
    lines = [
        {
            "kind": "epoch",
            "epoch": epoch,
            "rows": 10,
            "work": {
                "read bids": {"rows_in": 10, "rows_out": 9, "nanoseconds": 7, "state_bytes": 0},
                f"state {shares.works[-1].name}": {
                    "rows_in": 1,
                    "rows_out": 1,
                    "nanoseconds": 1,
                    "state_bytes": epoch,
                },
                "fold q99": {"rows_in": 1, "rows_out": 1, "nanoseconds": 5, "state_bytes": 0},
            },
            "operators": {"q1": dict.fromkeys(OperatorObservation._fields, epoch)},
        }
        for epoch in (4, 5)
    ]
    seen = measured(shares, lines)
    assert seen is not None
    assert (seen.epochs, seen.first, seen.last, seen.rows, seen.elsewhere) == (2, 4, 5, 20, 10)
    assert seen.works[0] == WorkObservation(20, 18, 14, 0)
    assert seen.state_bytes[-1] == 5
    assert (seen.operators["q1"].results, seen.state_rows["q1"]) == (9, 5)
    assert measured(shares, []) is None


def explained_queries(count: int, *, text: str = BIDS) -> Explained:
    """So many queries, with figures that are made up."""
    shares = made(text, count)
    works = [WorkObservation(1000, 400, 1_000_000 * (n + 1), 0) for n in range(len(shares.works))]
    observed = {f"q{n}": OperatorObservation(1000, n % 1000, 3, n, 2) for n in range(count)}
    rows = {f"q{n}": n for n in range(count)}
    seen = Measured(2, 8, 9, 2000, works, observed, [4_200_000] * len(works), rows)
    return Explained(shares, seen, {f"q{n}": f"n{n}" for n in range(count)}, {})


def test_one_query_reads_like_this() -> None:
    assert list(all_lines(explained_queries(1))) == [
        "1 query over 1 stream: 1 fold, 1 state",
        "measured in epochs 8 to 9: 1,000 rows and 3 ms of work an epoch",
        "read stream bids  [1 query: n0]",
        "    500 rows in, 200 on time (40 %); 500 us (17 %)",
        "  fold by auction into panes of 1 window: count(*) where (price > 0.0)  [1 query: n0]",
        "      500 rows in, 200 cells out (40 %); keeps 0 %; 1 ms (33 %)",
        "    window every 1 HOUR of 1 pane by auction: count(*)  [1 query: n0]",
        "        500 rows in, 200 results out (40 %); state 4.2 MB; 1.5 ms (50 %)",
    ]


@pytest.mark.parametrize("count", [2, 10, 300, 10_000])
def test_any_number_of_queries_is_shown_on_a_page(count: int) -> None:
    lines = list(all_lines(explained_queries(count)))
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 200
    page = "\n".join(lines)
    assert f"{count:,} queries" in page
    if count > 10:
        assert f"and {count - 10:,} more" in page
        assert re.search(rf"\[{count:,} queries: n0, n1, n2 and {count - 3:,} more\]", page)


def test_many_folds_of_few_queries_are_summed_up() -> None:
    """Queries that store other values share nothing but the reading: of 500 folds some are shown, and the sum of the rest."""
    lines = list(all_lines(explained_queries(500, text="SELECT auction + {} AS a FROM bids [ROWS 5]")))
    assert len(lines) <= 60
    assert any(re.search(r"and 492 more folds of 492 queries, \d+ % of the work", line) for line in lines)


def test_a_query_says_with_whom_it_shares_and_what_it_costs() -> None:
    lines = list(query_lines(explained_queries(10_000), "n7"))
    assert "    read stream bids: shared with 9,999 queries: n0, n1, n2 and 9,996 more" in lines
    assert any(
        re.match(r"  cost: .* an epoch, .* of all work, number [\d,]+ of 10,000", line) for line in lines
    )
    (line_of_window,) = [
        line for line in query_lines(explained_queries(1), "n0") if line.startswith("    window")
    ]
    assert line_of_window.endswith(": its own")


def test_explain_before_the_first_epoch_and_after_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_hub(home, local=True) as hub:
        hub.execute(STREAM)
        hub.register(ALERT.format(3), "q")
        assert "nothing is measured yet" in hub.explain()
        assert "nothing is measured yet" in hub.explain("q")
        push(hub, *range(100))
        first = hub.explain()
    with open_hub(home, local=True) as hub:
        assert hub.explain() == first
        (said,) = hub.execute("EXPLAIN ALL")
        assert said.message == first
        hub.execute("DROP QUERY q")
        assert hub.explain().splitlines()[0] == "0 queries over 0 streams: 0 folds, 0 states"


def test_pictures_of_any_number_are_small_and_whole(tmp_path: Path) -> None:
    for count in (1, 10, 10_000):
        drawn = picture(explained_queries(count))
        ids = {box.id for box in drawn.boxes}
        assert len(ids) == len(drawn.boxes) <= 60
        assert {end for line in drawn.lines for end in (line.source, line.target)} == ids
        page = ET.fromstring(svg(drawn))
        texts = "".join(page.itertext())
        assert all(box.title.split()[0] in texts for box in drawn.boxes)
        graph = dot(drawn)
        assert graph.count(" -> ") == len(drawn.lines)
        assert graph.startswith("digraph")
        assert graph.rstrip().endswith("}")
        shares = [box.share for box in drawn.boxes if box.kind not in ("query", "more")]
        assert all(0 <= share <= 1 for share in shares)


def test_names_that_are_no_markup_stay_names(hub: Hub, tmp_path: Path) -> None:
    hub.execute('CREATE QUERY `a<b&"c"` AS SELECT v FROM s WHERE k <> \'<&>"\'')
    push(hub, 1)
    for form in ("svg", "dot"):
        drawn = tmp_path / f"plan.{form}"
        explain_to(hub.path, None, None, drawn)
        text = drawn.read_text(encoding="utf-8")
        assert text == hub.explain(form=form) + "\n"
        if form == "svg":
            assert 'a<b&"c"' in "".join(ET.fromstring(text).itertext())


def test_a_query_over_queries_is_drawn_behind_what_it_reads(hub: Hub) -> None:
    hub.register(ALERT.format(3), "below")
    hub.register("SELECT SUM(n) AS n FROM below [RANGE 1 HOUR SLIDE 1 HOUR]", "above")
    hub.register("SELECT v FROM s WHERE v > 40", "other")
    push(hub, *range(200))
    drawn = picture(explained(hub.home), "above")
    columns = {box.title: box.column for box in drawn.boxes}
    assert columns["read results of below"] > columns["read stream s"]
    assert columns["above"] > columns["below"] > columns["read stream s"]
    assert "other" not in columns
    assert {box.id for box in drawn.boxes} == {e for line in drawn.lines for e in (line.source, line.target)}


def test_who_asks_wrongly_is_reported(hub: Hub, tmp_path: Path) -> None:
    hub.register(ALERT.format(3), "dear")
    with pytest.raises(UserError, match="there is no query 'deer'"):
        hub.explain("deer")
    with pytest.raises(UserError, match=r"cannot write .*plan.svg: No such file"):
        explain_to(hub.path, None, None, tmp_path / "nowhere" / "plan.svg")
    with pytest.raises(UserError, match="there is no home in"):
        explain_to(tmp_path / "nowhere", None, None, None)


def test_figures_are_short() -> None:
    assert [time_of(figure) for figure in (0, 999, 1500, 1_234_000, 2.5e9)] == [
        "0 ns",
        "999 ns",
        "1.5 us",
        "1.23 ms",
        "2.5 s",
    ]
    assert [bytes_of(figure) for figure in (0, 999, 1500, 12_345_678, 9.9e9)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "12.3 MB",
        "9.9 GB",
    ]
    assert [percent_of(figure) for figure in (0, 0.0004, 0.013, 0.5, 1)] == [
        "0 %",
        "<0.1 %",
        "1.3 %",
        "50 %",
        "100 %",
    ]
