"""Functions of Spark that are refused, each with its reason, and those of other dialects with what is written in their place."""

from __future__ import annotations

from typing import Final

from headrace.errors import UnsupportedQuery, UserError

_AGGREGATE_LIST: Final = """
percentile_approx collect_list collect_set array_agg sum_distinct
grouping string_agg listagg histogram_numeric try_sum try_avg
"""
_AGGREGATES: Final = frozenset(_AGGREGATE_LIST.split())
_CLOCK_LIST: Final = """
now current_timestamp current_date curdate current_time localtimestamp rand random randn uuid
shuffle monotonically_increasing_id input_file_name spark_partition_id
"""
_CLOCK: Final = frozenset(_CLOCK_LIST.split())
_RANKS: Final = frozenset(
    ["row_number", "rank", "dense_rank", "percent_rank", "ntile", "lag", "lead", "cume_dist", "nth_value"]
)
_AVAILABLE: Final = (
    "Available are COUNT, COUNT_IF, SUM, AVG, MIN, MAX, VARIANCE, VAR_POP, STDDEV, STDDEV_POP, "
    "SKEWNESS, KURTOSIS, MEDIAN, PERCENTILE, MODE, TOP_K, HEAVY_HITTERS, L1_NORM, L2_NORM, BOOL_AND, BOOL_OR, BIT_AND, BIT_OR, BIT_XOR, FIRST, LAST, ANY_VALUE, MAX_BY, MIN_BY, CORR, "
    "COVAR_POP, COVAR_SAMP, SLOPE, INTERCEPT, R2, EWMA and ZSCORE, and APPROX_COUNT, APPROX_SUM, "
    "APPROX_DISTINCT, APPROX_PERCENTILE and APPROX_TOP_K."
)


_OF_TEXTS: Final = ("listagg", "string_agg")
_JOINED_TEXTS: Final = "Select the rows of the window: texts of several rows are not joined."

_WINDOW_LIST: Final = """
tumble hop cumulate session tumble_start tumble_end tumble_rowtime hop_start hop_end hop_rowtime session_start session_end
session_rowtime time_bucket time_bucket_gapfill date_bin time_slice
"""
_IN_PLACE: Final[dict[str, str]] = {
    **dict.fromkeys(
        _WINDOW_LIST.split(),
        "Write GROUP BY window(at, '1 minute') or session_window(at, '5 minutes'), or FROM s [RANGE TUMBLING 1 MINUTE], "
        "and select window_start and window_end.",
    ),
    **dict.fromkeys(
        ("hll", "hll_sketch_agg", "hll_count", "uniq", "ndv", "approx_unique"),
        "Write APPROX_DISTINCT(x), or COUNT(DISTINCT x).",
    ),
    **dict.fromkeys(
        (
            "quantile",
            "quantile_cont",
            "quantile_disc",
            "approx_quantile",
            "percentile_cont",
            "percentile_disc",
        ),
        "Write PERCENTILE(x, 0.5), or APPROX_PERCENTILE(x, 0.5).",
    ),
    **dict.fromkeys(
        ("arg_max", "arg_min", "argmax", "argmin"),
        "Write MAX_BY(x, y), the x of the row with the greatest y, or MIN_BY(x, y).",
    ),
    **dict.fromkeys(("latest_by_offset", "last_agg"), "Write LAST(x), or LAST(x, true) without nulls."),
    **dict.fromkeys(("earliest_by_offset", "first_agg"), "Write FIRST(x), or FIRST(x, true) without nulls."),
    "group_concat": _JOINED_TEXTS,
    **dict.fromkeys(
        ("strftime", "to_char", "date_format", "format_datetime"),
        "Write CAST(at AS STRING), or EXTRACT(YEAR FROM at) for a part.",
    ),
    **dict.fromkeys(
        ("json_value", "json_query", "json_extract", "json_extract_string", "get_json_object"),
        "Declare a column for each value: USING json reads fields by name.",
    ),
    **dict.fromkeys(("dateadd", "timestampadd", "adddate"), "Write at + INTERVAL 1 DAY."),
    "timestampdiff": "Write unix_timestamp(b) - unix_timestamp(a), or b - a for an INTERVAL.",
    **dict.fromkeys(
        ("proctime", "mz_now", "getdate", "sysdate", "clock_timestamp"),
        "Use the event time of the rows: a standing query must answer the same whenever it runs.",
    ),
}
"""Functions of other dialects, and what is written here."""


_WITH_UNIT: Final = 3
"""Arguments of DATEADD(unit, number, time); DATEADD(date, days) is a function of the table."""


def refuse_function_of_others(name: str, arguments: int) -> None:
    """Raises `UserError` with what is written here for a function of another dialect with so many arguments."""
    remedy = _IN_PLACE.get(name.lower())
    if remedy is not None and (name.lower() != "dateadd" or arguments == _WITH_UNIT):
        raise UserError(f"there is no function '{name}'", remedy=remedy)


def refusal(name: str) -> None:
    """Raises `UnsupportedQuery` with the reason when a function of Spark is not available."""
    folded, upper = name.lower(), name.upper()
    if folded in _AGGREGATES:
        remedy = _JOINED_TEXTS if folded in _OF_TEXTS else _AVAILABLE
        raise UnsupportedQuery(f"the aggregate {upper} is not available yet", remedy=remedy)
    if folded in _CLOCK:
        raise UnsupportedQuery(
            f"{upper} is not available: a standing query must answer the same whenever it runs",
            remedy="Use the event time of the rows; BEGIN NOW - INTERVAL … END NOW follows the event time of the stream.",
        )
    if folded in _RANKS:
        raise UnsupportedQuery(
            f"{upper} is not available yet", remedy="ORDER BY and LIMIT keep the first rows of each window."
        )
    if folded in ("window", "session_window", "window_time"):
        raise UnsupportedQuery(
            f"{folded}(…) is allowed only where GROUP BY has it",
            remedy="Select window.start and window.end, or window_start and window_end.",
        )
