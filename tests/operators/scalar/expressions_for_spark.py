"""Expressions over the columns of `rows`, in SQL, that Spark and we evaluate on every row."""

from __future__ import annotations

from headrace.algebra.functions.resolve import TABLE

_NUMBERS = ("t", "h", "i", "l", "f", "d", "p", "w")


def _pairs(operators: tuple[str, ...], left: str, right: str) -> list[str]:
    return [f"{left} {operator} {right}" for operator in operators]


ARITHMETIC = [
    *_pairs(("+", "-", "*", "/", "%"), "i", "j"),
    *_pairs(("+", "-", "*", "/", "%", "div"), "l", "m"),
    *_pairs(("+", "-", "*", "/", "%"), "d", "e"),
    *_pairs(("+", "-", "*", "/", "%"), "f", "f"),
    *_pairs(("+", "-", "*", "%", "div"), "t", "h"),
    *_pairs(("+", "*", "/"), "f", "i"),
    *_pairs(("+", "/", "%"), "l", "d"),
    *_pairs(("+", "-", "/"), "n", "coalesce(i, 2)"),
    *_pairs(("*", "%"), "n", "2.5D"),
    *_pairs(("+", "-", "*", "/", "%", "div"), "p", "q"),
    *_pairs(("+", "-", "*", "/", "%", "div"), "w", "p"),
    *_pairs(("*", "/", "+"), "w", "w"),
    *_pairs(("+", "*", "/", "%"), "p", "i"),
    *_pairs(("+", "*", "/"), "l", "p"),
    *_pairs(("+", "*"), "p", "d"),
    *(
        "p * 2",
        "2 * p",
        "p + 100",
        "p / 3",
        "p % 7",
        "p * 1.5",
        "i + 1.5",
        "i * 0.1BD",
        "l + 1",
        "t + 1",
        "t + t",
        "h * h",
    ),
    *(
        "l * -1",
        "-1 * l",
        "i div k",
        "l % -1",
        "l div -1",
        "i / 0",
        "NULL + i",
        "i + NULL",
        "d / 0.0D",
        "1 / k",
        "pmod(i, k)",
    ),
    *(
        "pmod(l, m)",
        "pmod(d, e)",
        "pmod(t, h)",
        "pmod(p, q)",
        "mod(i, 7)",
        "-i",
        "-l",
        "-t",
        "-d",
        "-p",
        "-v",
        "abs(i)",
    ),
    *("abs(l)", "abs(t)", "abs(d)", "abs(f)", "abs(p)", "abs(v)", "-n", "abs(n)"),
]

BITS = [
    *[
        text
        for pair in ("t h", "h i", "i j", "i l", "l m", "l t", "coalesce(i,2) n", "NULL i", "i 12", "l 12L")
        for text in _pairs(("&", "|", "^"), *pair.split())
    ],
    *[
        text
        for pair in (
            "i j",
            "l i",
            "i t",
            "l t",
            "t i",
            "h 3",
            "d 2",
            "p 3",
            "i 33",
            "l -1",
            "l 70",
            "i NULL",
            "coalesce(i,2) l",
            "i 2.9",
        )
        for text in _pairs(("<<", ">>", ">>>"), *pair.split())
    ],
    *(f"~{name}" for name in "thil"),
    *(f"bit_count({name})" for name in "thilb"),
    *(
        f"getbit({name}, {place})"
        for name in "thil"
        for place in ("0", "7", "8", "31", "63", "-1", "i", "NULL", "t")
    ),
    *(
        "bit_get(l, 40L)",
        "shiftleft(i, 3)",
        "shiftright(l, t)",
        "shiftrightunsigned(h, 3)",
        "1 << i + 2 & 255 ^ j",
        "i | j ^ l & 7",
    ),
    *(
        "~i & 15 = 3 AND i | 1 > 2",
        "-i >> 2 - 1",
        "~-i",
        "- ~i",
        "~~l",
        "i & 6 IN (2, 4)",
        "i << 2 BETWEEN j & 7 AND j | 7",
    ),
]

