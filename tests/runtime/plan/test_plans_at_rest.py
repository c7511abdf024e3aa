"""Code and data of a home: plans are data with a version; users' functions and windows are separate, and wait to be used."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
import subprocess
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.algebra.windows.user_code import Code
from headrace.errors import CorruptStore, OtherVersion, UserError
from headrace.operators.base.operator import Operator
from headrace.operators.partials.partial import Partial
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.epoch_plan import Retention
from headrace.runtime.plan import bound_queries, epoch_planner, plan_files
from headrace.runtime.plan.code_fingerprint import fingerprint
from headrace.runtime.plan.plan_classes import codec, places
from headrace.runtime.plan.plan_files import load_plan, save_plan
from headrace.runtime.plan.update_guards import is_same
from headrace.runtime.plan.user_code import code_of
from headrace.runtime.plan.user_functions import define
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import LocalStore
from headrace.synopses.sketches.sketch_kind import Kind
from headrace.time import SECOND
from tests.runtime.rig import QUERIES, SEVERAL, Rig, cut, faults_once_tidy, made_rows

STREAM = "CREATE STREAM a (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
WINDOWED = "SELECT COUNT(*) AS n FROM a [WINDOW blocks(2)]"


class Blocks(headrace.LinearWindow):
    """Windows of some seconds."""

    def __init__(self, seconds: int) -> None:
        length = seconds * SECOND
        self.starts, self.ends = (length, 0), (length, length)


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=1)


def push_rows(hub: Hub, *seconds: int) -> None:
    at = pa.array([second * SECOND for second in seconds]).cast(pa.timestamp("us", tz="UTC"))
    hub.push("a", pa.table({"k": ["a"] * len(seconds), "v": pa.array(seconds, pa.int64()), "at": at}))
    hub.catch_up()


def with_code(folder: Path) -> Hub:
    """A hub with a function and a window of a user, and queries that use them."""
    hub = opened(folder)
    hub.execute(STREAM)
    hub.register_function("twice", lambda v: 2 * v, ["BIGINT"], "BIGINT")
    hub.register_function("unused", lambda v: v, ["BIGINT"], "BIGINT")
    hub.register_window("blocks", Blocks)
    hub.register("SELECT twice(v) AS t FROM a", "doubled")
    hub.register(WINDOWED, "windowed")
    return hub


# ------------------------------------------------------------------------------------------------------ what is registered


def classes_of(package: str) -> Iterator[type]:
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value.__module__ == module.name and is_dataclass(value):
                yield value


@pytest.mark.parametrize(
    ("protocol", "package"),
    [
        (Operator, "headrace.operators"),
        (Partial, "headrace.operators"),
        (Kind, "headrace.synopses"),
    ],
)
def test_every_class_that_may_be_in_a_plan_is_registered(protocol: Any, package: str) -> None:
    wanted = [name for name in vars(protocol) if not name.startswith("_")]
    of_it = [
        kind
        for kind in classes_of(package)
        if all(hasattr(kind, name) or name in kind.__dataclass_fields__ for name in wanted)  # type: ignore[attr-defined]
        and not getattr(kind, "__abstractmethods__", None)
    ]
    known = {codec().class_of(name) for name in codec().names}
    assert len(of_it) >= 4
    missing = [f"{kind.__module__}.{kind.__qualname__}" for kind in of_it if kind not in known]
    assert missing == [], (
        "a plan with one of these could not be written: add it to runtime/plan/plan_classes.py"
    )


def classes_in(hint: Any) -> Iterator[type]:
    """The dataclasses and enumerations that a type annotation names."""
    if typing.get_origin(hint) is not None:
        for argument in typing.get_args(hint):
            yield from classes_in(argument)
    elif isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Enum)):
        yield hint


def test_the_classes_of_fields_are_registered_too() -> None:
    known = {codec().class_of(name) for name in codec().names}
    missing = {
        f"{inner.__module__}.{inner.__qualname__} in {kind.__qualname__}.{field.name}"
        for kind in known
        if is_dataclass(kind)
        for hints in [typing.get_type_hints(kind)]
        for field in fields(kind)
        if field.init
        for inner in classes_in(hints[field.name])
        if inner not in known
    }
    assert len(known) > 90
    assert missing == set(), "add them to runtime/plan/plan_classes.py"


def test_two_classes_of_one_name_are_distinguished_by_hand() -> None:
    modules = {"here": "Passing Other", "there": "Passing"}
    with pytest.raises(ValueError, match="both called Passing: give one of them a name in STORED_AS"):
        places(modules, {})
    assert places(modules, {"headrace.there:Passing": "Former"}) == {
        "Passing": "headrace.here:Passing",
        "Other": "headrace.here:Other",
        "Former": "headrace.there:Passing",
    }


# ------------------------------------------------------------------------------------------------------- what is in files


def test_plans_hold_no_pickles_and_users_code_lies_in_files_of_its_own(tmp_path: Path) -> None:
    with with_code(tmp_path) as hub:
        push_rows(hub, 1, 2, 9)
        manifest = hub.home.latest()
        plan = load_plan(hub.home.store, manifest.plan or "")
        assert plan == hub.loop.engine.plan == epoch_planner.make_plan(hub.catalog)
        apart = {each.body for each in [*plan.functions.values(), *hub.catalog.windows.values()]}
        files = {path: path.read_bytes() for path in (tmp_path / "home" / "functions").iterdir()}
        assert set(files.values()) == apart
        named = {name for name in manifest.facts["plan segments"] if name.startswith("functions/")}
        assert named == {f"functions/{path.name}" for path in files}
        for path in (tmp_path / "home" / "plans").iterdir():
            json.loads(path.read_bytes().split(b"\n")[1])
            assert not any(base64.b64encode(body) in path.read_bytes() for body in apart)
        hub.loop.engine.housekeeping.grace = -1
        hub.loop.engine.collect()
        assert all(path.exists() for path in files)
        plan_files.clear_caches()
        push_rows(hub, 11)
        assert hub.query("doubled").history()["t"].to_pylist() == [2, 4, 18, 22]
        hub.drop_query("windowed")
        push_rows(hub, 12)
        assert not faults_once_tidy(hub)


def test_code_is_loaded_when_a_query_that_uses_it_runs_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_code(tmp_path) as hub:
        hub.drop_query("windowed")
        unused = hub.catalog.functions["unused"].body
    loaded: list[Code] = []
    load = Code.load

    def noted(self: Code, what: str) -> Any:
        loaded.append(self)
        return load(self, what)

    monkeypatch.setattr(Code, "load", noted)
    with opened(tmp_path) as hub:
        assert loaded == []
        push_rows(hub, 1)
        assert set(loaded) == {hub.catalog.functions["twice"].body}
        assert unused not in loaded


def test_code_whose_module_is_gone_fails_the_epoch_and_rejects_no_row(tmp_path: Path) -> None:
    entry = {"name": "lost", "parameters": ["BIGINT"], "result": "BIGINT", "by_row": True, "strict": True}
    gone = base64.b64encode(b"cno_such_module\nfunction\n.").decode()
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        hub.loop.engine.log({"do": "put_function", "function": {**entry, "body": gone}})
        hub.register("SELECT lost(v) AS t FROM a", "q")
        with pytest.raises(UserError, match=r"the function 'lost' cannot be loaded(.|\n)*importable again"):
            push_rows(hub, 1)
        assert sum(hub.status()["rejected"].values()) == 0


@pytest.mark.parametrize("name", ["UserWindow", "LinearWindow", "Cumulate", "JoinedWindows"])
def test_what_users_code_says_of_ours_is_found_wherever_it_lives_now(name: str) -> None:
    code = Code(f"cheadrace.some.older.place\n{name}\n.".encode())
    assert code.load("the window 'w'").__name__ == name
    with pytest.raises(UserError, match="cannot be loaded"):
        Code(b"cheadrace.some.older.place\nNobody\n.").load("the window 'w'")


def test_built_in_windows_are_in_plans_by_name(tmp_path: Path) -> None:
    joined = "SELECT COUNT(*) AS n FROM a x [RANGE 4 SECONDS SLIDE 2 SECONDS], a y [RANGE 6 SECONDS SLIDE 2 SECONDS] WHERE x.v = y.v"
    cumulated = (
        "SELECT COUNT(*) AS n FROM CUMULATE(TABLE a, DESCRIPTOR(at), INTERVAL 2 SECONDS, INTERVAL 4 SECONDS)"
        " GROUP BY window_start, window_end"
    )
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        hub.register(joined, "joined")
        hub.register(cumulated, "cumulated")
        push_rows(hub, 1, 2, 9)
        assert load_plan(hub.home.store, hub.home.latest().plan or "") == hub.loop.engine.plan
        said = b"".join(path.read_bytes() for path in (tmp_path / "home" / "plans").iterdir())
        assert b'"joined"' in said
        assert b'"cumulate"' in said
        assert b"JoinedWindows" not in said
        assert not (tmp_path / "home" / "functions").exists()


# --------------------------------------------------------------------------------------------------------- other versions


def test_what_an_older_headrace_registered_is_read(tmp_path: Path) -> None:
    """Its entries have no fingerprint of a function; windows were pickled as they are now."""
    body = base64.b64encode(code_of(lambda v: 3 * v, "it")).decode()
    window = base64.b64encode(code_of(Blocks, "it")).decode()
    number = {"parameters": ["BIGINT"], "result": "BIGINT", "by_row": True, "strict": True}
    with opened(tmp_path) as hub:
        hub.execute(STREAM)
        hub.loop.engine.log(
            {"do": "put_function", "function": {"name": "thrice", "body": body, **number}},
            {
                "do": "put_window",
                "window": {"name": "blocks", "body": window, "fingerprint": fingerprint(Blocks)},
            },
        )
    with opened(tmp_path) as hub:
        hub.register("SELECT thrice(v) AS t FROM a", "tripled")
        hub.register(WINDOWED, "windowed")
        push_rows(hub, 1, 2, 9)
        assert hub.query("tripled").history()["t"].to_pylist() == [3, 6, 27]
        assert hub.query("windowed").history()["n"].to_pylist() == [1, 1]
        known = hub.catalog.functions["thrice"]
        assert known.fingerprint == ""
        assert is_same(known, define("thrice", lambda v: 3 * v, ["BIGINT"], "BIGINT"))
        assert not is_same(known, define("thrice", lambda v: 4 * v, ["BIGINT"], "BIGINT"))


def rewritten(folder: Path, name: str, kind: str, **changed: Any) -> None:
    """A file of a plan as another version would have written it."""
    path = folder / "home" / name
    body = unseal(kind, 1, path.read_bytes(), name)
    path.write_bytes(seal(kind, 1, {**body, **changed}))


@pytest.mark.parametrize(
    "other_head",
    [{"schema": "of another version"}, {"classes": ["OfAnotherVersion"]}],
    ids=["fields", "classes"],
)
def test_a_plan_of_other_classes_is_made_again_when_the_home_is_opened(tmp_path: Path, other_head) -> None:
    with with_code(tmp_path) as hub:
        push_rows(hub, 1)
        epoch, plan = hub.home.latest().epoch, hub.home.latest().plan
    assert plan is not None
    rewritten(tmp_path, plan, "plan", **other_head)
    with opened(tmp_path) as hub:
        assert hub.home.latest().epoch == epoch + 2  # taken over, and published with a plan that can be read
        assert plan_files.is_readable(hub.home.store, hub.home.latest().plan or "")
        push_rows(hub, 3)
        assert hub.query("doubled").history()["t"].to_pylist() == [2, 6]


def test_a_plan_that_this_version_cannot_read_says_whose_it_is(tmp_path: Path) -> None:
    with with_code(tmp_path) as hub:
        push_rows(hub, 1)
        manifest, store = hub.home.latest(), hub.home.store
        segment = next(name for name in manifest.facts["plan segments"] if name.startswith("plans/"))
        operators = unseal("plan segment", 1, store.read(segment), segment)["operators"]
        known = [["OfAnotherVersion", fields] for _, fields in operators["records"]]
        rewritten(tmp_path, segment, "plan segment", operators={**operators, "records": known})
        plan_files.clear_caches()
        with pytest.raises(OtherVersion, match=r"it knows a 'OfAnotherVersion', this one does not.*writer"):
            load_plan(store, manifest.plan or "")
        (tmp_path / "home" / (manifest.plan or "")).write_bytes(b"0123456789abcdef01234567\n\x80\x05\x95")
        with pytest.raises(OtherVersion, match="by an older version of headrace"):
            load_plan(store, manifest.plan or "")
        assert not plan_files.is_readable(store, manifest.plan or "")
        assert not plan_files.is_readable(store, "plans/missing.plan")


def test_damage_is_found_and_a_home_that_is_opened_mends_it(tmp_path: Path) -> None:
    with with_code(tmp_path) as hub:
        push_rows(hub, 1)
        manifest = hub.home.latest()
        files = [manifest.plan or "", *manifest.facts["plan segments"]]
    store = LocalStore(tmp_path / "home")
    for name in files:
        path = tmp_path / "home" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + b"damaged!!")
        plan_files.clear_caches()
        with pytest.raises(CorruptStore):
            load_plan(store, manifest.plan or "")
        path.write_bytes(whole)
    for name in files:
        (tmp_path / "home" / name).write_bytes(b"damaged")
    with opened(tmp_path) as hub:
        plan_files.clear_caches()
        push_rows(hub, 2)
        assert hub.query("doubled").history()["t"].to_pylist() == [2, 4]


def test_plans_that_are_equal_are_files_of_one_name(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "other")
    with Rig(tmp_path).hub(1, QUERIES) as hub:
        first = save_plan(store, hub.loop.engine.plan, plan_files.NO_PLAN)
        bound_queries._bound.clear()
        bound_queries._lowered.clear()
        again = save_plan(store, epoch_planner.make_plan(hub.catalog), plan_files.NO_PLAN)
        assert again.files == first.files


def test_an_operator_stays_one_object_when_another_fact_of_it_changes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "other")
    with Rig(tmp_path).hub(1, {"tumble": QUERIES["tumble"]}) as hub:
        plan = hub.loop.engine.plan
    (id_,) = plan.planned
    retained = replace(plan, planned={id_: replace(plan.planned[id_], retention=Retention(7))})
    first = save_plan(store, plan, plan_files.NO_PLAN)
    second = save_plan(store, retained, first)
    plan_files.clear_caches()
    assert load_plan(store, second.name).operators[id_] is load_plan(store, first.name).operators[id_]
    assert load_plan(store, first.name).retention_of(id_) is None
    assert load_plan(store, second.name).retention_of(id_) == Retention(7)


# ------------------------------------------------------------------------------------------------------------ no code runs

PROGRAM = """
import io, json, pickle, sys
from pathlib import Path

