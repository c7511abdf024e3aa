"""The one place where a Spark session is made and ended.

Everything Spark writes is below `scratch`; it listens on the loopback interface only; it prints nothing: its log
is `scratch/spark.log`, and output of Java and the workers is in `scratch/spark.out`. Sessions of users are used as they are.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.runtime.spark.java import find_java, make_java_home

_LOOPBACK = "127.0.0.1"
_ATTEMPTS = 4  # of a task; plain local[n] never retries one
_END_SECONDS = 15
_LAST_LINES = 10
_LONGEST_SOCKET_FOLDER = 60  # a socket's whole path may have 103 bytes (macOS) or 107; its name takes 43

_SOCKET_PREFIX = "headrace-"
_AFTERWARDS = ExitStack()  # undone when the one session that a process can have has ended

KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""A batch's arrays are a few MB, which the C library would return, and fault in again page by page, at every step.

It keeps them, in huge pages where the kernel offers them, and Arrow takes its memory from there too: windows of a
cold worker then take a third of the time.
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


class SessionFailed(HeadraceError):
    """Java or Spark failed while starting; the message ends with its last output."""


def open_session(
    cores: int | None = None,
    *,
    app: str = "headrace",
    scratch: Path,
    heap: str = "2g",
    brief: bool = False,
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in this process on `cores` (default: all this process may use).

    `scratch` is a folder of this process alone; `heap` is the JVM's, as Java writes sizes; `brief` is for sessions of
    a few minutes: a fifth quicker to start, a third quicker in the first hundred jobs, three times slower in long
    native plans; `extra` overrides any setting. Signal handlers are left as they were found.
    Raises `SessionAlreadyOpen`, `NoJava` or `SessionFailed`.
    """
    if SparkContext._active_spark_context is not None:
        raise SessionAlreadyOpen(
            "Expected no Spark session in this process, found one.\n"
            "  Hand it over with hr.open(home, spark=spark), or end it first with spark.stop()."
        )
    cores = cores or usable_cores()
    scratch = _prepared(scratch)
    settings = SparkConf(loadDefaults=False).setAppName(app).setMaster(f"local[{cores},{_ATTEMPTS}]")
    settings.setAll(list({**_FIXED, **_placed(scratch, cores, heap, brief=brief), **(extra or {})}.items()))
    with _launch_environment(make_java_home(find_java(), scratch / "java")), _signal_handlers_kept():
        _end_jvm()  # of a session that was stopped before: its heap and its folders are other ones
        _start_jvm(settings, scratch / "spark.out")
        spark = _begun(settings)
    _keep_py4j_silent()
    _keep_accumulators_silent(spark)
    return spark


def usable_cores() -> int:
    """How many processors this process may run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def close_session(spark: SparkSession) -> None:
    """End the session and its JVM; returns when its processes are gone, and Ctrl-C cannot cut it short.

    The JVM must end with the session: its files are below a `scratch` that the caller is about to remove.
    """
    with _interrupts_held():
        # A thread has its own connection to the JVM; an interrupt may have left this thread's in the middle of a message.
        stopping = threading.Thread(target=_stop, args=(spark,), daemon=True)
        stopping.start()
        stopping.join(_END_SECONDS)
        _end_jvm()
        _AFTERWARDS.close()
    _restore_py4j_logging()


def _stop(spark: SparkSession) -> None:
    with suppress(Exception):  # a lost JVM does not answer; `_end_jvm` ends the rest
        spark.sparkContext.cancelAllJobs()
        spark.stop()


@contextmanager
def session(
    cores: int | None = None,
    *,
    app: str = "headrace",
    scratch: Path,
    heap: str = "2g",
    brief: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """`open_session` that ends itself in every case, Ctrl-C included."""
    spark = open_session(cores, app=app, scratch=scratch, heap=heap, brief=brief, extra=extra)
    try:
        yield spark
    except Exception as failure:
        if was_interrupted(failure):
            raise KeyboardInterrupt from failure
        raise
    finally:
        close_session(spark)


def was_interrupted(failure: BaseException | None, before: BaseException | None = None) -> bool:
    """True when Ctrl-C caused `failure`: while unwinding, Spark calls the JVM over the connection just cut.

    `before` was being handled already when the work that failed began, so it and its causes do not count.
    """
    while failure is not None and failure is not before:
        if isinstance(failure, KeyboardInterrupt):
            return True
        failure = failure.__cause__ or failure.__context__
    return False


def _keep_py4j_silent() -> None:
    """Silence Py4J, which at every Ctrl-C logs stack traces, also through the root logger, before it raises."""
    logging.getLogger().addFilter(_not_from_py4j)
    logging.getLogger("py4j").propagate = False


def _keep_accumulators_silent(spark: SparkSession) -> None:
    """Silence PySpark's listener for accumulators, which prints when the JVM ends early."""
    listener = spark.sparkContext._accumulatorServer
    if listener is not None:
        listener.handle_error = lambda *_: None  # there are no accumulators to lose


