"""Columns without alias are called what Spark calls them, and have the types they have in Spark."""

from typing import TYPE_CHECKING

import pytest

from headrace.language.binder.query_binder import bind_query
from tests.language.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = Catalog(
    "CREATE STREAM b (x INT, y BIGINT, price DOUBLE, s STRING, p BOOLEAN, at TIMESTAMP, d DATE, `odd name` INT) USING push TIMESTAMP BY at"
)
ROW = "SELECT 1 x, 2L y, 1.5D price, 'a' s, true p, TIMESTAMP '2020-01-01 00:00:00' at, DATE '2020-01-01' d, 3 `odd name`"

EXPRESSIONS = r"""
COUNT(*) | count(1) | COUNT(DISTINCT x) | COUNT(x, y) | SUM(x) | MAX(price) | avg(price) | mean(price) | stddev(price) | std(price)
variance(price) | var_pop(price) | STDDEV_POP(x) | SUM(x) FILTER (WHERE y > 1) | count(*) FILTER (WHERE s = 'a' AND y > 1) | sum(DISTINCT x)
count_if(p) | count(*) + 1 | max(x) - min(x) | b.x | b.x + b.y | `odd name` | `odd name` + 1 | x + y * 2 - 1 | (x + y) * 2 | (x)
x * 1.5 | x / 2 | x % 2 | x DIV 2 | mod(x, 2) | -x | - 5 | -5 | +x | +5 | -x + -3 | x = y | x <> y | x != y | x == y | x <=> y
x < 1L | x <= 1.5D | x >= 1e3 | x > 2BD | x > 1e10 | x > 1.5e-7 | .5 | 1.50 | 1 | 1L | 1S | 1Y | 1.5F | 123456789012 | 1e0 | -1.50
NOT p | ! p | p AND x > 1 | p AND x > 1 AND y > 2 | p OR x > 1 | s = 'a' AND s <> 'b' OR NOT p | x BETWEEN 1 AND 2
x NOT BETWEEN 1 AND 2 | x IN (1, 2) | x NOT IN (1, 2) | s IN ('a', 'b') | s LIKE 'a%' | s NOT LIKE 'a%' | s ILIKE 'a%' | s RLIKE 'a.*'
s REGEXP 'a.*' | regexp_like(s, 'a') | x IS NULL | x IS NOT NULL | isnull(x) | isnotnull(x) | p IS TRUE | p IS NOT TRUE | p IS FALSE
x IS DISTINCT FROM y | x IS NOT DISTINCT FROM y | concat(s, 'x') | 'it''s' | 'a\'b' | "double" | 'a' 'b' | 'tab\there' | '\u0041\x' | r'raw\n'
X'1F' | NULL | TRUE | false | DATE '2020-01-02' | TIMESTAMP '2020-01-02 03:04:05' | TIMESTAMP '2020-01-02T03:04:05.120Z'
TIMESTAMP '2020-01-02 03:04:05+02:00' | TIMESTAMP_NTZ '2020-01-02 03:04:05' | INTERVAL 5 SECONDS | INTERVAL '5' SECOND
INTERVAL '1 day 2 hours' | INTERVAL '1' DAY | INTERVAL 90 MINUTES | INTERVAL 1 DAY 2 HOURS | INTERVAL '1 02:03:04.5' DAY TO SECOND
INTERVAL -5 SECONDS | INTERVAL 0.5 SECONDS | INTERVAL 1 WEEK | INTERVAL 1500 MILLISECONDS | at + INTERVAL 1 HOUR | at - INTERVAL '1 day' | at - at
CAST(x AS DOUBLE) | CAST(x AS DECIMAL(10,2)) | CAST(x AS DECIMAL) | x::STRING | TRY_CAST(s AS INT) | int(s) | double(x) | CAST(x + 1 AS STRING)
CAST(x AS BIGINT) + 1 | CAST('2020-01-01' AS DATE) | CAST(1 AS BIGINT) | CAST(CAST(x AS STRING) AS INT) | TRY_CAST(x + 1 AS STRING)
max(CAST(x AS BIGINT)) | CASE WHEN x > 1 THEN 'a' END | CASE WHEN x > 1 THEN 'a' WHEN x > 2 THEN 'b' ELSE 'c' END
CASE x WHEN 1 THEN 'a' ELSE 'b' END | IF(x > 1, 1, 2) | coalesce(x, 0) | ifnull(x, 0) | nvl(x, 0) | nullif(x, 0) | nvl2(x, 1, 2)
EXTRACT(YEAR FROM at) | extract(hour FROM at) | year(at) | hour(at) | ABS(x) | CEIL(price) | ceiling(price) | FLOOR(price) | ROUND(price, 1)
round(price) | bround(price) | UPPER(s) | ucase(s) | lower(s) | SUBSTRING(s, 1, 2) | SUBSTRING(s FROM 1 FOR 2) | substr(s, 1, 2) | TRIM(s)
ltrim(s) | length(s) | char_length(s) | LEFT(s, 2) | right(s, 2) | POSITION('a' IN s) | locate('a', s) | power(x, 2) | pow(x, 2) | sqrt(x)
ln(price) | log(price) | log(2, price) | log10(price) | log2(price) | exp(x) | sign(x) | signum(x) | greatest(x, y) | least(x, y)
date_trunc('HOUR', at) | to_date(s) | to_timestamp(s) | unix_timestamp(at) | date_add(d, 1) | datediff(d, d) | dayofweek(d)
concat_ws(',', s, s) | replace(s, 'a', 'b') | regexp_replace(s, 'a', 'b') | regexp_extract(s, '(a)', 1) | pmod(x, 2) | isnan(price)
nanvl(price, 1) | startswith(s, 'a') | contains(s, 'a') | lpad(s, 3, 'x') | rpad(s, 3) | instr(s, 'a') | repeat(s, 2) | reverse(s)
initcap(s) | split_part(s, ',', 1) | weekday(d) | quarter(d) | last_day(d) | date_sub(d, 1) | unix_seconds(at) | timestamp_seconds(x) | negative(x)
mod(x, 2) + 1 | rtrim(s) | endswith(s, 'a') | day(d) | dayofmonth(d) | dayofyear(d) | weekofyear(d) | minute(at) | second(at) | trunc(d, 'MM')
d + 1 | d - 1 | dateadd(d, 1) | date_add(d, 1) | s || 'x' || s | equal_null(x, y) | unix_date(d) | unix_millis(at) | character_length(s) | len(s) | lcase(s) | lpad(s, 3)
trim('a', s) | ltrim('a', s) | RTRIM('a', s) | TRIM(BOTH 'a' FROM s) | TRIM(LEADING s FROM s) | TRIM(TRAILING FROM s) | TRIM('a' FROM s)
TRIM(BOTH FROM s) | TRIM(FROM s) | s LIKE 'a/_' ESCAPE '/' | s NOT LIKE 'a!_' ESCAPE '!' | s ILIKE 'a/%' ESCAPE '/' | like(s, 'a') | LIKE(s, 'a/_', '/')
COUNT(ALL x) | sum(ALL x + 1) | SUM(all CASE WHEN p THEN x END) | median(x) | first(x)
percentile(x, 0.5) | PERCENTILE(DISTINCT price, 0.50) + 1 | percentile(x, 1) FILTER (WHERE p) | FIRST(x, true) | first(x, false) | last(x, true) + 1
first_value(x, true) | last_value(s, TRUE) FILTER (WHERE p) | substring(s, 2) | substr(s, -1) | substring(s, 2, 3) | replace(s, 'a') | position('a', s) | position('a', s, 2) | POSITION('a' IN s) | replace(s, 'a', 'b')
any_value(x) | any_value(s, true) | any_value(price) IGNORE NULLS | first(x) IGNORE NULLS | FIRST_VALUE(s) RESPECT NULLS | last_value(s) ignore nulls
bit_and(x) | BIT_OR(y) FILTER (WHERE p) | bit_xor(DISTINCT x & 3) | bit_or(NULL) | bit_xor(1Y) | max_by(x, y) | MIN_BY(s, price) FILTER (WHERE p) | max_by(struct(x, s), at) | max_by(DISTINCT s, d) | min_by(p, s)
last(x) FILTER (WHERE p) IGNORE NULLS | first(x, true) RESPECT NULLS | last_value(x) | any_value(x) FILTER (WHERE y > 1) + 1
x & y | x|y | x ^ 2 ^ 3 | ~x | ~~x | -~x | ~-1 | x << 2 | y >> x | x >>> 1 | shiftleft(x, 2) | shiftrightunsigned(y, 1) | bit_count(p) | getbit(y, 3) | bit_get(x, 1)
x + 1 & 3 << 2|y ^ 1 | x & 1 = 1 AND NOT ~x > 2 | x & '2' | NULL & NULL
ilike(s, 'a', '/') | rlike(s, 'a') | regexp(s, 'a') | s LIKE 'a\\_' ESCAPE '\\'
""".replace("\n", " | ").split(" | ")
GROUPED = {
    "window(at, '5 minutes')": [
        "window(at, '5 minutes')",
        "window(at, '5 minutes').start",
        "WINDOW(at, '5 minute').end",
        "window(b.at, '300 seconds').start",
        "CAST(window(at, '5 minutes').start AS DATE)",
        "window.start",
        "window",
        "unix_seconds(window(at, '5 minutes').end)",
    ],
    "window(at, '5 minutes', '1 minute', '30 seconds')": [
        "window(at, '5 minutes', '1 minute', '30 seconds').start"
    ],
    "session_window(at, '5 minutes')": [
        "session_window(at, '5 minutes')",
        "session_window(at, '5 minutes').end",
    ],
}
"""What is selected next to a window of GROUP BY."""

