"""The page of all scalar functions, written from the table: `docs/reference/functions.md`.

Run as a program it prints the page.
"""

from __future__ import annotations

import sys
from typing import Final

from headrace.algebra.functions.entry import Function
from headrace.algebra.functions.operators_and_math import BITS, CHOICES, MATHEMATICS, OPERATORS
from headrace.algebra.functions.structs import STRUCTS
from headrace.algebra.functions.text import TEXTS
from headrace.algebra.functions.time import TIMES

_SECTIONS: Final = {
    "Operators": OPERATORS,
    "Bits": BITS,
    "Choices": CHOICES,
    "Mathematics": MATHEMATICS,
    "Texts": TEXTS,
    "Dates and times": TIMES,
    "Several values as one": STRUCTS,
}

_INTRODUCTION: Final = """# Scalar functions and operators

Every function below has the results of Spark SQL under ANSI rules (`spark.sql.ansi.enabled`), in the session's zone: values, types,
NULLs and failures. A row on which an expression fails (overflow, division by zero, a cast that overflows) leaves the query and goes
to its reject folder; other queries are not affected. In the column NULL, *strict* means that the result is NULL as soon
as an argument is, and *own rule* that NULL is treated as the meaning describes.

Conversions are those of Spark's ANSI mode: `INT / INT` is DOUBLE, a text that is combined with a number or a time is cast to it,
DECIMAL arithmetic has Spark's precision and scale. Names are case-insensitive.
"""

_DIFFERENCES: Final = """
## Where Spark differs

- AND is false as soon as one operand is false and OR true as soon as one is true, in any order, even where another
  operand fails. Spark does so for operands to the right.
- A failing argument of a strict function fails the row even where another argument is NULL; Spark may ignore it.
- `exp`, the logarithms and `pow` may differ in the last place of a double.
- DOUBLE and FLOAT as text have the shortest digits that read back the same, as Java 19 and later write them.
- `-x` of a DECIMAL with more than 34 digits is exact; Spark rounds it.
- A time of day alone (`'12:30'`) is no TIMESTAMP: Spark takes it as of today.
- Zones by name (`Europe/Paris`) are understood in timestamps of the years 1 to 9999.

## Not available

| | Why |
|---|---|
| `DATE + INTERVAL` | Spark gives DATE or TIMESTAMP by the unit of the INTERVAL, which a column of INTERVALs does not have; use `date_add` or CAST to TIMESTAMP |
| `date_format`, `to_date` and `to_timestamp` with a format | Java's formatter has locale data and rules that differ between versions |
| patterns with look-around, back-references, flags, `\\b`, possessive quantifiers, Unicode classes | matched with RE2, which does not have them or reads them differently; patterns must be constants |
| `regexp_replace` of patterns with `$`, or that can match nothing | Java and RE2 continue differently after such a match |
| `sin`, `cos`, `tan`, `cbrt`, … | Java's last places differ from those of C's library |
| `hash`, `xxhash64`, `md5`, `sha2`, `uuid`, `rand` | not reproduced; random functions are not allowed in a standing query |
| `current_timestamp`, `now` | a standing query's answer must not depend on when it is computed; `NOW` is stream time |
| INTERVAL times or by a DECIMAL | use a DOUBLE or an integer |
| `ceil` and `floor` with digits | use `round` |
| YEAR and MONTH intervals, CAST of and to INTERVAL | an INTERVAL is a number of microseconds |
| functions of arrays, maps and JSON | not yet |
"""


def page() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION]
    for title, rows in _SECTIONS.items():
        parts.append(f"\n## {title}\n\n| | Also | Meaning | NULL | Example |\n|---|---|---|---|---|\n")
        parts.extend(map(_row, rows))
    parts.append(_DIFFERENCES)
    return "".join(parts)


def _row(row: Function) -> str:
    also = ", ".join(f"`{_cell(alias)}`" for alias in row.aliases)
    null = "strict" if row.strict else "own rule"
    return f"| `{_cell(row.usage)}` | {also} | {_cell(row.doc)} | {null} | `{_cell(row.example)}` |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
