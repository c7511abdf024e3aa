"""Class data sharing: the classes of Spark in the form that Java maps into memory, made once for each Java and Spark.

A JVM reads ten thousand classes from 280 jars, parses and verifies them, before Spark runs its first job: two thirds of its
start. A session that finds no archive writes the list of its classes, and when it has ended a process in the background makes
the archive from it, at the lowest priority. Java itself checks that an archive fits its jars, and ignores one that does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from headrace.dataclass import dataclass
from headrace.runtime.spark.java import Java
from headrace.runtime.spark.jvm import spark_jars

_NEWEST: Final = 3
"""Archives of other Javas and Sparks that are not deleted when one is made: environments of the same user take turns."""
_LONGEST_SECONDS: Final = 600
"""After so long another session may make an archive that a session before it began to make."""
_MAKE: Final = """
trap 'rm -f "$LIST" "$MADE"' EXIT
nice -n 19 "$@" -Xshare:dump -XX:SharedClassListFile="$LIST" -XX:SharedArchiveFile="$MADE" && mv "$MADE" "$ARCHIVE"
"""


@dataclass(frozen=True, slots=True)
class ClassSharing:
    """The archive of one Java with one PySpark (None: there is no folder for it), and the list of a session without one."""

    java: Java
    archive: Path | None
    list: Path
    is_recording: bool
    """Whether the session writes the list of its classes, as there is no archive."""

    def options(self) -> tuple[str, ...]:
        """Options of a JVM: to use the archive, or else to write the list."""
        if self.is_recording:
            return (f"-XX:DumpLoadedClassList={self.list}",)
        return (f"-XX:SharedArchiveFile={self.archive}",) if self.archive is not None else ()

    def make(self) -> bool:
        """Start to make the archive in a process that outlives this one; False if there is no list or one is being made.

        For after the JVM that wrote the list has ended.
        """
        if (
            self.archive is None
            or not self.list.exists()
            or self.archive.exists()
            or _is_being_made(self.archive)
        ):
            return False
        folder = self.archive.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_old(folder)
        listed = self.archive.with_suffix(f".{os.getpid()}.classes")
        shutil.move(self.list, listed)
        unfinished = listed.with_suffix(".unfinished")
        jars = os.pathsep.join(map(str, spark_jars()))
        subprocess.Popen(
            ["/bin/sh", "-c", _MAKE, "sh", str(self.java.executable), "-cp", jars],
            env={**os.environ, "LIST": str(listed), "MADE": str(unfinished), "ARCHIVE": str(self.archive)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return True


def class_sharing(java: Java, scratch: Path) -> ClassSharing:
    """The archive for a Java and the installed PySpark, in the `cache_folder`."""
    folder = cache_folder()
    archive = None if folder is None else folder / f"spark-{_fingerprint(java)}.jsa"
    return ClassSharing(java, archive, scratch / "classes", archive is not None and not archive.exists())


def cache_folder() -> Path | None:
    """The folder of archives, which need not exist: `$HEADRACE_CACHE`, else one of the virtual environment that Headrace is installed in.

    None in an installation for all users: nothing is written outside of homes and of what Headrace was installed into.
    """
    if chosen := os.environ.get("HEADRACE_CACHE"):
        return Path(chosen)
    is_environment = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    return Path(sys.prefix, "var", "cache", "headrace") if is_environment else None


def _fingerprint(java: Java) -> str:
    """A name that changes when Java or a jar is replaced, as Java finds out by size and time of change."""
    files = [java.executable.resolve(), *spark_jars()]
    seen = [(str(file), (status := file.stat()).st_size, status.st_mtime_ns) for file in files]
    return hashlib.sha256(repr((java.major, seen)).encode()).hexdigest()[:16]


def _is_being_made(archive: Path) -> bool:
    newest = max(
        (file.stat().st_mtime for file in archive.parent.glob(f"{archive.stem}.*.classes")), default=0.0
    )
    return time.time() - newest < _LONGEST_SECONDS


def _remove_old(folder: Path) -> None:
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in archives[_NEWEST - 1 :]:
        old.unlink(missing_ok=True)
