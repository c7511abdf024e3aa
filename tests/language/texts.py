"""Random texts of valid queries over the small catalog: every clause, window and kind of expression, in combination."""

from hypothesis import strategies as st

NUMBERS = ("price", "auction", "b.bidder", "1", "2L", "1.5", "2.50BD", "1e3", "-7", "price * 2", "auction % 3", "CAST(price AS INT)", "abs(auction)", "-price", "round(price, 1)", "auction DIV 2", "coalesce(auction, 0, NULL)", "CASE WHEN price > 1 THEN 1 ELSE 2.5 END", "hour(at)", "EXTRACT(day FROM at)", "if(price > 1, 1, NULL)", "TRY_CAST('5' AS BIGINT)", "greatest(auction, 3)", "length(upper('ab'))")  # fmt: skip
TRUTHS = ("price > 100", "auction = 3 AND price <= 2.5", "auction IN (1, 2, NULL)", "price BETWEEN 1 AND 9", "auction NOT BETWEEN 1 AND 2L", "price IS NOT NULL", "auction IS DISTINCT FROM bidder", "NOT (price > 1 OR auction < 2)", "at > TIMESTAMP '2023-11-14 22:13:20.5'", "at - INTERVAL 1 HOUR < '2020-01-01'", "'a' || auction LIKE '%1\\\\_%'", "concat('x', auction) RLIKE 'x[0-9]'", "(price > 1) IS TRUE", "date(at) = DATE '2020-02-29'", "price <=> NULL", "auction <> 2 OR price >= 1 OR bidder = auction", "CASE auction WHEN 1 THEN true WHEN 2L THEN false END", "X'1F' = X'20'", "at BETWEEN '2020-01-01' AND TIMESTAMP '2021-01-01'", "price > 1 AND (auction > 1 AND bidder > 1)", f"auction IN ({', '.join(map(str, range(-9, 40)))}, NULL)", f"at NOT IN ({', '.join(repr(f'{year}-01-01') for year in range(1970, 2010))})", f"price IN ({', '.join(f'{each}.50' for each in range(40))})")  # fmt: skip
AGGREGATES = ("count(*)", "count(price)", "count(DISTINCT auction)", "sum(price)", "avg(auction)", "max(at)", "min(price * 2)", "stddev(price)", "var_pop(auction)", "count_if(price > 1)", "sum(price) FILTER (WHERE auction > 1)", "count(price, auction)", "sum(price) / count(*)", "max(price) - min(price) + 1", "count(1)", "median(price)", "percentile(DISTINCT price, 0.9)", "mode(auction)", "bool_and(price > 1)", "some(auction > 1)", "count(*) FILTER (WHERE price BETWEEN 1 AND 2)", "slope(price, auction)", "regr_r2(price)", "regr_count(price, bidder)", "corr(auction, price * 2)", "ewma(price, INTERVAL 5 MINUTES)", "last(price)", "first(bidder, true)", "zscore(price)", "kurtosis(price)", "regr_avgx(price, auction)")  # fmt: skip
SLIDING = ("[RANGE 10 MINUTES SLIDE 1 MINUTE]", "[RANGE 1 MINUTE SLIDE 7 SECONDS ORIGIN '1970-01-01 00:00:03']", "[RANGE TUMBLING 1 HOUR]", "[LANDMARK SLIDE 1 DAY]", "[ROWS 5 SLIDE 2]", "[PARTITION BY auction ROWS 5 SLIDE 2]", "[ROWS 5 SLIDE 2 WATTR row_num]", "[RANGE 5 MINUTES SLIDE 1 ROW]", "[RANGE 5 MINUTES RATTR at, SLIDE 3 ROWS SATTR row-num, PA auction]", "[PARTITION BY auction DELTA 2.5 ON price * 2]", "[PARTITION BY auction SESSION 5 MINUTES]", "[SESSION 90 SECONDS, WATTR at]", "[WINDOW months(2)]", "[WINDOW cumulate(INTERVAL 1 HOUR, INTERVAL 1 DAY)]", "[WINDOW months() ON price + 1, bidder]")  # fmt: skip
INSTANT = ("[RANGE 10 MINUTES]", "[NOW]", "[RANGE UNBOUNDED]", "[ROWS 5]", "[PARTITION BY auction, price + 1 ROWS 5]", "[RANGE 1500 MILLISECONDS]")  # fmt: skip
JOINS = ("", "", "", " JOIN category c ON b.auction = c.id", " LEFT JOIN category c ON b.auction = c.id AND c.name <> 'x' AND price > 3", ", category c", " CROSS JOIN people p JOIN category c ON c.id = p.id AND b.auction > 5")  # fmt: skip
MEMBERS = ("b.auction IN (SELECT n FROM events [ROWS 5])", "(auction + 1, price) IN (SELECT n, d FROM events [NOW] WHERE ok)", "b IN (SELECT * FROM bids [RANGE 5 MINUTES] WHERE price > 1)", "bidder IN (SELECT auction FROM bids [RANGE 1 HOUR] GROUP BY auction HAVING COUNT(*) > 3)", "CAST(bidder AS STRING) IN (SELECT k FROM events [RANGE UNBOUNDED] ORDER BY n LIMIT 3)", "price IN (SELECT n FROM counted)")  # fmt: skip
UNORDERED = tuple(each for each in AGGREGATES if not each.startswith(("slope(", "regr_r2(price)", "ewma", "last", "first", "zscore")))  # fmt: skip
BOUNDS = (" BEGIN '2020-01-01' END NOW", " BEGIN NOW - INTERVAL 2 DAYS END NOW")
KEYS = ("auction", "price + 1", "bidder", "date_trunc('HOUR', at)", "auction % 2 = 0", "1")