COMPARISONS = [
    *[text for pair in ("i j", "l i", "d e", "f d", "p q", "w p", "s u", "y x", "at ts", "y at", "b c", "v o", "n i", "n d", "n p", "z y", "z at", "l d", "i p", "n b")
      for text in _pairs(("=", "<", ">="), *pair.split())],
    *_pairs(("<>", "<=", ">"), "d", "e"),
    *_pairs(("<>", "<=", ">"), "s", "u"),
    *[text for value in ("0.0D", "double('NaN')", "1.5D", "1", "double('-Infinity')")
      for text in _pairs(("=", "<>", "<", "<=", ">", ">=", "<=>"), "d", value)],
    *_pairs(("<", ">="), "0.0D", "d"),
    *_pairs(("=", "<", ">"), "f", "0.1D"),
    *("i <=> j", "d <=> e", "s <=> u", "b <=> c", "i <=> NULL", "NULL <=> i", "p <=> q", "v <=> o"),
    *("NULL <=> NULL", "equal_null(NULL, NULL)", "NULL = NULL", "NULL < NULL", "NULL IN (NULL)", "NULL NOT IN (NULL, NULL)"),
    *("NULL BETWEEN NULL AND NULL", "greatest(NULL, NULL) IS NULL", "coalesce(least(NULL, NULL), i)"),
    *("i IN (1, 2, 3)", "i IN (1, NULL)", "d IN (0.0D, double('NaN'))", "d IN (1, 2, 3, 4, 5, 6, double('NaN'), 0)", "s IN ('a', 'abc', '')"),
    *("s IN ('a', 'abc', '', 'A', 'ß', NULL)", "i IN (j, k)", "i IN (j, 1 / k)", "i NOT IN (1, 2)", "p IN (1, 2.5)", "i IN (NULL)", "l IN (i, d)"),
    *("b IN (true)", "y IN (DATE'2024-02-29', x)", "s BETWEEN 'a' AND 'b'", "i BETWEEN k AND j", "d BETWEEN 0 AND e", "n = 1", "z > DATE'2024-01-01'"),
]  # fmt: skip

CHOICES = [
    *("b AND c", "b OR c", "NOT b", "b AND i / k > 0", "b OR i / k > 0", "b AND c AND NULL", "b OR NULL OR c", "b = c AND c"),
    *("i IS NULL", "i IS NOT NULL", "d IS NULL", "b IS TRUE", "NULL IS NULL", "(i + j) IS NULL", "(1 / k) IS NOT NULL"),
    *("CASE WHEN k = 0 THEN 0 ELSE i / k END", "CASE WHEN b THEN i WHEN c THEN l ELSE d END", "CASE WHEN b THEN s END", "CASE k WHEN 0 THEN 'zero' WHEN 1 THEN 'one' END"),
    *("CASE WHEN b THEN 1 / k WHEN c THEN i ELSE j END", "CASE WHEN i / k > 0 THEN 1 ELSE 2 END", "CASE WHEN b THEN p ELSE w END", "CASE WHEN b THEN y ELSE at END"),
    *("CASE WHEN b THEN NULL ELSE 2 END", "CASE WHEN true THEN i ELSE 1 / 0 END", "if(b, i, j)", "if(b, 1 / k, 0)", "if(b, NULL, s)", "if(b, i, d)"),
    *("coalesce(i, j)", "coalesce(i, 1 / k)", "coalesce(NULL, i, 7)", "coalesce(s, n)", "coalesce(d, i, p)", "coalesce(1 / k, 0)", "ifnull(i, l)"),
    *("nvl(s, 'none')", "nvl2(i, j, k)", "nvl2(i, 1 / k, 0)", "nvl2(NULL, 1, s)", "nullif(i, j)", "nullif(i, 0)", "nullif(i, 0.0D)", "nullif(s, '')"),
    *("nullif(d, double('NaN'))", "greatest(i, j, k)", "least(i, j, k)", "greatest(d, e)", "least(d, e)", "greatest(s, u)", "least(y, x)", "greatest(at, ts)"),
    *("greatest(i, l, d)", "greatest(i, NULL, 3)", "least(p, q)", "greatest(f, d)", "least(b, c)", "greatest(p, i, w)", "isnan(d)", "isnan(f)", "isnan(i)"),
    *("nanvl(d, e)", "nanvl(d, 0)", "nanvl(f, d)", "nanvl(d, NULL)", "greatest(1 / k, 0)", "least(v, o)", "if(k > 0, i + j, l)"),
]  # fmt: skip

