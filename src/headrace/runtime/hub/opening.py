"""Opening of a home: its session, its executor and its hub."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.file_names import SPARK_SCRATCH
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.state_budget import StateBudget
from headrace.store.files.lock import HomeLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_hub(
    home: str | Path,
    *,
    spark: SparkSession | None = None,
    cores: int | None = None,
    local: bool = False,
    brief: bool = False,
    tasks: int | None = None,
    synopsis_bytes: int | None = None,
    state_bytes: int | None = None,
) -> Hub:
    """Open (or make) the home in a folder and become its writer.

    `spark`: use this session instead of an own one; its setting `spark.headrace.standingTasks` (`auto`, `never`, `always`) is
    the use of standing tasks for small epochs (decision 22). `cores`: of the own session (default: all). `local`: run without Spark
    or a JVM, in this process, for tests and small inputs. `brief`: start faster, for short runs. `tasks`: state tasks an
    epoch (default: one a core); it may differ each time. `synopsis_bytes`: the limit of the synopses of all queries together,
    for one group each (default: none); queries registered now that leave WITHIN out get the least error that fits.
    `state_bytes`: the limit of the state of all queries (default: none); beyond it queries with BEGIN … END store less of
    their answers, see `headrace.runtime.hub.state_budget`.

    Raises `HomeInUse` when another process writes this home.
    """
    hub = _opened(home, spark, cores, tasks, synopsis_bytes, local=local, brief=brief)
    if state_bytes is not None:
        hub.on_epoch(StateBudget(hub, state_bytes).saw)
    return hub


def _opened(
    home: str | Path,
    spark: SparkSession | None,
    cores: int | None,
    tasks: int | None,
    synopsis_bytes: int | None,
    *,
    local: bool,
    brief: bool,
) -> Hub:
    path = Path(home).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise UserError(
            f"the home {path} is a file", remedy="Name a folder; it is made if it does not exist."
        )
    if local:
        return Hub(path, LocalExecutor(), tasks=tasks or 2, synopsis_bytes=synopsis_bytes)
    from headrace.runtime.spark.own_session import OwnSession  # noqa: PLC0415 - pyspark only where a session is needed
    from headrace.runtime.spark.spark_executor import SparkExecutor  # noqa: PLC0415

    if spark is not None:
        return Hub(path, SparkExecutor(spark), tasks=tasks, synopsis_bytes=synopsis_bytes)
    with HomeLock(path):  # a home in use is refused now, not after Spark has started
        _sweep(path)
    own_session = OwnSession(path, cores, brief=brief)
    try:
        hub = Hub(
            path,
            SparkExecutor(own_session.spark, own_session.renew),
            tasks=tasks,
            synopsis_bytes=synopsis_bytes,
        )
    except BaseException:
        own_session.close()
        raise
    hub.on_close(own_session.close)
    return hub


def _sweep(path: Path) -> None:
    """Delete Spark's scratch folders of processes that were killed."""
    for left in path.glob(f"{SPARK_SCRATCH}*"):
        owner = left.name.removeprefix(SPARK_SCRATCH).partition("-")[0]
        if owner.isdecimal() and not _is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
