"""THEN WRITE TO a stream or a folder, exactly once; THEN NOTIFY through a mail server."""

from __future__ import annotations

import json
import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime.hub.opening import open_hub
from tests.runtime.delivery.actions.receiving import (
    SOON,
    STREAM,
    letters,
    mailbox,
    push,
    running,
    shown,
    until,
)

ROOT = Path(__file__).parents[4]
OTHER = STREAM.replace("STREAM s", "STREAM t")
CHAIN = (
    "CREATE QUERY q AS SELECT k, v FROM s WHERE v > 0 THEN WRITE TO t;"
    "CREATE QUERY total AS SELECT COUNT(*) AS n, SUM(v) AS v FROM t;"
)


def total(home: Path) -> dict[str, int]:
    """What has arrived in the other stream when nothing more is to come."""
    with open_hub(home, local=True) as hub, hub.running():
        until(lambda: shown(hub)["epochs_behind"] == 0)
        hub.catch_up()
        return hub.query("total").invoke().to_pylist()[0]


def test_rows_that_a_query_writes_are_rows_of_the_other_stream(tmp_path: Path) -> None:
    with running(tmp_path, OTHER, CHAIN) as hub:
        push(hub, 1, 2)
        push(hub, 3)
        until(lambda: hub.query("total").invoke().to_pylist() == [{"n": 3, "v": 6}])
    assert total(tmp_path) == {"n": 3, "v": 6}


KILLED = """
import os, sys
from pathlib import Path
from headrace.runtime.delivery.actions import outbox
from headrace.runtime.hub.opening import open_hub
{patch}
hub = open_hub(Path(sys.argv[1]), local=True)
hub.execute(sys.argv[2])
hub.push("s", [{{"k": "a", "v": 1}}, {{"k": "a", "v": 2}}], producer="p", sequence=0)
hub.start()
sys.stdin.read()
"""
BEFORE_CURSOR = "outbox.Cursor.write = lambda *_: os.kill(os.getpid(), 9)"
BEFORE_PUSH = "outbox.Outbox._send = lambda *_: os.kill(os.getpid(), 9)"


@pytest.mark.parametrize("patch", [BEFORE_CURSOR, BEFORE_PUSH], ids=["after the push", "before the push"])
def test_killed_around_a_push_each_row_is_written_once(tmp_path: Path, patch: str) -> None:
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED.format(patch=patch), str(tmp_path), STREAM + OTHER + CHAIN],
            stdin=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.wait(120) == -9
        process.stdin.close()  # type: ignore[union-attr]
    assert total(tmp_path) == {"n": 2, "v": 3}


AFTER_CURSOR = """
from headrace.runtime.ingest.ingest_queue import Intake
Intake.log_queued = lambda _: None  # as during a long epoch
def kill_after(cursor, position, write=outbox.Cursor.write):
    write(cursor, position)
    os.kill(os.getpid(), 9)
outbox.Cursor.write = kill_after
"""


def test_rows_are_durable_before_the_position_is_whatever_the_stream_allows(tmp_path: Path) -> None:
    """Pushes of others to this stream may wait for an hour, and be lost until then."""
    other = OTHER.replace("push", "push OPTIONS (durability '1 HOUR')")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(patch=AFTER_CURSOR), str(tmp_path), STREAM + other + CHAIN],
        stdin=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.wait(120) == -9
    process.stdin.close()  # type: ignore[union-attr]
    assert total(tmp_path) == {"n": 2, "v": 3}


