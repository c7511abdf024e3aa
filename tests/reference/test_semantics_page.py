"""docs/semantics.md is right: every example on the page is run against the reference."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.algebra import query as nodes
from headrace.algebra.query import Query
from headrace.reference.derived import with_derived
from headrace.reference.evaluate import changes, invoke, relation_at, revisions, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.reference.relational import Rejects
from headrace.reference.sampling.repairs import repairs
from headrace.time import FOREVER, SECOND
from tests.reference.building import row
from tests.reference.joins_of_the_page import JOINS
from tests.reference.queries_of_the_page import QUERIES
from tests.reference.sets_of_the_page import SETS

PAGE = Path(__file__).parents[2] / "docs" / "semantics.md"
EXAMPLES = re.findall(r"```example\n(.*?)```", PAGE.read_text(), re.DOTALL)


def seconds(instant: int) -> str:
    return f"{instant / SECOND:.6f}".rstrip("0").rstrip(".")


def cells(values) -> str:
    return " ".join("-" if value is None else str(value) for value in values)


def parsed(value: str) -> str | None:
    return None if value == "-" else value


def read_history(lines: list[str]) -> History:
    epochs, names, slack, into, weights = [[]], [], 0, "stream", []
    for line in lines:
        words = line.split()
        if words[0] in ("stream", "relation"):
            into, slack = words[0], int(words[2]) if words[1:2] == ["slack"] else slack
        elif line == "---":
            epochs.append([])
        elif into == "stream":
            number = None if words[1] == "-" else int(words[1])
            epochs[-1].append(row(parsed(words[0]), number, float(words[2])))
            weights.append(float(words[3].removeprefix("x")) if len(words) > 3 else 1.0)
        else:
            names.append({"id": parsed(words[0]), "name": words[1]})
    stream = record(epochs, "at", slack * SECOND)
    rows = (
        replace(stream_row, weight=weight) for stream_row, weight in zip(stream.rows, weights, strict=True)
    )
    return History({"s": replace(stream, rows=tuple(rows))}, {"names": names})


def asked(what: str, query: Query, history: History) -> list[str]:
    """The answer in the page's own notation."""
    words, rejects = what.split(), Rejects()
    limit = round(float(words[-1]) * SECOND) if words[-1][0].isdigit() else FOREVER
    history = with_derived(query, history, final=True)
    match words[0]:
        case "final":
            answer = windows_answer(query, history, limit, final=True)
        case "windows":
            answer = windows_answer(query, history, limit)
        case "stream":
            answer = stream_answer(query, history, limit)
        case "changes":
            changelog = changes(query, history, limit)
            return [f"{seconds(at)}: {sign:+d} {cells(values.values())}" for at, sign, values in changelog]
        case "revisions":
            revised = revisions(query, history)
            return [
                f"{e}: {seconds(at)}: {sign:+d} {cells(values.values())}" for e, at, sign, values in revised
            ]
        case "repairs":
            exact_to = [FOREVER if word == "-" else int(word) * SECOND for word in words[1:]]
            return [
                f"{e}: {seconds(at)}: {sign:+d} {cells(values.values())}"
                for e, at, sign, values in repairs(query, history, exact_to)
            ]
        case "relation":
            return [cells(values.values()) for values in relation_at(query, history, limit)]
        case "invoke":
            return [cells(values.values()) for values in invoke(query, history, history.punctuation(query))]
        case "rejects":
            stream_answer(query, history, limit, rejects=rejects)
            return [f"{values['s.k']} {reason}" for values, reason in rejects.rows.values()]
        case other:
            raise AssertionError(f"the page asks for '{other}', which this test does not know")
    return [f"{seconds(at)}: {cells(values.values())}" for at, values in answer]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_on_the_page_is_what_the_reference_answers(example):
    head, *questions = re.split(r"^query ", example, flags=re.MULTILINE)
    history = read_history(head.strip().splitlines())
    assert questions
    for question in questions:
        text, *expectations = re.split(r"^expect ", question, flags=re.MULTILINE)
        assert expectations
        for expectation in expectations:
            what, *expected = expectation.strip().splitlines()
            assert asked(what, (QUERIES | SETS | JOINS)[text.strip()], history) == expected, (
                f"{text.strip()} / {what}"
            )


def test_every_query_in_the_table_stands_on_the_page():
    text = "\n".join(EXAMPLES)
    assert [query for query in QUERIES | SETS | JOINS if f"query {query}\n" not in text] == []


def test_every_node_has_its_words_on_the_page():
    """A node of the algebra without a word about its meaning has no meaning."""
    page = PAGE.read_text()
    words = {
        "StreamScan": "stream",
        "RelationScan": "relation",
        "Windowed": "Windows",
        "Ago": "NOW",
        "SortKey": "ORDER BY",
        "Revisions": "WITH REVISIONS",
    }
    kinds = [
        name
        for name, kind in vars(nodes).items()
        if isinstance(kind, type) and kind.__module__ == nodes.__name__ and not name.startswith("_")
    ]
    assert len(kinds) >= 14
    assert [kind for kind in kinds if words.get(kind, kind) not in page] == []