ALLOWED = {"headrace.runtime.epoch.executor", "headrace.runtime.messages.exchange_blob"}  # in flight, between a driver and its own tasks
loads = pickle.loads

def refused(*_, **__):
    raise AssertionError("a pickle of a home was loaded")

def guarded(data, **more):
    asks = sys._getframe(1).f_globals["__name__"]
    assert asks in ALLOWED, f"{asks} loads a pickle"
    return loads(data, **more)

class Unpickler(pickle.Unpickler):
    __init__ = load = refused

pickle.loads, pickle.load, pickle.Unpickler = guarded, refused, Unpickler

from headrace.runtime.introspection.explain import explain_all
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub

home, names = Path(sys.argv[1]), json.loads(sys.argv[2])
with Hub(home, LocalExecutor(), tasks=2) as hub:
    hub.execute("CREATE QUERY one_more AS SELECT k, x FROM s WHERE x > 1")
    hub.catch_up()
    rows = {name: hub.query(name).invoke().num_rows for name in names}
    assert explain_all(Home.at(home))
    assert not hub.status()["failed"], hub.status()["failed"]
print(json.dumps(rows))
"""


def run_without_pickles(home: Path, names: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(home), json.dumps(names)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )


def test_opening_planning_and_running_a_home_without_functions_loads_no_pickle(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queries = {**QUERIES, **SEVERAL}
    files = cut(made_rows(5, 60), 30)
    rig.drop(files[0])
    with rig.hub(2, queries) as hub:
        hub.catch_up()
    rig.drop(*files[1:])
    done = run_without_pickles(rig.home, list(queries))
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(done.stdout).values()) > 10


def test_that_no_pickle_is_loaded_would_be_seen(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.drop(*cut(made_rows(5, 60), 30))
    with rig.hub(2, {}) as hub:
        hub.register_function("twice", lambda x: 2 * x, ["BIGINT"], "BIGINT")
        hub.register("SELECT twice(x) AS t FROM s", "q")
    done = run_without_pickles(rig.home, ["q"])
    assert "a pickle of a home was loaded" in done.stderr
