"""Rows of the function table (name, type rule, help text): functions of dates and timestamps."""

from __future__ import annotations

from typing import Final

from headrace.algebra.functions.entry import Function
from headrace.algebra.functions.type_rules import fixed, instant_of, zoned
from headrace.schema import BIGINT, DATE, INT, STRING, TIMESTAMP

_date_part = fixed(INT, DATE)
_time_part = fixed(INT, TIMESTAMP)

TIMES: Final = (
    Function("year", "year(date)", _date_part, "The year.", "year(DATE'2024-02-29')"),
    Function("month", "month(date)", _date_part, "The month, 1 to 12.", "month(DATE'2024-02-29')"),
    Function(
        "day",
        "day(date)",
        _date_part,
        "The day of the month.",
        "day(DATE'2024-02-29')",
        aliases=("dayofmonth",),
    ),
    Function(
        "hour", "hour(timestamp)", _time_part, "The hour, 0 to 23.", "hour(TIMESTAMP'2024-02-29 13:14:15')"
    ),
    Function(
        "minute", "minute(timestamp)", _time_part, "The minute.", "minute(TIMESTAMP'2024-02-29 13:14:15')"
    ),
    Function(
        "second",
        "second(timestamp)",
        _time_part,
        "The whole second.",
        "second(TIMESTAMP'2024-02-29 13:14:15')",
    ),
    Function(
        "dayofweek",
        "dayofweek(date)",
        _date_part,
        "1 for Sunday to 7 for Saturday.",
        "dayofweek(DATE'2024-02-29')",
    ),
    Function(
        "weekday", "weekday(date)", _date_part, "0 for Monday to 6 for Sunday.", "weekday(DATE'2024-02-29')"
    ),
    Function(
        "dayofyear",
        "dayofyear(date)",
        _date_part,
        "The day of the year, from 1.",
        "dayofyear(DATE'2024-02-29')",
    ),
    Function("quarter", "quarter(date)", _date_part, "The quarter, 1 to 4.", "quarter(DATE'2024-02-29')"),
    Function(
        "weekofyear",
        "weekofyear(date)",
        _date_part,
        "The ISO week, starting on Monday.",
        "weekofyear(DATE'2024-12-30')",
    ),
    Function(
        "date_trunc",
        "date_trunc(unit, timestamp[, zone])",
        zoned(TIMESTAMP, STRING, TIMESTAMP, optional=True),
        "The start of its YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND or MICROSECOND, in the local time of the zone; NULL for another unit.",
        "date_trunc('HOUR', TIMESTAMP'2024-02-29 13:14:15')",
    ),
    Function(
        "trunc",
        "trunc(date, unit)",
        fixed(DATE, DATE, STRING),
        "The first day of its YEAR, QUARTER, MONTH or WEEK; NULL for another unit.",
        "trunc(DATE'2024-02-29', 'MONTH')",
    ),
    Function(
        "to_date",
        "to_date(value)",
        fixed(DATE, DATE),
        "CAST AS DATE.",
        "to_date('2024-02-29')",
        aliases=("date",),
    ),
    Function(
        "to_timestamp",
        "to_timestamp(value)",
        fixed(TIMESTAMP, TIMESTAMP),
        "CAST AS TIMESTAMP.",
        "to_timestamp('2024-02-29 13:14:15')",
        aliases=("timestamp",),
    ),
    Function(
        "to_timestamp_in",
        "to_timestamp_in(text, zone)",
        zoned(TIMESTAMP, STRING),
        "CAST AS TIMESTAMP; a text without a zone is local time of this zone.",
        "to_timestamp_in('2024-07-01 12:00:00', 'Europe/Berlin')",
    ),
    Function(
        "from_utc_timestamp",
        "from_utc_timestamp(timestamp, zone)",
        fixed(TIMESTAMP, TIMESTAMP, STRING),
        "The local time of a zone, as if it were UTC.",
        "from_utc_timestamp(TIMESTAMP'2024-07-01 12:00:00', 'Asia/Tokyo')",
    ),
    Function(
        "to_utc_timestamp",
        "to_utc_timestamp(timestamp, zone)",
        fixed(TIMESTAMP, TIMESTAMP, STRING),
        "The instant of this local time of a zone, where the argument is read as UTC.",
        "to_utc_timestamp(TIMESTAMP'2024-07-01 12:00:00', 'Asia/Tokyo')",
    ),
    Function(
        "unix_seconds",
        "unix_seconds(timestamp)",
        fixed(BIGINT, TIMESTAMP),
        "Whole seconds since 1970, rounded down.",
        "unix_seconds(TIMESTAMP'1969-12-31 23:59:59.5')",
    ),
    Function(
        "unix_timestamp",
        "unix_timestamp(timestamp)",
        fixed(BIGINT, TIMESTAMP),
        "Whole seconds since 1970, cut off towards zero.",
        "unix_timestamp(TIMESTAMP'1969-12-31 23:59:58.5')",
        aliases=("to_unix_timestamp",),
    ),
    Function(
        "unix_millis",
        "unix_millis(timestamp)",
        fixed(BIGINT, TIMESTAMP),
        "Whole milliseconds since 1970, rounded down.",
        "unix_millis(TIMESTAMP'1969-12-31 23:59:59.5')",
    ),
    Function(
        "unix_micros",
        "unix_micros(timestamp)",
        fixed(BIGINT, TIMESTAMP),
        "Microseconds since 1970.",
        "unix_micros(TIMESTAMP'1969-12-31 23:59:59.5')",
    ),
    Function(
        "unix_date", "unix_date(date)", fixed(INT, DATE), "Days since 1970.", "unix_date(DATE'2024-02-29')"
    ),
    Function(
        "timestamp_seconds",
        "timestamp_seconds(number)",
        instant_of(True),
        "The instant of a number of seconds since 1970.",
        "timestamp_seconds(1700000000)",
    ),
    Function(
        "timestamp_millis",
        "timestamp_millis(integer)",
        instant_of(False),
        "The instant of a number of milliseconds since 1970.",
        "timestamp_millis(1700000000123)",
    ),
    Function(
        "timestamp_micros",
        "timestamp_micros(integer)",
        instant_of(False),
        "The instant of a number of microseconds since 1970.",
        "timestamp_micros(1700000000123456)",
    ),
    Function(
        "date_add",
        "date_add(date, days)",
        fixed(DATE, DATE, INT),
        "The date `days` later.",
        "date_add(DATE'2024-02-28', 2)",
        aliases=("dateadd",),
    ),
    Function(
        "date_sub",
        "date_sub(date, days)",
        fixed(DATE, DATE, INT),
        "The date `days` earlier.",
        "date_sub(DATE'2024-03-01', 1)",
    ),
    Function(
        "datediff",
        "datediff(end, start)",
        fixed(INT, DATE, DATE),
        "Days from start to end.",
        "datediff(DATE'2024-03-01', DATE'2024-02-28')",
        aliases=("date_diff",),
    ),
    Function(
        "last_day",
        "last_day(date)",
        fixed(DATE, DATE),
        "The last day of its month.",
        "last_day(DATE'2024-02-05')",
    ),
)