EXPRESSIONS = [text.strip() for text in EXPRESSIONS if text.strip()]
"""`|` alone separates; no expression here needs it as an operator."""


def ours(text: str, clause: str = "") -> tuple[str, str]:
    (field,) = bind_query(f"SELECT {text} FROM b{clause}", CATALOG).schema.fields
    return field.name, str(field.type).lower().replace(": ", ":").replace(", ", ",")


def theirs(spark: "SparkSession", text: str, clause: str = "") -> tuple[str, str]:
    """Name and type; Spark has an interval type for each pair of fields, we have one."""
    (field,) = spark.sql(f"SELECT {text} FROM b{clause}").schema.fields
    kind = field.dataType.simpleString()
    return field.name, "interval" if kind.startswith("interval") else kind


@pytest.mark.spark
def test_unaliased_columns_have_the_names_and_types_they_have_in_spark(spark: "SparkSession") -> None:
    spark.sql(ROW).createOrReplaceTempView("b")
    assert len(EXPRESSIONS) > 200
    assert {text: ours(text) for text in EXPRESSIONS} == {text: theirs(spark, text) for text in EXPRESSIONS}


@pytest.mark.spark
@pytest.mark.parametrize("window", GROUPED)
def test_windows_of_group_by_are_selected_as_in_spark(window: str, spark: "SparkSession") -> None:
    spark.sql(ROW).createOrReplaceTempView("b")
    clause = f" GROUP BY {window}"
    for text in GROUPED[window]:
        assert ours(text, clause) == theirs(spark, text, clause)