_CAST = {
    "BOOLEAN": "b t h i l f d p w n s",
    "TINYINT": "b t h i l f d p w n at",
    "SMALLINT": "h i l d p n at",
    "INT": "b t h l f d p w n s at",
    "BIGINT": "b t i f d p w n at",
    "FLOAT": "b i l d p w n at",
    "DOUBLE": "b i l f p w n s at",
    "DECIMAL(10,2)": "b t i l d p q w n at",
    "DECIMAL(38,18)": "i l p n",
    "DECIMAL(3,3)": "i d q n",
    "DECIMAL(20,0)": "l d p w n at",
    "STRING": "b t i l p q w s y at",
    "DATE": "y at z n",
    "TIMESTAMP": "at y z i l d f p q",
    "BINARY": "s",
}

CASTS = [
    *[f"CAST({column} AS {kind})" for kind, columns in _CAST.items() for column in columns.split()],
    *[f"TRY_CAST({column} AS {kind})" for kind, columns in _CAST.items() if kind != "BINARY" for column in columns.split()[::3]],
    *("CAST(NULL AS INT)", "CAST(CAST(s AS BINARY) AS STRING)", "CAST(CAST(i AS STRING) AS INT)", "CAST('12' AS INT) + i", "int(d)", "string(i)", "double(n)"),
]  # fmt: skip
"""CAST of DOUBLE AS STRING is tested separately: Java before 19 does not always write the shortest digits."""

NUMBERS = [
    *[f"{name}({column})" for name in ("ceil", "floor") for column in ("i", "l", "d", "f", "p", "q", "w", "n")],
    *[f"{name}({column})" for name in ("round", "bround") for column in ("i", "l", "d", "f", "p", "w")],
    *[f"{name}({column}, {digits})" for name in ("round", "bround") for column in ("i", "l", "t", "d", "f", "p", "w") for digits in (1, 2, -1)],
    *("round(d, 3)", "round(i, -10)", "round(l, -18)", "round(d, -20)", "round(p, 5)", "round(p, -5)", "bround(w, -3)"),
    *("sign(d)", "sign(i)", "sign(p)", "sqrt(d)", "sqrt(i)", "ceiling(d)", "signum(n)"),
]  # fmt: skip

TRANSCENDENTAL = [
    *(
        "exp(d)",
        "exp(i)",
        "ln(d)",
        "log(e, d)",
        "log(d)",
        "log10(d)",
        "log2(d)",
        "pow(d, e)",
        "pow(d, k)",
        "power(2, k)",
        "pow(d, 0.5D)",
    ),
    *("log10(l)", "ln(p)", "log(2, i)"),
]

