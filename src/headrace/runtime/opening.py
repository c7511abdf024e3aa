"""Opening a home: where the session, the executor and the hub come together."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import UserError
from headrace.runtime.executor import LocalExecutor
from headrace.runtime.hub import Hub

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
) -> Hub:
    """Open (or make) the home in a folder and become its writer.

    `spark`: use this session instead of an own one. `cores`: of the own session (default: all). `local`: run without Spark
    or a JVM, in this process, for tests and small inputs. `brief`: start faster, for short runs. `tasks`: state tasks an
    epoch (default: one a core); it may differ each time.

    Raises `HomeInUse` when another process writes this home.
    """
    path = Path(home).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise UserError(
            f"the home {path} is a file", remedy="Name a folder; it is made if it does not exist."
        )
    if local:
        return Hub(path, LocalExecutor(), tasks=tasks or 2)
    from headrace.runtime.session import session  # noqa: PLC0415 - pyspark only where a session is wanted
    from headrace.runtime.spark_executor import SparkExecutor  # noqa: PLC0415

    if spark is not None:
        return Hub(path, SparkExecutor(spark), tasks=tasks)
    scratch = tempfile.TemporaryDirectory(prefix="spark-", dir=_made(path))
    own = session(cores, scratch=Path(scratch.name), brief=brief)
    try:
        hub = Hub(path, SparkExecutor(own.__enter__()), tasks=tasks)
    except BaseException:
        own.__exit__(None, None, None)
        scratch.cleanup()
        raise
    hub.on_close(scratch.cleanup)
    hub.on_close(lambda: own.__exit__(None, None, None))
    return hub


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
