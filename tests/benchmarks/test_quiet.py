"""Results that were measured on a busy machine are not kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import folders, quiet, report
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

BUSY = quiet.HIGHEST + 0.01
FOUND = Report("small", "A small one", [{"rows": 3}], [Ratio("speed", 2.0, 1.0)], (), "rows")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder instead of the checkout's, without a picture or a Java to ask its version."""
    monkeypatch.setattr(folders, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("HEADRACE_BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(report, "svg", lambda chart: f"<svg>{chart.title}</svg>")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def test_a_quiet_machine_writes_results_with_the_load_before_the_run(written: Path) -> None:
    assert command.keep(FOUND, "2026-01-01", quiet.HIGHEST, anyway=False)
    assert names(written / "results") == ["small.json", "small.md", "small.svg"]
    assert '"load_average_before": 2.0' in (written / "results" / "small.json").read_text()


def test_a_busy_machine_prints_the_page_and_writes_nothing(written: Path, capsys) -> None:
    assert not command.keep(FOUND, "2026-01-01", BUSY, anyway=False)
    assert names(written / "results") == []
    printed = capsys.readouterr().out
    assert "NOT WRITTEN" in printed
    assert "# A small one" in printed
    assert "PASS  speed" in printed


def test_anyway_writes_aside_and_still_does_not_count(written: Path) -> None:
    assert not command.keep(FOUND, "2026-01-01", BUSY, anyway=True)
    assert names(written / "results") == []
    assert names(written / "data" / "results") == ["small.json", "small.md", "small.svg"]


@pytest.mark.parametrize(("loads", "code"), [([0.5], 0), ([BUSY], command.REFUSED)])
def test_the_exit_code_shows_that_results_were_refused(
    written: Path, monkeypatch: pytest.MonkeyPatch, loads: list[float], code: int
) -> None:
    monkeypatch.setitem(command.SUITE, "tumbling", lambda rows, rounds: FOUND)
    monkeypatch.setattr(quiet.os, "getloadavg", lambda: (loads[0], 0.0, 0.0))
    monkeypatch.setattr(command.sys, "argv", ["benchmarks", "tumbling"])
    assert command.main() == code
    assert bool(names(written / "results")) is (code == 0)


def test_a_load_that_fades_is_waited_for_and_one_that_does_not_is_reported() -> None:
    fading, waits = iter([4.0, 3.0, 1.5]), []
    assert quiet.load_before(60, fading.__next__, waits.append) == 1.5
    assert len(waits) == 2
    assert quiet.load_before(10, lambda: BUSY, waits.append) == BUSY
    assert quiet.load_before(0, lambda: BUSY, pytest.fail) == BUSY
