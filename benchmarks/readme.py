"""The figures of the README, from the pages in results/: `python -m benchmarks.readme` writes them again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from statistics import median
from textwrap import fill
from typing import Any

from benchmarks import folders

README = folders.CHECKOUT / "README.md"
PAGES = ("tumbling", "sliding", "queries", "default", "startup", "epoch", "latency", "past-1000m")
_BEGIN, _END = "<!-- figures: make bench -->\n", "<!-- end of figures -->\n"
_PLACE = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)

Page = Mapping[str, Any]
"""What `results/<name>.json` holds."""


def pages() -> dict[str, Page]:
    """The pages that the README cites."""
    return {
        name: json.loads((folders.RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in PAGES
    }


def with_figures(text: str, of_pages: Mapping[str, Page]) -> str:
    """The README with the figures of these pages.

    Raises:
        ValueError: the text has no place for them.
    """
    if not _PLACE.search(text):
        raise ValueError(f"Expected {_BEGIN.strip()} and {_END.strip()} in the README, found no such lines.")
    return _PLACE.sub(lambda _: f"{_BEGIN}\n{figures(of_pages)}\n{_END}", text)


def figures(of_pages: Mapping[str, Page]) -> str:
    """A table, paragraphs and a list of what the pages found, as Markdown."""
    paragraphs = (
        _sliding(of_pages["sliding"]),
        _queries(of_pages["queries"]),
        _new_process(of_pages["default"], of_pages["startup"]),
        _small_epochs(of_pages["epoch"]),
        _latency(of_pages["latency"]),
        _long_past(of_pages["past-1000m"]),
    )
    filled = (fill(text, 130, break_long_words=False, break_on_hyphens=False) for text in paragraphs)
    return "\n\n".join((_tumbling(of_pages["tumbling"]), *filled, _missed(of_pages)))


def _tumbling(page: Page) -> str:
    names = {
        "headrace, archive on": "headrace, archive on (the default)",
        "headrace": "headrace, archive off",
        "flink": "flink (Java)",
        "duckdb, batch": "DuckDB, batch",
        "polars, batch": "Polars, batch",
    }
    order = (
        "headrace, archive on",
        "headrace",
        "bytewax",
        "flink",
        "spark streaming",
        "spark streaming, RocksDB",
    )
    rates = {row["contender"]: row["median_rows_per_second"] for row in page["measurements"]}
    scale = {row["contender"] for row in page["measurements"] if row["yardstick"]}
    lines = [f"| {names.get(name, name)} | {_millions(rates[name])} |" for name in order]
    lines += [
        f"| *for scale:* {names.get(name, name)} | {_millions(rate)} |"
        for name, rate in rates.items()
        if name in scale
    ]
    return "\n".join(("| tumbling windows of 60 s | M rows/s |", "|---|---|", *lines))


def _sliding(page: Page) -> str:
    def rate(name: str) -> str:
        return _millions(_row(page, contender=name, task="sliding")["median_rows_per_second"])

    return (
        f"Sliding windows of 60 s every second, over the same rows: {rate('headrace')} million rows per second, "
        f"Flink {rate('flink')}, Spark {rate('spark streaming, panes')} with the rows combined in panes of a second by hand and "
        f"{rate('spark streaming')} without; DuckDB's batch query, for scale, {rate('duckdb, batch')} ({_link('sliding')})."
    )


def _queries(page: Page) -> str:
    def rate(queries: int) -> str:
        return _millions(_row(page, way="headrace", queries=queries)["median_rows_per_second"])

    flink, spark = (_ratio(page, f"10 queries to {peer} query by query") for peer in ("flink", "spark"))
    shared = _ratio(page, "1000 queries to the best shared plan of Spark and Flink")
    return (
        f"**Many queries.** Ten standing queries with conditions of their own read {rate(10)} million rows per second, a hundred "
        f"{rate(100)}, a thousand {rate(1000)} and ten thousand {rate(10_000)}. Query by query, ten of them take {flink:.0f} times as long "
        f"on Flink and {spark:.0f} times on Spark; a thousand in one plan, as an expert of Spark or Flink writes it, {shared:.0f} times "
        f"({_link('queries')})."
    )


def _new_process(first: Page, command: Page) -> str:
    ours, duckdb = _row(first, way="hr.open(home)"), _row(first, way="duckdb, batch")
    seconds = {row["way"]: _two_digits(row["median"]) for row in command["measurements"]}
    return (
        f"**In a new process**, `hr.open(home)` returns after {_two_digits(ours['open_s'])} s while Spark starts behind it; the first "
        f"query over the same rows then takes {_two_digits(median(ours['run_and_read']))} s, {_millions(ours['median_rows_per_second'])} "
        f"million rows per second, with the archive and without any setting. DuckDB's batch group-by takes "
        f"{_two_digits(median(duckdb['run_and_read']))} s ({_link('default')}). `headrace run --once` over 10,000 rows of CSV takes "
        f"{seconds['headrace run --once']} s on Spark, a bare PySpark session that counts the file {seconds['pyspark, count()']} s; with "
        f"`--engine local` {seconds['headrace run --once --engine local']} s, DuckDB's package {seconds['duckdb']} s ({_link('startup')})."
    )


def _small_epochs(page: Page) -> str:
    standing, job, bare = (
        _two_digits(_row(page, what=what)["median_ms"])
        for what in (
            "headrace, an epoch in standing tasks",
            "headrace, an epoch as a job",
            "identity kernels in standing tasks",
        )
    )
    return (
        f"**Small epochs.** 2,000 rows are committed in {standing} ms (median) in standing tasks, {job} ms as a Spark job; of the "
        f"{standing}, {bare} is scheduling ({_link('epoch')})."
    )


def _latency(page: Page) -> str:
    def p50(way: str) -> str:
        one, hundred = (
            _two_digits(_row(page, way=way, rows_a_second=2000, queries=queries)["p50_ms"])
            for queries in (1, 100)
        )
        return f"{one} and {hundred}"

    one, hundred = (
        _two_digits(_row(page, way="spark", rows_a_second=2000, queries=queries)["p99_ms"])
        for queries in (1, 100)
    )
    return (
        f"**From a push to its followed result**, both on disk, at 2,000 rows a second with one query and with 100 (median): {p50('spark')} ms "
        f"on Spark, 99 % within {one} and {hundred}; {p50('local')} in one process without Spark; Flink with transactions "
        f"{p50('Flink, transactions')}, Kafka Streams exactly once {p50('Kafka Streams, exactly once')} ({_link('latency')})."
    )


def _long_past(page: Page) -> str:
    questions = ("count and mean where", "sum by ten keys")
    ours = [_row(page, question=question, way="WITHIN 2 PERCENT")["ms"] for question in questions]
    exact = [_row(page, question=question, way="DuckDB, exact")["ms"] / 1000 for question in questions]
    return (
        "**A long past.** Counts, means and sums over a billion archived rows, within 2 percent at 95 % confidence, take "
        f"{ours[0]:.0f} and {ours[1]:.0f} ms; DuckDB's exact scan of the same Parquet takes {exact[0]:.1f} and {exact[1]:.1f} s "
        f"({_link('past-1000m')})."
    )


def _missed(of_pages: Mapping[str, Page]) -> str:
    missed = [
        f"{ratio['what']}: {ratio['value']:.3g}, {bound} is the aim ({_link(name)})"
        for name, page in of_pages.items()
        for ratio in page["ratios"]
        for bound in (
            f"at least {ratio['at_least']}" if "at_least" in ratio else f"at most {ratio['at_most']}",
        )
        if not ratio["passed"]
    ]
    count = sum(len(page["ratios"]) for page in of_pages.values())
    listed = "\n".join(f"- {one}" for one in missed)
    return f"`make bench` repeats the measurements on your machine. Of the {count} thresholds of these pages {len(missed)} are missed:\n\n{listed}"


def _row(page: Page, **where: Any) -> Mapping[str, Any]:
    """The measurement with these values.

    Raises:
        ValueError: none has them, or several.
    """
    (found,) = (row for row in page["measurements"] if where.items() <= row.items())
    return found


def _ratio(page: Page, what: str) -> float:
    (found,) = (ratio["value"] for ratio in page["ratios"] if ratio["what"] == what)
    return found


def _millions(rows: float) -> str:
    return _two_digits(rows / 1e6)


def _two_digits(value: float) -> str:
    """Two significant digits: two days differ in those that follow."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _link(name: str) -> str:
    return f"[page](benchmarks/results/{name}.md)"


def main() -> None:
    README.write_text(with_figures(README.read_text(encoding="utf-8"), pages()), encoding="utf-8")


if __name__ == "__main__":
    main()
