"""A byte range of a text file, decompressed and decoded to UTF-8, as blocks of whole lines.

Law: a range owns the lines that start in it. So ranges that cover a file give each line once, whatever the cuts.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import numpy as np

from headrace.connectors.records.chunk import WholeFile
from headrace.connectors.records.ingest_record import WHOLE, IngestRecord

BLOCK: Final = 8 << 20
_BOM: Final = codecs.BOM_UTF8
_OPENERS: Final[dict[str, Callable[[Any], Any]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_CODECS: Final = ("utf-16", "utf-32", "utf16", "utf32")


def is_utf8(text: bytes) -> bool:
    """Whether the text is valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_divisible(uri: str, encoding: str) -> bool:
    """False for files whose lines can only be found from the start: compressed, or two bytes a character."""
    return not uri.lower().endswith(tuple(_OPENERS)) and not encoding.replace("_", "-").startswith(_CODECS)


def head(file: BinaryIO, record: IngestRecord, encoding: str, comment: bytes = b"") -> bytes:
    """The first line that is neither blank nor a comment, without its end, in UTF-8; empty when there is none."""
    file.seek(0)
    for block in _cut(_decoded(_chunks(_plain(file, record), None, 1 << 16), encoding), quote=0):
        for line in block.removeprefix(_BOM).replace(b"\r", b"\n").split(b"\n"):
            if line.strip() and not (comment and line.startswith(comment)):
                return line
    return b""


def with_feeds(text: bytes) -> bytes:
    """The text with LF for each line end."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def blocks(
    file: BinaryIO,
    record: IngestRecord,
    encoding: str,
    *,
    quote: int = 0,
    feeds: Callable[[bytes], bytes] = with_feeds,
) -> Iterator[bytes]:
    """The record's lines in UTF-8, about 8 MB at a time, each block ending where a line ends; LF is the only line end.

    With `quote` (a byte) a line feed between two quotes ends no line. `feeds` makes LF of the line ends of a block with returns.
    """
    if is_divisible(record.uri, encoding):
        chunks = _range(file, record.start, record.size if record.end == WHOLE else record.end, record.size)
    else:
        file.seek(0)
        chunks = _chunks(_plain(file, record), None)
    first = record.start == 0
    for block in _cut(_decoded(chunks, encoding), quote):
        text = block.removeprefix(_BOM) if first else block
        first = False
        if b"\r" in text:
            text = feeds(text)
        if text:
            yield text


def _plain(file: BinaryIO, record: IngestRecord) -> BinaryIO:
    for ending, opener in _OPENERS.items():
        if record.uri.lower().endswith(ending):
            opened: BinaryIO = opener(file)
            return opened
    return file


def _chunks(file: BinaryIO, limit: int | None, size: int | None = None) -> Iterator[bytes]:
    left, size = limit, size or BLOCK
    while left is None or left > 0:
        chunk = file.read(size if left is None else min(size, left))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk


def _range(file: BinaryIO, start: int, end: int, size: int) -> Iterator[bytes]:
    """The bytes of the lines that start in [start, end)."""
    begin = start
    if start > 0:
        begin = _after_line(file, start - 1, size)
    if begin >= end:
        return
    stop = _after_line(file, end - 1, size)
    file.seek(begin)
    yield from _chunks(file, stop - begin)


def _after_line(file: BinaryIO, at: int, size: int) -> int:
    """The offset behind the first line feed at or after `at`."""
    file.seek(at)
    while at < size:
        chunk = file.read(min(1 << 16, size - at))
        if not chunk:
            break
        feed = chunk.find(b"\n")
        if feed >= 0:
            return at + feed + 1
        at += len(chunk)
    return size


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    if encoding == "utf-8":
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    try:
        for chunk in chunks:
            if text := decoder.decode(chunk):
                yield text.encode(errors="replace")
        if rest := decoder.decode(b"", final=True):
            yield rest.encode(errors="replace")
    except UnicodeError as problem:  # such as UTF-16 without a byte order mark
        raise WholeFile(f"not readable as {encoding}: {problem}") from None


def _cut(chunks: Iterator[bytes], quote: int) -> Iterator[bytes]:
    """Join and cut chunks so that each ends with a line; the last one ends where the text does."""
    held: list[bytes] = []
    ahead = next(chunks, b"")
    while ahead:
        chunk, ahead = ahead, next(chunks, b"")
        held.append(chunk)
        if not ahead:
            break
        if quote:
            held = [b"".join(held)]
            at = _last_outside(held[0], quote)
        else:
            at = chunk.rfind(b"\n") + 1
        if at:
            yield b"".join((*held[:-1], held[-1][:at]))
            held = [held[-1][at:]]
    rest = b"".join(held)
    if rest:
        yield rest


def _last_outside(text: bytes, quote: int) -> int:
    """The offset behind the last line feed with an even number of quotes before it; 0 when there is none."""
    symbols = np.frombuffer(text, np.uint8)
    feeds = np.flatnonzero(symbols == ord("\n"))
    before = np.searchsorted(np.flatnonzero(symbols == quote), feeds)
    outside = feeds[before % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0
