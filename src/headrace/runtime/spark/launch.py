"""The launch of Spark's JVM: its settings, its folders, and the one session that a process can have.

Everything Spark writes is below `scratch`; it listens on the loopback interface only; it prints nothing: its log
is `scratch/spark.log`, and output of Java and the workers is in `scratch/spark.out`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import Final

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError
from headrace.runtime.spark.class_sharing import ClassSharing, class_sharing
from headrace.runtime.spark.java import find_java
from headrace.runtime.spark.jvm import DriverJvm, environment
from headrace.runtime.spark.nursery import NURSERY, Nursery

_LOOPBACK: Final = "127.0.0.1"
_ATTEMPTS: Final = 4  # of a task; plain local[n] never retries one
_LONGEST_SOCKET_FOLDER = 60  # a socket's whole path may have 103 bytes (macOS) or 107; its name takes 43
_SOCKET_PREFIX: Final = "headrace-"
_SOCKETS: Final = "spark.python.unix.domain.socket.dir"
_OF_WORKERS: Final = "spark.executorEnv."

KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
    "MALLOC_ARENA_MAX": "1",  # threads that read and encode use the pages of the batch before, too
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}
"""A batch's arrays are a few MB, which the C library would return, and fault in again page by page, at every step.

It keeps them, and Arrow takes its memory from there too: windows of a cold worker then take a third of the time. Not in
huge pages, for which numpy would ask by itself: the kernel makes room for them and clears them while a worker waits, and a
virtual machine gives them back once they are free. 20 M rows take 1.3 times as long with them, a join of two streams of 2 M
rows 1.6 times.
"""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_FIXED: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.sql.adaptive.enabled": "false",  # may merge partitions: a slot's task must stay its own
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "headrace.runtime.spark.worker_daemon",  # workers are forked with the pipeline imported
    "spark.sql.streaming.checkpointFileManagerClass": (  # two renames a micro-batch cheaper; atomic locally and on HDFS
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.shuffle.compress": "false",  # blobs are compressed already, or names of files
    "spark.executorEnv.PYTHONHASHSEED": "0",
    "spark.executorEnv.TZ": "UTC",
    **{f"spark.executorEnv.{name}": "1" for name in _ONE_THREAD},
    **{f"spark.executorEnv.{name}": size for name, size in KEPT_MEMORY.items()},
}


_HOT: Mapping[str, int] = {
    "InvocationThreshold": 50_000,
    "MinInvocationThreshold": 6_000,
    "CompileThreshold": 150_000,
    "BackEdgeThreshold": 400_000,
}
"""How often code of the JVM runs before it is compiled with full optimization: ten times the default.

The JVM's own part in an epoch is small and changes often; compiling it took as much of two cores as half the
Python workers' work in the first seconds. Long native plans are compiled a little later.
"""


class SessionAlreadyOpen(HeadraceError):
    """This process already has a Spark session, whose fixed settings another one could not change."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Launched:
    """A JVM that has been started, and the settings of the session that begins in it."""

    jvm: DriverJvm
    settings: Mapping[str, str]
    sharing: ClassSharing
    nursery: Nursery | None
    _folders: ExitStack = field(default_factory=ExitStack)

    def end(self) -> None:
        """End the JVM and delete its folders outside `scratch`; another session may be launched then."""
        self.jvm.end()
        self.release()

    def release(self) -> None:
        """The same after the JVM has ended."""
        if self.nursery is not None:
            self.nursery.end()
        self._folders.close()
        _TAKEN.release()


_TAKEN = threading.Lock()
"""Held from the launch of a session until its end: a process can have one."""


