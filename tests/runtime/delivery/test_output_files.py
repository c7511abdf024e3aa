"""`--output DIR` holds one file per query: those of queries that are gone go, and nothing that is the user's."""

from __future__ import annotations

from pathlib import Path

from headrace.runtime.delivery.output_files import Exporter
from tests.runtime.rig import Rig, made_rows

QUERIES = {name: f"SELECT k, {column} FROM s" for name, column in (("one", "x"), ("two", "y"), ("four", "g"))}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_of_dropped_and_renamed_queries_go_and_no_others(tmp_path: Path) -> None:
    rig, out = Rig(tmp_path), tmp_path / "out"
    rig.drop(made_rows(1, 9))
    with rig.hub(1, QUERIES) as hub:
        exporter = Exporter(hub, out, "csv")
        exporter.finish(hub.run_once())
        assert names(out) == ["four.csv", "one.csv", "two.csv"]
    (out / "notes.csv").write_text("mine\n")
    (out / "four.csv").write_text("changed by hand\n")
    with rig.hub(1) as hub:
        hub.execute("ALTER QUERY one RENAME TO three; DROP QUERY two; DROP QUERY four")
        Exporter(hub, tmp_path / "elsewhere", "csv").finish(hub.run_once())
        assert names(out) == ["four.csv", "notes.csv", "one.csv", "two.csv"]
        Exporter(hub, out, "csv").finish(hub.run_once())
        assert names(out) == ["four.csv", "notes.csv", "three.csv"]
        assert (out / "four.csv").read_text() == "changed by hand\n"


def test_a_file_goes_while_the_run_follows_its_sources(tmp_path: Path) -> None:
    rig, out = Rig(tmp_path), tmp_path / "out"
    rig.drop(made_rows(1, 9))
    with rig.hub(1, QUERIES) as hub:
        exporter = Exporter(hub, out, "json")
        hub.run_once()
        exporter.refresh()
        hub.execute("DROP QUERY two")
        exporter.refresh()
        assert names(out) == ["four.json", "one.json"]
        assert exporter._written.keys() == {"four", "one"}
