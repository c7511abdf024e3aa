"""The entry of one scalar function in the table, without how it is computed."""

from __future__ import annotations

from headrace.algebra.functions.type_rules import Rule
from headrace.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Function:
    """One row of the table.

    `strict` functions are NULL when an argument is NULL; the others have their own rule, described in `doc`.
    """

    name: str
    usage: str
    rule: Rule
    doc: str
    example: str
    strict: bool = True
    aliases: tuple[str, ...] = ()


def nonstrict(
    name: str, usage: str, rule: Rule, doc: str, example: str, aliases: tuple[str, ...] = ()
) -> Function:
    """A function with its own null rule."""
    return Function(name, usage, rule, doc, example, strict=False, aliases=aliases)
