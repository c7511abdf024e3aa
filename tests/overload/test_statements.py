"""What `WITH QOS` means once it is bound, and that a delay has to be feasible; all other mistakes are in `bad_statements.txt`."""

from __future__ import annotations

import pytest

from headrace.algebra.quality_of_service import Importance, QualityOfService, UtilityGraph
from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from tests.language.catalog import Catalog

CATALOG = Catalog(
    "CREATE STREAM s (at TIMESTAMP, Price DOUBLE) USING push OPTIONS (latency '3 SECONDS') TIMESTAMP BY at;"
)
COUNTED = "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]"


def test_graphs_are_in_seconds_and_shares_in_any_order_and_case() -> None:
    text = (
        f"{COUNTED} with qos (VALUE price (0.5 below -2.5, 0.25 BELOW 10, 1 otherwise), LOSS (1 at 0 percent, 0.2 AT 12.5 PERCENT),"
        " Delay (1 AT INTERVAL 1 MINUTE, 0 AT '2 minutes')) WITH SHEDDING"
    )
    assert bind_query(text, CATALOG).quality == QualityOfService(
        UtilityGraph(((60.0, 1.0), (120.0, 0.0))),
        UtilityGraph(((0.0, 1.0), (0.125, 0.2))),
        Importance("Price", (-2.5, 10.0), (0.5, 0.25, 1.0)),
    )


def test_a_query_that_states_nothing_has_none() -> None:
    assert bind_query(COUNTED, CATALOG).quality is None


def test_rows_that_may_wait_longer_than_is_good_cannot_be_answered_in_time() -> None:
    bind_query(f"{COUNTED} WITH QOS (delay (1 AT 3 SECONDS))", CATALOG)
    with pytest.raises(UserError) as raised:
        bind_query(f"{COUNTED} WITH QOS (delay (1 AT 2.9 SECONDS))", CATALOG)
    assert str(raised.value).split("\n")[0] == (
        "line 1, column 63: rows of 's' may wait 3 SECONDS before an epoch reads them (its latency), "
        "and the utility falls after 2.9 seconds"
    )
