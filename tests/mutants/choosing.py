"""The code that a row of the page describes: functions that its tests enter, by the words they share with the row."""

from __future__ import annotations

import ast
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.operators import Mutant, mutants
from tests.mutants.traces import Place, Traced

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_COMMON = {"and", "are", "as", "at", "be", "benchmarks", "by", "each", "for", "from", "has", "in", "is", "it"}
_COMMON |= {"not", "of", "on", "or", "py", "src", "test", "tests", "that", "the", "to", "with"}
_NAME, _MODULE, _FIRST_LINE = 3, 2, 1


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module: its lines, without those of functions inside it, and its words, by weight."""

    module: str
    name: str
    lines: frozenset[int]
    words: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A mutant, and the tests that execute its line."""

    module: Path
    function: str
    mutant: Mutant
    tests: tuple[Traced, ...]


def words(text: str) -> Iterator[str]:
    """The words of a text or of a name, without their endings."""
    for word in map(str.lower, _WORD.findall(text)):
        if word not in _COMMON and len(word) > 1:
            yield re.sub(r"(?<=\w{3})(?:ings?|ed|es|s|e|ion)$", "", word)


def chosen(root: Path, text: str, tests: Collection[Traced], seed: int) -> Iterator[Chosen]:
    """Mutants for a row of that text, one in each function, the likeliest function first."""
    by_place: dict[Place, list[Traced]] = defaultdict(list)
    for test in tests:
        for place in test.lines:
            by_place[place].append(test)
    entered: dict[str, set[int]] = defaultdict(set)
    for module, line in by_place:
        entered[module].add(line)
    functions = [
        f for module, lines in sorted(entered.items()) for f in functions_of(root, module) if f.lines & lines
    ]
    for function in _likeliest(set(words(text)), functions):
        lines = function.lines & entered[function.module]
        source = (root / function.module).read_text(encoding="utf-8")
        every = sorted(mutants(source, lines), key=lambda mutant: (mutant.line, mutant.before, mutant.after))
        if every:
            drawn = random.Random(f"{seed} {function.module} {function.name}")
            mutant = min(every, key=lambda mutant: (_subtlety(mutant), drawn.random()))
            covering = by_place[function.module, mutant.line]
            yield Chosen(Path(function.module), function.name, mutant, tuple(covering))


def _likeliest(wanted: Collection[str], functions: Collection[Function]) -> Iterable[Function]:
    """By the words that a function shares with the row, rare ones first of all; then by place."""
    often = Counter(word for function in functions for word in function.words)

    def likeness(function: Function) -> float:
        return sum(
            weight * math.log(1 + len(functions) / often[word])
            for word, weight in function.words.items()
            if word in wanted
        )

    return sorted(functions, key=lambda f: (-likeness(f), f.module, min(f.lines)))


@cache
def functions_of(root: Path, module: str) -> tuple[Function, ...]:
    """All functions and methods of a module."""
    tree = ast.parse((root / module).read_text(encoding="utf-8"))
    opening = [*words(Path(module).stem), *words((ast.get_docstring(tree) or "").partition("\n")[0])]
    return tuple(_functions(tree, module, "", Counter(opening)))


def _functions(node: ast.AST, module: str, outer: str, opening: Counter[str]) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = {
                line
                for f in ast.walk(child)
                if isinstance(f, ast.FunctionDef) and f is not child
                for line in _lines(f)
            }
            first = (ast.get_docstring(child) or "").partition("\n")[0]
            said: dict[str, int] = dict.fromkeys(opening, _MODULE)
            for word in words(first):
                said[word] = said.get(word, 0) + _FIRST_LINE
            for word in words(f"{outer} {child.name}"):
                said[word] = said.get(word, 0) + _NAME
            lines = frozenset(_lines(child)) - inner
            if lines:
                yield Function(module, f"{outer}{child.name}", lines, said)
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _functions(child, module, f"{outer}{child.name}.", opening)


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> range:
    """Of its body: what is in the signature happens once, at the import."""
    return range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1)


def _subtlety(mutant: Mutant) -> int:
    """0: another decision or sum; 1: an edge, which may not matter; 2: a constant, or a crash wherever the line runs."""
    if " is " in mutant.before or "isinstance" in mutant.before or mutant.before.isdigit():
        return 2
    return 1 if re.search(r" [<>]=? | in ", mutant.before) else 0
