"""Names of the files of a home: runs, rejects and versions of relations are unique for each attempt, so that no file is
written twice (decision D8), plans and users' code are named by content; and the check and encoding of users' names that
become part of them.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote

from headrace.catalog.system_streams import PREFIX, is_system
from headrace.errors import UserError

SPARK_SCRATCH: Final = "spark-"
"""Prefix of Spark's folders in a home; the process id follows, and they are deleted when that process ends."""


def _token() -> str:
    """What no other file has in its name."""
    return os.urandom(6).hex()


def _unique(epoch: int, task: int) -> str:
    return f"{epoch:012d}-{task:03d}-{_token()}"


def archive_run(stream: str, epoch: int, task: int) -> str:
    """A run of a stream's archive."""
    return f"archive/{file_name(stream)}/{_unique(epoch, task)}.parquet"


def joined_runs(stream: str, first: int, entries: int) -> str:
    """The runs of so many entries of a stream's archive list, from the entry `first` on."""
    return f"archive/{file_name(stream)}/{first:012d}+{entries}-{_token()}.parquet"


def sample(stream: str, first: int) -> str:
    """A sample of a stream's archive runs, from the entry `first` of its list on; in no folder with runs, of which it repeats rows."""
    return f"samples/{file_name(stream)}/{first:012d}-{_token()}.parquet"


def repeat_keys(stream: str, epoch: int, task: int) -> str:
    """Keys of a deduplicated stream's rows."""
    return f"state/keys/{file_name(stream)}/{_unique(epoch, task)}.run"


def row_counts(stream: str, epoch: int) -> str:
    """What was counted of a stream's archived rows, by which they are reduced."""
    return f"state/counts/{file_name(stream)}/{_unique(epoch, 0)}.run"


def segments(stream: str) -> str:
    """The folder of the rows that were pushed to a stream, by a program or by Spark."""
    return f"segments/{file_name(stream)}"


def stream_rejects(stream: str, epoch: int, task: int) -> str:
    """Rows that a stream rejected."""
    return f"rejects/stream/{file_name(stream)}/{_unique(epoch, task)}.parquet"


def query_rejects(query: str, epoch: int, task: int) -> str:
    """Rows on which a query's expressions failed."""
    return f"rejects/query/{query}/{_unique(epoch, task)}.parquet"


def joined_rejects(file: str, first: int, entries: int) -> str:
    """The rejected rows of so many entries of a list from the entry `first` on, in the folder of one of their files."""
    return f"{file.rpartition('/')[0]}/{first:012d}+{entries}-{_token()}.parquet"


def state_run(epoch: int, task: int) -> str:
    """A state run."""
    return f"state/{_unique(epoch, task)}.run"


def is_state_run(name: str) -> bool:
    """Whether a file's name is that of a state run."""
    return name.startswith("state/")


def results_run(epoch: int, task: int) -> str:
    """A run of results."""
    return f"results/{_unique(epoch, task)}.run"


def merged_results(first: int, entries: int) -> str:
    """The results of so many entries of the results list, from the entry `first` on."""
    return f"results/{first:012d}+{entries}-{_token()}.run"


def plan(digest: str) -> str:
    """An epoch plan, named by its content."""
    return f"plans/{digest}.plan"


def code(digest: str) -> str:
    """The code of a user's function or window, named by its content."""
    return f"functions/{digest}.code"


def relation(name: str, version: int) -> str:
    """A version of a stored relation."""
    return f"relations/{file_name(name)}/{version:06d}-{_token()}.arrow"


LONGEST_NAME: Final = 128
"""Bytes of the file that a name becomes: with what is added to it, it stays below the 255 that file systems take."""


def require_name(kind: str, name: str) -> None:
    """Refuse the name of a stream, relation or query that is of a built-in one, or cannot be that of a file or a line of output."""
    if is_system(name):
        raise UserError(
            f"names that begin with '{PREFIX}' are those of built-in streams",
            remedy=f"Choose another name than '{name}'.",
        )
    if any(ord(mark) < 32 or ord(mark) == 127 for mark in name):
        raise UserError(f"the name of the {kind} has a control character: {name!r}", remedy="Leave it out.")
    length = len(file_name(name).encode(errors="surrogatepass"))
    if length > LONGEST_NAME:
        raise UserError(
            f"the name of the {kind} is too long for a file's: {length} bytes, '{name[:40]}…'",
            remedy=f"Take at most {LONGEST_NAME}; a '/' or a '%' counts as three.",
        )


def file_name(query: str) -> str:
    """A name as a file name: characters that a file system does not allow are percent-encoded."""
    safe = "".join(f"%{ord(mark):02X}" if mark in "/\\%\0" else mark for mark in query)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe


def name_of(file: str) -> str:
    """The name whose `file_name` this is."""
    return unquote(file)