RELATIONS = ("SELECT auction, price FROM bids [NOW]", "SELECT n, d FROM events [ROWS 3]", "SELECT DISTINCT bidder, 1 FROM bids [RANGE UNBOUNDED]", "SELECT auction, COUNT(*) AS n FROM bids [RANGE 1 HOUR] GROUP BY auction HAVING COUNT(*) > 1", "(SELECT n, n FROM counted c JOIN category ON n = id, bids [NOW] ORDER BY n LIMIT 2)".replace("n, n", "n, 2.5"), "SELECT NULL AS a, bidder FROM bids [ROWS 2]")  # fmt: skip
STREAMED = ("SELECT auction, price FROM bids", "SELECT n, d FROM events WHERE ok", "SELECT n, auction FROM dear", "(SELECT auction, COUNT(*) AS n FROM bids [RANGE TUMBLING 1 HOUR] GROUP BY auction EMIT EMPTY)", "ISTREAM(SELECT n, d FROM events [ROWS 3])", "DSTREAM(SELECT DISTINCT bidder, 1 FROM bids [NOW])")  # fmt: skip


@st.composite
def several_selects(draw: st.DrawFn) -> str:
    """The text of SELECTs with set operators between them, which binds."""
    streamed = draw(st.integers(0, 3)) == 0
    operators = (
        ("UNION ALL",) if streamed else ("UNION ALL", "UNION", "EXCEPT", "MINUS DISTINCT", "INTERSECT")
    )
    single = st.sampled_from(STREAMED if streamed else RELATIONS)

    def beside(members: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.builds(
            lambda one, operator, other, enclosed: (
                f"({one} {operator} {other})" if enclosed else f"{one} {operator} {other}"
            ),
            *(members, st.sampled_from(operators), members, st.booleans()),
        )

    text = draw(beside(st.recursive(single, beside, max_leaves=6)))
    if streamed:
        return text
    text += draw(
        st.sampled_from(("", "", " ORDER BY 2 DESC, 1", " LIMIT 3", " ORDER BY 1 NULLS LAST LIMIT 2"))
    )
    return draw(
        st.sampled_from(
            (
                text,
                text,
                f"ISTREAM({text})",
                f"DSTREAM({text})",
                f"SELECT * FROM ({text}) AS t",
                f"SELECT auction FROM bids WHERE (auction, price) IN ({text})",
            )
        )
    )


@st.composite
def selects(draw: st.DrawFn) -> str:
    """The text of a SELECT that binds."""
    if draw(st.integers(0, 5)) == 0:
        return draw(several_selects())
    sliding, join = draw(st.booleans()), draw(st.sampled_from(JOINS))
    bracket = draw(st.sampled_from(SLIDING if sliding else INSTANT))
    grouped_window = draw(st.integers(0, 5)) == 0
    if grouped_window:
        sliding, bracket = True, ""
    aggregated = grouped_window or draw(st.booleans())
    where = draw(
        st.lists(st.sampled_from((*TRUTHS, "b.auction = c.id") if " c" in join else TRUTHS), max_size=3)
    )
    looking = not sliding and draw(st.integers(0, 3)) == 0
    if looking:
        where += draw(st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=2))
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True)) if aggregated else []
    known = UNORDERED if looking else AGGREGATES
    items = _items(draw, keys, known if aggregated else (), sliding=sliding)
    distinct = draw(st.integers(0, 5)) == 0
    text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(items)} FROM bids b {bracket}{join}"
    text += " WHERE " + " AND ".join(f"({item})" for item in where) if where else ""
    until = (
        (" BEGIN '2020-01-01' END '2023-11-15'",) if sliding or "ROWS" in bracket else BOUNDS
    )  # NOW moves on
    if looking:
        until = () if "ROWS" in bracket else BOUNDS[1:]
    text += draw(st.sampled_from(("", "", *until)))
    groups = [*keys, *(["window(at, '10 minutes', '1 minute', '5 seconds')"] if grouped_window else [])]
    text += " GROUP BY " + ", ".join(groups) if groups else ""
    if aggregated and draw(st.booleans()):
        text += f" HAVING {draw(st.sampled_from(AGGREGATES[:4]))} > 1 AND v0 IS NOT NULL"
    text += _order(draw, items)
    if draw(st.integers(0, 4)) == 0:
        kinds = ["ISTREAM", "DSTREAM"] + (
            ["RSTREAM"] if sliding or (bracket == "[NOW]" and not looking) else []
        )
        text = f"{draw(st.sampled_from(kinds))}({text})"
    return text + (" EMIT EMPTY" if sliding and aggregated and draw(st.booleans()) else "")


def _items(draw: st.DrawFn, keys: list[str], aggregates: tuple[str, ...], *, sliding: bool) -> list[str]:
    if not aggregates:
        values = draw(st.lists(st.sampled_from((*NUMBERS, *TRUTHS)), min_size=1, max_size=4))
    else:
        values = [key for key in keys if key != "1"] + draw(
            st.lists(st.sampled_from(aggregates), min_size=1, max_size=3)
        )
    values += (
        draw(st.lists(st.sampled_from(("window_end", "b.window_start", "window.start")), max_size=2))
        if sliding
        else []
    )
    if aggregates and "1" in keys:
        values = ["auction + bidder", *values]
    return [f"{value} AS v{index}" for index, value in enumerate(values)]


def _order(draw: st.DrawFn, items: list[str]) -> str:
    if draw(st.integers(0, 3)):
        return ""
    keys = st.sampled_from(("v0", "1", f"v{len(items) - 1} DESC", "v0 NULLS LAST"))
    return (
        " ORDER BY "
        + ", ".join(draw(st.lists(keys, min_size=1, max_size=2)))
        + draw(st.sampled_from(("", " LIMIT 3")))
    )
