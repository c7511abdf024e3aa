"""`headrace explain`: what runs in a home, during the process that writes it or after it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.cli.building import bid, headrace, put, script


@pytest.fixture
def home(tmp_path):
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(2, 2, 9), bid(70, 2, 102))
    headrace("run", script(tmp_path), "--once", "--home", tmp_path / "home")
    return tmp_path / "home"


def test_all_and_one_query_are_shown_with_what_was_measured(home) -> None:
    ran = headrace("explain", "--home", home)
    assert ran.returncode == 0
    lines = ran.stdout.splitlines()
    assert lines[0] == "1 query over 1 stream: 1 fold, 1 state"
    assert lines[1].startswith("measured in epoch")
    assert "  fold by auction into panes of 1 window: count(*)" in ran.stdout
    assert "3 rows in" in ran.stdout
    assert "keeps 67 %" in ran.stdout
    one = headrace("explain", "dear", "--home", home).stdout
    assert one.startswith("query dear\n  chosen by: panes — ")
    assert "\n  window every 1 MINUTE of 1 pane" in one
    assert "  read stream bids: its own\n" in one
    assert "% of all work" in one


def test_pictures_go_to_files_by_their_ending_or_as_they_are_wanted(home, tmp_path) -> None:
    drawn = tmp_path / "plan.svg"
    assert headrace("explain", "--home", home, "--output", drawn).stdout == ""
    assert ET.fromstring(drawn.read_text(encoding="utf-8")).tag.endswith("svg")
    graph = headrace("explain", "dear", "--home", home, "--as", "dot").stdout
    assert graph.startswith("digraph headrace {")
    shell = headrace("shell", "--home", home, "-e", "EXPLAIN QUERY dear AS DOT")
    assert shell.stdout.strip() == graph.strip()


def test_what_is_not_there_is_reported_with_exit_code_2(home, tmp_path) -> None:
    wrong = headrace("explain", "deer", "--home", home)
    assert (wrong.returncode, "there is no query 'deer'" in wrong.stderr) == (2, True)
    nowhere = headrace("explain", "--home", tmp_path / "other")
    assert (nowhere.returncode, "there is no home in" in nowhere.stderr) == (2, True)
