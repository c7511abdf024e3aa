"""The table of rules: every rule has a plan that shows it, or a query that it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.algebra.query import Emit
from headrace.errors import UnsupportedQuery
from headrace.language.binder.query_binder import bind_query
from headrace.planner.joins.join_stage import JOINS
from headrace.planner.joins.outer_joins import OUTER_JOINS
from headrace.planner.lowering.lower import LOWERINGS, RULES, lower
from headrace.planner.rule import always
from tests.language.catalog import Catalog
from tests.planner.planned import PLANS

REFUSED = {
    "late rows": "SELECT COUNT(*) AS n FROM bids LATE [RANGE TUMBLING 1 MINUTE]",
    "bounds": "SELECT price FROM bids [ROWS 3 SLIDE 2] BEGIN NOW - INTERVAL 1 HOUR END NOW",
    "revisions": "SELECT COUNT(*) AS n FROM bids [ROWS 3 SLIDE 2] WITH REVISIONS",
}
LATE = {
    "synopses": "SELECT APPROX_COUNT(*) WITHIN 1 PERCENT AS n FROM bids LATE [RANGE 1 HOUR SLIDE 1 SECOND]",
    "synopses at instants": "SELECT APPROX_COUNT(*) WITHIN 1 PERCENT AS n FROM bids LATE [RANGE 1 HOUR]",
    "rows and groups": "SELECT COUNT_IF(price > AVG(price)) AS n FROM bids LATE [RANGE TUMBLING 1 HOUR]",
}


def test_every_rule_has_a_name_of_its_own_and_the_last_of_a_table_holds_for_all() -> None:
    assert len(RULES) == len(LOWERINGS) + len(JOINS) + len(OUTER_JOINS)
    assert LOWERINGS[-1].when is always
    assert JOINS[-1].when is always
    assert OUTER_JOINS[-1].when is always


def test_every_rule_chooses_the_operator_of_a_recorded_plan_or_refuses() -> None:
    recorded = "\n".join(plan.with_suffix(".plan").read_text(encoding="utf-8") for plan in PLANS)
    shown = {name for name, rule in RULES.items() if f"  chosen by: {name} — {rule.why}\n" in recorded}
    assert shown | REFUSED.keys() | {"rstream"} == RULES.keys()
    assert not shown & REFUSED.keys()


@pytest.mark.parametrize("text", [*REFUSED.values(), *LATE.values()], ids=[*REFUSED, *LATE])
def test_what_no_rule_answers_is_refused_when_it_is_lowered(text: str) -> None:
    """Late rows also where another rule would hold: approximate and correlated aggregates had slipped through."""
    with pytest.raises(UnsupportedQuery):
        lower("q", bind_query(text, Catalog()), "q")


def test_the_whole_of_a_relation_at_every_instant_is_refused_though_no_text_says_it() -> None:
    query = bind_query("SELECT ISTREAM(price) FROM bids [RANGE 1 MINUTE]", Catalog())
    assert isinstance(query.root, Emit)
    with pytest.raises(UnsupportedQuery, match="RSTREAM needs a window with SLIDE"):
        lower("q", replace(query, root=replace(query.root, kind="rstream")), "q")
