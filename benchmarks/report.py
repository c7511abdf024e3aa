"""Results as files: `results/<name>.json` for programs, `.md` for people, `.svg` with the picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.charts import Bar, Bars, Chart
from benchmarks.plot import svg
from benchmarks.thresholds import Ratio


@dataclass(frozen=True, slots=True)
class Report:
    """What one benchmark found: a table (rows of equal keys), the ratios that matter, the bars to draw."""

    name: str
    title: str
    table: Sequence[dict[str, Any]]
    ratios: Sequence[Ratio]
    drawn: Sequence[Bar]
    unit: str
    notes: Sequence[str] = ()
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    picture: Chart | None = None
    """What to show instead of bars."""

    @property
    def chart(self) -> Chart:
        """The picture, or bars of what is drawn."""
        return self.picture or Bars(self.title, self.unit, self.drawn)


def write(report: Report, date: str, load: float, folder: Path) -> None:
    """Write the three files; `date` is the day of the measurement, `load` the load average before it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = _content(report, date, load)
    stem = folder / report.name
    stem.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(_markdown(report, content), encoding="utf-8")
    stem.with_suffix(".svg").write_text(svg(report.chart), encoding="utf-8")


def text(report: Report, date: str, load: float) -> str:
    """The page as it would be written."""
    return _markdown(report, _content(report, date, load))


def _content(report: Report, date: str, load: float) -> dict[str, Any]:
    return {
        "benchmark": report.name,
        "date": date,
        "load_average_before": round(load, 2),
        "machine": machine.description(),
        "measurements": list(report.table),
        "ratios": [ratio.as_dict() for ratio in report.ratios],
        "notes": list(report.notes),
        "peers": report.versions,
    }


def _markdown(report: Report, content: dict[str, Any]) -> str:
    box = content["machine"]
    lines = [
        f"# {report.title}",
        "",
        (
            f"Measured {content['date']} on {box['cores']} cores of {box['processor']}, {box['memory_gib']} GiB, "
            f"{box['system']}, Python {box['python']}, {box['java']}; load average {content['load_average_before']} before, "
            f"{box['load_average']} at the end."
        ),
        "",
        *_table(report.table),
        "",
        *(f"- {ratio}" for ratio in report.ratios),
        "",
        *(f"{note}\n" for note in report.notes),
        f"![{report.title}]({report.name}.svg)",
    ]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    heads = list(dict.fromkeys(head for row in rows for head in row))
    lines = ["| " + " | ".join(head.replace("_", " ") for head in heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(_cell(row.get(head, "")) for head in heads) + " |" for row in rows]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_cell(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
