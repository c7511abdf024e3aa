"""The process that Spark's Python workers are forked from: it imports the pipeline once, for all of them.

Spark starts it with the first task, as the session's `spark.python.daemon.module`; the imports would then be most of the first
epoch. So a process with the same environment, the *nursery*, is started together with the JVM and imports while Java starts. What Spark
starts later passes its pipes to the nursery, which forks the daemon, and stays until that has ended. Without a nursery it
is the daemon itself. Only modules are loaded before a fork: no thread is started, no file stays open.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Final, NoReturn

from headrace.runtime.spark.nursery import NURSE, NURSERY

_STANDARD: Final = (0, 1, 2)
PUT_OFF: Final = (
    "pandas",
    "pyarrow.parquet",
    "ctypes",
    "headrace.connectors.formats.refused_rows",
    "headrace.operators.aggregates.group_comparisons",
    "headrace.operators.aggregates.synopsis_aggregates",
    "headrace.operators.native.library",
    "headrace.operators.query_index.boxes.box_factors",
    "headrace.operators.scalar.evaluation.kernels",
    "headrace.operators.scalar.numbers.bits",
    "headrace.operators.sharing.join_rows",
    "headrace.operators.sharing.reader_rows",
    "headrace.operators.sharing.shared_predicates",
    "headrace.operators.sharing.shared_panes",
    "headrace.operators.sharing.pairs.query_values",
    "headrace.operators.window_assembly.query_portions",
    "headrace.runtime.tasks.state.compaction",
    "headrace.runtime.tasks.state.run_merging",
)
"""What tasks import with the first query that needs it, and workers should have before: each would import it by itself."""


def _daemon() -> None:
    """Be the process that forks workers when Spark asks for them."""
    from pyspark.daemon import manager  # noqa: PLC0415 - not in what waits for a daemon of the nursery

    _import_pipeline()
    manager()


def _import_pipeline() -> None:
    import pyspark.worker  # noqa: F401, PLC0415

    import headrace.runtime.spark.spark_executor  # noqa: F401, PLC0415 - what the functions of tasks are unpickled from

    for put_off in PUT_OFF:
        import_module(put_off)
    from headrace.runtime.plan.plan_classes import codec  # noqa: PLC0415

    for name in codec().names:  # else with the first plan that has such an operator
        codec().class_of(name)

    gc.freeze()


def _nurse(path: str) -> None:
    """Import the pipeline, and fork a daemon for each connection until standard input ends or SIGTERM; end them then."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()  # who comes during the imports waits
        _import_pipeline()
        daemons: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        try:
            while 0 not in select.select([0, listening.fileno()], [], [])[0]:
                with listening.accept()[0] as waiting:
                    daemon = os.fork()
                    if daemon == 0:
                        listening.close()
                        _adopted(waiting)
                    daemons.append(daemon)
        finally:
            for (
                daemon
            ) in daemons:  # of what has ended the number is not used again: nobody has asked for its end
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(
                        daemon, signal.SIGKILL
                    )  # a worker that was just forked is deaf to its daemon's SIGHUP


def _adopted(waiting: socket.socket) -> NoReturn:
    """Be the daemon of the process at the other end: with its pipes, its environment and its arguments.

    The connection stays open until all workers have ended: its end is what the other process waits for.
    """
    code: int | str | None = 1
    try:
        os.setpgid(0, 0)
        _, pipes, _, _ = socket.recv_fds(waiting, 1, len(_STANDARD))
        for pipe, standard in zip(pipes, _STANDARD, strict=True):
            os.dup2(pipe, standard)
            os.close(pipe)
        with waiting.makefile("rb") as message:
            environment, sys.argv = json.load(message)
        os.environ.clear()
        os.environ.update(environment)
        waiting.sendall(os.getpid().to_bytes(8))
        _daemon()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - nothing of the nursery may run in this process
        traceback.print_exc()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _adopt(path: str | None) -> bool:
    """Have the nursery fork the daemon, and wait for its end; False if there is no nursery."""
    if path is None:
        return False
    with socket.socket(socket.AF_UNIX) as nursery:
        try:
            nursery.connect(path)
            socket.send_fds(nursery, [b"f"], _STANDARD)
            nursery.sendall(json.dumps([dict(os.environ), sys.argv]).encode())
            nursery.shutdown(socket.SHUT_WR)
            daemon = int.from_bytes(nursery.recv(8))
        except OSError:
            return False
        if not daemon:
            return False

        def pass_on(number: int, _: FrameType | None) -> None:
            with suppress(ProcessLookupError):
                os.kill(daemon, number)

        signal.signal(signal.SIGTERM, pass_on)
        nursery.recv(1)  # there is none: the connection ends with the daemon
    return True


if __name__ == "__main__":
    if sys.argv[1] == NURSE:
        _nurse(sys.argv[2])
    elif os.environ.get("PYSPARK_PYTHON") != sys.executable or not _adopt(os.environ.get(NURSERY)):
        _daemon()  # of a Python that a program chose, or without a nursery