TEXTS = [
    *("upper(s)", "lower(s)", "ucase(n)", "length(s)", "char_length(u)", "trim(s)", "ltrim(s)", "rtrim(s)", "initcap(s)", "reverse(s)"),
    *("substring(s, 2)", "substring(s, 2, 2)", "substring(s, -3, 2)", "substring(s, 0, 2)", "substring(s, k, 3)", "substr(s, -2)", "substring(s, 2, -1)"),
    *("substring(s, -100, 99)", "substring(s, k, i)", "left(s, 2)", "left(s, k)", "right(s, 2)", "right(s, k)", "right(s, 0)", "left(s, -1)"),
    *("s || u", "s || '-' || u", "concat(s, u, s)", "s || i", "concat(s)", "concat(s, NULL)", "concat_ws('-', s, u, 'x')", "concat_ws(s, u, NULL)"),
    *("concat_ws('-', s)", "concat_ws(',', i, s)", "replace(s, 'a', 'xy')", "replace(s, 'b')", "replace(s, '', 'x')", "replace(s, u, '*')"),
    *("instr(s, 'b')", "instr(s, '')", "instr(s, u)", "locate('b', s)", "locate('a', s, 2)", "locate(u, s, k)", "locate('', s, 3)", "locate('a', s, NULL)"),
    *("position('c', s)", "lpad(s, 5, '*')", "lpad(s, 5)", "lpad(s, 7, 'xyz')", "rpad(s, 5, 'é')", "rpad(s, 2)", "lpad(s, k, u)", "rpad(s, 6, '')", "lpad(s, 0, 'x')"),
    *("repeat(s, 2)", "repeat(s, 0)", "repeat(s, -1)", "repeat(s, k)", "startswith(s, 'a')", "startswith(s, u)", "endswith(s, 'b')", "endswith(s, '')"),
    *("contains(s, 'X')", "contains(s, u)", "split_part(s, '.', 2)", "split_part(s, 'X', -1)", "split_part(s, 'X', k)", "split_part(s, '', 1)", "split_part(s, u, 1)"),
    *("split_part(s, '.', 9)", "ltrim('ab', s)", "rtrim('bc', s)", "ltrim('', s)", "rtrim(u, s)"),
    *("trim('ab', s)", "trim(BOTH 'a' FROM s)", "trim(BOTH u FROM s)", "trim(BOTH '' FROM s)", "trim('a' FROM s)", "trim(u, s)"),
    *("trim(BOTH FROM s)", "trim(FROM s)", "trim(LEADING 'ab' FROM s)", "trim(TRAILING u FROM s)", "trim(TRAILING FROM s)"),
    *("s LIKE 'a!%c' ESCAPE '!'", "s LIKE u ESCAPE '%'", "s NOT LIKE '%/_%' ESCAPE '/'", "s ILIKE 'AXBXC' ESCAPE 'X'", "s ILIKE 'A/_%' ESCAPE '/'"),
    *("like(s, 'a/_c', '/')", "like(s, u)", "ilike(s, 'A%')", "ilike(s, 'A/%C', '/')", "like(s, u, '_')", "s LIKE 'aabc' ESCAPE 'a'"),
    *("s LIKE 'a%'", "s LIKE '%b'", "s LIKE '%X%'", "s LIKE 'a_c'", "s LIKE '%'", "s LIKE ''", "s LIKE '_'", "s LIKE 'a\\\\_c'", "s LIKE '%a%c%'"),
    *("s LIKE 'line%break'", "s LIKE u", "s NOT LIKE 'a%'", "s ILIKE 'ABC%'", "s ILIKE '%É%'", "s LIKE '\\\\\\\\'", "s LIKE 'a.b.c'"),
    *("s RLIKE 'b'", "s RLIKE '^a'", "s RLIKE 'c$'", "s RLIKE '^.*k$'", "s RLIKE '[a-c]+\\\\.b'", "s RLIKE '\\\\s'", "s RLIKE '\\\\w{3,}'", "s RLIKE 'line.break'"),
    *("s RLIKE '(abc|head)'", "regexp_like(s, '[^a-z ]')", "regexp_extract(s, '([a-z]+)-([0-9]+)', 2)", "regexp_extract(s, '([a-z])', 0)"),
    *("regexp_extract(s, '(x)?a')", "regexp_extract(s, '\\\\((a)', 1)", "regexp_replace(s, '[abc]', '<$0>')", "regexp_replace(s, '(a)(.)', '$2$1')", "regexp_replace(s, '\\\\s+', '_')"),
    *("regexp_replace(s, '\\\\D+', '')", "length(i)", "upper(i)", "s = upper(u)", "lower(z)"),
]  # fmt: skip

