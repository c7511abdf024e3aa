"""Patterns of punctuation as they are written: what each form means, and what is no pattern."""

from __future__ import annotations

import pytest

from headrace.algebra.expressions.punctuation_patterns import Between, OneOf, pattern_named
from headrace.errors import UserError
from headrace.language.binder.expressions.punctuation_patterns import bind_pattern
from headrace.schema import BIGINT, BOOLEAN, DATE, INT, STRING, TIMESTAMP, Field, Schema
from headrace.time import FOREVER, SECOND

SCHEMA = Schema(
    (
        Field("ip", STRING),
        Field("port", INT),
        Field("ok", BOOLEAN),
        Field("day", DATE),
        Field("length", BIGINT),
        Field("at", TIMESTAMP),
    )
)
COLUMNS = ("ip", "port", "ok", "day")
NINE = 9 * SECOND
FORMS = {
    "ip = '1.2.3.4'": ({"ip": OneOf(("1.2.3.4",))}, FOREVER),
    "'1.2.3.4' = IP": ({"ip": OneOf(("1.2.3.4",))}, FOREVER),
    "ip IS NULL AND ok = TRUE": ({"ip": OneOf((None,)), "ok": OneOf((True,))}, FOREVER),
    "port IN (80, 443, NULL)": ({"port": OneOf((None, 80, 443))}, FOREVER),
    "port BETWEEN -1 AND 1024": ({"port": Between(-1, 1024)}, FOREVER),
    "port < 5 AND ip >= 'b'": ({"ip": Between("b"), "port": Between(high=5, below=True)}, FOREVER),
    "5 < port": ({"port": Between(5, above=True)}, FOREVER),
    "day <= DATE '2024-05-01'": ({"day": Between(high="2024-05-01")}, FOREVER),
    "port = 1 AND at < TIMESTAMP '1970-01-01 00:00:09'": ({"port": OneOf((1,))}, NINE),
    "at <= TIMESTAMP '1970-01-01 00:00:09'": ({}, NINE + 1),
}
WRONG = {
    "length = 5": "punctuation of this stream does not apply to 'length'",
    "port = ip": "this is no test of a pattern",
    "port = 1 OR ip = 'a'": "this is no test of a pattern",
    "port <> 1": "this is no test of a pattern",
    "port NOT IN (1)": "this is no test of a pattern",
    "port + 1 = 2": "this is no test of a pattern",
    "port IN (1, port)": "a pattern compares columns with constants",
    "port = '1'": "'port' is INT, not STRING",
    "ip = 1": "'ip' is STRING, not INT",
    "port < NULL": "NULL is no end of a range",
    "port > 1 AND port < 5": "the column 'port' is tested twice",
    "at > TIMESTAMP '1970-01-01 00:00:09'": "a promise about event time reaches from the beginning",
    "at = TIMESTAMP '1970-01-01 00:00:09'": "a promise about event time reaches from the beginning",
}


@pytest.mark.parametrize("text", FORMS)
def test_a_pattern_is_read_and_survives_as_its_name(text: str) -> None:
    tests, bound = FORMS[text]
    pattern, at = bind_pattern(text, SCHEMA, COLUMNS, "at")
    assert at == bound
    assert pattern_named(pattern.text()).text() == pattern.text()
    read = dict(pattern_named(pattern.text()).tests)
    assert read == tests


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_pattern_is_refused_with_its_place_and_a_remedy(text: str) -> None:
    with pytest.raises(UserError) as raised:
        bind_pattern(text, SCHEMA, COLUMNS, "at")
    assert raised.value.message == WRONG[text]
    assert raised.value.span is not None


def test_times_of_a_pattern_are_read_by_a_zone_s_clocks() -> None:
    _, bound = bind_pattern("at < TIMESTAMP '1970-01-01 01:00:09'", SCHEMA, COLUMNS, "at", "Europe/Berlin")
    assert bound == NINE
