"""The Python and the Java each contender runs on.

Every peer has its own virtual environment, made once from its pinned `requirements.txt` and made again when that changes.
All that need Java get the same one: the one Headrace itself would use.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.folders import CHECKOUT, cache
from headrace.runtime.spark.java import find_java, make_java_home

PEERS = CHECKOUT / "benchmarks" / "peers"


def python_of(peer: str | None) -> Path:
    """The interpreter of a peer's environment, made if need be; without a peer, our own."""
    if peer is None:
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


def versions_of(peer: str | None) -> dict[str, str]:
    """Every package of the environment with its version."""
    listed = subprocess.run(
        [python_of(peer), "-c", _LIST_PACKAGES], capture_output=True, text=True, check=True
    ).stdout
    return dict(line.split("==") for line in listed.split())


def java_home() -> Path:
    """A JAVA_HOME for every contender, below the cache."""
    return make_java_home(find_java(), cache() / "java")


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
