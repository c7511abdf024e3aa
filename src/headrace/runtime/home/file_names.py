"""Names of the files of a home: unique for each attempt, so that no file is ever written twice (decision D8)."""

from __future__ import annotations

import uuid
from typing import Final

SPARK_SCRATCH: Final = "spark-"
"""Prefix of Spark's folders in a home; the process id follows, and they are deleted when that process ends."""


def _unique(epoch: int, task: int) -> str:
    return f"{epoch:012d}-{task:03d}-{uuid.uuid4().hex[:12]}"


def archive_run(stream: str, epoch: int, task: int) -> str:
    """A run of a stream's archive."""
    return f"archive/{stream}/{_unique(epoch, task)}.parquet"


def repeat_keys(stream: str, epoch: int, task: int) -> str:
    """Keys of a deduplicated stream's rows."""
    return f"state/keys/{stream}/{_unique(epoch, task)}.run"


def stream_rejects(stream: str, epoch: int, task: int) -> str:
    """Rows that a stream rejected."""
    return f"rejects/stream/{stream}/{_unique(epoch, task)}.parquet"


def query_rejects(query: str, epoch: int, task: int) -> str:
    """Rows on which a query's expressions failed."""
    return f"rejects/query/{query}/{_unique(epoch, task)}.parquet"


def state_run(epoch: int, task: int) -> str:
    """A state run."""
    return f"state/{_unique(epoch, task)}.run"


def is_state_run(name: str) -> bool:
    """Whether a file's name is that of a state run."""
    return name.startswith("state/")


def results_run(epoch: int, task: int) -> str:
    """A run of results."""
    return f"results/{_unique(epoch, task)}.run"


def plan(digest: str) -> str:
    """An epoch plan, named by its content."""
    return f"plans/{digest}.plan"


def code(digest: str) -> str:
    """The code of a user's function or window, named by its content."""
    return f"functions/{digest}.code"


def relation(name: str, version: int) -> str:
    """A version of a stored relation."""
    return f"relations/{name}/{version:06d}-{uuid.uuid4().hex[:12]}.arrow"


def file_name(query: str) -> str:
    """A query's name as a file name: characters that a file system does not allow are percent-encoded."""
    safe = "".join(f"%{ord(mark):02X}" if mark in "/\\%\0" else mark for mark in query)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe
