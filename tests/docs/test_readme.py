"""The README's example runs to the output it shows, and its rival in plain Structured Streaming to the same answers."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.operators.base.operator import AT
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.results import result_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"```python run\n(?P<code>.*?)```\s*```output\n(?P<output>.*?)```", re.DOTALL)
RIVAL = re.compile(r"```python spark\n(?P<code>.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str, str]]:
    """(page, code, output) of every block marked to be run."""
    return [
        (page.name, block["code"], block["output"])
        for page in PAGES
        for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("page", "code", "output"), examples())
def test_blocks_marked_run_print_what_the_page_says(
    page: str, code: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == output


def test_there_are_examples() -> None:
    """A page that lost its marks would test nothing."""
    assert any(page == "README.md" for page, _, _ in examples())


def test_links_between_pages_lead_somewhere() -> None:
    """Relative links of the top pages name files that exist."""
    seen = 0
    for page in (*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
                seen += 1
    assert seen > 5


@pytest.mark.spark
def test_the_same_in_plain_structured_streaming_gives_the_same_answers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The README's block as it is, but for its relative paths: those would be the JVM's."""
    from pyspark.sql import functions as F  # noqa: N812 - the README's name

    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (ours,) = (code for name, code, _ in examples() if name == "README.md")
    (block,) = (match["code"] for match in RIVAL.finditer(page))
    code = block.replace('"bids"', f'"{tmp_path}/bids"').replace('"cp/', f'"{tmp_path}/cp/')
    assert code.count(str(tmp_path)) == 3
    put_bids(tmp_path / "bids")
    names = {"spark": spark, "F": F, "schema": "auction BIGINT, price DOUBLE, at TIMESTAMP"}
    try:
        exec(compile(code, "README.md", "exec"), names)
        for query in ("dear", "per_minute"):
            names[query].processAllAvailable()
            names[query].stop()
        end = F.expr("unix_micros(window.end)")
        dear = {tuple(row) for row in spark.table("dear").select(end, "auction", "n", "top").collect()}
        per_minute = {tuple(row) for row in spark.table("per_minute").select(end, "count").collect()}
    finally:
        for table in ("dear", "per_minute"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
    assert len(dear) > 100
    assert len(per_minute) > 10
    statements = re.search(r'hub\.execute\("""(.*?)"""\)', ours, re.DOTALL)[1]
    added_later = re.search(r'hub\.register\("(.*?)"', ours)[1]
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(statements.replace("USING push", f"USING parquet OPTIONS (path '{tmp_path}/bids')"))
        hub.catch_up()
        hub.register(added_later, name="per_minute")
        hub.catch_up()
        assert committed(hub, "dear", ["auction", "n", "top"]) == dear
        assert committed(hub, "per_minute", ["n"]) == per_minute


@pytest.mark.spark
def test_the_guide_s_alerts_in_plain_structured_streaming_are_ours(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three of the thousand: the block as it is, but for its checkpoints' path."""
    from pyspark.sql import functions as F  # noqa: N812 - the guide's name

    page = (ROOT / "docs" / "guide" / "a-thousand-alerts.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(for name, .*?)```", page, re.DOTALL)
    dice, start = random.Random(3), dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    rows = [
        {
            "at": start + dt.timedelta(seconds=n),
            "shop": dice.randrange(3),
            "amount": float(dice.randrange(200)),
        }
        for n in range(900)
    ]
    # Spark's watermark is of the rows that an alert lets pass: each needs one that closes its windows.
    rows += [{"at": start + dt.timedelta(hours=2), "shop": shop, "amount": 199.0} for shop in range(3)]
    (tmp_path / "in").mkdir()
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("shop", pa.int32()), ("amount", pa.float64())])
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "in" / "1.parquet")
    source = spark.readStream.schema("at TIMESTAMP, shop INT, amount DOUBLE").parquet(f"{tmp_path}/in")
    alerts = {"guide_0_150": (0, 150), "guide_2_190": (2, 190)}
    try:
        exec(
            compile(block.replace("cp/", f"{tmp_path}/cp/"), page, "exec"),
            {"alerts": alerts, "payments": source, "F": F},
        )
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
        of_spark = {
            name: {
                tuple(row)
                for row in spark.table(name).selectExpr("unix_micros(window.end)", "large", "most").collect()
            }
            for name in alerts
        }
    finally:
        for name in alerts:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(
            "CREATE STREAM payments (at TIMESTAMP, shop INT, amount DOUBLE) USING push TIMESTAMP BY at"
        )
        for name, (shop, limit) in alerts.items():
            hub.register(
                "SELECT COUNT(*) AS large, MAX(amount) AS most FROM payments [RANGE 5 MINUTES SLIDE 1 MINUTE]"
                f" WHERE shop = {shop} AND amount > {limit} HAVING COUNT(*) >= 2",
                name,
            )
        hub.push("payments", rows)
        hub.catch_up()
        for name in alerts:
            assert len(of_spark[name]) > 10
            assert committed(hub, name, ["large", "most"]) == of_spark[name]


def committed(hub: Hub, query: str, columns: list[str]) -> set[tuple]:
    """(microseconds at which the window ends, the columns) of all rows a query has committed."""
    operator, _ = hub.operator_and_query(query)
    tables = [part.table for part in result_log.epochs_of(hub.home, hub.home.latest(), operator.id)]
    rows = pa.concat_tables(tables).select([AT, *columns]).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    return {tuple(row.values()) for row in rows}


def put_bids(folder: Path) -> None:
    """Half an hour of bids in one file, and one much later, which closes all windows before it."""
    folder.mkdir()
    dice = random.Random(7)
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    seconds = [*sorted(dice.uniform(0, 1800) for _ in range(400)), 7200.0]
    rows = {
        "auction": [dice.randrange(5) for _ in seconds],
        "price": [float(dice.randrange(50, 300)) for _ in seconds],
        "at": [start + dt.timedelta(seconds=round(second, 3)) for second in seconds],
    }
    table = pa.table(rows).cast(
        pa.schema([("auction", pa.int64()), ("price", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])
    )
    pq.write_table(table, folder / "1.parquet")
