"""The begin and the end of a Spark session in a launched JVM: its context, the warm-up of its workers, the session for
DataFrames, and an end that Ctrl-C cannot cut short.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headrace.runtime.spark.jvm import DriverJvm, SessionFailed
from headrace.runtime.spark.launch import Launched, launch

_END_SECONDS: Final = 15
_HOLD_SECONDS: Final = 0.02
_GATEWAY: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


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
    """A session in this process on `cores` (default: all this process may use), which ends in every case, Ctrl-C included.

    `scratch` is a folder of this process alone; `heap` is the JVM's, as Java writes sizes; `brief` is for sessions of
    a few minutes: a fifth quicker to start, a third quicker in the first hundred jobs, three times slower in long
    native plans; `extra` overrides any setting. Signal handlers are left as they were found.
    Raises `SessionAlreadyOpen`, `NoJava` or `SessionFailed`.
    """
    launched = launch(cores, app=app, scratch=scratch, heap=heap, brief=brief, extra=extra)
    context = begin(launched)
    try:
        yield sql_session(context)
    except Exception as failure:
        if was_interrupted(failure):
            raise KeyboardInterrupt from failure
        raise
    finally:
        close(launched, context)


def begin(launched: Launched) -> SparkContext:
    """The Spark context of a launched JVM, as soon as it is there.

    Raises `SessionFailed`; then the JVM has ended.
    """
    try:
        with _signal_handlers_kept():
            _end_gateway()  # of a session that was stopped before: its heap and its folders are other ones
            settings = SparkConf(loadDefaults=False).setAll(list(launched.settings.items()))
            SparkContext._ensure_initialized(gateway=_connected(launched.jvm), conf=settings)
            context = _begun(settings)
    except BaseException:
        _forget_gateway()
        launched.jvm.kill()
        launched.release()
        raise
    context.pythonExec = sys.executable  # else workers start whatever python3 is on PATH
    _keep_py4j_silent()
    _keep_accumulators_silent(context)
    return context


def warm(context: SparkContext) -> None:
    """Have Spark fork a worker for each core, and each of them rehearse a scan, before an epoch needs them."""
    cores = context.defaultParallelism
    context.parallelize(range(cores), cores).mapPartitions(_rehearsed).count()


def _rehearsed(rows: Iterable[int]) -> Iterable[int]:
    """Keep a worker while the others get theirs: one that is free would be used again."""
    from headrace.runtime.tasks.scan.rehearsal import rehearse  # noqa: PLC0415 - in the worker

    held_until = time.monotonic() + _HOLD_SECONDS
    rehearse()
    time.sleep(max(0.0, held_until - time.monotonic()))
    return rows


def sql_session(context: SparkContext) -> SparkSession:
    """The session for DataFrames over a context. Its classes take Spark as long to load as all others: epochs do without."""
    with _signal_handlers_kept():
        return SparkSession.builder.config(conf=context.getConf()).getOrCreate()


def close(launched: Launched, context: SparkContext) -> None:
    """End a session and its JVM; returns when its processes are gone, and Ctrl-C cannot cut it short.

    The JVM must end with the session: its files are below a `scratch` that the caller is about to remove.
    """
    with _interrupts_held():
        accumulators, context._accumulatorServer = context._accumulatorServer, None
        # A thread has its own connection to the JVM; an interrupt may have left this thread's in the middle of a message.
        stopping = threading.Thread(target=_stop, args=(context,), daemon=True)
        stopping.start()
        stopping.join(_END_SECONDS)
        _forget_gateway()
        launched.end()
        if (
            accumulators is not None
        ):  # it waits a second for its next look at a socket: that is not waited for
            threading.Thread(target=accumulators.shutdown, daemon=True).start()
    _restore_py4j_logging()


def _stop(context: SparkContext) -> None:
    with suppress(Exception):  # a lost JVM does not answer; `launched.end` ends the rest
        context.cancelAllJobs()
        context.stop()


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


def _keep_accumulators_silent(context: SparkContext) -> None:
    """Silence PySpark's listener for accumulators, which prints when the JVM ends early."""
    listener = context._accumulatorServer
    if listener is not None:
        listener.handle_error = lambda *_: None  # there are no accumulators to lose


def _restore_py4j_logging() -> None:
    logging.getLogger().removeFilter(_not_from_py4j)
    logging.getLogger("py4j").propagate = True


def _not_from_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


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


def _connected(jvm: DriverJvm) -> JavaGateway:
    """PySpark's connection to a JVM, which it takes from the environment of this process."""
    address = jvm.address()
    before = {name: os.environ.get(name) for name in _GATEWAY}
    _set_environment(dict(zip(_GATEWAY, (str(address.port), address.secret), strict=True)))
    try:
        gateway = launch_gateway()
    finally:
        _set_environment(before)
    gateway.proc = jvm.process  # as of a JVM that PySpark has started
    return gateway


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _begun(settings: SparkConf) -> SparkContext:
    try:
        return SparkContext(conf=settings)
    except Exception as failure:  # noqa: BLE001 - every failure is reported
        message = str(failure)  # while the JVM that words it is there
        cause = RuntimeError("".join(traceback.format_exception(failure)))
        raise SessionFailed(f"Expected Spark to accept these settings, but it reports: {message}") from cause


def _end_gateway() -> None:
    """End a JVM that PySpark started for a session that has been stopped, if there is one."""
    process = getattr(SparkContext._gateway, "proc", None)
    _forget_gateway()
    if process is not None:
        process.stdin.close()  # the JVM ends when this pipe breaks
        process.wait()


def _forget_gateway() -> None:
    """Close the connection to the JVM, and have PySpark make another one for the next session."""
    if SparkContext._gateway is not None:
        with suppress(Exception):  # it may be gone
            SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
