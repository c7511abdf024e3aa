"""Opening of a home: its session, its executor and its hub."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import UserError
from headrace.overload.memory import Limits, bytes_of
from headrace.runtime.home.file_names import SPARK_SCRATCH
from headrace.store.files.disk import UnsyncedDisk
from headrace.store.files.lock import HomeLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.runtime.delivery.actions.receivers import Receivers
    from headrace.runtime.epoch.executor import Executor
    from headrace.runtime.hub.hub import Hub
    from headrace.runtime.spark.own_session import OwnSession


def open_hub(
    home: str | Path,
    *,
    spark: SparkSession | None = None,
    cores: int | None = None,
    local: bool = False,
    brief: bool = False,
    temporary: bool = False,
    tasks: int | None = None,
    synopsis_bytes: int | None = None,
    state_bytes: int | None = None,
    memory: int | str | None = None,
    owner_memory: int | str | None = None,
    disk_reserve: int | str | None = None,
    receivers: Receivers | None = None,
    start: bool = True,
) -> Hub:
    """Open (or make) the home in a folder and become its writer.

    `spark`: use this session instead of an own one; its setting `spark.headrace.standingTasks` (`auto`, `never`, `always`) is
    the use of standing tasks for small epochs (decision 22). `cores`: of the own session (default: all). `local`: run without Spark
    or a JVM, in this process, for tests and small inputs. `brief`: start faster, for short runs. `temporary`: the folder is deleted when the process ends, so nothing waits for the disk.
    `tasks`: state tasks an
    epoch (default: one a core); it may differ each time. `synopsis_bytes`: the limit of the synopses of all queries together,
    for one group each (default: none); queries registered now that leave WITHIN out get the least error that fits.
    `state_bytes`: the limit of the state of all queries (default: none); beyond it queries with BEGIN … END store less of
    their answers, see `headrace.runtime.hub.state_budget`. `memory` and `owner_memory`: bytes, or '2 GB', that all queries may
    use together, and those of each owner (default: no limit), see `headrace.overload.memory`. `disk_reserve`: bytes, or '2 GB', of the disk that pushed rows do not fill (default: none): pushes wait, and are refused in the end. `receivers`: those that actions may reach (default: all).

    It returns at once, and an own session starts in the background: statements, `push` and all that reads need none, the first
    epoch waits for it, and raises why it did not start. Without `start` it starts when an epoch needs it.

    Raises `HomeInUse` when another process writes this home, `UserError` for a size that is none, and `NoJava` when there is no Java that Spark can run on.
    """
    limits = Limits(*(None if size is None else bytes_of(size) for size in (memory, owner_memory)))
    reserve = 0 if disk_reserve is None else bytes_of(disk_reserve)
    path = _folder(home)
    with ExitStack() as opened:  # closes the session when the rest fails
        own_session = None
        if not local and spark is None:
            with HomeLock(path):  # a home in use is refused now, not after Spark has started
                _sweep(path)
            from headrace.runtime.spark.own_session import OwnSession  # noqa: PLC0415 - where it is needed

            own_session = OwnSession(
                path, cores, brief=brief, start=start
            )  # Java starts while the rest is imported
            opened.callback(own_session.close)
        from headrace.runtime.hub.hub import Hub  # noqa: PLC0415

        executor = _executor(own_session if spark is None else spark)
        hub = Hub(
            path,
            executor,
            tasks=tasks or (1 if local else None),
            synopsis_bytes=synopsis_bytes,
            receivers=receivers,
            disk=UnsyncedDisk() if temporary else None,
        )
        engine, budget = hub.loop.engine, hub.loop.engine.rounds.memory
        budget.limits = limits
        if missing := budget.missing(engine.published, hub.catalog):
            hub.log(*missing)
        hub.backpressure.disk_reserve = reserve
        hub.on_close(opened.pop_all().close)
    if state_bytes is not None:
        from headrace.runtime.hub.state_budget import StateBudget  # noqa: PLC0415

        hub.on_epoch(StateBudget(hub, state_bytes).saw)
    return hub


def _folder(home: str | Path) -> Path:
    """The absolute path of a home. Raises `UserError` for a file."""
    path = Path(home).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise UserError(
            f"the home {path} is a file", remedy="Name a folder; it is made if it does not exist."
        )
    return path


def _executor(session: SparkSession | OwnSession | None) -> Executor:
    """What runs the epochs: Spark, or without a session this process."""
    if session is None:
        from headrace.runtime.epoch.executor import LocalExecutor  # noqa: PLC0415

        return LocalExecutor()
    from headrace.runtime.spark.given_session import GivenSession  # noqa: PLC0415 - pyspark only where a session is needed
    from headrace.runtime.spark.own_session import OwnSession  # noqa: PLC0415
    from headrace.runtime.spark.spark_executor import SparkExecutor  # noqa: PLC0415

    return SparkExecutor(session if isinstance(session, OwnSession) else GivenSession(session))


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