def test_a_folder_gets_a_file_for_each_epoch(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with running(
        tmp_path / "home",
        f"CREATE QUERY q AS SELECT k, v FROM s WHERE v > 0 THEN WRITE TO '{folder}' WITH (format 'json')",
    ) as hub:
        push(hub, 1, 2)
        push(hub, 3)
        until(lambda: len(list(folder.glob("q-*.json"))) == 2)
        until(lambda: shown(hub)["epochs_behind"] == 0)
    rows = "".join(file.read_text() for file in sorted(folder.glob("*.json")))
    assert rows == '{"k":"a","v":1}\n{"k":"a","v":2}\n{"k":"a","v":3}\n'


def test_files_of_a_query_that_was_renamed_are_no_other_query_s(tmp_path: Path) -> None:
    """They are named as before, also by the next process, so that an epoch is never in two of them."""
    folder, home = tmp_path / "out", tmp_path / "home"
    then = f"SELECT k, v FROM s THEN WRITE TO '{folder}' WITH (format 'json')"

    def found(name: str) -> list[int]:
        return [
            json.loads(line)["v"]
            for file in sorted(folder.glob(f"{name}-*"))
            for line in file.read_text().splitlines()
        ]

    with running(home, f"CREATE QUERY q AS {then}") as hub:
        push(hub, 1)
        until(lambda: found("q") == [1])
        hub.execute("ALTER QUERY q RENAME TO r")
        with pytest.raises(UserError, match="a query that was called 'q' before"):
            hub.execute(f"CREATE QUERY q AS {then}")
        hub.execute(f"CREATE QUERY p AS {then.replace('v FROM', 'v * 10 AS v FROM')}")
        push(hub, 2)
        until(lambda: (found("q"), found("p")) == ([1, 2], [10, 20]))
    with running(home) as hub:
        hub.execute("ALTER QUERY r RENAME TO x")
        push(hub, 3)
        until(lambda: (found("q"), found("p")) == ([1, 2, 3], [10, 20, 30]))
        hub.execute("ALTER QUERY x THEN NOTHING")
        hub.execute(f"CREATE QUERY q FROM NOW AS {then}")
        push(hub, 4)
        until(lambda: (found("q"), found("p")) == ([1, 2, 3, 4], [10, 20, 30, 40]))


def test_rows_that_a_stream_no_longer_takes_are_dead_letters(tmp_path: Path) -> None:
    """Another program may have used the producer's number: rows that are not taken are kept, and the rest continues."""
    with running(tmp_path, OTHER, CHAIN) as hub:
        (action,) = hub.catalog.query("q").definition.actions
        hub.push("t", [{"k": "x", "v": 0}], producer=f"action-{action.id}", sequence=1 << 40)
        push(hub, 1)
        until(lambda: shown(hub)["dead_letters"] == 1)
    (letter,) = letters(tmp_path)
    assert letter["row"] == {"k": "a", "v": 1}
    assert "cannot be taken" in letter["reason"]


def notify(url: str, options: str = SOON) -> str:
    return (
        "CREATE QUERY q AS SELECT k, v FROM s WHERE v > 0 THEN NOTIFY 'mailto:ana@example.org,ben@example.org?subject=High'"
        f" WITH (server '{url}', sender 'headrace@example.org', {options})"
    )


def test_a_mail_has_the_rows_and_its_key(tmp_path: Path) -> None:
    with mailbox() as box, running(tmp_path, notify(box.url)) as hub:
        push(hub, 1, 2)
        ((to, text),) = until(lambda: box.mails)
    mail = message_from_string(text)
    assert to == ["ana@example.org", "ben@example.org"]
    assert (mail["Subject"], mail["From"]) == ("High", "headrace@example.org")
    assert mail["Message-ID"].endswith("-0@headrace>")
    assert "(2 rows)" in mail.get_payload(decode=True).decode()


def test_a_mail_server_that_is_busy_is_called_again(tmp_path: Path) -> None:
    with (
        mailbox(["451 later", "451 later"]) as box,
        running(tmp_path, notify(box.url)) as hub,
    ):
        push(hub, 1)
        ((to, _),) = until(lambda: box.mails)
    assert to == ["ana@example.org", "ben@example.org"]
    assert letters(tmp_path) == []


def test_a_mail_that_is_refused_is_a_dead_letter(tmp_path: Path) -> None:
    with (
        mailbox(["550 unknown", "550 unknown", None, "550 unknown"]) as box,
        running(tmp_path, notify(box.url)) as hub,
    ):
        push(hub, 1)
        until(lambda: shown(hub)["dead_letters"] == 1)
        push(hub, 2)
        until(lambda: shown(hub)["dead_letters"] == 2)
    refused, partly = letters(tmp_path)
    assert "refused ana@example.org (550 unknown), ben@example.org (550 unknown)" in refused["reason"]
    assert partly["reason"] == "the mail server took it, but not for ben@example.org (550 unknown)"
    assert [to for to, _ in box.mails] == [["ana@example.org"]]


def test_a_password_is_not_sent_in_the_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SECRET_MAIL", "swordfish")
    with mailbox() as box:
        options = f"user 'ana', secretEnv 'HEADRACE_SECRET_MAIL', attempts '2', {SOON}"
        with running(tmp_path, notify(box.url, options)) as hub:
            push(hub, 1)
            until(lambda: shown(hub)["dead_letters"] == 1)
    assert "offers no encryption" in letters(tmp_path)[0]["reason"]
    assert box.mails == []
