"""docs/semantics.md says what is so: every example on the page is run against the reference."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from headrace.algebra import query as nodes
from headrace.algebra.aggregates import AggregateCall
from headrace.algebra.expressions import Call, Cast, Column, Named
from headrace.algebra.query import (
    Ago,
    Bounds,
    Distinct,
    Emit,
    Filter,
    Join,
    Mark,
    Project,
    Query,
    Revisions,
    SortKey,
    Top,
    UnionAll,
    Windowed,
)
from headrace.algebra.series import pair, placed, seconds_of, timed
from headrace.algebra.windows import (
    Delta,
    Landmark,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
)
from headrace.reference.evaluate import changes, invoke, relation_at, revisions, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.reference.relational import Rejects
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, STRING
from headrace.time import FOREVER, SECOND
from tests.reference.building import (
    TABLE,
    agg,
    col,
    compare,
    count_of,
    grouped,
    heavy,
    number,
    percentile,
    query,
    row,
    select,
    windowed,
    with_names,
)

PAGE = Path(__file__).parents[2] / "docs" / "semantics.md"
EXAMPLES = re.findall(r"```example\n(.*?)```", PAGE.read_text(), re.DOTALL)

TEN = TimeSlide(10 * SECOND, 10 * SECOND)
BIG = grouped(
    Filter(windowed(TEN), compare(">", col("v"), number(5))), [], n=agg("count"), top=agg("max", col("v"))
)
SIXTH = Call("/", (Cast(number(6), DOUBLE), Cast(col("v"), DOUBLE)), DOUBLE)
PARTS = (col("k"),)
LATE = replace(windowed(Unbounded()), source=replace(windowed(Unbounded()).source, channel="late"))
DISTINCT = Distinct(select(windowed(TEN), "s.v", "s.k"))
RECENT = Bounds(windowed(Unbounded()), Ago(2 * SECOND), Ago(SECOND))

TOTAL = "SELECT SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
TOTALS = query(select(grouped(windowed(TEN), [], total=agg("sum", col("v"))), "total"))

IDS = Column("in0.id", STRING)
FOUND = Column("in0.matched", BOOLEAN)
NOT_FOUND = Call("not", (FOUND,), BOOLEAN)


def member(test, condition=None):
    right = replace(with_names(windowed(Unbounded()), "inner").right, alias="in0")
    return Mark(windowed(Unbounded()), right, "in0.matched", condition, test)


def over(window, *names: str):
    return select(windowed(window), *(f"s.{name}" for name in names))


def visits(parts):
    window = windowed(Session(3 * SECOND, parts))
    return query(select(grouped(window, [], n=agg("count"), total=agg("sum", col("v"))), "n", "total"))


def approximate(function, argument=None, part="value"):
    return replace(agg(function, argument), within=Fraction(1, 100), part=part)


def of_weighted(function, argument, part):
    return replace(agg(function, argument), part=part, type=DOUBLE)


TOP = AggregateCall("approx_top_k", Cast(col("v"), STRING), STRING, within=Fraction(1, 100), most=1)
MEAN = Column("mean", DOUBLE)
VALUE = Cast(col("v"), DOUBLE)
ABOVE = compare(">=", Cast(col("v"), DOUBLE), MEAN)

FOUR = TimeSlide(4 * SECOND, 4 * SECOND)
BOTH = UnionAll((windowed(FOUR).source, windowed(FOUR, alias="t").source), "u", TABLE, "at")


def joined(left, right):
    """`SELECT x.v, y.v AS w FROM s x [left], s y [right] WHERE x.k = y.k AND x.v > y.v`."""
    pairs = Join(windowed(left, alias="x"), windowed(right, alias="y"), "inner", equal("x.k", "y.k", STRING))
    passed = Filter(pairs, compare(">", Column("x.v", BIGINT), Column("y.v", BIGINT)))
    return Project(passed, (Named("v", Column("x.v", BIGINT)), Named("w", Column("y.v", BIGINT))))


def equal(one, other, kind):
    return compare("=", Column(one, kind), Column(other, kind))


QUERIES = {
    "SELECT COUNT(*) AS n FROM s UNION ALL s [RANGE 4 SECONDS SLIDE 4 SECONDS]": query(
        select(grouped(Windowed(BOTH, "u", FOUR), [], n=agg("count")), "n")
    ),
    "SELECT x.v, y.v AS w FROM s x [RANGE 4 SECONDS SLIDE 4 SECONDS], s y [RANGE 8 SECONDS SLIDE 4 SECONDS]"
    " WHERE x.k = y.k AND x.v > y.v": query(joined(FOUR, TimeSlide(8 * SECOND, 4 * SECOND))),
    "SELECT ISTREAM(x.v, y.v AS w) FROM s x [RANGE 4 SECONDS], s y [RANGE 6 SECONDS] WHERE x.k = y.k AND x.v > y.v": query(
        Emit(joined(TimeRange(4 * SECOND), TimeRange(6 * SECOND)), "istream"), "stream"
    ),
    "SELECT k, COUNT(*) FILTER (WHERE v >= AVG(v)) AS above FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(
            grouped(windowed(TEN), ["k"], mean=agg("avg", col("v")), above=agg("count", where=ABOVE)),
            "k",
            "above",
        )
    ),
    "SELECT k, APPROX_COUNT(*) WITHIN 1 PERCENT AS n, APPROX_SUM(v) AS total, ERROR_BOUND(total) AS bound "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(
            grouped(
                windowed(TEN),
                ["k"],
                n=approximate("approx_count"),
                total=approximate("approx_sum", col("v")),
                bound=approximate("approx_sum", col("v"), "bound"),
            ),
            "k",
            "n",
            "total",
            "bound",
        )
    ),
    "SELECT APPROX_DISTINCT(v) AS d, APPROX_PERCENTILE(v, 0.5) AS m, APPROX_TOP_K(v, 1) AS t, ERROR_BOUND(t) AS b, L2_NORM(v) AS l "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": query(
        select(
            grouped(
                windowed(TEN),
                [],
                d=AggregateCall("approx_distinct", col("v"), BIGINT, within=Fraction(1, 100)),
                m=AggregateCall("approx_percentile", col("v"), DOUBLE, within=Fraction(1, 100), share=0.5),
                t=TOP,
                b=replace(TOP, type=BIGINT, part="bound"),
                l=AggregateCall("l2_norm", col("v"), DOUBLE),
            ),
            *"dmtbl",
        )
    ),
    "SELECT k, SLOPE(v) AS s, LAST(v) AS l, EWMA(v, INTERVAL 2 SECONDS) AS e "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(
            grouped(
                windowed(TEN),
                ["k"],
                s=agg("regr_slope", pair(VALUE, seconds_of("s"))),
                l=agg("last", placed(col("v"), "s")),
                e=replace(
                    agg("count", timed(VALUE, "s")), function="ewma", type=DOUBLE, half_life=2 * SECOND
                ),
            ),
            "k",
            "s",
            "l",
            "e",
        )
    ),
    "SELECT CORR(v, v) AS r, COVAR_POP(v, v) AS c, FIRST(k) AS f, KURTOSIS(v) AS u "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v < 4": query(
        select(
            grouped(
                Filter(windowed(TEN), compare("<", col("v"), number(4))),
                [],
                r=agg("corr", pair(VALUE, VALUE)),
                c=agg("covar_pop", pair(VALUE, VALUE)),
                f=agg("first", placed(col("k"), "s")),
                u=agg("kurtosis", col("v")),
            ),
            "r",
            "c",
            "f",
            "u",
        )
    ),
    "SELECT k FROM s": query(over(Unbounded(), "k"), "stream"),
    "SELECT k FROM s LATE": query(select(LATE, "s.k"), "stream"),
    "SELECT k FROM s WHERE 6 / v = 3": query(
        select(Filter(windowed(Unbounded()), compare("=", SIXTH, Cast(number(3), DOUBLE))), "s.k"), "stream"
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 9 SECONDS SLIDE 6 SECONDS]": count_of(
        TimeSlide(9 * SECOND, 6 * SECOND)
    ),
    "SELECT k FROM s [RANGE 2 SECONDS SLIDE 5 SECONDS]": query(over(TimeSlide(2 * SECOND, 5 * SECOND), "k")),
    "SELECT COUNT(*) AS n FROM s [LANDMARK SLIDE 10 SECONDS]": count_of(Landmark(10 * SECOND)),
    "SELECT SUM(v) AS total FROM s [PARTITION BY k ROWS 3 SLIDE 2]": query(
        select(grouped(windowed(RowsSlide(3, 2, PARTS)), [], total=agg("sum", col("v"))), "total")
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 1 ROW]": count_of(TupleSlide(10 * SECOND, 1)),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 2 ROWS]": count_of(TupleSlide(10 * SECOND, 2)),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 2 ROWS SATTR row_num]": count_of(
        TupleSlide(10 * SECOND, 2, numbered="row_num")
    ),
    "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [PARTITION BY k SESSION 3 SECONDS]": visits(PARTS),
    "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [SESSION 3 SECONDS]": visits(()),
    "SELECT SUM(v) AS total, COUNT(*) AS n FROM s [DELTA 2 ON v]": query(
        select(
            grouped(
                windowed(Delta(2.0, Cast(col("v"), DOUBLE))), [], total=agg("sum", col("v")), n=agg("count")
            ),
            "total",
            "n",
        )
    ),
    "SELECT k, v FROM s [RANGE 10 SECONDS]": query(over(TimeRange(10 * SECOND), "k", "v")),
    "SELECT k, v FROM s [ROWS 1]": query(over(Rows(1), "k", "v")),
    "SELECT k, v FROM s [PARTITION BY k ROWS 1]": query(over(Rows(1, PARTS), "k", "v")),
    "SELECT k FROM s BEGIN NOW - INTERVAL 2 SECONDS END NOW - INTERVAL 1 SECOND": query(
        select(RECENT, "s.k")
    ),
    "SELECT v, name FROM s LEFT JOIN names ON s.k = names.id": query(
        select(with_names(windowed(Unbounded()), "left"), "s.v", "names.name"), "stream"
    ),
    "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v > 5": query(
        select(BIG, "n", "top")
    ),
    "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v > 5 EMIT EMPTY": query(
        select(BIG, "n", "top"), emit_empty=True
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 2 SECONDS]": count_of(TimeRange(2 * SECOND)),
    "SELECT MEDIAN(v) AS m, PERCENTILE(v, 0.9) AS p, PERCENTILE(DISTINCT v, 0.25) AS d, MODE(v) AS o "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": query(
        select(
            grouped(
                windowed(TEN),
                [],
                m=percentile("v", 0.5),
                p=percentile("v", 0.9),
                d=percentile("v", 0.25, distinct=True),
                o=agg("mode", col("v")),
            ),
            *"mpdo",
        )
    ),
    "SELECT HEAVY_HITTERS(v, 0.5) AS half, HEAVY_HITTERS(k, 0.4) AS k FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": query(
        select(grouped(windowed(TEN), [], half=heavy("v", 0.5), k=heavy("k", 0.4)), "half", "k")
    ),
    "SELECT k, MEDIAN(v) AS m, MODE(k) AS o FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(grouped(windowed(TEN), ["k"], m=percentile("v", 0.5), o=agg("mode", col("k"))), "k", "m", "o")
    ),
    "SELECT DISTINCT v, k FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] ORDER BY v DESC LIMIT 3": query(
        Top(DISTINCT, (SortKey(Column("v", BIGINT), descending=True, nulls_first=False),), 3)
    ),
    "SELECT ISTREAM(k, v) FROM s [RANGE 4 SECONDS]": query(
        Emit(over(TimeRange(4 * SECOND), "k", "v"), "istream")
    ),
    "SELECT DSTREAM(k) FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]": query(
        Emit(over(TimeSlide(10 * SECOND, 5 * SECOND), "k"), "dstream")
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 4 SECONDS]": count_of(TimeRange(4 * SECOND)),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": count_of(TEN),
    "SELECT COUNT(*) AS n FROM s [RANGE 40 SECONDS SLIDE 10 SECONDS]": count_of(
        TimeSlide(40 * SECOND, 10 * SECOND)
    ),
    "SELECT COUNT(*) AS n FROM s [SESSION 3 SECONDS] WITH REVISIONS": replace(
        count_of(Session(3 * SECOND)), revisions=Revisions()
    ),
    "SELECT COUNT(*) AS n, AVG(v) AS mean, MAX(v) AS top FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WITH SHEDDING": replace(
        query(
            select(
                grouped(
                    windowed(TEN),
                    [],
                    n=of_weighted("count", None, "estimate"),
                    n_error=of_weighted("count", None, "error"),
                    mean=of_weighted("avg", col("v"), "estimate"),
                    mean_error=of_weighted("avg", col("v"), "error"),
                    top=agg("max", col("v")),
                    top_error=of_weighted("max", col("v"), "error"),
                    kept=of_weighted("count", None, "kept"),
                ),
                *("n", "n_error", "mean", "mean_error", "top", "top_error", "kept"),
            )
        ),
        shedding=True,
    ),
    TOTAL + " WITH REVISIONS": replace(TOTALS, revisions=Revisions()),
    TOTAL + " WITH REVISIONS FOR INTERVAL 12 SECONDS": replace(TOTALS, revisions=Revisions(12 * SECOND)),
    "SELECT v FROM s WHERE k IN (SELECT id FROM names)": query(
        select(Filter(member(compare("=", col("k"), IDS)), FOUND), "s.v"), "stream"
    ),
    "SELECT v FROM s WHERE k NOT IN (SELECT id FROM names)": query(
        select(Filter(member(compare("=", col("k"), IDS)), NOT_FOUND), "s.v"), "stream"
    ),
    "SELECT v FROM s WHERE NOT EXISTS (SELECT 1 FROM names WHERE id = k)": query(
        select(Filter(member(None, compare("=", IDS, col("k"))), NOT_FOUND), "s.v"), "stream"
    ),
}
"""What the texts on the page say, as algebra: the page is tested without a parser."""


def seconds(instant: int) -> str:
    return f"{instant / SECOND:.6f}".rstrip("0").rstrip(".")


def cells(values) -> str:
    return " ".join("-" if value is None else str(value) for value in values)


def parsed(value: str) -> str | None:
    return None if value == "-" else value


def read_history(lines: list[str]) -> History:
    epochs, names, slack, into, weights = [[]], [], 0, "stream", []
    for line in lines:
        words = line.split()
        if words[0] in ("stream", "relation"):
            into, slack = words[0], int(words[2]) if words[1:2] == ["slack"] else slack
        elif line == "---":
            epochs.append([])
        elif into == "stream":
            epochs[-1].append(row(parsed(words[0]), int(words[1]), float(words[2])))
            weights.append(float(words[3].removeprefix("x")) if len(words) > 3 else 1.0)
        else:
            names.append({"id": parsed(words[0]), "name": words[1]})
    stream = record(epochs, "at", slack * SECOND)
    rows = (replace(each, weight=weight) for each, weight in zip(stream.rows, weights, strict=True))
    return History({"s": replace(stream, rows=tuple(rows))}, {"names": names})


def asked(what: str, query: Query, history: History) -> list[str]:
    """The answer in the page's own notation."""
    words, rejects = what.split(), Rejects()
    limit = round(float(words[-1]) * SECOND) if words[-1][0].isdigit() else FOREVER
    match words[0]:
        case "final":
            answer = windows_answer(query, history, limit, final=True)
        case "windows":
            answer = windows_answer(query, history, limit)
        case "stream":
            answer = stream_answer(query, history, limit)
        case "changes":
            found = changes(query, history, limit)
            return [f"{seconds(at)}: {sign:+d} {cells(values.values())}" for at, sign, values in found]
        case "revisions":
            told = revisions(query, history)
            return [f"{e}: {seconds(at)}: {sign:+d} {cells(values.values())}" for e, at, sign, values in told]
        case "relation":
            return [cells(values.values()) for values in relation_at(query, history, limit)]
        case "invoke":
            return [cells(values.values()) for values in invoke(query, history, history.punctuation(query))]
        case "rejects":
            stream_answer(query, history, limit, rejects=rejects)
            return [f"{values['s.k']} {reason}" for values, reason in rejects.rows.values()]
        case other:
            raise AssertionError(f"the page asks for '{other}', which this test does not know")
    return [f"{seconds(at)}: {cells(values.values())}" for at, values in answer]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_on_the_page_is_what_the_reference_answers(example):
    head, *questions = re.split(r"^query ", example, flags=re.MULTILINE)
    history = read_history(head.strip().splitlines())
    assert questions
    for question in questions:
        text, *expectations = re.split(r"^expect ", question, flags=re.MULTILINE)
        assert expectations
        for expectation in expectations:
            what, *expected = expectation.strip().splitlines()
            assert asked(what, QUERIES[text.strip()], history) == expected, f"{text.strip()} / {what}"


def test_every_query_in_the_table_stands_on_the_page():
    text = "\n".join(EXAMPLES)
    assert [query for query in QUERIES if f"query {query}\n" not in text] == []


def test_every_node_has_its_words_on_the_page():
    """A node of the algebra without a word about its meaning has no meaning."""
    page = PAGE.read_text()
    words = {
        "StreamScan": "stream",
        "RelationScan": "relation",
        "Windowed": "Windows",
        "Ago": "NOW",
        "SortKey": "ORDER BY",
        "Revisions": "WITH REVISIONS",
    }
    kinds = [
        name
        for name, kind in vars(nodes).items()
        if isinstance(kind, type) and kind.__module__ == nodes.__name__
    ]
    assert len(kinds) >= 14
    assert [kind for kind in kinds if words.get(kind, kind) not in page] == []
