"""What each sink promises, also across restarts and failures."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import HeadraceError, UserError
from headrace.runtime.hub.opening import open_hub
from tests.cli.building import SCRIPT, bid, put


@pytest.fixture
def home(tmp_path):
    """A home whose query has answered twice, in two epochs."""
    put(tmp_path / "bids", "1.csv", bid(1, 1, 101), bid(70, 2, 102))
    put(tmp_path / "bids", "2.csv", bid(140, 3, 103))
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(SCRIPT.format(folder=tmp_path))
        hub.catch_up()
    return tmp_path / "home"


def test_a_folder_gets_every_row_once_whatever_was_delivered_before(home, tmp_path) -> None:
    folder = tmp_path / "results"
    with open_hub(home, local=True) as hub:
        hub.sink("dear", folder)
    first = {path.name: path.read_text() for path in folder.iterdir()}
    assert sorted(text.splitlines()[1] for text in first.values()) == ["1,1,101.0", "1,2,102.0"]
    assert all(name.startswith("dear-0000") and name.endswith(".csv") for name in first)
    for cursor in (home / "sinks").rglob("*"):
        if cursor.is_file():
            cursor.unlink()  # as if the process had been killed before it could remember
    put(tmp_path / "bids", "3.csv", bid(210, 4, 104))
    with open_hub(home, local=True) as hub:
        hub.sink("dear", folder)
        hub.catch_up()
    after = {path.name: path.read_text() for path in folder.iterdir()}
    assert {name: after[name] for name in first} == first
    assert [text for name, text in after.items() if name not in first] == ["n,auction,top\n1,3,103.0\n"]


def test_a_folder_of_parquet_holds_the_rows_with_their_types(home, tmp_path) -> None:
    with open_hub(home, local=True) as hub:
        hub.sink("dear", tmp_path / "rows", format="parquet")
        history = hub.query("dear").history()
    files = sorted((tmp_path / "rows").glob("dear-*.parquet"))
    assert len(files) == 2
    assert pa.concat_tables(pq.read_table(file) for file in files).equals(history)


def test_a_callable_goes_on_where_it_stopped_and_repeats_the_epoch_it_failed_on(home, tmp_path) -> None:
    seen: list[tuple[int, list]] = []

    def failing(epoch, table) -> None:
        seen.append((epoch, table.to_pylist()))
        if len(seen) > 1:
            raise RuntimeError("the receiver is gone")

    message = "the sink of query 'dear' failed: the receiver is gone"
    with pytest.raises(HeadraceError, match=message), open_hub(home, local=True) as hub:
        hub.sink("dear", failing, name="mine")
    with open_hub(home, local=True) as hub:
        hub.sink("dear", lambda epoch, table: seen.append((epoch, table.to_pylist())), name="mine")
    first, *repeated = [epoch for epoch, _ in seen]
    assert len(repeated) > 1
    assert first < min(repeated) == max(repeated)
    assert [rows[0]["auction"] for _, rows in seen] == [1, *[2] * len(repeated)]
    with open_hub(home, local=True) as hub:
        hub.sink("dear", lambda *_: seen.append((0, [])), name="mine")
    assert len(seen) == 1 + len(repeated)


def test_the_console_shows_the_epoch_and_the_rows(home, capsys) -> None:
    with open_hub(home, local=True) as hub:
        hub.sink("dear", "console")
    shown = capsys.readouterr().out
    assert shown.count("dear, epoch ") == 2
    assert "101.0" in shown


def test_a_running_hub_delivers_without_being_asked(home, tmp_path) -> None:
    folder = tmp_path / "json"
    with open_hub(home, local=True) as hub, hub.running():
        hub.sink("dear", folder, format="json")
        put(tmp_path / "bids", "3.csv", bid(210, 4, 104))
        next(table for table in hub.query("dear").follow() if table.num_rows)
    assert len(list(folder.glob("dear-*.json"))) == 3


def test_a_wrong_query_or_format_is_refused_at_once(home, tmp_path) -> None:
    with open_hub(home, local=True) as hub:
        with pytest.raises(UserError, match="there is no query 'deer'"):
            hub.sink("deer", tmp_path)
        with pytest.raises(UserError, match="there is no format 'xml'"):
            hub.sink("dear", tmp_path, format="xml")
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match="cannot make the folder"):
            hub.sink("dear", tmp_path / "file" / "folder")


def test_the_public_names_are_there_and_no_others() -> None:
    assert set(hr.__all__) == {
        "Client",
        "connect",
        "HeadraceError",
        "Hub",
        "LinearWindow",
        "QueryHandle",
        "UserError",
        "UserWindow",
        "__version__",
        "check_window",
        "open",
        "test",
    }
    assert all(getattr(hr, name) is not None for name in hr.__all__)
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        hr.close  # noqa: B018
