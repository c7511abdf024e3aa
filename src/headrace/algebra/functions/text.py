"""Rows of the function table (name, type rule, help text): functions of texts, regular expressions included."""

from __future__ import annotations

from typing import Final

from headrace.algebra.functions.entry import Function, nonstrict
from headrace.algebra.functions.type_rules import fixed, pattern_of, repeated
from headrace.schema import BOOLEAN, INT, STRING

_text_and_number = fixed(STRING, STRING, INT)
_two_texts = fixed(BOOLEAN, STRING, STRING)
_padded = fixed(STRING, STRING, INT, optional=(STRING,))
_trimmed = fixed(STRING, STRING, optional=(STRING,))

TEXTS: Final = (
    Function(
        "upper",
        "upper(text)",
        fixed(STRING, STRING),
        "In capital letters.",
        "upper('ß é')",
        aliases=("ucase",),
    ),
    Function(
        "lower", "lower(text)", fixed(STRING, STRING), "In small letters.", "lower('ÀB')", aliases=("lcase",)
    ),
    Function(
        "length",
        "length(text)",
        fixed(INT, STRING),
        "Number of characters.",
        "length('añ😀')",
        aliases=("char_length", "character_length", "len"),
    ),
    Function(
        "trim",
        "trim([characters, ]text)",
        _trimmed,
        "Without spaces (or the characters) at both ends. Also `TRIM([BOTH | LEADING | TRAILING] [characters] FROM text)`.",
        "trim('  a ')",
    ),
    Function(
        "ltrim",
        "ltrim([characters, ]text)",
        _trimmed,
        "Without spaces (or the characters) at the start.",
        "ltrim('  a ')",
    ),
    Function(
        "rtrim",
        "rtrim([characters, ]text)",
        _trimmed,
        "Without spaces (or the characters) at the end.",
        "rtrim('  a ')",
    ),
    Function(
        "substring",
        "substring(text, from[, length])",
        fixed(STRING, STRING, INT, optional=(INT,)),
        "Characters from a position counted from 1, or from the end if negative.",
        "substring('headrace', -4, 2)",
        aliases=("substr",),
    ),
    Function("left", "left(text, length)", _text_and_number, "The first characters.", "left('headrace', 4)"),
    Function(
        "right", "right(text, length)", _text_and_number, "The last characters.", "right('headrace', 4)"
    ),
    nonstrict(
        "concat_ws",
        "concat_ws(separator, text, …)",
        repeated(STRING, STRING, before=(STRING,), least=0),
        "Concatenation of the texts that are not NULL, with a separator; NULL only for a NULL separator.",
        "concat_ws('-', 'a', NULL, 'b')",
    ),
    Function(
        "replace",
        "replace(text, searched[, replacement])",
        fixed(STRING, STRING, STRING, optional=(STRING,)),
        "Every occurrence replaced, or removed.",
        "replace('abab', 'b', 'x')",
    ),
    Function(
        "instr",
        "instr(text, searched)",
        fixed(INT, STRING, STRING),
        "Position of the first occurrence counted from 1, else 0.",
        "instr('headrace', 'race')",
    ),
    nonstrict(
        "locate",
        "locate(searched, text[, from])",
        fixed(INT, STRING, STRING, optional=(INT,)),
        "Position of the first occurrence at or after `from`, else 0; 0 for a NULL `from`.",
        "locate('a', 'headrace', 4)",
        aliases=("position",),
    ),
    Function(
        "lpad",
        "lpad(text, length[, filling])",
        _padded,
        "Filled at the start, or cut, to a length.",
        "lpad('7', 3, '0')",
    ),
    Function(
        "rpad",
        "rpad(text, length[, filling])",
        _padded,
        "Filled at the end, or cut, to a length.",
        "rpad('7', 3, '.')",
    ),
    Function("repeat", "repeat(text, times)", _text_and_number, "The text several times.", "repeat('ab', 3)"),
    Function(
        "reverse", "reverse(text)", fixed(STRING, STRING), "Characters in the other order.", "reverse('añ😀')"
    ),
    Function(
        "startswith",
        "startswith(text, searched)",
        _two_texts,
        "Whether the text starts with the other one.",
        "startswith('headrace', 'head')",
    ),
    Function(
        "endswith",
        "endswith(text, searched)",
        _two_texts,
        "Whether the text ends with the other one.",
        "endswith('headrace', 'race')",
    ),
    Function(
        "contains",
        "contains(text, searched)",
        _two_texts,
        "Whether the text contains the other one.",
        "contains('headrace', 'dra')",
    ),
    Function(
        "split_part",
        "split_part(text, delimiter, number)",
        fixed(STRING, STRING, STRING, INT),
        "A part counted from 1, or from the end if negative; empty outside; 0 is an error.",
        "split_part('a.b.c', '.', 2)",
    ),
    Function(
        "initcap",
        "initcap(text)",
        fixed(STRING, STRING),
        "Each word between spaces with one capital letter.",
        "initcap('hEAD race')",
    ),
    Function(
        "rlike",
        "text RLIKE pattern",
        pattern_of(BOOLEAN),
        "Whether a regular expression (a constant) matches somewhere.",
        "'headrace' RLIKE 'd.a'",
        aliases=("regexp", "regexp_like"),
    ),
    Function(
        "regexp_extract",
        "regexp_extract(text, pattern[, group])",
        pattern_of(STRING),
        "A group (default 1) of the first match; empty without one. Pattern and group are constants.",
        "regexp_extract('a-12', '([a-z])-(\\\\d+)', 2)",
    ),
    Function(
        "regexp_replace",
        "regexp_replace(text, pattern, replacement)",
        pattern_of(STRING, replaces=True),
        "Every match replaced; pattern and replacement are constants.",
        "regexp_replace('a1b22', '\\\\d+', '#')",
    ),
)
