"""`headrace shell`: statements over several lines, errors that do not end it, completion."""

from __future__ import annotations

import io

import pytest

from headrace.cli.completion import Completer
from headrace.cli.screen import Screen
from headrace.cli.shell import Session, is_complete, run_prompt
from tests.cli.building import SCRIPT, bid, headrace, put, script


@pytest.fixture
def home(tmp_path):
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    headrace("run", script(tmp_path), "--once", "--home", tmp_path / "home")
    return tmp_path / "home"


def test_a_mistake_does_not_end_the_prompt(home) -> None:
    typed = "INVOKE nobody;\nshow\n  queries\n;\nSELEC;\n\nINVOKE dear;\n\\q\nSHOW STREAMS;\n"
    done = headrace("shell", "--home", home, typed=typed)
    assert done.returncode == 2  # no person has read the message
    assert "there is no query 'nobody'" in done.stderr
    assert "no statement begins with 'SELEC'" in done.stderr
    assert "name,state,answered_to,complete_since,owner,tags,query\ndear,live" in done.stdout
    assert done.stdout.endswith("# dear\nn,auction,top\n1,1,101.0\n")


def test_the_last_statement_may_end_with_the_input(home) -> None:
    assert "n,auction,top\n1,1,101.0\n" in headrace("shell", "--home", home, typed="INVOKE dear").stdout


def test_a_mistake_in_e_exits_with_2_and_its_place(home) -> None:
    done = headrace("shell", "--home", home, "-e", "SHOW QUERIES;\n  INVOKE nobody")
    assert done.returncode == 2
    assert "line 2, column 3: there is no query 'nobody'" in done.stderr


def test_a_shell_without_a_terminal_ends_with_0_where_nothing_was_refused(home) -> None:
    assert headrace("shell", "--home", home, typed="SHOW QUERIES;\n").returncode == 0


def test_a_mistake_at_a_terminal_is_no_failure_of_the_shell(home, monkeypatch) -> None:
    monkeypatch.setattr("headrace.cli.shell.prepare_readline", lambda _: None)
    lines = iter(["bogus;", "\\q"])
    monkeypatch.setattr("sys.stdin", Terminal())
    session = Session(home, Screen.standard("csv"), local=True)
    assert run_prompt(session, lambda _: next(lines)) == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_e_has_statements_of_its_own(home) -> None:
    done = headrace("shell", "--home", home, "-e", "SHOW STREAMS", "-e", "INVOKE dear")
    assert done.returncode == 0, done.stderr
    assert "bids" in done.stdout
    assert done.stdout.endswith("# dear\nn,auction,top\n1,1,101.0\n")
    done = headrace("shell", "--home", home, "-e", "DROP QUERY dear", "-e", "SELEC")
    assert done.returncode == 2
    assert "line 1, column 1: no statement begins with 'SELEC'" in done.stderr
    assert headrace("shell", "--home", home, "-e", "INVOKE dear").returncode == 0  # nothing has been dropped


def test_a_query_registered_in_a_shell_answers_over_the_past(home) -> None:
    text = "CREATE QUERY late AS SELECT COUNT(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE]; INVOKE late"
    assert "# late\nn\n1\n" in headrace("shell", "--home", home, "-e", text).stdout
    assert "# late\nn\n1\n" in headrace("shell", "--home", home, "-e", "INVOKE late").stdout


def test_a_shell_can_start_a_home_of_its_own(tmp_path) -> None:
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    text = SCRIPT.format(folder=tmp_path) + "INVOKE dear;"
    done = headrace("shell", "--home", tmp_path / "new", "--format", "json", "-e", text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith('{"n":1,"auction":1,"top":101.0}\n')


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SHOW STREAMS;", True),
        ("SHOW STREAMS", False),
        ("SHOW STREAMS; -- all;", True),
        ("SHOW STREAMS -- all;", False),
        ("CREATE STREAM s OPTIONS (path 'a;", False),
        ("CREATE STREAM s OPTIONS (path 'a;');", True),
        ("", False),
        ("\N{SNOWMAN};", True),
    ],
)
def test_a_statement_ends_at_a_semicolon_outside_text_and_comments(text, complete) -> None:
    assert is_complete(text) is complete


def test_completion_offers_names_first_then_words() -> None:
    complete = Completer(lambda: ["quotes", "dear"])
    assert [complete("qu", index) for index in range(4)] == ["quotes ", "QUERIES ", "QUERY ", None]
    assert complete("zz", 0) is None
