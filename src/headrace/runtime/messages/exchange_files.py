"""Blobs in files, for tasks of a job on one machine: Spark carries their names, and a state task maps them.

A blob that passes through Spark is compressed, and copied six times between Python, sockets and the JVM. In a file it is written
once, as it is, and its tables are views of the page cache. The files of a job are in a folder, which is deleted with all of them
when the job has ended; a state task that is run again finds them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.runtime.messages.exchange_blob import ScanBlob

_NAMED: Final = b"\xfe" + b"\xff" * 7
"""Prefix of a name, where a packed blob has a length, which is not negative."""
_FROM: Final = 1 << 18
"""Bytes of a blob's tables from which a file costs less than Spark's exchange."""


@contextmanager
def exchange_folder(parent: Path | None) -> Iterator[Path | None]:
    """A folder for the files of a job, deleted at the end; None where there is no folder that all tasks of a job can read."""
    if parent is None:
        yield None
        return
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the rest goes with the session


def sent(blob: ScanBlob, folder: Path | None) -> bytes:
    """The bytes that go through Spark: the name of a new file in `folder`, or the packed blob if that is small. Raises `OSError`."""
    if folder is None or sum(table.nbytes for table in blob.sections.values()) < _FROM:
        return blob.pack()
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.writelines(blob.parts())
    return _NAMED + file.name.encode()


def received(data: bytes) -> ScanBlob:
    """The blob of bytes that `sent` has made."""
    if not data.startswith(_NAMED):
        return ScanBlob.unpack(pa.py_buffer(data))
    with pa.memory_map(data[len(_NAMED) :].decode()) as file:
        return ScanBlob.unpack(file.read_buffer())
