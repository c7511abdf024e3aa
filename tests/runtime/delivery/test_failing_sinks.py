"""A receiver that fails is called again, in order, and the hub, SHOW SINKS and the log of epochs show so meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, UserError
from headrace.runtime.delivery.sink_states import Patience, recorded
from headrace.runtime.epoch.retention import EVERY
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.epoch_log import EPOCHS, OLDER, EpochLog, last_lines
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.statements.show import show
from tests.language.one_statement import parse_statement
from tests.runtime.epoch.test_retention import KEPT, counting, minutes

SOON = (0.001, 0.01)


def until(fulfilled: Callable[[], bool]) -> None:
    """Wait for what has to come; only a run that hangs ends here."""
    for _ in range(6000):
        if fulfilled():
            return
        time.sleep(0.01)
    raise AssertionError("nothing came")


class Receiver:
    """Remembers what it got, and refuses the calls it is asked to."""

    def __init__(self, refused: range | tuple[int, ...] = ()) -> None:
        self.refused, self.calls = refused, 0
        self.got: list[int] = []
        self.epochs: list[int] = []

    def __call__(self, epoch: int, rows: pa.Table) -> None:
        self.calls += 1
        if self.calls - 1 in self.refused:
            raise ConnectionError(f"call {self.calls - 1} was refused")
        self.epochs.append(epoch)
        self.got += [row["n"] for row in rows.to_pylist()]


@contextmanager
def complaint(match: str) -> Iterator[None]:
    """What a hub raises that is closed while a sink has not delivered all."""
    with pytest.raises(HeadraceError, match=match):
        yield


def states(home: Path, sink: str = "mine") -> list[str]:
    """The states of a sink in the log of epochs."""
    lines = [json.loads(line) for line in (home / "epochs.jsonl").read_text().splitlines()]
    return [line["state"] for line in lines if line["kind"] == "sink" and line["sink"] == sink]


def shown(hub: Hub) -> dict[str, Any]:
    (row,) = hub.execute("SHOW SINKS")[0].table.to_pylist()
    return row


def state_of(hub: Hub) -> str:
    return hub.status()["sinks"]["mine"]["state"]


def test_a_receiver_that_raises_once_gets_every_epoch_in_order(tmp_path: Path) -> None:
    receiver = Receiver(refused=(2,))
    with counting(tmp_path, KEPT) as hub:
        hub.sink("kept", receiver, name="mine", waits=SOON)
        minutes(hub, range(8))
        until(lambda: len(receiver.got) == 7)
        until(lambda: state_of(hub) == "delivering")
        until(lambda: hub.status()["sinks"]["mine"]["epochs_behind"] == 0)
        seen = hub.status()["sinks"]["mine"]
        assert (seen["query"], seen["target"], seen["attempts"], seen["failures"]) == (
            "kept",
            "callable",
            0,
            1,
        )
        assert seen["error"] == "ConnectionError: call 2 was refused"
        assert (seen["epochs_behind"], seen["bytes_behind"], seen["missed"]) == (0, 0, 0)
    assert receiver.epochs == sorted(set(receiver.epochs))
    assert states(tmp_path) == ["delivering", "retrying", "delivering", "closed"]


def test_while_it_fails_everybody_can_see_why_and_how_far_behind_it_is(tmp_path: Path) -> None:
    receiver = Receiver(refused=range(10**9))
    with counting(tmp_path, KEPT) as hub:
        hub.sink("kept", receiver, name="mine", waits=SOON)
        minutes(hub, range(6))
        until(lambda: receiver.calls > 3)
        row, seen = shown(hub), hub.status()["sinks"]["mine"]
        for state in (row, seen):
            assert state["state"] == "retrying"
            assert state["attempts"] >= 3
            assert state["error"].startswith("ConnectionError: call ")
            assert state["epochs_behind"] == 5
            assert state["bytes_behind"] == sum(
                file.bytes for file in hub.home.store.list("results/") if file.name.endswith(".run")
            )
        again = shown(hub)
        assert again["since"] == row["since"]
        assert hub.execute("SHOW SINKS LIKE 'other%'")[0].table.num_rows == 0
        elsewhere = show(Reader.at(tmp_path).home, parse_statement("SHOW SINKS")).table.to_pylist()
        for name in (
            "name",
            "query",
            "target",
            "state",
            "since",
            "position",
            "epochs_behind",
            "bytes_behind",
        ):
            assert elsewhere[0][name] == again[name], name
        receiver.refused = ()
    assert receiver.got == [1] * 5  # close() has tried once more, and nothing is left to complain of
    assert states(tmp_path)[:2] == ["delivering", "retrying"]
    assert states(tmp_path)[-1] == "closed"
    assert [line["kind"] for line in last_lines(tmp_path, 100)].count("sink") == 0


def test_a_sink_goes_on_where_it_was_in_the_next_hub(tmp_path: Path) -> None:
    first, second = Receiver(refused=range(2, 10**9)), Receiver()
    with complaint("the sink of query 'kept' failed: call .* was refused"), counting(tmp_path, KEPT) as hub:
        hub.sink("kept", first, name="mine", waits=SOON)
        minutes(hub, range(30))
        until(lambda: first.calls > 4)
    with counting(tmp_path) as hub:
        hub.sink("kept", second, name="mine")
        minutes(hub, range(30, 32))
    assert first.got + second.got == [1] * 31
    assert first.epochs[-1] < second.epochs[0]
    assert second.epochs == sorted(set(second.epochs))


@pytest.mark.parametrize("name", ["mine", None])
def test_two_sinks_that_would_share_a_position_are_refused(tmp_path: Path, name: str | None) -> None:
    """Else each receiver lacked the epochs that the other has got."""
    first, second = Receiver(), Receiver()
    with counting(tmp_path, KEPT, KEPT.replace("kept", "other")) as hub:
        hub.sink("kept", first, name=name)
        query = "kept" if name is None else "other"
        with pytest.raises(UserError, match="a sink of the query 'kept' has the position"):
            hub.sink(query, second, name=name)
        hub.sink(query, second, name="another")
        minutes(hub, range(4))
    assert first.got == second.got == [1] * 3


def test_a_folder_that_is_gone_for_a_while_gets_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with counting(tmp_path / "home", KEPT) as hub:
        hub.sink("kept", folder, name="mine", waits=SOON)
        minutes(hub, range(3))
        until(lambda: len(list(folder.glob("kept-*.csv"))) == 2)
        folder.rename(tmp_path / "away")
        folder.write_text("a file is in its place")
        minutes(hub, range(3, 6))
        until(lambda: state_of(hub) == "retrying")
        assert "cannot write" in shown(hub)["error"] or "cannot publish" in shown(hub)["error"]
        folder.unlink()
        (tmp_path / "away").rename(folder)
        until(lambda: state_of(hub) == "delivering")
        until(lambda: len(list(folder.glob("kept-*.csv"))) == 5)


def test_a_failing_sink_holds_back_retention_until_it_gives_up(tmp_path: Path) -> None:
    receiver = Receiver(refused=range(10**9))
    with complaint("the sink of query 'kept' stopped: call .* was refused"), counting(tmp_path, KEPT) as hub:
        hub.sink("kept", receiver, name="mine", waits=SOON)
        hub.sink("kept", receiver, name="weary", waits=SOON, give_up_after=0.05)
        until(lambda: hub.status()["sinks"]["mine"]["state"] == "delivering")
        minutes(hub, range(40))
        assert hub.query("kept").history().num_rows == 39
        until(lambda: hub.status()["sinks"]["weary"]["state"] == "stopped")
        calls = hub.status()["sinks"]["weary"]["failures"]
        receiver.refused = ()
        until(lambda: hub.status()["sinks"]["mine"]["epochs_behind"] == 0)
        minutes(hub, range(40, 40 + 2 * EVERY))
        assert hub.query("kept").history().num_rows <= 6 + 2 * EVERY
        assert hub.status()["sinks"]["weary"]["failures"] == calls
    assert states(tmp_path, "weary") == ["delivering", "retrying", "stopped"]
    late = Receiver()
    with counting(tmp_path) as hub:
        hub.sink("kept", late, name="weary")
        assert hub.status()["sinks"]["weary"]["missed"] > 0
    assert 0 < len(late.got) < 40


def test_a_sink_whose_query_is_dropped_stops_and_says_so(tmp_path: Path) -> None:
    with complaint("stopped: there is no query 'kept'"), counting(tmp_path, KEPT) as hub:
        minutes(hub, range(3))
        hub.sink("kept", Receiver(), name="mine", waits=SOON)
        until(lambda: shown(hub)["epochs_behind"] == 0)
        hub.execute("DROP QUERY kept")
        minutes(hub, range(3, 5))
        hub.execute(KEPT.replace("kept", "other"))
        minutes(hub, range(5, 9))
        until(lambda: state_of(hub) == "stopped")


def test_waits_double_up_to_the_longest() -> None:
    patience = Patience(0.1, 1.0)
    assert [patience.wait(attempts) for attempts in (1, 2, 3, 4, 5, 10**6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for first, longest in ((0, 1), (2, 1), (-1, 1)):
        with pytest.raises(UserError, match="cannot wait"):
            Patience(first, longest)


def test_lines_of_many_threads_are_whole_in_the_log(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    log = EpochLog(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: log.write({"kind": "epoch", "n": n, "fill": "x" * 5000}), range(400)))
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "epochs.jsonl").read_text().splitlines()]
    assert sorted(line["n"] for line in lines) == list(range(400))


@pytest.mark.parametrize("name", ["of/ana", ".100%", "plain"])
def test_a_sink_whose_lines_are_rotated_away_has_its_position_whatever_its_name(
    tmp_path: Path, name: str
) -> None:
    with counting(tmp_path, KEPT) as hub:
        hub.sink("kept", Receiver(), name=name)
        minutes(hub, range(3))
    home = Reader.at(tmp_path).home
    (logged,) = recorded(home)
    assert logged["sink"] == name
    assert logged["position"] > 0
    for log in (EPOCHS, OLDER):
        (tmp_path / log).unlink(missing_ok=True)
    (left,) = recorded(home)
    assert (left["sink"], left["position"], left["state"]) == (name, logged["position"], None)
