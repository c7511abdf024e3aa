"""`make coverage-mutants`, on a checkout of one module: which lines tests execute, which mistakes are made, what becomes of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import coverage_page
from tests.mutants.choosing import chosen, functions_of
from tests.mutants.coverage_page import Row
from tests.mutants.operators import Mutant, mutants
from tests.mutants.sandbox import ROOT, Sandbox
from tests.mutants.traces import Traces

DOORS = Path("src/headrace/doors.py")
CODE = '''"""Doors."""


def is_open(hour):
    """Whether a door is open."""
    return hour >= 8 and hour < 20


def colours(count):
    """The colours of so many doors."""
    return [n + 1 for n in range(count)]


def never():
    return 1 + 1
'''
TESTS = """import subprocess, sys, time

import pytest

from headrace.doors import colours, is_open


def test_open():
    assert is_open(8) and not is_open(20)


def test_colours():
    assert len(colours(3)) == 3
    assert sum(colours(3)) > 0


def test_from_elsewhere():
    code = "import headrace.doors, os, signal; headrace.doors.is_open(9); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code])


def test_that_fails():
    assert colours(1) == 0
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    for path, text in {
        "src/headrace/__init__.py": "",
        DOORS: CODE,
        "tests/test_doors.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['soak']\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture(scope="module")
def place(checkout, tmp_path_factory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("sandbox"), checkout)


@pytest.fixture(scope="module")
def traced(place, tmp_path_factory):
    return Traces(place, tmp_path_factory.mktemp("traces"), 5, 60, "not soak").of("tests/test_doors.py")


def test_the_lines_of_each_passing_test_are_known_and_those_of_killed_processes_too(traced) -> None:
    bodies = {(str(DOORS), 6), (str(DOORS), 11), (str(DOORS), 15)}
    lines_of = {test.test.partition("::")[2]: {line for _, line in test.lines & bodies} for test in traced}
    assert lines_of == {"test_open": {6}, "test_colours": {11}, "test_from_elsewhere": {6}}


def test_a_mistake_is_made_where_the_words_of_the_row_are_and_tests_that_execute_it_run(
    checkout, traced
) -> None:
    first, second = chosen(checkout, "Colours of a door", traced, seed=0)
    assert (first.function, second.function) == ("colours", "is_open")
    assert [test.test for test in first.tests] == ["tests/test_doors.py::test_colours"]
    opening = chosen(checkout, "Whether it is open", traced, seed=0)
    assert next(opening).function == "is_open"


@pytest.mark.parametrize(
    ("change", "test", "how"),
    [
        ("hour <= 20", "test_open", "wrong answer"),
        ("hour < None", "test_open", "error"),
        ("hour < 20.0", "test_open", "survived"),
        ("hour <= 20", "test_from_elsewhere", "survived"),
        ("hour (", "test_open", "broken"),
    ],
)
def test_what_becomes_of_a_mistake(place, checkout, change, test, how) -> None:
    mutant = Mutant(6, "hour < 20", change, CODE.replace("hour < 20", change))
    fate = place.fate(DOORS, mutant, [f"tests/test_doors.py::{test}"], 60, "not soak")
    assert (fate.how, fate.noticed) == (how, how in ("wrong answer", "error"))
    assert (place.copy / DOORS).read_text() == CODE


def test_a_test_that_never_ends_is_a_hang_and_leaves_no_process(place) -> None:
    endless = CODE.replace("    return hour", "    while True: pass\n    return hour")
    fate = place.fate(DOORS, Mutant(6, "", "", endless), ["tests/test_doors.py::test_open"], 2, "not soak")
    assert fate.how == "hang"
    assert str(place.copy) not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_functions_do_not_contain_those_inside_them() -> None:
    functions = functions_of(ROOT, "tests/mutants/choosing.py")
    assert len({line for f in functions for line in f.lines}) == sum(len(f.lines) for f in functions)


def test_the_mistakes_of_a_function_are_within_its_lines(checkout) -> None:
    (function,) = (f for f in functions_of(checkout, str(DOORS)) if f.name == "never")
    assert {mutant.line for mutant in mutants(CODE, function.lines)} == {15}


def test_a_row_names_files_folders_and_pages(tmp_path, monkeypatch) -> None:
    row = Row(
        "X-1",
        "",
        "tests/docs/test_links.py (links), tests/house; tests/soak/test_kills.py, benchmarks/results/a.md",
    )
    files = list(row.test_files())
    assert files[0] == "tests/docs/test_links.py"
    assert "tests/house/test_coverage_mutants.py" in files
    assert not [file for file in files if "soak" in file]
    monkeypatch.setattr(coverage_page, "ROOT", tmp_path)
    assert row.page_faults() == ["a.json does not exist"]
    page = tmp_path / "benchmarks" / "results" / "a.json"
    page.parent.mkdir(parents=True)
    for load, passed, faults in [(None, True, 1), (2.0, True, 0), (2.1, True, 1), (1.0, False, 1)]:
        page.write_text(
            json.dumps({"load_average_before": load, "ratios": [{"what": "it", "passed": passed}]})
        )
        assert len(row.page_faults()) == faults


def test_the_command_has_a_help_text() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tests.mutants.coverage", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert shown.returncode == 0
    assert "make coverage-mutants" in shown.stdout
