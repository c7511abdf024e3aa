"""The archive of Spark's classes: when it is used, made and ignored."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from headrace.runtime.spark import class_sharing as sharing
from headrace.runtime.spark.java import Java, find_java

SESSION = textwrap.dedent(
    """
    import sys, psutil
    from pathlib import Path
    import headrace as hr
    with hr.open(sys.argv[1], cores=1) as hub:
        print(hub.session().sparkContext.parallelize(range(5), 1).sum())
        java = next(p for p in psutil.Process().children(recursive=True) if "java" in p.name())
        print(any(".jsa" in m.path and "headrace" in m.path for m in java.memory_maps()))
        print(" ".join(a for a in java.cmdline() if "SharedArchive" in a or "DumpLoaded" in a))
        import time
        while not hub.loop.engine.executor._session._start._is_warm: time.sleep(0.01)
    """
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def in_a_process(tmp_path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path / "home")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_without_an_archive_a_session_lists_its_classes_and_with_one_it_uses_it(
    cache: Path, tmp_path: Path
) -> None:
    first = sharing.class_sharing(find_java(), tmp_path)
    assert first.options() == (f"-XX:DumpLoadedClassList={tmp_path / 'classes'}",)
    assert not cache.exists()
    assert first.archive is not None
    first.archive.parent.mkdir(parents=True)
    first.archive.touch()
    second = sharing.class_sharing(find_java(), tmp_path)
    assert second.options() == (f"-XX:SharedArchiveFile={first.archive}",)
    assert second.archive == first.archive


def test_an_installation_for_all_users_shares_nothing_and_an_environment_within_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_CACHE", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert sharing.cache_folder() == tmp_path / "var" / "cache" / "headrace"
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    shared = sharing.class_sharing(find_java(), tmp_path)
    assert (shared.options(), shared.make()) == ((), False)


def test_an_archive_belongs_to_one_java_and_to_jars_of_a_size_and_time(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, jar = tmp_path / "java", tmp_path / "spark.jar"
    java.write_text("java")
    jar.write_text("jar")
    monkeypatch.setattr(sharing, "spark_jars", lambda: [jar])

    def name() -> Path | None:
        return sharing.class_sharing(Java(java, 17, "PATH"), tmp_path).archive

    names = {name()}
    assert {name()} == names
    os.utime(jar, ns=(1, 1))
    names.add(name())
    jar.write_text("another jar")
    names.add(name())
    os.utime(java, ns=(1, 1))
    names.add(name())
    assert len(names) == 4


def test_an_archive_is_made_once_and_replaces_only_the_oldest(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(sharing.subprocess, "Popen", lambda command, **_: started.append(command))
    cache.mkdir(parents=True)
    for number in range(4):
        (cache / f"spark-{number}.jsa").touch()
        os.utime(cache / f"spark-{number}.jsa", (number, number))
    shared = sharing.class_sharing(find_java(), tmp_path)
    assert not shared.make(), "there is no list"
    shared.list.write_text("java/lang/Object")
    assert shared.make()
    assert not shared.list.exists()
    assert sorted(file.name for file in cache.glob("*.jsa")) == ["spark-2.jsa", "spark-3.jsa"]
    shared.list.write_text("java/lang/Object")
    assert not shared.make(), "another one is making it"
    assert len(started) == 1


@pytest.mark.spark
def test_a_damaged_archive_is_ignored(cache: Path, tmp_path: Path) -> None:
    archive = sharing.class_sharing(find_java(), tmp_path).archive
    assert archive is not None
    cache.mkdir(parents=True)
    archive.write_bytes(b"not an archive" * 1000)
    assert in_a_process(tmp_path)[0] == "10"


@pytest.mark.spark
@pytest.mark.soak
def test_the_second_session_maps_the_archive_that_the_first_one_left(cache: Path, tmp_path: Path) -> None:
    assert in_a_process(tmp_path)[:2] == ["10", "False"]
    deadline = time.monotonic() + 300
    while not list(cache.glob("*.jsa")) or list(cache.glob("*.classes")):
        assert time.monotonic() < deadline, list(cache.iterdir())
        time.sleep(0.1)
    total, mapped, options = in_a_process(tmp_path)
    assert (total, mapped) == ("10", "True")
    assert "SharedArchiveFile" in options
    assert [file.suffix for file in cache.iterdir()] == [".jsa"]
