"""Functions of Spark that are refused, each with its reason, and those of Flink with what is written in their place."""

from __future__ import annotations

from typing import Final

from headrace.errors import UnsupportedQuery, UserError

_AGGREGATE_LIST: Final = """
any_value percentile_approx collect_list collect_set array_agg max_by min_by sum_distinct bit_and
bit_or bit_xor grouping string_agg listagg histogram_numeric try_sum try_avg
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
    "SKEWNESS, KURTOSIS, MEDIAN, PERCENTILE, MODE, TOP_K, HEAVY_HITTERS, L1_NORM, L2_NORM, BOOL_AND, BOOL_OR, FIRST, LAST, CORR, "
    "COVAR_POP, COVAR_SAMP, SLOPE, INTERCEPT, R2, EWMA and ZSCORE, and APPROX_COUNT, APPROX_SUM, "
    "APPROX_DISTINCT, APPROX_PERCENTILE and APPROX_TOP_K."
)


_WINDOW_LIST: Final = """
tumble hop cumulate session tumble_start tumble_end tumble_rowtime hop_start hop_end hop_rowtime session_start session_end
session_rowtime
"""
_WINDOWS: Final = frozenset(_WINDOW_LIST.split())


def refuse_window_function(name: str) -> None:
    """Raises `UserError` with what is written here for a function of Flink that groups by windows."""
    if name.lower() in _WINDOWS:
        raise UserError(
            f"there is no function '{name}'",
            remedy="Write GROUP BY window(at, '1 minute') or session_window(at, '5 minutes'), or FROM s [RANGE TUMBLING 1 MINUTE], "
            "and select window_start and window_end.",
        )


def refusal(name: str) -> None:
    """Raises `UnsupportedQuery` with the reason when a function of Spark is not available."""
    folded, upper = name.lower(), name.upper()
    if folded in _AGGREGATES:
        raise UnsupportedQuery(f"the aggregate {upper} is not available yet", remedy=_AVAILABLE)
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
            f"{folded}(…) is allowed only in GROUP BY",
            remedy="Select window.start and window.end, or window_start and window_end.",
        )
