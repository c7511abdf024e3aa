"""Opening of a listed file, and the check that it has not changed since; and of the rows that a record has itself."""

from __future__ import annotations

import base64
import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headrace.connectors.records.ingest_record import GROWING, IngestRecord, SourceChanged
from headrace.errors import UserError
from headrace.time import render_instant


@contextmanager
def opened(record: IngestRecord, root: str | None = None) -> Iterator[BinaryIO]:
    """The record's file (a relative path is in `root`), checked when it is opened and again when it has been read.

    Raises `SourceChanged` when it was rewritten, grew, shrank or was removed, `UserError` when it cannot be read.
    """
    if record.rows:
        yield io.BytesIO(base64.b64decode(record.rows))
        return
    path = os.path.join(root, record.uri) if root is not None else record.uri  # noqa: PTH118 - as below
    try:
        file = open(path, "rb")  # noqa: PTH123, SIM115 - a path object costs more than the call
    except FileNotFoundError:
        raise _changed(record, "it is gone") from None
    except OSError as problem:
        raise unreadable(Path(path), problem) from None
    with file:
        check(record, os.fstat(file.fileno()))
        yield file
        try:
            check(record, os.stat(path))  # noqa: PTH116
        except FileNotFoundError:
            raise _changed(record, "it is gone") from None


def check(record: IngestRecord, status: os.stat_result) -> None:
    """Raise `SourceChanged` unless size and modification time (0: of no matter) are the record's, or it may have grown."""
    if record.mtime_ns == GROWING and status.st_size >= record.size:
        return
    if status.st_size != record.size or record.mtime_ns not in (0, status.st_mtime_ns):
        raise _changed(record, f"it has {_described(status.st_size, status.st_mtime_ns)}")


def unreadable(uri: str | Path, problem: OSError) -> UserError:
    """The user's error for a file or folder that the system does not let this process read."""
    reason = (problem.strerror or str(problem)).lower()
    who = f"user {os.getuid()}" if hasattr(os, "getuid") else "this user"
    remedy = "Repair it, or move it away."
    if problem.errno in (errno.EACCES, errno.EPERM):
        remedy = f"Give {who} the permission to read it, or move it away."
    return UserError(f"'{uri}' cannot be read: {reason}", remedy=remedy)


def _described(size: int, mtime_ns: int) -> str:
    if mtime_ns <= 0:
        return f"{size} bytes"
    return f"{size} bytes, modified {render_instant(mtime_ns // 1000)}"


def _changed(record: IngestRecord, observed: str) -> SourceChanged:
    return SourceChanged(
        f"stream '{record.stream}': '{record.uri}' has changed since it was listed: "
        f"expected {_described(record.size, record.mtime_ns)}, found that {observed}",
        remedy="Put the old file back; new rows belong in new files, moved into the folder when they are complete.",
    )
