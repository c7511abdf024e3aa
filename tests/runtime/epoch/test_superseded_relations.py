"""Collection of replaced relations, where the query log has an append twice: its first writing was in doubt."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.record_log import QUERY_LOG, RecordLog

EPOCHS = 12
"""As many as manifests are retained, and a few."""


def with_relation(path: Path, *statements: str) -> Path:
    """A home after these statements about a relation, the last of which is in the log twice; its folder of relations."""
    rows = path / "r.csv"
    rows.write_text("k,v\n1,2\n3,4\n")
    with open_hub(path / "home", local=True) as hub:
        for statement in statements:
            hub.execute(statement.format(rows))
    log = RecordLog(LocalStore(str(path / "home")), QUERY_LOG)
    last = list(log.chunks())[-1]
    log.append(last.records, str(last.append))
    return path / "home" / "relations"


def pass_epochs(hub: Hub) -> None:
    for number in range(EPOCHS):
        hub.execute(
            f"CREATE STREAM z{hub.catalog.position}_{number} (a BIGINT, t TIMESTAMP) USING push TIMESTAMP BY t"
        )
        hub.catch_up()


def reopened(path: Path, folder: Path) -> list[Path]:
    """The files of relations after three openings with all of them older than any grace."""
    for _ in range(3):
        for file in folder.rglob("*.arrow"):
            os.utime(file, (1, 1))
        with open_hub(path / "home", local=True) as hub:
            pass_epochs(hub)
    return list(folder.rglob("*.arrow"))


CREATE = "CREATE RELATION r (k BIGINT, v BIGINT) USING csv OPTIONS (path '{}', header 'true')"


def test_the_version_in_the_catalog_is_not_superseded_by_itself(tmp_path: Path) -> None:
    folder = with_relation(tmp_path, CREATE)
    assert len(reopened(tmp_path, folder)) == 1


def test_a_relation_that_is_dropped_twice_in_the_log_is_collected(tmp_path: Path) -> None:
    folder = with_relation(tmp_path, CREATE, "DROP RELATION r")
    assert reopened(tmp_path, folder) == []