TIMES = [
    *[f"{name}({column})" for name in ("year", "month", "day", "quarter", "dayofweek", "weekday", "dayofyear", "weekofyear", "last_day") for column in ("y", "at")],
    *[f"{name}(at)" for name in ("hour", "minute", "second", "unix_seconds", "unix_millis", "unix_micros", "to_date", "to_timestamp", "unix_timestamp")],
    *[f"date_trunc('{unit}', at)" for unit in ("year", "QUARTER", "mon", "week", "DD", "hour", "minute", "second", "millisecond", "microsecond", "century9")],
    *[f"trunc(y, '{unit}')" for unit in ("yy", "quarter", "MM", "week", "day")],
    *("date_trunc('day', y)", "trunc(at, 'month')", "year(z)", "dayofmonth(y)", "unix_date(y)", "hour(y)", "to_date(z)", "to_timestamp(z)", "date_trunc(s, at)"),
    *("timestamp_seconds(i)", "timestamp_seconds(l)", "timestamp_seconds(d)", "timestamp_seconds(f)", "timestamp_millis(l)", "timestamp_micros(l)", "timestamp_micros(i)"),
    *("date_add(y, k)", "date_add(y, i)", "date_sub(y, 1)", "date_add(at, 1)", "datediff(y, x)", "datediff(at, y)", "datediff(z, y)", "date_add(y, NULL)"),
    *("y + k", "k + y", "y - k", "y - x", "at - ts", "at - y", "y - at", "at + v", "v + at", "at - v", "v + o", "v - o", "v * k", "k * v", "v * d", "v / k", "v / d", "v * 1.5D"),
    *("at + INTERVAL 1 DAY", "at - INTERVAL 90 MINUTES", "at > ts - INTERVAL 1 HOUR", "v > INTERVAL 1 SECOND", "y = at", "unix_timestamp(y)"),
    *("EXTRACT(YEAR FROM y)", "EXTRACT(DOW FROM y)", "EXTRACT(WEEK FROM at)"),
]  # fmt: skip

_COMPUTED = ("at + v", "v + at", "at - v")
"""Where a day of an interval is counted by Spark's clocks; ours takes one of a column as 24 hours."""
IN_ZONES = [
    *[text for text in TIMES if text not in _COMPUTED],
    *("at + INTERVAL 36 HOURS", "at - INTERVAL '1 02:30:00' DAY TO SECOND"),
    *[f"CAST({column} AS {kind})" for column in ("at", "ts", "y", "z", "s") for kind in ("TIMESTAMP", "STRING") if (column, kind) != ("s", "STRING")],
    *("CAST(at AS DATE)", "CAST(s AS DATE)", "CAST(at AS BIGINT)", "CAST(i AS TIMESTAMP)", "TRY_CAST(s AS TIMESTAMP)", "TRY_CAST(z AS TIMESTAMP)"),
    *("at > TIMESTAMP '2024-03-10 02:30:00'", "at < TIMESTAMP '2024-07-01 00:00:00Z'", "TIMESTAMP '2024-11-03 01:30:00'", "y < at", "coalesce(at, y)", "if(k > 0, at, y)"),
    *("from_utc_timestamp(at, 'Asia/Tokyo')", "to_utc_timestamp(at, 'America/Los_Angeles')", "to_utc_timestamp(at, s)"),
]  # fmt: skip
OWN = ("to_timestamp_in",)
"""Functions that Spark does not have."""

FAMILIES = {
    "examples": [row.example for row in TABLE if row.name not in OWN],
    "structs": [
        "struct(i, s)",
        "struct(i, s, i + 1)",
        "named_struct('a', i, 'b', struct(u))",
        "if(i > 0, struct(s), NULL)",
    ],
    "arithmetic": ARITHMETIC,
    "bits": BITS,
    "comparisons": COMPARISONS,
    "choices": CHOICES,
    "casts": CASTS,
    "numbers": NUMBERS,
    "transcendental": TRANSCENDENTAL,
    "texts": TEXTS,
    "times": TIMES,
}
