"""What is wrong with a golden case: its answers compared with the expected rows, as text with places and differences."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from tests.golden.case import Block, Case
from tests.golden.running import Failed, Opener, Read, Variant, run_case
from tests.golden.values import same_rows, same_types


def problems(case: Case, variants: Iterable[Variant], opened: Opener) -> str:
    """A paragraph for each wrong answer, with the variants that gave it; empty when there is none."""
    variants_of: dict[str, list[Variant]] = {}
    for variant in variants:
        try:
            answers = run_case(case, variant, opened)
        except Failed as failed:
            variants_of.setdefault(str(failed), []).append(variant)
            continue
        for block in case.blocks:
            if block in answers and (difference := _difference(case, block, answers[block])):
                variants_of.setdefault(difference, []).append(variant)
    return "\n\n".join(
        "\n".join([difference, *(f"  in: {variant}" for variant in variants)])
        for difference, variants in variants_of.items()
    )


def _difference(case: Case, block: Block, answer: Read) -> str:
    if block.kind == "statement":
        return _wrong_error(case, block, answer)
    expected = block.expected
    if expected is None:
        return f"{case.place(block)}: no rows are expected; write ---- below the query, or record the case"
    if not same_types(block.types, answer.types):
        return f"{case.place(block)}: {_title(block)}\nthe columns are of types {answer.types}, not {block.types}"
    if same_rows(expected, answer.rows, block.types, sort=block.sorted):
        return ""
    return f"{case.place(block)}: {_title(block)}\n{_diff(expected, answer.rows)}"


def _wrong_error(case: Case, block: Block, answer: Read) -> str:
    pattern = " ".join(block.words[1:])
    if not answer.rows:
        return f"{case.place(block)}: {_title(block)}\nthere was no error"
    if block.expected is not None and block.expected != answer.rows:
        return f"{case.place(block)}: {_title(block)}\n{_diff(block.expected, answer.rows)}"
    message = "\n".join(answer.rows)
    if re.search(pattern, message) is None:
        return f"{case.place(block)}: {_title(block)}\nthe error does not match {pattern}:\n{message}"
    return ""


def _title(block: Block) -> str:
    return block.text or f"{block.kind} {block.query}"


def _diff(expected: Iterable[str], answered: Iterable[str]) -> str:
    return "\n".join(
        difflib.unified_diff(list(expected), list(answered), "expected", "answered", lineterm="")
    )
