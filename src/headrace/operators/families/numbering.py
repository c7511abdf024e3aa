"""Numbers of operators, by which the rows of a family's queries are distinguished: that of a registered query, with the
path of a SELECT in its FROM in the upper bits.

The id of a registered query is `q` and the number of its generation, which is never reused. A SELECT in its FROM is
`q5.inner` or `q5.inner2`, one in the FROM of that `q5.inner2.inner`: the upper bits have a digit of base 64 for each step.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np

    from headrace.operators.base.group_codes import Ints

_INNER: Final = ".inner"
_QUERY_BITS: Final = 32
_DIGIT_BITS: Final = 6
_MOST_STEPS: Final = 5
_ID: Final = re.compile(r"q([1-9]\d{0,8}|0)((?:\.inner(?:[1-9]\d?)?)*)")
_KNOWN: Final = 100_000
_WORD: Final = (1 << 64) - 1


@lru_cache(_KNOWN)
def _number(operator_id: str) -> int | None:
    matched = _ID.fullmatch(operator_id)
    if matched is None:
        return None
    steps = [int(step or 0) + 1 for step in matched[2].split(_INNER)[1:]]
    if len(steps) > _MOST_STEPS or any(step >= 1 << _DIGIT_BITS for step in steps):
        return None
    path = 0
    for step in steps:
        path = path << _DIGIT_BITS | step
    return path << _QUERY_BITS | int(matched[1])


def is_numbered(operator_id: str) -> bool:
    """Whether it is the id of a registered query, or of a SELECT in its FROM that is not nested too deeply."""
    return _number(operator_id) is not None


def number_of(operator_id: str) -> int:
    """An operator's number, which has no other operator, so old rows cannot be mistaken for its own."""
    number = _number(operator_id)
    if number is None:
        raise ValueError(f"{operator_id} has no number")
    return number


def are_registered(numbers: Ints) -> np.ndarray:
    """Which of these numbers are those of registered queries, whose ids are `q` and the number."""
    are_here: np.ndarray = numbers < 1 << _QUERY_BITS
    return are_here


def mixed_bits(number: int) -> int:
    """A permutation of 64-bit integers that changes about half of the bits of neighbours. Source: splitmix64 (Steele et al.)."""
    bits = (number + 0x9E3779B97F4A7C15) & _WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = ((bits ^ (bits >> shift)) * factor) & _WORD
    bits ^= bits >> 31
    return bits - (1 << 64) if bits >> 63 else bits


@lru_cache(_KNOWN)
def id_of(number: int) -> str:
    """The operator with a number."""
    path, steps = number >> _QUERY_BITS, list[str]()
    while path:
        step = (path & ((1 << _DIGIT_BITS) - 1)) - 1
        steps.insert(0, f"{_INNER}{step or ''}")
        path >>= _DIGIT_BITS
    return f"q{number & ((1 << _QUERY_BITS) - 1)}{''.join(steps)}"