def _restore_py4j_logging() -> None:
    logging.getLogger().removeFilter(_not_from_py4j)
    logging.getLogger("py4j").propagate = True


def _not_from_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _prepared(scratch: Path) -> Path:
    scratch = scratch.absolute()
    for name in ("java", "local", "temporary", "warehouse"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    return scratch


def _placed(scratch: Path, cores: int, heap: str, *, brief: bool) -> dict[str, str]:
    """The settings that depend on the machine and on the folders for output."""
    properties = {
        "log4j2.configurationFile": Path(__file__).with_name("log4j2.properties"),
        "headrace.log": scratch / "spark.log",
        "java.io.tmpdir": scratch / "temporary",
        "derby.system.home": scratch,
        "user.timezone": "UTC",
    }
    options = ["-XX:-UsePerfData", *(f'"-D{name}={value}"' for name, value in properties.items())]
    options += [f"-XX:Tier4{what}={times}" for what, times in _HOT.items()]
    if brief:
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return {
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": " ".join(options),  # (perf data would be written to /tmp)
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        **_socket_settings(scratch),
    }


def _socket_settings(scratch: Path) -> dict[str, str]:
    """Sockets of the file system where a path is short enough for them, else plain TCP (about twice as slow)."""
    folder = _socket_folder(scratch)
    enabled = "spark.python.unix.domain.socket.enabled"
    if folder is None:
        return {enabled: "false"}
    return {enabled: "true", "spark.python.unix.domain.socket.dir": str(folder)}


def _socket_folder(scratch: Path) -> Path | None:
    """A new folder for sockets: below `scratch`, else in the system's temporary folder; None if all are too deep."""
    below = scratch / "sockets"
    if _short_enough(below):
        below.mkdir(exist_ok=True)
        return below
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a folder only this user can enter
        if _short_enough(Path(parent) / f"{_SOCKET_PREFIX}12345678") and os.access(parent, os.W_OK):
            made = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=parent))
            _AFTERWARDS.callback(shutil.rmtree, made, ignore_errors=True)
            return made
    return None


def _short_enough(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= _LONGEST_SOCKET_FOLDER


@contextmanager
def _launch_environment(java_home: Path) -> Iterator[None]:
    """Variables that the JVM must inherit at its start; restored afterwards, for the rest of the process is the user's."""
    variables: dict[str, str | None] = {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),  # another Spark on this machine has other jars
        "SPARK_LOCAL_IP": _LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,  # else workers start whatever python3 is on PATH
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": None,
        "SPARK_LOCAL_DIRS": None,  # would replace `scratch`
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData -XX:TieredStopAtLevel=1",  # it lives for a third of a second
    }
    before = {name: os.environ.get(name) for name in variables}
    _set_environment(variables)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore SIGINT's handler, which Spark replaces when it starts: the caller defines what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_jvm(settings: SparkConf, output: Path) -> None:
    """Start the JVM of the next session; workers inherit its output."""
    with output.open("ab") as printed:
        try:
            gateway = launch_gateway(settings, {"stdout": printed, "stderr": printed})
        except PySparkRuntimeError as failure:
            last = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LAST_LINES:]
            output_end = "\n".join(f"    {line}" for line in last) or "    (nothing)"
            raise SessionFailed(
                f"Expected Java to start Spark, but it ended. Its last output:\n{output_end}"
            ) from failure
    SparkContext._ensure_initialized(gateway=gateway, conf=settings)


def _begun(settings: SparkConf) -> SparkSession:
    try:
        return SparkSession.builder.config(conf=settings).getOrCreate()
    except Exception as failure:  # noqa: BLE001 - every failure is reported
        message = str(failure)  # while the JVM that words it is there
        cause = RuntimeError("".join(traceback.format_exception(failure)))
        _end_jvm()
        raise SessionFailed(f"Expected Spark to accept these settings, but it reports: {message}") from cause
    except BaseException:
        _end_jvm()
        raise


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    with suppress(Exception):  # it may be gone
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if process is None:  # not started here, for instance by spark-submit
        return
    process.stdin.close()  # the JVM ends when this pipe breaks
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
