"""Cells of CSV with text after their closing quote, such as `"x"y`, which Arrow joins to the cell without notice.

A block in which each quote is at an end of a cell or doubled has none. That is tested for all quotes of a block at once; of other
blocks (a quote inside a cell without quotes) one regular expression reads every cell.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import numpy as np

from headrace.connectors.formats.text_lines import with_feeds
from headrace.connectors.records.options import TextOptions

_FEED: Final = ord("\n")
_PART: Final = 1 << 17


def are_well_quoted(records: bytes, options: TextOptions) -> bool:
    """Whether each quoted cell of whole records ends at a separator, or at the end of its record; blanks may follow its quote."""
    quote = options.quote.encode()
    if not quote or quote not in records or _are_at_ends(records, quote, options):
        return True
    return _records(options).fullmatch(records) is not None


def feeds_outside_quotes(options: TextOptions, block: bytes) -> bytes:
    """A block of records with LF for each line end; returns in cells in quotes stay."""
    if not _may_quote_returns(options, block):
        return with_feeds(block)
    parts, at = list[bytes](), 0
    for cell in _quoted_anywhere(options).finditer(block):
        if b"\r" in cell[0]:
            parts += [with_feeds(block[at : cell.start()]), cell[0]]
            at = cell.end()
    return b"".join([*parts, with_feeds(block[at:])])


def _may_quote_returns(options: TextOptions, block: bytes) -> bool:
    """Whether a return has an odd number of quotes before it, or escapes make that hard to see."""
    escape, signs = _escape(options), np.frombuffer(block, np.uint8)
    if escape and escape in block:
        return True
    quotes = np.flatnonzero(signs == ord(options.quote))
    return bool((np.searchsorted(quotes, np.flatnonzero(signs == ord("\r"))) % 2).any())


def cell_with_text_after_quote(record: bytes, options: TextOptions) -> int | None:
    """The number of the first cell, from 1, with text after its closing quote; None for a record without one."""
    at, number, cell = 0, 1, _cell(options)
    while (matched := cell.match(record, at)) is not None:
        at, number = matched.end() + 1, number + 1
        if at > len(record):
            return None
    return number if _quoted(options).match(record, at) else None


def with_plain_escapes(records: bytes, options: TextOptions) -> bytes:
    """The records with those escapes doubled that are characters like any other, as in Spark.

    These are the ones outside of quotes, and the ones before another sign than a quote or an escape. Arrow drops them.
    """
    escape = _escape(options)
    if not escape or escape not in records:
        return records
    outside_doubled = _up_to_bare_escape(options).sub(rb"\1\2\2", records)
    return _up_to_lone_escape(options).sub(rb"\1\2\2", outside_doubled)


def _are_at_ends(block: bytes, quote: bytes, options: TextOptions) -> bool:
    """Whether quotes open and close cells in turn, or are doubled; False where escapes make that hard to see.

    A part of the block is read at a time, for the processor's caches.
    """
    signs, escape, separator = np.frombuffer(block, np.uint8), _escape(options), ord(options.separator)
    if escape and escape in block:
        quotes = np.flatnonzero(signs[1:] == quote[0]) + 1
        escaped = quotes[signs.take(quotes - 1) == escape[0]]
        if block.count(escape) != len(escaped):
            return False
        signs = signs.copy()
        signs[escaped] = 0  # text, and no partner of a doubled quote
    inside = 0
    for low in range(0, len(block), _PART):
        quotes = np.flatnonzero(signs[low : low + _PART] == quote[0])
        if not len(quotes):
            continue
        quotes += low
        opening, closing = quotes[inside::2], quotes[1 - inside :: 2]
        inside = (inside + len(quotes)) % 2
        before = signs.take(opening[1:] - 1 if quotes[0] == 0 else opening - 1)
        for near in (before, signs.take(closing + 1, mode="clip")):
            if not ((near == separator) | (near == quote[0]) | (near == _FEED)).all():
                return False
    return not inside


def _escape(options: TextOptions) -> bytes:
    return b"" if options.escape == options.quote else options.escape.encode()


@lru_cache(maxsize=64)
def _quoted(options: TextOptions) -> re.Pattern[bytes]:
    """A cell in quotes, from its opening to its closing quote."""
    quote, escape = re.escape(options.quote.encode()), re.escape(_escape(options))
    feed = b"" if options.multi_line else b"\n"
    escaped = b"|%b[%b%b]|%b" % (escape, quote, escape, escape) if escape else b""
    inside = b"(?:[^%b%b%b]++|%b%b%b)*+" % (quote, escape, feed, quote, quote, escaped)
    return re.compile(quote + inside + quote, re.DOTALL)


@lru_cache(maxsize=64)
def _quoted_anywhere(options: TextOptions) -> re.Pattern[bytes]:
    """Such a cell where a record has one."""
    before = b"(?<![^%b\r\n])" % re.escape(options.separator.encode())
    return re.compile(before + _quoted(options).pattern, re.DOTALL)


@lru_cache(maxsize=64)
def _cell(options: TextOptions) -> re.Pattern[bytes]:
    """A cell up to the separator or the end of its record."""
    separator, quote = re.escape(options.separator.encode()), re.escape(options.quote.encode())
    bare = b"(?!%b)[^%b\n]*+" % (quote, separator)
    cell = b"(?:%b[ \t]*+(?=[%b\n]|\\Z)|%b)" % (_quoted(options).pattern, separator, bare)
    return re.compile(cell, re.DOTALL)


@lru_cache(maxsize=64)
def _records(options: TextOptions) -> re.Pattern[bytes]:
    separator, cell = re.escape(options.separator.encode()), _cell(options).pattern
    return re.compile(b"(?:%b(?:%b%b)*+(?:\n++|\\Z))*+" % (cell, separator, cell), re.DOTALL)


@lru_cache(maxsize=64)
def _up_to_bare_escape(options: TextOptions) -> re.Pattern[bytes]:
    separator, escape = re.escape(options.separator.encode()), re.escape(_escape(options))
    if not options.quote:
        return re.compile(b"([^%b]*+)(%b?)" % (escape, escape))
    quote, quoted = re.escape(options.quote.encode()), _quoted(options).pattern
    cells = b"(?<![^%b\n])%b|[^%b%b]++|(?<=[^%b\n])%b" % (separator, quoted, escape, quote, separator, quote)
    return re.compile(b"((?:%b)*+)(%b?)" % (cells, escape), re.DOTALL)


@lru_cache(maxsize=64)
def _up_to_lone_escape(options: TextOptions) -> re.Pattern[bytes]:
    quote, escape = re.escape(options.quote.encode()), re.escape(_escape(options))
    return re.compile(b"((?:[^%b]++|%b[%b%b])*+)(%b?)" % (escape, escape, quote, escape, escape))