def launch(
    cores: int | None = None,
    *,
    app: str = "headrace",
    scratch: Path,
    heap: str = "2g",
    brief: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Launched:
    """Start the JVM of a session, without waiting for it.

    Raises `SessionAlreadyOpen` and `NoJava`.
    """
    if _has_context() or not _TAKEN.acquire(blocking=False):
        raise SessionAlreadyOpen(
            "Expected no Spark session in this process, found one.\n"
            "  Hand it over with hr.open(home, spark=spark), or end it first with spark.stop()."
        )
    folders = ExitStack()
    try:
        scratch = _prepared(scratch)
        cores = cores or usable_cores()
        java = find_java()
        named = {"spark.app.name": app, "spark.master": f"local[{cores},{_ATTEMPTS}]"}
        settings = {**named, **_FIXED, **_placed(scratch, cores, folders), **(extra or {})}
        sharing = class_sharing(java, scratch)
        options = [f"-Xmx{heap}", *_java_options(scratch, brief=brief), *_asked_options(settings)]
        options += sharing.options()
        options += [f"-D{name}={value}" for name, value in settings.items()]
        variables = environment()
        nursery = _nursery(settings, variables, scratch)
        jvm = DriverJvm(java, options, variables, scratch)
    except BaseException:
        folders.close()
        _TAKEN.release()
        raise
    return Launched(jvm, settings, sharing, nursery, folders)


def _nursery(settings: Mapping[str, str], variables: dict[str, str], scratch: Path) -> Nursery | None:
    """The process that workers are forked from, which `variables` of the JVM will name; None without short paths for sockets."""
    if (folder := settings.get(_SOCKETS)) is None:
        return None
    path = Path(folder, "nursery")
    of_nursery = {
        name.removeprefix(_OF_WORKERS): value
        for name, value in settings.items()
        if name.startswith(_OF_WORKERS)
    }
    started = Nursery(path, {**variables, **of_nursery}, scratch / "spark.out")
    variables[NURSERY] = str(path)
    return started


def _has_context() -> bool:
    """Whether there is a Spark context: not if PySpark was never imported."""
    module = sys.modules.get("pyspark.core.context")
    return module is not None and module.SparkContext._active_spark_context is not None


def usable_cores() -> int:
    """How many processors this process may run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _prepared(scratch: Path) -> Path:
    scratch = scratch.absolute()
    for name in ("local", "temporary", "warehouse"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    return scratch


def _java_options(scratch: Path, *, brief: bool) -> list[str]:
    properties = {
        "log4j2.configurationFile": Path(__file__).with_name("log4j2.properties"),
        "headrace.log": scratch / "spark.log",
        "java.io.tmpdir": scratch / "temporary",
        "derby.system.home": scratch,
        "user.timezone": "UTC",
    }
    options = ["-XX:-UsePerfData", *(f"-D{name}={value}" for name, value in properties.items())]
    options += [
        f"-XX:Tier4{what}={times}" for what, times in _HOT.items()
    ]  # (perf data would be written to /tmp)
    if brief:
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return options


def _asked_options(settings: Mapping[str, str]) -> list[str]:
    """The options of Java among Spark's settings, which `spark-submit` would put on the command line."""
    asked = (settings.get(f"spark.driver.{kind}JavaOptions", "") for kind in ("default", "extra"))
    return [option for options in asked for option in shlex.split(options)]


def _placed(scratch: Path, cores: int, folders: ExitStack) -> dict[str, str]:
    """The settings that depend on the machine and on the folders for output."""
    return {
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        **_socket_settings(scratch, folders),
    }


def _socket_settings(scratch: Path, folders: ExitStack) -> dict[str, str]:
    """Sockets of the file system where a path is short enough for them, else plain TCP (about twice as slow)."""
    folder = _socket_folder(scratch, folders)
    enabled = "spark.python.unix.domain.socket.enabled"
    if folder is None:
        return {enabled: "false"}
    return {enabled: "true", _SOCKETS: str(folder)}


def _socket_folder(scratch: Path, folders: ExitStack) -> Path | None:
    """A new folder for sockets: below `scratch`, else in the system's temporary folder; None if all are too deep."""
    below = scratch / "sockets"
    if _short_enough(below):
        below.mkdir(exist_ok=True)
        return below
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a folder only this user can enter
        if _short_enough(Path(parent) / f"{_SOCKET_PREFIX}12345678") and os.access(parent, os.W_OK):
            folder = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=parent))
            folders.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder
    return None


def _short_enough(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= _LONGEST_SOCKET_FOLDER
