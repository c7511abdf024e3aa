"""The writer's lock of a home: one process at a time, by an operating-system lock that even a kill releases.

The lock prevents starting two drivers on one home by mistake. Consistency does not depend on it: that is the work of
publishing if absent, which also holds where such locks do not work.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headrace.errors import HomeInUse, StoreError
from headrace.store.files.filesystem import NotPermitted
from headrace.store.files.spread_folders import spread

LOCK: Final = "LOCK"


class HomeLock:
    """Hold the writer's lock of a home as long as this is open: `with HomeLock(home): …`."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self._home = Path(home)
        self._descriptor: int | None = None

    def acquire(self) -> Self:
        """Take the lock without waiting; `HomeInUse` names its holder. Makes the home's folder when there is none."""
        path = self._home / LOCK
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            spread(self._home)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno in {errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENFILE}:
                raise StoreError(f"cannot open the home {self._home}: {error.strerror}") from error
            raise NotPermitted(
                f"cannot open the home {self._home}: {error.strerror}\n"
                "  Name a folder that this user may write in with --home DIR; it is made if it does not exist."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise HomeInUse(
                f"the home {self._home} is in use by {holder or 'a process that has just started'}. "
                "Stop it, or name another home; if it runs on purpose, use it instead of starting a second"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"the file system of the home {self._home} offers no locks ({error.strerror}): use a local folder"
            ) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except OSError as error:
            os.close(descriptor)  # or this process would lock itself out
            raise StoreError(f"cannot write in the home {self._home}: {error.strerror}") from error
        self._descriptor = descriptor
        return self

    def release(self) -> None:
        """Let others write; does nothing when the lock is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
